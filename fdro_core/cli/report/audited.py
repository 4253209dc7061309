"""The page of an audit: one file without scripts, with its curve drawn in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from string import Template
from typing import TYPE_CHECKING

import numpy as np

from fdro_core.cli.output import for_people
from fdro_core.cli.report.page import stylesheet

if TYPE_CHECKING:
    from uncertainty_sets.arrays import Array
    from uncertainty_sets.audit.answers import Statement
    from uncertainty_sets.audit.comparing import Comparison
    from uncertainty_sets.audit.report import Curve, Report

PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
<title>$title</title>
<style>
$style
body { max-width: 58rem; }
.lead { font-size: 1.15rem; line-height: 1.5; margin: .6rem 0; }
.holds { color: var(--soft); font-size: .8rem; display: block; }
.holds.proved { color: var(--one); }
li.said { margin: .5rem 0; }
ul.plainly { padding-left: 1.1rem; }
.audit svg { height: auto; aspect-ratio: 2; }
@media (max-width: 52rem) { .audit svg text { font-size: 20px; } }
.audit .key { margin-left: .8rem; white-space: nowrap; }
.audit .key svg { width: 28px; height: 8px; display: inline-block; aspect-ratio: auto; }
.audit .limit { stroke: var(--two); stroke-width: 1.5; stroke-dasharray: 5 4; }
.audit .limit-name { fill: var(--two); }
</style>
</head>
<body>
$body
</body>
</html>
""")

ROWS = 60
"""Of the table of groups."""

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640.0, 320.0, 66.0, 12.0, 14.0, 56.0


def page(title: str, report: Report, comparison: Comparison | None = None, source: str = "") -> str:
    """The page as text."""
    parts = [f"<header><h1>{escape(title)}</h1>"]
    parts += [f'<p class="lead">{escape(each.text)}{_holds(each)}</p>' for each in report.headline]
    parts += ["</header>", "<h2>The worst case over the size of the shift</h2>", picture(report)]
    for name, statements in report.sections:
        parts += [f"<h2>{escape(name)}</h2>", said(statements)]
    if report.groups:
        parts += ["<h2>Groups</h2>", group_table(report)]
    if comparison is not None:
        parts += ["<h2>Models</h2>", compared(comparison), said(comparison.statements())]
    notes = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
    parts += ["<h2>Keep in mind</h2>", f'<ul class="plainly">{notes}</ul>', LEGEND]
    if source:
        parts.append(f'<p class="soft wrap">{escape(source)}</p>')
    return PAGE.substitute(title=escape(title), style=stylesheet(), body="\n".join(parts))


LEGEND = (
    '<p class="soft"><b>In this sample, proved</b>: exact for these rows, by a certificate. <b>Population, '
    "proved</b>: for the cases that the rows were drawn from, at any number of rows. <b>Population, "
    "asymptotic</b>: an approximation for many rows. <b>Description</b>: found by a search; nothing is "
    "promised.</p>"
)


def said(statements: Sequence[Statement]) -> str:
    """Sentences, each with what holds it."""
    items = "".join(f'<li class="said">{escape(each.text)}{_holds(each)}</li>' for each in statements)
    return f'<ul class="plainly">{items}</ul>'


def _holds(statement: Statement) -> str:
    kind = " proved" if "proved" in statement.holds else ""
    return f'<small class="holds{kind}">{escape(statement.holds)}</small>'


def group_table(report: Report) -> str:
    """The groups, the worst first; cards on a phone."""
    kind = report.curve.kind
    head = ["rows", "share", report.unit, "at most, all groups at once", "can grow to", "doubles at"]
    rows = []
    for row in report.groups[:ROWS]:
        cells = [
            f"{row.rows:,}",
            _share(row.share),
            report.shown(row.mean),
            report.shown(row.at_most),
            _share(row.grown),
            "–" if not math.isfinite(row.doubling or math.inf) else f"{kind} {row.doubling:.3g}",
        ]
        shown = "".join(
            f'<td data-label="{name}">{cell}</td>' for name, cell in zip(head, cells, strict=True)
        )
        rows.append(f"<tr><td>{escape(row.group)}</td>{shown}</tr>")
    left = len(report.groups) - ROWS
    names = "".join(f"<th>{name}</th>" for name in head)
    more = f"<p>The {ROWS} worst; {left} more groups.</p>" if left > 0 else ""
    grows = '<p class="soft">“Can grow to”: the largest share of the cases within the shift above.</p>'
    return (
        f'<table class="cards"><thead><tr><th>group</th>{names}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
        f"{more}{grows if any(row.grown is not None for row in report.groups) else ''}"
    )


def _share(value: float | None) -> str:
    from uncertainty_sets.audit.answers import percent

    return percent(value)


# -- the curve ----------------------------------------------------------------------------------------------


def picture(report: Report) -> str:
    """The curve of this sample, the proved bound, the threshold and where they meet."""
    curve = report.curve
    known = curve.at_most[np.isfinite(curve.at_most)]
    most = max(float(curve.values.max()), report.threshold, float(known.max(initial=0.0)))
    lines = [("c0", "this sample", curve.values)]
    if known.size:
        lines.append(("c2 d1", "population, at most", curve.at_most))
    marks = [
        (r, report.threshold)
        for r in (report.failure.radius, report.failure.at_least)
        if r and 0 < r <= curve.radii[-1]
    ]
    return _svg(
        curve,
        lines,
        most,
        report.unit,
        (report.threshold, f"threshold {report.shown(report.threshold)}"),
        marks,
        report.shown,
    )


def compared(comparison: Comparison) -> str:
    """The curves of models."""
    from uncertainty_sets.audit.report import Curve

    empty = np.full(comparison.radii.size, np.nan)
    first = next(iter(comparison.curves.values()))
    curve = Curve(comparison.kind, comparison.over, comparison.radii, first, empty)
    styles = ("c0", "c1 d1", "c3 d2", "c4 d3", "c5", "c2 d1")
    lines = [
        (styles[k % len(styles)], name, values) for k, (name, values) in enumerate(comparison.curves.items())
    ]
    most = max(float(values.max()) for _, _, values in lines)
    crossings = [
        (radius, float(np.interp(radius, comparison.radii, comparison.curves[pair.first])))
        for pair in comparison.pairs
        for radius in pair.crossings
    ]
    bands = []
    for pair in comparison.pairs[:1]:  # of two models; of more, the sentences tell
        for name, where in ((pair.first, pair.first_is_better), (pair.second, pair.second_is_better)):
            style = styles[list(comparison.curves).index(name) % len(styles)]
            bands += [(style.split()[0], *ends) for ends in runs(comparison.radii, where)]
    drawn = _svg(curve, lines, most, "worst mean loss", None, crossings, bands=bands)
    told = '<p class="soft">Thick line: there that model is surely better, at each radius by itself.</p>'
    return drawn + (told if bands else "")


def runs(radii: Array, where: Array) -> list[tuple[float, float]]:
    """The ends of each run of radii."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], where.astype(np.int8), [0]])))
    return [(float(radii[a]), float(radii[b - 1])) for a, b in edges.reshape(-1, 2)]


def _svg(
    curve: Curve,
    lines: list[tuple[str, str, Array]],
    most: float,
    unit: str,
    limit: tuple[float, str] | None,
    marks: Sequence[tuple[float, float]],
    shown: Callable[[float], str] = for_people,
    bands: Sequence[tuple[str, float, float]] = (),
) -> str:
    radii = curve.radii
    least = min(0.0, *(float(np.nanmin(values)) for _, _, values in lines))
    ticks = _ticks(least, most)
    span = max(most, ticks[-1]) * 1.04 - least or 1.0

    def across(radius: float) -> float:
        return LEFT + math.sqrt(radius / radii[-1]) * (WIDTH - LEFT - RIGHT)

    def up(value: float) -> float:
        return HEIGHT - BOTTOM - (value - least) / span * (HEIGHT - TOP - BOTTOM)

    parts = []
    for tick in ticks:
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(tick):.1f}" y2="{up(tick):.1f}"/>'
        )
        parts.append(f'<text x="{LEFT - 6}" y="{up(tick) + 4:.1f}" text-anchor="end">{shown(tick)}</text>')
    for share in (0.0, 0.0625, 0.25, 0.5625, 1.0):  # even steps of the root
        radius = share * float(radii[-1])
        anchor = "end" if share == 1.0 else "middle"
        parts.append(
            f'<text x="{across(radius):.1f}" y="{HEIGHT - 34:.0f}" text-anchor="{anchor}">'
            f"{for_people(radius, 2)}</text>"
        )
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 8:.0f}" text-anchor="middle">'
        f"{escape(curve.kind)} over the {curve.over}, root scale</text>"
    )
    for style, start, end in bands:
        y = HEIGHT - BOTTOM
        parts.append(
            f'<line class="line {style}" style="stroke-width:6" x1="{across(start):.1f}" '
            f'x2="{max(across(end), across(start) + 3):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
    if limit is not None:
        y = up(limit[0])
        parts.append(f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="limit-name" x="{LEFT + 4}" y="{y - 5:.1f}">{escape(limit[1])}</text>')
    for style, _, values in lines:
        points = " ".join(
            f"{across(x):.1f},{up(y):.1f}"
            for x, y in zip(radii.tolist(), values.tolist(), strict=True)
            if math.isfinite(y)
        )
        parts.append(f'<polyline class="line {style}" points="{points}"/>')
    parts += [f'<circle class="dot c1" cx="{across(x):.1f}" cy="{up(y):.1f}" r="4.5"/>' for x, y in marks]
    names = "".join(
        f'<span class="key {style}"><svg viewBox="0 0 28 8">'
        f'<line class="line {style}" x1="0" x2="28" y1="4" y2="4"/></svg> {escape(name)}</span>'
        for style, name, _ in lines
    )
    label = f"{unit} over {curve.kind} of the {curve.over}"
    return (
        f'<figure class="chart audit"><p class="note">{escape(unit)}; {names}</p>'
        f'<svg role="img" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg></figure>"
    )


def _ticks(low: float, high: float) -> list[float]:
    """Four to eight round numbers over a range."""
    raw = max(high - low, 1e-12) / 5.0
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * each for each in (1.0, 2.0, 2.5, 5.0, 10.0) if unit * each >= raw)
    first = math.ceil(low / step - 1e-9)
    return [step * k for k in range(first, math.floor(high / step + 1e-9) + 1)]
