"""The parts of the page that are text: what was run, warnings, the headline numbers, settings."""

from __future__ import annotations

import math
from html import escape
from typing import Any

from fdro_core.cli.formatting import for_people, percent
from fdro_core.cli.report.run import WORST, Run, column
from fdro_core.cli.report.tables import plain_table
from fdro_core.cli.runs.summary import FIGURES
from fdro_core.result import ending, wilson, wilson_of_mean
from uncertainty_sets.names import join_names

HEADLINE = (
    "worst_test_accuracy", "mean_test_accuracy", "objective", "gap", "optimality_gap", "worst_loss",
    "stationarity", "iterations", "clock", "seconds",
)  # fmt: skip
"""The figures at the top of the page."""

NAMED = 3  # how many workers a tile names at most

ROUNDING = 1e-12
"""Numbers of at most this share of the objective are rounding noise."""


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
    labels = {key: FIGURES[key][0] for key in HEADLINE}
    if not run.result["proved"]:
        labels |= {"gap": "gap to its bound (not a proof)", "worst_loss": "loss, worst worker that answered"}
    items = [
        f'<li><b data-value="{key}">{figure(run, key)}</b><span>{label}{_of_whom(run, key)}</span>'
        f"<small>{interval(run, key)}</small></li>"
        for key, label in labels.items()
        if run.result.get(key) is not None
    ]
    return f'<ul class="figures">{"".join(items)}</ul>'


def figure(run: Run, key: str) -> str:
    """A number of the run for reading."""
    value = run.result.get(key)
    if isinstance(value, float) and FIGURES[key][1] is not percent:
        return for_people(value, smallest=ROUNDING * abs(run.result["objective"] or 0.0))
    return "–" if value is None else escape(FIGURES[key][1](value))


def _of_whom(run: Run, key: str) -> str:
    """The workers that a figure is about."""
    workers = [run.names[j] for j in run.worst(key)] if key in WORST else []
    if not workers:
        return ""
    left = len(workers) - NAMED
    return f": {escape(join_names(workers if left <= 0 else [*workers[:NAMED], f'{left} more']))}"


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
