"""Build the page: text and tables here; charts.js draws the curves from numbers in the page."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from fdro_core.app.formatting import to_json
from fdro_core.app.report.curves import curves
from fdro_core.app.report.parts import caveats, figures, notices, sentence, settings, worker_table
from fdro_core.app.runs.folder import ORIGIN, RESULT, RUN_FILE, RunFolder


def build(folder: RunFolder) -> str:
    """The whole page as text."""
    folder.check(RUN_FILE, ORIGIN, RESULT)
    result, history = folder.result(), folder.history()
    charts = to_json(curves(history))
    title = f"{folder.path.resolve().name}: report of a run"
    body = "\n".join(
        [
            f"<header><h1>{escape(title)}</h1>",
            f'<p class="soft">{sentence(result)}</p></header>',
            caveats(result),
            figures(result),
            "<h2>Curves</h2>",
            _curves(charts),
            "<h2>By worker</h2>",
            worker_table(result["workers"]),
            "<h2>Faults and changes</h2>",
            notices(history, [worker["name"] for worker in result["workers"]]),
            "<h2>Settings, to run it again</h2>",
            settings(result, folder.origin(), folder.run_file.read_text(encoding="utf-8")),
        ]
    )
    return Template(_file("page.html")).substitute(
        title=escape(title),
        style=_file("style.css"),
        script=_file("charts.js"),
        curves=json.dumps(charts, allow_nan=False).replace("</", "<\\/"),
        body=body,
    )


def _file(name: str) -> str:
    return (files("fdro_core.app.report") / name).read_text(encoding="utf-8")


def _curves(charts: list[dict[str, Any]]) -> str:
    """A place for every chart; charts.js fills it."""
    if not charts:
        return '<p class="soft">The run ended before its first report.</p>'
    switch = (
        '<fieldset class="switch">'
        '<label><input type="radio" name="axis" value="clock" checked> by time</label>'
        '<label><input type="radio" name="axis" value="iteration"> by iteration</label></fieldset>'
        "<noscript><p>The curves are drawn by a script in this file, and scripts are off here.</p></noscript>"
    )
    places = [
        f'<figure class="chart" id="chart-{chart["name"]}"><h3>{escape(chart["title"])}</h3>'
        f'<p class="note">{escape(chart["note"])}</p>'
        f'<svg role="img" tabindex="0" aria-label="{escape(chart["title"])} over the run"></svg>'
        '<p class="read" aria-live="polite"></p></figure>'
        for chart in charts
    ]
    return f'{switch}<div class="charts">{"".join(places)}</div>'
