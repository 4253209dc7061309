"""The page of one run: what was run, warnings, numbers, tables, settings; charts.js draws its curves."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from fdro_core.cli.output import for_people, percent, to_json
from fdro_core.cli.report.curves import RESULTS, Chart, curves, worker_curves
from fdro_core.cli.report.run import WORST, Run, column
from fdro_core.cli.runs.folder import RunFolder
from fdro_core.cli.runs.summary import FIGURES, WORKER_COLUMNS
from fdro_core.result import ending, wilson, wilson_of_mean
from uncertainty_sets.registry import join_names

REACHED = ("worst_test_accuracy", "mean_test_accuracy", "objective", "worst_loss", "clock")
"""The figures at the top of the page."""

HOW = ("gap", "optimality_gap", "stationarity", "iterations", "seconds")
"""The figures below them, folded."""

NAMED = 3  # how many workers a tile names at most

ROUNDING = 1e-12
"""Numbers of at most this share of the objective are rounding noise."""

ROWS = 200
"""The largest number of rows in a table; a longer one says how many it leaves out."""

SHORT = 12
"""A longer list of notices is folded, with its counts shown."""

INTERVALS = "In parentheses and as a thin line: the 95 % interval of the accuracy (Wilson). "
"""What the caption of a table with test accuracies explains."""

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
        f'<p class="first">{in_words(run)}</p>',
        figures(run),
        "<h2>Curves</h2>",
        all_places(whole),
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
        style=stylesheet(),
        script=_file("charts.js"),
        curves=json.dumps(_numbers(charts), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        body="\n".join(parts),
    )


def stylesheet() -> str:
    """The style that all pages have."""
    return _file("style.css")


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
    drawn = [
        f'<figure class="chart" id="chart-{chart["name"]}"><h3>{escape(chart["title"])}</h3>'
        f'<p class="note">{escape(chart["note"])}{"; logarithmic scale" if chart["log"] else ""}</p>'
        f'<svg role="img" tabindex="0" aria-label="{escape(chart["title"])} over the run"></svg>'
        '<p class="read" aria-live="polite"></p></figure>'
        for chart in charts
    ]
    return f'<div class="charts">{"".join(drawn)}</div>' if drawn else ""


def all_places(charts: list[Chart]) -> str:
    """What was reached; folded, how the run went."""
    if not charts:
        return NO_CURVES
    reached = [each for each in charts if each["name"] in RESULTS]
    how = [each for each in charts if each["name"] not in RESULTS]
    return switch() + places(reached) + folded("How the run went: traffic, staleness and more", places(how))


def folded(title: str, content: str) -> str:
    """A part that opens by its title."""
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def in_words(run: Run) -> str:
    """What the run reached, in a sentence or two."""
    result, text = run.result, ""
    worst, mean = result.get("worst_test_accuracy"), result.get("mean_test_accuracy")
    if worst is not None:
        whom = _after(", ", _of_whom(run, "worst_test_accuracy"))
        text = (
            f"On held-out samples the model is right in {percent(worst)} of cases at the worst worker{whom}, "
            f"and in {percent(mean)} on average over workers. "
        )
    sure = "as is proved" if result["proved"] else "which is not proved"
    loss = figure(run, "objective")
    return f"{text}The worst mix of workers in the set has a training loss of {loss}, {sure}."


def sentence(run: Run) -> str:
    """The run in one sentence, with the workers that are gone."""
    result, total, lost = run.result, len(run.workers), len(run.gone)
    end = ending(result["stop_reason"], result["iterations"], result.get("planned") or result["iterations"])
    parts = [
        f"<b>{escape(result['algorithm']['name'])}</b> with the set <b>{escape(result['set']['name'])}</b>",
        f"{total} workers" + (f", <b>{lost} gone for good</b>" if lost else ""),
        f"{result['parameters']:,} parameters",
        f"{escape(result['engine']['name'])} engine",
        escape(end),
    ]
    return " · ".join(parts)


def caveats(run: Run) -> str:
    """Warnings before any number: workers gone for good, losses old or guessed, workers that look wrong."""
    result = run.result
    warnings = [_gone(run)] if run.gone else []
    if not result["proved"]:
        warnings.append(f"Not proved: objective and bound were computed {result['caveat']}.")
    if result.get("privacy") is not None:
        about = result["privacy"]
        warnings.append(f"Privacy: {about['in_words']}. Not covered: {about['not_covered']}.")
    warnings += [f"Worker {name} is suspicious: {what}." for name, what in result["suspicious"].items()]
    return "".join(f'<p class="caveat">{escape(text)}</p>' for text in warnings)


def _gone(run: Run) -> str:
    parts = [
        f"worker {run.names[j]} ({entry['reason']}, at iteration {entry['iteration']:,}, "
        f"{for_people(entry['clock'])} s)"
        for j, entry in list(run.gone.items())[: 2 * NAMED]
    ]
    left = len(run.gone) - len(parts)
    return f"Gone for good: {join_names([*parts, f'{left} more'] if left else parts)}."


def figures(run: Run) -> str:
    """The headline numbers, with the certificate among them."""
    labels = {key: FIGURES[key][0] for key in (*REACHED, *HOW)}
    if not run.result["proved"]:
        labels |= {"gap": "gap to its bound (not a proof)", "worst_loss": "loss, worst worker that answered"}
    items = {
        key: f'<li><b data-value="{key}">{figure(run, key)}</b>'
        f"<span>{label}{_after(': ', _of_whom(run, key))}</span>"
        f"<small>{interval(run, key)}</small></li>"
        for key, label in labels.items()
        if run.result.get(key) is not None
    }
    shown, more = ("".join(items.get(key, "") for key in keys) for keys in (REACHED, HOW))
    return f'<ul class="figures">{shown}</ul>' + folded(
        "How near it is to the optimum, and what it took", f'<ul class="figures">{more}</ul>'
    )


def figure(run: Run, key: str) -> str:
    """A number of the run for reading."""
    value = run.result.get(key)
    if isinstance(value, float) and FIGURES[key][1] is not percent:
        return for_people(value, smallest=ROUNDING * abs(run.result["objective"] or 0.0))
    return "–" if value is None else escape(FIGURES[key][1](value))


def _after(sign: str, names: str) -> str:
    return f"{sign}{escape(names)}" if names else ""


def _of_whom(run: Run, key: str) -> str:
    """The names of the workers that a figure is about."""
    workers = [run.names[j] for j in run.worst(key)] if key in WORST else []
    if not workers:
        return ""
    left = len(workers) - NAMED
    return join_names(workers if left <= 0 else [*workers[:NAMED], f"{left} more"])


def interval(run: Run, key: str) -> str:
    """The 95 % interval of an accuracy; "" for other figures, and if the number of samples is unknown.

    Of workers with the same accuracy, it is that of the one with the fewest samples.
    """
    accuracies, samples = column(run.workers, "test_accuracy"), column(run.workers, "test_samples")
    if key == "mean_test_accuracy":
        low, high = wilson_of_mean(accuracies, samples)
    elif key == "worst_test_accuracy" and (worst := run.worst(key)):
        fewest = min(worst, key=lambda j: samples[j])
        low, high = (float(limit) for limit in wilson(accuracies[fewest], samples[fewest]))
    else:
        return ""
    return "" if math.isnan(low) else f"95 % interval {100 * low:.1f} to {100 * high:.1f} %"


def settings(run: Run) -> str:
    """The run file, every setting of the algorithm, and the versions in use."""
    algorithm, origin = run.result["algorithm"], run.origin
    rows = [(escape(key), escape(_setting(value))) for key, value in algorithm.items()]
    versions = ", ".join(f"{escape(key)} {escape(str(origin[key]))}" for key in ("fdro", "python", "numpy"))
    return (
        "<p>Save this as <code>run.toml</code> and run <code>fdro train run.toml</code>.</p>"
        f'<pre id="run-file">{escape(run.run_file)}</pre>'
        f"<details><summary>Every setting of {escape(algorithm['name'])}</summary>"
        f"{plain_table(('setting', 'value'), rows)}</details>"
        f'<p class="soft wrap">{escape(run.result["set"]["as"])}<br>{versions}, '
        f"{escape(str(origin['platform']))}.</p>"
    )


def _setting(value: Any) -> str:
    return "default" if value is None else str(value)


def plain_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of text, for two or three columns; head and cells are HTML."""
    top = "".join(f'<th class="left">{each}</th>' for each in head)
    body = "".join(
        "<tr>" + "".join(f'<td class="left">{each}</td>' for each in cells) + "</tr>" for cells in rows
    )
    return f'<table class="plain"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'


def worker_table(run: Run) -> str:
    """Losses, accuracies and weights by worker; if there are too many, the worst of the headline figure."""
    workers, bold = run.workers, run.worst(run.headline)
    shown = _worst_first(run)[:ROWS] if len(workers) > ROWS else list(range(len(workers)))
    columns = [key for key in WORKER_COLUMNS if any(each[key] is not None for each in workers)]
    most = max([each[key] or 0.0 for each in workers for key in ("weight", "prior")], default=1.0) or 1.0
    head = "".join(f"<th>{WORKER_COLUMNS[key][0]}</th>" for key in columns)
    rows = [_worker(run, j, columns, most, worst=j in bold) for j in shown]
    label = FIGURES[run.headline][0]
    left = (
        f"<p>The {ROWS} of {len(workers)} workers that are worst by {label.partition(',')[0]}.</p>"
        if len(workers) > ROWS
        else ""
    )
    return (
        f'{left}<table class="cards"><thead><tr><th>worker</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
        '<p class="soft">Losses are those of the shared model on all data of the worker; weights are those '
        f"at the end; the vertical mark is the prior. {INTERVALS if 'test_accuracy' in columns else ''}"
        f"Bold: {label}. –: unknown, or the worker did not answer.</p>"
    )


def _worst_first(run: Run) -> list[int]:
    key, _ = WORST[run.headline]
    sign = 1.0 if run.headline == "worst_test_accuracy" else -1.0
    values = sign * column(run.workers, key)
    return [int(j) for j in values.argsort(kind="stable")]  # NaN comes last


def _worker(run: Run, j: int, columns: list[str], most: float, *, worst: bool) -> str:
    """One row of the table of workers."""
    worker = run.workers[j]
    bars = {
        "test_accuracy": accuracy_extra(worker),
        "weight": _bar(worker["weight"], most, worker["prior"]),
    }
    cells = "".join(
        f'<td data-label="{WORKER_COLUMNS[key][0]}" data-value="{key}">{cell(worker, key)}'
        f"{bars.get(key, '')}</td>"
        for key in columns
    )
    mark = ' class="worst"' if worst else ""
    name = escape(worker["name"])
    gone = ' <span class="tag">gone for good</span>' if j in run.gone else ""
    return f'<tr{mark} data-worker="{name}"><td>{name}{gone}</td>{cells}</tr>'


def cell(worker: dict[str, Any], key: str) -> str:
    """A number of a worker for reading."""
    form = WORKER_COLUMNS[key][1]
    return percent(worker[key]) if form is percent else for_people(worker[key])


def accuracy_extra(worker: dict[str, Any]) -> str:
    """The interval of a test accuracy in words, and accuracy and interval as a bar."""
    limits = wilson(column([worker], "test_accuracy"), column([worker], "test_samples"))
    low, high = (float(limit[0]) for limit in limits)
    if math.isnan(low):
        return _bar(worker["test_accuracy"], 1.0, None)
    line = f'<s style="left:{100 * low:.1f}%;right:{100 - 100 * high:.1f}%"></s>'
    bar = _bar(worker["test_accuracy"], 1.0, None, line)
    return f" <small>({100 * low:.0f}–{100 * high:.0f})</small>{bar}"


def _bar(value: float | None, most: float, mark: float | None, more: str = "") -> str:
    """A share as a bar, with a mark at another share."""
    if value is None:
        return ""
    fill = f'<i style="width:{100 * min(1.0, max(0.0, value / most)):.1f}%"></i>'
    line = "" if mark is None else f'<u style="left:calc({100 * min(1.0, mark / most):.1f}% - 1px)"></u>'
    return f'<span class="bar">{fill}{line}{more}</span>'


def notices(run: Run) -> str:
    """Workers lost and back, updates rejected, changes of S; in order."""
    found = [entry for entry in run.history if entry["event"] != "report"]
    if not found:
        return "<p>None: every worker answered until the end, and every update was used.</p>"
    counts = Counter(entry["event"].replace("-", " ") for entry in found)
    total = ", ".join(f"{what} {count}×" for what, count in counts.most_common())
    head = (
        '<thead><tr><th>seconds</th><th>iteration</th><th class="left">what</th><th class="left">worker</th>'
        '<th class="left">details</th></tr></thead>'
    )
    body = "".join(_notice(entry, run.names) for entry in found[:ROWS])
    listing = f'<table class="cards" id="notices">{head}<tbody>{body}</tbody></table>'
    if len(found) > ROWS:
        listing = f"<p>The first {ROWS} of {len(found)}.</p>{listing}"
    if len(found) > SHORT:
        listing = f"<details><summary>All of them, in order</summary>{listing}</details>"
    return f'<p id="notice-counts">{escape(total)}.</p>{listing}'


def _notice(entry: dict[str, Any], names: list[str]) -> str:
    """One row of the table of notices."""
    facts = [
        f"{key.replace('_', ' ')} {value}"
        for key, value in entry.items()
        if key not in {"event", "iteration", "clock", "worker", "traceback"}
    ]
    worker = names[entry["worker"]] if "worker" in entry else "–"
    what, who, details = (
        escape(text) for text in (entry["event"].replace("-", " "), worker, ", ".join(facts))
    )
    if "traceback" in entry:
        details += f"<details><summary>traceback</summary><pre>{escape(entry['traceback'])}</pre></details>"
    return (
        f'<tr><td>{entry["clock"]:,.1f}<span class="unit"> s</span></td>'
        f'<td data-label="iteration">{entry["iteration"]:,}</td>'
        f'<td class="left" data-label="what">{what}</td>'
        f'<td class="left" data-label="worker">{who}</td>'
        f'<td class="left wide" data-label="details">{details}</td></tr>'
    )
