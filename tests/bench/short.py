"""A run of the experiments that takes a moment."""

from __future__ import annotations

from bench.experiments.runs.task import Task

SHORT = Task(
    "test",
    "digits",
    "ASPIRE-EASE",
    {"step": 0.5, "penalty": 1.0, "budget": 2.0},
    "run",
    0,
    60,
    16,
    points=4,
    options={"digits": [3, 8]},
)
