"""AFL, agnostic federated learning (Mohri et al. 2019): descent in w, ascent in λ on the simplex."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from numpy.random import Generator

from fdro_core.baselines.rounds import Job, Replies, Rounds, RoundState, ascend
from fdro_core.protocol.settings import Number, documented, setting
from fdro_core.protocol.tuning import STEP, WEIGHT_STEP, Tunable


@documented
@dataclass(frozen=True, kw_only=True)
class AFL(Rounds):
    """Stochastic AFL: w ← w - η/D·Σ_j λ_j∇f_j(w), λ ← Π(λ + γ·(f_1(w), …, f_N(w))).

    The adversary is the whole simplex: the uncertainty set is used to assess the model only, and λ starts at
    its reference. With local_steps E > 1 the models after E steps are averaged with λ, and γ counts E times.

    >>> from fdro_core import LeastSquares, solve
    >>> from uncertainty_sets import Box
    >>> problems = [LeastSquares([[1.0]], [target], intercept=False) for target in (0.0, 2.0)]
    >>> result = solve(
    ...     problems, Box([0.6, 0], [1, 0.4]), algorithm=AFL(step=0.1, weight_step=0.1, iterations=900)
    ... )
    >>> round(float(result.w[0]), 3), result.weights.round(3)
    (1.0, array([0.5, 0.5]))
    """

    weight_step: float = setting(0.1, Number(), "step of λ", letter="γ")

    name: ClassVar[str] = "afl"
    adapts: ClassVar[bool] = True
    label: ClassVar[str] = "AFL"
    year: ClassVar[int] = 2019
    tunable: ClassVar[Mapping[str, Tunable]] = {"step": STEP, "weight_step": WEIGHT_STEP}

    def close(self, state: RoundState, phase: int, job: Job, replies: Replies, rng: Generator) -> None:
        """Take both steps from the same (w, λ)."""
        super().close(state, phase, job, replies, rng)
        ascend(state, state.losses, self.weight_step * self.local_steps)
