"""The report of a run, or of several side by side: one HTML file that needs no other file.

In the order in which one would read: `page` builds the page of one run from its numbers, `side_by_side` that
of several; `curves` has the charts that charts.js draws; `run` is what both read of a run's folder.
"""

from fdro_core.cli.report.page import build
from fdro_core.cli.report.side_by_side import build_side_by_side

__all__ = ["build", "build_side_by_side"]
