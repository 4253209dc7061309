"""The report of a run: one HTML file that needs nothing beside it."""

from fdro_core.page.build import build

__all__ = ["build"]
