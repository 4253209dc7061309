"""FedAsync (Xie et al. 2019): every local model that arrives is mixed into w, the older the less."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fdro_core.baselines.arrivals import Arrival, Arrivals, ArrivalState
from fdro_core.errors import InvalidSetting
from fdro_core.protocol.settings import Number, Share, Whole, documented, setting
from fdro_core.protocol.tuning import (
    ARRIVALS_LOCAL_STEPS,
    ARRIVALS_STEP,
    Choice,
    Range,
    Tunable,
    Variant,
)
from uncertainty_sets.arrays import Array


@documented
@dataclass(frozen=True, kw_only=True)
class FedAsync(Arrivals):
    """On each arrival w ← (1 - α_t)·w + α_t·w_j with α_t = α·(age + 1)^(-a).

    w_j is where E local steps led from the model that worker j was sent, `age` arrivals ago. All workers
    count alike, as published; so one that is twice as fast has twice the weight in what is minimised. Local
    steps are on f_j(w) + (ρ/2)‖w - w_sent‖² in the metric D. An iteration is one arrival: E gradients and
    O(p).

    >>> from fdro_core import LeastSquares, solve
    >>> from uncertainty_sets import Box
    >>> problems = [LeastSquares([[1.0]], [target], intercept=False) for target in (0.0, 2.0)]
    >>> result = solve(
    ...     problems, Box([0, 0], [1, 1]), algorithm=FedAsync(step=0.5, mixing=0.01, iterations=3000)
    ... )
    >>> round(float(result.w[0]), 1)  # both workers are equally fast
    1.0
    """

    local_steps: int = setting(5, Whole(), "local steps per message", letter="E")
    mixing: float = setting(0.6, Share(), "weight of a local model of age 0", letter="α")
    staleness_power: float = setting(
        0.5, Number(inclusive=True), "how fast the weight falls with the age; 0: it does not", letter="a"
    )
    proximal: float = setting(
        0.0, Number(inclusive=True), "weight of the proximal term in the local steps", letter="ρ"
    )

    name: ClassVar[str] = "fed-async"
    label: ClassVar[str] = "FedAsync"
    year: ClassVar[int] = 2019
    tunable: ClassVar[Mapping[str, Tunable]] = {
        "step": ARRIVALS_STEP,
        "local_steps": ARRIVALS_LOCAL_STEPS,
        "mixing": Tunable(0.6, Range(0.03, 1.0)),
        "staleness_power": Tunable(0.5, Choice((0.0, 0.5, 1.0))),
    }
    # No "+ P": w moves to a mix of old models, and not along a mean of gradients that P could follow.
    variants: ClassVar[tuple[Variant, ...]] = ()

    def check(self, workers: int, uncertainty_set: Any) -> None:
        """Check the settings; there is no preconditioner."""
        super().check(workers, uncertainty_set)
        if self.preconditioned:
            raise InvalidSetting(
                'FedAsync mixes models and has no gradient to precondition: preconditioner must be "none", '
                f"got {self.preconditioner!r}",
                parameter="preconditioner",
                value=self.preconditioner,
            )

    @property
    def proximal_weight(self) -> float:
        """ρ."""
        return self.proximal

    def combine(self, state: ArrivalState, arrival: Arrival) -> Array | None:
        """α_t·(w_j - w)."""
        weight = self.mixing * (arrival.age + 1.0) ** -self.staleness_power
        move: Array = weight * (arrival.local - state.w)
        return move
