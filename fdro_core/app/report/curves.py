"""The curves of the page: the history reduced to few points without losing peaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

POINTS = 500
"""The largest number of points per curve."""

Entry = dict[str, Any]


def curves(history: list[Entry]) -> list[dict[str, Any]]:
    """Every chart that the history has numbers for: title, note, digits, x values and lines.

    A long history is cut into POINTS pieces; a piece is drawn at its last report, with the largest staleness
    and the fewest live workers in it.
    """
    reports = [entry for entry in history if entry["event"] == "report"]
    if not reports:
        return []
    pieces = [piece.tolist() for piece in np.array_split(np.arange(len(reports)), min(POINTS, len(reports)))]
    last = [reports[piece[-1]] for piece in pieces]

    def over(name: str, pick: Callable[[list[float]], float]) -> list[float]:
        return [pick([reports[k][name] for k in piece]) for piece in pieces]

    losses = [np.array(entry["losses"], dtype=np.float64) for entry in last]
    charts = [
        _chart(
            "loss", "Losses", "as reported by the workers, each at its own copy of the model", last, 4,
            ("worst mix in the set", [entry["objective"] for entry in last]),
            ("worst worker", [_over(np.max, each) for each in losses]),
            ("mean", [_over(np.mean, each) for each in losses]),
        ),
        _tests(reports),
        _chart(
            "planes", "Cutting planes", "held by the master", last, 0,
            ("planes", [entry["planes"] for entry in last]),
        ),
        _chart(
            "workers", "Workers", "active in an iteration (S), and alive", last, 0,
            ("alive", over("live_workers", min)), ("active", [entry["active_workers"] for entry in last]),
        ),
        _chart(
            "staleness", "Staleness", "iterations since the last update of the slowest worker", last, 0,
            ("staleness", over("staleness", max)),
        ),
    ]  # fmt: skip
    return [chart for chart in charts if chart is not None]


def _over(pick: Callable[[Any], Any], values: Any) -> float:
    """The largest, smallest or mean of the finite numbers; NaN if there is none."""
    known = values[np.isfinite(values)]
    return float(pick(known)) if known.size else np.nan


def _tests(reports: list[Entry]) -> dict[str, Any] | None:
    """Accuracy on held-out samples, or the loss if there is no accuracy."""
    for name, key, title, scale, digits, worst in (
        ("accuracy", "test_accuracy", "Test accuracy, %", 100.0, 1, np.min),
        ("test-loss", "test_loss", "Test loss", 1.0, 4, np.max),
    ):
        seen = [entry for entry in reports if key in entry]
        if seen:
            values = [scale * np.array(entry[key], dtype=np.float64) for entry in seen]
            return _chart(
                name, title, "of the shared model, on held-out samples", seen, digits,
                ("mean", [_over(np.mean, each) for each in values]),
                ("worst worker", [_over(worst, each) for each in values]),
            )  # fmt: skip
    return None


def _chart(
    name: str, title: str, note: str, at: list[Entry], digits: int, *lines: tuple[str, list[float]]
) -> dict[str, Any]:
    return {
        "name": name,
        "title": title,
        "note": note,
        "digits": digits,
        "clock": [entry["clock"] for entry in at],
        "iteration": [entry["iteration"] for entry in at],
        "lines": [{"name": label, "values": values} for label, values in lines],
    }
