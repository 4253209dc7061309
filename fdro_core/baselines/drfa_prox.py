"""DRFA-Prox (Deng et al. 2020): workers drawn by λ take local steps; λ rises at a random point among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fdro_core.baselines.rounds import Job, Replies, Rounds, RoundState, ascend, average
from fdro_core.protocol.settings import Number, Whole, documented, setting
from fdro_core.protocol.tuning import LOCAL_STEPS, STEP, WEIGHT_STEP, Choice, Range, Tunable


@documented
@dataclass(frozen=True, kw_only=True)
class DRFAProx(Rounds):
    """Maximise over λ in the simplex Σ_j λ_jf_j(w) - (μ/2)‖λ - q‖²: the prior q as a regulariser.

    A round has two phases, so two messages each way:

    1. m workers drawn with repetition by λ take E local steps from w; w ← their mean. A number t' is drawn
       from 1..E, and the mean of the models after t' steps is w'.
    2. m workers drawn evenly send f_j(w'); with v_j = (N/m)·f_j(w') for them and 0 for the others,
       λ ← argmax over u of Eγ·(vᵀu - (μ/2)‖u - q‖²) - ½‖u - λ‖² = Π((λ + Eγ(v + μq)) / (1 + Eγμ)).

    >>> from fdro_core import LeastSquares, solve
    >>> from uncertainty_sets import Box
    >>> problems = [LeastSquares([[1.0]], [target], intercept=False) for target in (0.0, 2.0)]
    >>> config = DRFAProx(step=0.02, weight_step=0.02, regularisation=1e3, local_steps=2, iterations=1500)
    >>> result = solve(problems, Box([0, 0], [1, 1]), algorithm=config)  # the prior holds λ at (½, ½)
    >>> result.weights.round(2)
    array([0.5, 0.5])
    """

    local_steps: int = setting(5, Whole(), "local steps per round", letter="E")
    weight_step: float = setting(0.1, Number(), "step of λ", letter="γ")
    regularisation: float = setting(
        0.1, Number(inclusive=True), "weight of the prior; 0 is DRFA without a prior", letter="μ"
    )
    clients: int | None = setting(None, Whole(), "workers drawn per phase; None: N", letter="m")

    name: ClassVar[str] = "drfa-prox"
    phases: ClassVar[int] = 2
    adapts: ClassVar[bool] = True
    label: ClassVar[str] = "DRFA-Prox"
    year: ClassVar[int] = 2020
    tunable: ClassVar[Mapping[str, Tunable]] = {
        "step": STEP,
        "weight_step": WEIGHT_STEP,
        "local_steps": LOCAL_STEPS,
        "regularisation": Tunable(0.01, Range(1e-3, 1.0), informed=(3.0, Range(0.1, 30.0))),
        # With few draws from few workers of one class each, the noise of drawing hides the method.
        "draws": Tunable(30, Choice((30,)), field="clients", unit="N"),
    }

    def draw(self, state: RoundState, phase: int, live: Sequence[int], rng: Generator) -> Job:
        """Draw by λ with repetition who trains; evenly without repetition who is asked for the loss."""
        present = np.asarray(live)
        if phase == 1:
            count = min(self.clients or present.size, present.size)
            return Job(sorted(rng.choice(present, size=count, replace=False).tolist()), 0)
        weights = state.weights[present]
        total = float(weights.sum())
        chances = weights / total if total > 0 else np.full(present.size, 1.0 / present.size)
        counts = rng.multinomial(self.clients or state.weights.size, chances)
        drawn = np.flatnonzero(counts)
        mark = int(rng.integers(1, self.local_steps + 1))
        return Job(present[drawn].tolist(), self.local_steps, mark, counts[drawn].tolist())

    def close(self, state: RoundState, phase: int, job: Job, replies: Replies, rng: Generator) -> None:
        """Phase 1: take the means. Phase 2: take the proximal step on λ."""
        if phase == 0:
            counts = np.zeros(state.weights.size)
            counts[job.workers] = job.counts
            state.marked = average({j: reply.marked for j, reply in replies.items()}, counts, state.w)
            state.w = average({j: reply.w for j, reply in replies.items()}, counts, state.w)
            return
        if replies:
            seen = list(replies)
            v = np.zeros(state.weights.size)
            v[seen] = state.losses[seen] * (v.size / len(seen))
            ascend(state, v, self.weight_step * self.local_steps, self.regularisation)
        state.marked = None
