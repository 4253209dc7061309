"""The report of a run, or of several side by side: one HTML file that needs no other file."""

from fdro_core.cli.report.build import build
from fdro_core.cli.report.side_by_side import build_side_by_side

__all__ = ["build", "build_side_by_side"]
