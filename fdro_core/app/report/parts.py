"""The parts of the page that are text and tables."""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import Any

from fdro_core.app.runs.summary import FIGURES, WORKER_COLUMNS
from fdro_core.result import ending

ROWS = 200
"""The largest number of rows in a table; a longer one says how many it leaves out."""

SHORT = 12
"""A longer list of notices is folded, with its counts shown."""

HEADLINE = (
    "worst_test_accuracy", "mean_test_accuracy", "objective", "gap", "optimality_gap", "worst_loss",
    "stationarity", "iterations", "clock", "seconds",
)  # fmt: skip
"""The figures at the top of the page."""


def sentence(result: dict[str, Any]) -> str:
    """The run in one sentence."""
    end = ending(result["stop_reason"], result["iterations"], result.get("planned") or result["iterations"])
    parts = [
        f"<b>{escape(result['algorithm']['name'])}</b> with the set <b>{escape(result['set']['name'])}</b>",
        f"{len(result['workers'])} workers",
        f"{result['parameters']:,} parameters",
        f"{escape(result['engine']['name'])} engine",
        escape(end),
    ]
    return " · ".join(parts)


def caveats(result: dict[str, Any]) -> str:
    """Warnings before any number: losses that are old or guessed, workers that look wrong."""
    warnings = []
    if not result["proved"]:
        warnings.append(f"Not proved: objective and bound were computed {result['caveat']}.")
    warnings += [f"Worker {name} is suspicious: {what}." for name, what in result["suspicious"].items()]
    return "".join(f'<p class="caveat">{escape(text)}</p>' for text in warnings)


def figures(result: dict[str, Any]) -> str:
    """The headline numbers, with the certificate among them."""
    labels = {key: FIGURES[key][0] for key in HEADLINE}
    if not result["proved"]:
        labels |= {"gap": "gap to its bound (not a proof)", "worst_loss": "loss, worst worker that answered"}
    items = [
        f'<li><b data-value="{key}">{FIGURES[key][1](result[key])}</b><span>{label}</span></li>'
        for key, label in labels.items()
        if result.get(key) is not None  # runs of older versions lack some
    ]
    return f'<ul class="figures">{"".join(items)}</ul>'


def worker_table(workers: list[dict[str, Any]]) -> str:
    """Losses, accuracies and weights by worker; if there are too many, those with the largest loss."""
    order = sorted(workers, key=lambda each: -(each["loss"] or 0.0))
    shown = workers if len(workers) <= ROWS else order[:ROWS]
    columns = [key for key in WORKER_COLUMNS if any(each[key] is not None for each in workers)]
    most = max([each[key] or 0.0 for each in workers for key in ("weight", "prior")], default=1.0) or 1.0
    head = "".join(f"<th>{WORKER_COLUMNS[key][0]}</th>" for key in columns)
    rows = [_worker(each, columns, most, worst=each is order[0]) for each in shown]
    left = (
        f"<p>The {ROWS} of {len(workers)} workers with the largest loss.</p>" if len(workers) > ROWS else ""
    )
    return (
        f'{left}<div class="scroll"><table><thead><tr><th>worker</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        '<p class="soft">Losses are those of the shared model on all data of the worker; weights are those '
        "at the end. The vertical mark is the prior weight. Bold: the largest loss. –: unknown, or the "
        "worker did not answer.</p>"
    )


def _worker(worker: dict[str, Any], columns: list[str], most: float, *, worst: bool) -> str:
    """One row of the table of workers."""
    bars = {
        "test_accuracy": _bar(worker["test_accuracy"], 1.0, None),
        "weight": _bar(worker["weight"], most, worker["prior"]),
    }
    cells = "".join(
        f'<td data-value="{key}">{WORKER_COLUMNS[key][1](worker[key])}{bars.get(key, "")}</td>'
        for key in columns
    )
    mark = ' class="worst"' if worst else ""
    name = escape(worker["name"])
    return f'<tr{mark} data-worker="{name}"><td>{name}</td>{cells}</tr>'


def _bar(value: float | None, most: float, mark: float | None) -> str:
    """A share as a bar, with a mark at another share."""
    if value is None:
        return ""
    fill = f'<i style="width:{100 * min(1.0, max(0.0, value / most)):.1f}%"></i>'
    line = "" if mark is None else f'<u style="left:calc({100 * min(1.0, mark / most):.1f}% - 1px)"></u>'
    return f'<span class="bar">{fill}{line}</span>'


def notices(history: list[dict[str, Any]], names: list[str]) -> str:
    """Workers lost and back, updates rejected, changes of S; in order."""
    found = [entry for entry in history if entry["event"] != "report"]
    if not found:
        return "<p>None: every worker answered until the end, and every update was used.</p>"
    counts = Counter(entry["event"].replace("-", " ") for entry in found)
    total = ", ".join(f"{what} {count}×" for what, count in counts.most_common())
    head = (
        '<thead><tr><th>seconds</th><th>iteration</th><th class="left">what</th><th class="left">worker</th>'
        '<th class="left">details</th></tr></thead>'
    )
    body = "".join(_notice(entry, names) for entry in found[:ROWS])
    listing = f'<div class="scroll"><table id="notices">{head}<tbody>{body}</tbody></table></div>'
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
    cells = [escape(cell) for cell in (entry["event"].replace("-", " "), worker, ", ".join(facts))]
    if "traceback" in entry:
        cells[-1] += f"<details><summary>traceback</summary><pre>{escape(entry['traceback'])}</pre></details>"
    text = "".join(f'<td class="left">{cell}</td>' for cell in cells)
    return f"<tr><td>{entry['clock']:.1f}</td><td>{entry['iteration']}</td>{text}</tr>"


def settings(result: dict[str, Any], origin: dict[str, Any], run_file: str) -> str:
    """The run file, every setting of the algorithm, and the versions in use."""
    algorithm = result["algorithm"]
    rows = "".join(
        f'<tr><td>{escape(key)}</td><td class="left">{escape(_setting(value))}</td></tr>'
        for key, value in algorithm.items()
    )
    versions = ", ".join(f"{escape(key)} {escape(str(origin[key]))}" for key in ("fdro", "python", "numpy"))
    return (
        "<p>Save this as <code>run.toml</code> and run <code>fdro train run.toml</code>.</p>"
        f'<pre id="run-file">{escape(run_file)}</pre>'
        f"<details><summary>Every setting of {escape(algorithm['name'])}</summary>"
        f'<div class="scroll"><table><tbody>{rows}</tbody></table></div></details>'
        f'<p class="soft">{escape(result["set"]["as"])}<br>{versions}, {escape(str(origin["platform"]))}.</p>'
    )


def _setting(value: Any) -> str:
    return "default" if value is None else str(value)
