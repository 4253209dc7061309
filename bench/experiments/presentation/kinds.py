"""A colour per kind of method: eighteen colours could not be told apart."""

from __future__ import annotations

from typing import Any

from bench.experiments.runs.methods import baseline_classes
from fdro_core.baselines.arrivals import Arrivals

OURS, ASYNCHRONOUS, ROBUST, OTHER = "#b3261e", "#1f5aa6", "#2e7d32", "#8a8a8a"
KEY = "red: ASPIRE; blue: asynchronous; green: weights adapt; grey: others"


def color(method: str) -> str:
    """Return the colour of a method's kind."""
    if method.casefold().startswith("aspire"):
        return OURS
    cls = {each.label: each for each in baseline_classes()}.get(method.removesuffix(" + P"))
    if cls is not None and issubclass(cls, Arrivals):
        return ASYNCHRONOUS
    return ROBUST if getattr(cls, "adapts", False) else OTHER


def line(method: str) -> dict[str, Any]:
    """Return the look of a method's line: AspireModels thick, rows with its preconditioner dashed."""
    look: dict[str, Any] = {"color": color(method), "linewidth": 0.9}
    if method.casefold().startswith("aspire"):
        return look | {"linewidth": 2.2 if method == "AspireModels" else 1.0, "zorder": 3}
    return look | {"linestyle": "--" if method.endswith("+ P") else "-"}
