"""The page of two or more runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from fdro_core.cli.report.curves import (
    Chart,
    Line,
    chart,
    choose,
    known,
    line,
    mean_accuracy,
    spans_decades,
    staleness,
    tested,
    thinned,
    traffic,
    worker_curves,
    worst_accuracy,
)
from fdro_core.cli.report.page import (
    HOW,
    INTERVALS,
    REACHED,
    ROWS,
    accuracy_extra,
    all_places,
    caveats,
    cell,
    figure,
    folded,
    interval,
    page,
    places,
    plain_table,
    sentence,
)
from fdro_core.cli.report.run import Run
from fdro_core.cli.runs.comparing import TIE, differences, field_text, fields_of, in_words, judge
from fdro_core.cli.runs.folder import RunFolder, check_different
from fdro_core.cli.runs.summary import FIGURES, WORKER_COLUMNS
from uncertainty_sets.registry import join_names

COMPARED = ("test_accuracy", "loss", "weight")
"""The numbers by worker that are compared."""


def build_side_by_side(folders: Sequence[RunFolder]) -> str:
    """The page of several runs as text."""
    check_different(folders)
    short = [folder.path.resolve().name for folder in folders]
    names = short if len(set(short)) == len(short) else [str(folder) for folder in folders]
    runs = [Run.read(folder, name) for folder, name in zip(folders, names, strict=True)]
    whole, by_worker = overlaid(runs), worker_panels(runs)
    title = f"{join_names(names)} side by side"
    return page(
        title,
        whole + by_worker,
        f"<header><h1>{escape(title)}</h1></header>",
        *(
            f'<p class="soft"><b class="c{k}">{escape(run.name)}</b>: {sentence(run)}</p>{caveats(run)}'
            for k, run in enumerate(runs)
        ),
        "<h2>Results</h2>",
        _in_words(folders, runs),
        _figures(runs, REACHED),
        folded("How near they are to the optimum, and what it took", _figures(runs, HOW)),
        "<h2>Settings that differ</h2>",
        _settings(folders, names),
        "<h2>Curves</h2>",
        all_places(whole),
        "<h2>By worker</h2>",
        places(by_worker),
        _workers(runs),
    )


def _in_words(folders: Sequence[RunFolder], runs: list[Run]) -> str:
    """Which run is best for its worst worker, beyond noise, and by how much."""
    verdict = judge(
        [run.name for run in runs], [fields_of(folder) for folder in folders], [run.result for run in runs]
    )
    first = (
        f"Best for its worst worker: {verdict.best}."
        if verdict.best
        else f"{TIE.capitalize()} for the worst worker."
    )
    listed = "".join(f"<li>{escape(in_words(each))}</li>" for each in verdict.differences)
    return f'<p class="first">{escape(first)}</p><ul>{listed}</ul>'


def _figures(runs: list[Run], keys: Sequence[str]) -> str:
    """Numbers, one column per run."""
    rows = []
    for key in keys:
        if key != "gap" and any(run.result.get(key) is not None for run in runs):
            cells = [f"<b>{figure(run, key)}</b> <small>{_remark(run, key)}</small>" for run in runs]
            rows.append([FIGURES[key][0], *cells])
    return plain_table(["", *(escape(run.name) for run in runs)], rows)


def _remark(run: Run, key: str) -> str:
    return "not proved" if key == "objective" and not run.result["proved"] else interval(run, key)


def _settings(folders: Sequence[RunFolder], names: list[str]) -> str:
    differ = differences([fields_of(folder) for folder in folders])
    if not differ:
        return "<p>None.</p>"
    rows = [
        [escape(key), *(escape(field_text(key, value)) for value in values)] for key, values in differ.items()
    ]
    return plain_table(["", *map(escape, names)], rows)


def overlaid(runs: list[Run]) -> list[Chart]:
    """Charts with one line per run, over those that have reports."""
    runs = [run for run in runs if run.reports]
    if not runs:
        return []
    charts = [
        chart(
            "objective", "Worst mix in the set", "the objective at the losses as reported",
            [_objective(run, color) for color, run in enumerate(runs)], log=True,
        ),
        chart(
            "worst-loss", "Loss, worst worker", "as reported by the workers",
            [_worst_loss(run, color) for color, run in enumerate(runs)], log=True,
        ),
    ]  # fmt: skip
    with_tests = [(color, run) for color, run in enumerate(runs) if tested(run)[0] == "test_accuracy"]
    if with_tests:
        note = "on held-out samples; bands: 95 % intervals (Wilson)"
        for name, title, make in (
            ("worst-accuracy", "Test accuracy, worst worker, %", worst_accuracy),
            ("mean-accuracy", "Test accuracy, mean, %", mean_accuracy),
        ):
            lines = [make(run, run.name, color=color, dash=color) for color, run in with_tests]
            charts.append(chart(name, title, note, lines, digits=1))
    sent = traffic(runs)
    return [*charts, *([] if sent is None else [sent]), staleness(runs)]


def _objective(run: Run, color: int) -> Line:
    last = thinned(run.reports)
    return line(run.name, last, [entry["objective"] for entry in last], color=color, dash=color)


def _worst_loss(run: Run, color: int) -> Line:
    last = thinned(run.reports)
    values = [known(np.max, np.array(entry["losses"], dtype=np.float64)) for entry in last]
    return line(run.name, last, values, color=color, dash=color)


def worker_panels(runs: list[Run]) -> list[Chart]:
    """The charts by worker of every run; charts of one kind are neighbours and have the same scale."""
    same = all(run.names == runs[0].names for run in runs)
    chosen = choose(runs[0]) if same else None
    by_run = [{each["name"]: each for each in worker_curves(run, chosen)} for run in runs]
    charts = []
    for kind in dict.fromkeys(name for found in by_run for name in found):
        panels = [(run, found[kind]) for run, found in zip(runs, by_run, strict=True) if kind in found]
        limits = _limits([panel for _, panel in panels])
        for k, (run, panel) in enumerate(panels):
            named = {"name": f"{kind}-{k}", "title": f"{run.name}: {panel['title'].lower()}"}
            charts.append(panel | named | limits)
    return charts


def _limits(panels: list[Chart]) -> dict[str, Any]:
    """The common scale of charts."""
    values = [
        value
        for panel in panels
        for each in panel["lines"]
        for key in ("values", "low", "high")
        for value in each.get(key, ())
        if value is not None
    ]
    loss = "loss" in panels[0]["name"]
    return {"range": [min(values), max(values)] if values else None, "log": loss and spans_decades(values)}


def _workers(runs: list[Run]) -> str:
    """Accuracies, losses and weights by worker, with one column per run; a note if the workers differ."""
    names = runs[0].names
    if any(run.names != names for run in runs):
        return "<p>The runs have different workers: see the report of each.</p>"
    keys = [key for key in COMPARED if any(each[key] is not None for run in runs for each in run.workers)]
    head = "".join(f"<th>{WORKER_COLUMNS[key][0]}<br>{escape(run.name)}</th>" for key in keys for run in runs)
    rows = [_row(runs, keys, j) for j in range(len(names))[:ROWS]]
    left = f"<p>The first {ROWS} of {len(names)} workers.</p>" if len(names) > ROWS else ""
    return (
        f'{left}<div class="scroll"><table class="cards"><thead><tr><th>worker</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        f'<p class="soft">{INTERVALS if "test_accuracy" in keys else ""}Bold: the worst worker of each run. '
        "–: unknown, or the worker did not answer.</p>"
    )


def _row(runs: list[Run], keys: list[str], j: int) -> str:
    cells = []
    for key in keys:
        for run in runs:
            worker = run.workers[j]
            bold = " worst" if j in run.worst(run.headline) and key in {"test_accuracy", "loss"} else ""
            extra = accuracy_extra(worker) if key == "test_accuracy" else ""
            label = f"{WORKER_COLUMNS[key][0]}, {escape(run.name)}"
            cells.append(f'<td class="{bold.strip()}" data-label="{label}">{cell(worker, key)}{extra}</td>')
    name = escape(runs[0].names[j])
    tags = [f' <span class="tag">gone in {escape(run.name)}</span>' for run in runs if j in run.gone]
    return f'<tr data-worker="{name}"><td>{name}{"".join(tags)}</td>{"".join(cells)}</tr>'
