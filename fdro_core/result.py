"""What a run gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Result:
    """The model and what is needed to judge it.

    Attributes:
        w: the model, z.
        losses: f_j(w) of every worker on all its data; NaN for a worker that could not be asked.
        worst_case: the set's answer at those losses, with its proof.
        objective: its value, max over P of pᵀf(w).
        weights: s_j, the weight worker j's gradient has at the end.
        planes: the active planes, (|A|, N), each a distribution.
        stationarity: ‖∇G‖² of Definition 1 with unit steps, in a round of its own.
        history: one dict a report and one a notice, in order.
        clock: seconds on the engine's clock.
        iterations: master iterations done.
        gradients: gradients that steps took, all workers together.
        stop_reason: "iterations", "interrupted", or what an observer said.
    """

    w: Array
    losses: Array
    worst_case: Any
    objective: float
    weights: Array
    planes: Array
    stationarity: float
    history: list[dict[str, Any]] = field(repr=False)
    clock: float
    iterations: int
    gradients: int
    stop_reason: str

    def __repr__(self) -> str:
        return (
            f"Result(objective={self.objective:.6g}, worst loss={np.nanmax(self.losses):.6g}, "
            f"stationarity={self.stationarity:.3g}, planes={len(self.planes)}, iterations={self.iterations}, "
            f"clock={self.clock:.6g}, stop_reason={self.stop_reason!r})"
        )
