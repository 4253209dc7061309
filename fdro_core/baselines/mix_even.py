"""Mix_Even: one model for all workers, each with the same weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fdro_core.baselines.rounds import Rounds
from fdro_core.protocol.settings import documented
from fdro_core.protocol.tuning import STEP, Tunable
from uncertainty_sets.arrays import Array


@documented
@dataclass(frozen=True, kw_only=True)
class MixEven(Rounds):
    """Minimise (1/N)·Σ_j f_j by gradient steps of all workers together: w ← w - η/D·(1/N)·Σ_j ∇f_j(w).

    The paper runs it "using ASPIRE": that is `AspireEase` with a set that holds the even distribution alone,
    such as `KL(q, 0)`, and minimises the same function.

    >>> from fdro_core import LeastSquares, solve
    >>> from uncertainty_sets import Box
    >>> problems = [
    ...     LeastSquares([[1.0]], [0.0], intercept=False),
    ...     LeastSquares([[2.0]], [2.0], intercept=False),
    ... ]
    >>> result = solve(problems, Box([0, 0], [1, 1]), algorithm=MixEven(step=0.5, iterations=60))
    >>> round(float(result.w[0]), 6)  # (0 + 4) / (1 + 4)
    0.8
    """

    name: ClassVar[str] = "mix-even"
    label: ClassVar[str] = "Mix_Even"
    year: ClassVar[int] = 0
    tunable: ClassVar[Mapping[str, Tunable]] = {"step": STEP}

    def start_weights(self, prior: Array, shares: Array) -> Array:
        """1/N each, which never changes."""
        return np.full(prior.size, 1.0 / prior.size)
