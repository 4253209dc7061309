"""FedProx (Li et al. 2020): FedAvg whose local steps are held near the model that was sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fdro_core.baselines.fedavg import FedAvg
from fdro_core.protocol.settings import Number, documented, setting
from fdro_core.protocol.tuning import LOCAL_STEPS, STEP, Range, Tunable


@documented
@dataclass(frozen=True, kw_only=True)
class FedProx(FedAvg):
    """E local steps on f_j(w) + (μ/2)‖w - w_t‖² from w_t; then w ← Σ_j n_jw_j / Σ_j n_j as in `FedAvg`.

    ‖x‖² = Σ_i D_ix_i² is in the metric D of the steps, ‖x‖² = Σ_i x_i² with ``metric="none"``: one step is
    w ← w - η/D·∇f_j(w) - ημ(w - w_t). With a preconditioner steps are in P, and the term stays in D. μ is a
    setting that workers know, so messages are those of `FedAvg`, and so is the cost of a round. The first
    local step is not changed by the term: μ matters if E > 1.

    >>> from fdro_core import LeastSquares, solve
    >>> from uncertainty_sets import Box
    >>> problems = [LeastSquares([[a]], [b], intercept=False) for a, b in ((1.0, 0.0), (2.0, 2.0))]
    >>> for proximal in (0.0, 100.0):  # the optimum is (0 + 4) / (1 + 4)
    ...     config = FedProx(step=0.005, local_steps=50, proximal=proximal, metric="none", iterations=2000)
    ...     print(round(float(solve(problems, Box([0, 0], [1, 1]), algorithm=config).w[0]), 3))
    0.741
    0.795
    """

    proximal: float = setting(
        0.1, Number(inclusive=True), "weight of the proximal term; 0 is FedAvg", letter="μ"
    )

    name: ClassVar[str] = "fed-prox"
    label: ClassVar[str] = "FedProx"
    year: ClassVar[int] = 2020
    tunable: ClassVar[Mapping[str, Tunable]] = {
        "step": STEP,
        "local_steps": LOCAL_STEPS,
        "proximal": Tunable(0.1, Range(1e-3, 10.0)),  # the authors tried 0.001 to 1
    }

    @property
    def proximal_weight(self) -> float:
        """μ."""
        return self.proximal
