"""What the driver costs apart from gradients, and what of that does not grow with p."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from bench.driver.size import FORMS, bowls
from fdro_core import AspireEase, AspireModels, solve
from uncertainty_sets import Box

CHUNK, TURNS, WORKERS = 1000, 12, 10

SIZES = (10, 7_850)
"""At p = 10 the passes over p take next to nothing: what is left is the driver's own time."""


def overhead() -> None:
    """Processor time of an iteration at S = 1 on the virtual engine: gradient, passes over p, the rest."""
    print("| form | p | iteration, µs | gradient, µs | driver, µs | of it outside the passes, µs |")
    print("|---|---|---|---|---|---|")
    for name, form in FORMS.items():
        outside = 0.0
        for p in SIZES:
            problems = bowls(WORKERS, p)
            total, gradient = _iteration(problems, form), _gradient(problems)
            outside = outside or total - gradient
            cells = f"{total:.1f} | {gradient:.1f} | {total - gradient:.1f} | {outside:.1f}"
            print(f"| {name} | {p:,} | {cells} |", flush=True)


def _iteration(problems: list[Any], form: AspireEase | AspireModels) -> float:
    """Microseconds per iteration, the median of several reports."""
    marks: list[float] = []

    def look(run: Any, entry: dict[str, Any]) -> None:
        marks.append(time.process_time())

    q = np.full(len(problems), 1 / len(problems))
    config = replace(form, iterations=CHUNK * TURNS, report_interval=CHUNK, plane_interval=10**9)
    solve(problems, Box(0.3 * q, 3 * q), algorithm=config, observers=[look])
    return float(np.median(np.diff(marks))) / CHUNK * 1e6


def _gradient(problems: list[Any]) -> float:
    """Microseconds per gradient, the median of as many turns."""
    w, seconds = np.zeros(problems[0].dimension), []
    for _ in range(TURNS):
        begin = time.process_time()
        for k in range(CHUNK):
            problems[k % len(problems)].loss_and_gradient(w)
        seconds.append(time.process_time() - begin)
    return float(np.median(seconds)) / CHUNK * 1e6
