"""The report of a run: one HTML file that needs no other file."""

from fdro_core.app.report.build import build

__all__ = ["build"]
