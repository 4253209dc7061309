"""The tables of the page. On a narrow screen a row becomes a card with a label before every number."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any

from fdro_core.cli.formatting import for_people, percent
from fdro_core.cli.report.run import WORST, Run, column
from fdro_core.cli.runs.summary import FIGURES, WORKER_COLUMNS
from fdro_core.result import wilson

ROWS = 200
"""The largest number of rows in a table; a longer one says how many it leaves out."""

SHORT = 12
"""A longer list of notices is folded, with its counts shown."""


INTERVALS = "In parentheses and as a thin line: the 95 % interval of the accuracy (Wilson). "
"""What the caption of a table with test accuracies explains."""


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
