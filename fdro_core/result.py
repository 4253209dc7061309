"""What a run gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.app.tables import one_or_more
from uncertainty_sets.arrays import Array

NAMED = 8  # the most workers that a sentence names


@dataclass(frozen=True)
class Result:
    """The model and what is needed to judge it.

    Attributes:
        w: the model, z.
        losses: f_j(w) of every worker on all its data; NaN for a worker that could not be asked.
        known_at: the iteration that each worker's loss in `worst_case` is from: the last one where f_j(w) was
            measured, else that of the worker's last report, at its own copy of the model then; -1 for a
            worker that never reported, where the mean of the others stands in.
        worst_case: the set's answer at those losses, with its proof; of the model only where `proved`.
        objective: its value, max over P of pᵀf(w).
        weights: s_j, the weight worker j's gradient has at the end.
        planes: the active planes, (|A|, N), each a distribution.
        stationarity: ‖∇G‖² of Definition 1 with unit steps, in a round of its own, of the workers that are
            there; infinite where one of those did not answer.
        history: one dict a report and one a notice, in order.
        clock: seconds on the engine's clock.
        iterations: master iterations done.
        gradients: gradients that steps took, all workers together.
        stop_reason: "iterations", "interrupted", or what an observer said.
    """

    w: Array
    losses: Array
    known_at: NDArray[np.int64]
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

    @property
    def proved(self) -> bool:
        """Whether `worst_case` is about this model: every worker's loss was measured at w, at the end."""
        return bool(np.isfinite(self.losses).all())

    def caveat(self, names: Sequence[str] | None = None) -> str:
        """What the bound rests on where it is not proved, "" where it is: whose losses are old or guessed."""
        lost = np.flatnonzero(~np.isfinite(self.losses)).tolist()
        return in_words({j: int(self.known_at[j]) for j in lost}, names)

    @property
    def suspicious(self) -> dict[int, str]:
        """Workers whose numbers are far beyond the others', and what was seen: notices in `history`."""
        return {entry["worker"]: entry["reason"] for entry in self.history if entry["event"] == "suspicious"}

    def __repr__(self) -> str:
        proof = "" if self.proved else f" {self.caveat()}"
        worst = np.max(self.losses, initial=-np.inf, where=np.isfinite(self.losses))
        return (
            f"Result(objective={self.objective:.6g}{proof}, worst loss={worst:.6g}, "
            f"stationarity={self.stationarity:.3g}, planes={len(self.planes)}, iterations={self.iterations}, "
            f"clock={self.clock:.6g}, stop_reason={self.stop_reason!r})"
        )


def in_words(known_at: Mapping[int, int], names: Sequence[str] | None = None) -> str:
    """How the losses of workers that could not be asked are known, "" where there are none.

    >>> in_words({3: 120, 4: -1})
    'with the last known loss of worker 3 from iteration 120 and a guess for worker 4, which never answered'
    """
    parts = []
    old = {j: iteration for j, iteration in known_at.items() if iteration >= 0}
    if old:
        each = [f"{_called(j, names)} from {_when(iteration)}" for j, iteration in old.items()]
        parts.append(f"the last known {'loss' if len(old) == 1 else 'losses'} of {_listed(each)}")
    never = [_called(j, names) for j in known_at if j not in old]
    if never:
        parts.append(f"a guess for {_listed(never)}, which never answered")
    return f"with {' and '.join(parts)}" if parts else ""


def _called(j: int, names: Sequence[str] | None) -> str:
    return f"worker {j if names is None else names[j]}"


def _when(iteration: int) -> str:
    return f"iteration {iteration:,}" if iteration else "the start"


def _listed(parts: list[str]) -> str:
    left = len(parts) - NAMED
    return one_or_more(parts if left <= 0 else [*parts[:NAMED], f"{left} more"])
