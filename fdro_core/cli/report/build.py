"""Build the pages: text and tables here; charts.js draws the curves from numbers in the page."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from fdro_core.cli.formatting import to_json
from fdro_core.cli.report.charts import Chart
from fdro_core.cli.report.curves import curves
from fdro_core.cli.report.parts import caveats, figures, sentence, settings
from fdro_core.cli.report.run import Run
from fdro_core.cli.report.tables import notices, worker_table
from fdro_core.cli.report.worker_curves import worker_curves
from fdro_core.cli.runs.folder import RunFolder

NO_CURVES = '<p class="soft">The run ended before its first report.</p>'


def build(folder: RunFolder) -> str:
    """The page of one run as text."""
    run = Run.read(folder)
    whole, by_worker = curves(run), worker_curves(run)
    title = f"{run.name}: report of a run"
    return page(
        title,
        whole + by_worker,
        f"<header><h1>{escape(title)}</h1>",
        f'<p class="soft">{sentence(run)}</p></header>',
        caveats(run),
        figures(run),
        "<h2>Curves</h2>",
        switch() + places(whole) if whole else NO_CURVES,
        "<h2>By worker</h2>",
        places(by_worker),
        worker_table(run),
        "<h2>Faults and changes</h2>",
        notices(run),
        "<h2>Settings, to run it again</h2>",
        settings(run),
    )


def page(title: str, charts: list[Chart], *parts: str) -> str:
    """A whole page around its parts, with the numbers of the charts."""
    return Template(_file("page.html")).substitute(
        title=escape(title),
        style=_file("style.css"),
        script=_file("charts.js"),
        curves=json.dumps(_numbers(charts), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        body="\n".join(parts),
    )


def _numbers(charts: list[Chart]) -> Any:
    """The charts for charts.js: many lines share their times, which are written once."""
    axes: dict[str, dict[str, Any]] = {}
    shared = []
    for chart in charts:
        lines = []
        for each in chart["lines"]:
            axis = {key: each[key] for key in ("clock", "iteration")}
            axes.setdefault(repr(axis), axis)
            rest = {key: value for key, value in each.items() if key not in axis}
            lines.append(rest | {"axis": list(axes).index(repr(axis))})
        shared.append(chart | {"lines": lines})
    return to_json({"axes": list(axes.values()), "charts": shared})


def _file(name: str) -> str:
    return (files("fdro_core.cli.report") / name).read_text(encoding="utf-8")


def switch() -> str:
    """The choice of the axis, for all charts of the page."""
    return (
        '<fieldset class="switch">'
        '<label><input type="radio" name="axis" value="clock" checked> by time</label>'
        '<label><input type="radio" name="axis" value="iteration"> by iteration</label></fieldset>'
        "<noscript><p>The curves are drawn by a script in this file, and scripts are off here.</p></noscript>"
    )


def places(charts: list[Chart]) -> str:
    """A place for every chart; charts.js fills it."""
    figures = [
        f'<figure class="chart" id="chart-{chart["name"]}"><h3>{escape(chart["title"])}</h3>'
        f'<p class="note">{escape(chart["note"])}{"; logarithmic scale" if chart["log"] else ""}</p>'
        f'<svg role="img" tabindex="0" aria-label="{escape(chart["title"])} over the run"></svg>'
        '<p class="read" aria-live="polite"></p></figure>'
        for chart in charts
    ]
    return f'<div class="charts">{"".join(figures)}</div>' if figures else ""
