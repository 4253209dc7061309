"""SCAFF-PD (Yu et al. 2023): an extrapolated step of λ, then local steps corrected as in SCAFFOLD."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from numpy.random import Generator

from fdro_core.baselines.rounds import (
    Job,
    Replies,
    Rounds,
    RoundState,
    ascend,
    follow_controls,
    mean_control,
)
from fdro_core.protocol.settings import Number, Whole, documented, setting
from fdro_core.protocol.tuning import LOCAL_STEPS, STEP, WEIGHT_STEP, Range, Tunable


@documented
@dataclass(frozen=True, kw_only=True)
class ScaffPD(Rounds):
    """Minimise over w the maximum over λ in the simplex of Σ_j λ_jf_j(w) - (μ/2)‖λ - q‖².

    A round has two phases, so two messages each way, and costs E + 1 gradients per worker:

    1. Workers send f_j(w) and c_j = ∇f_j(w), as a model after one step. With the losses f⁻ of the round
       before, s = f + θ(f - f⁻) and λ ← Π((λ + Eγ(s + μq)) / (1 + Eγμ)): the maximum over u of
       Eγ·(sᵀu - (μ/2)‖u - q‖²) - ½‖u - λ‖².
    2. With c = Σ_j λ_jc_j of the new λ, each worker takes E steps w_j ← w_j - η/D·(∇f_j(w_j) - c_j + c) from
       w; then w ← w + η_g·Σ_j λ_j(w_j - w).

    A saddle point is where a round changes nothing. There f = f⁻, and λ = Π(…) is the condition that λ
    maximises Σ_j λ_jf_j(w) - (μ/2)‖λ - q‖²; the first local step of every worker is along c = Σ_j λ_j∇f_j(w),
    so if that is 0 all stay. Conversely a round moves w by -Eηη_g/D·(c + O(ηE‖c‖)), so with short steps w
    stays only where c = 0.

    The two exchanges, the extrapolation, the proximal step of λ and the correction are the authors'. This was
    written from descriptions of the paper, not from its listing, with these choices: γ and η are constant, so
    θ = 1 is the ratio of two steps of λ (the authors also analyse steps that change with the rounds); the
    proximity of λ is ½‖·‖²; the regulariser is that of `DRFAProx`, for an even prior the χ² divergence with
    weight μ/N. The master keeps the c_j as in `Scaffold`, and γ counts E times as in `AFL`.

    >>> from fdro_core import LeastSquares, solve
    >>> from uncertainty_sets import Box
    >>> problems = [LeastSquares([[1.0]], [target], intercept=False) for target in (0.0, 2.0)]
    >>> config = ScaffPD(step=0.1, weight_step=0.1, local_steps=3, iterations=300)
    >>> result = solve(problems, Box([0.6, 0], [1, 0.4]), algorithm=config)
    >>> round(float(result.w[0]), 6), result.weights.round(6)
    (1.0, array([0.5, 0.5]))
    """

    local_steps: int = setting(5, Whole(), "local steps per round", letter="E")
    weight_step: float = setting(0.1, Number(), "step of λ", letter="γ")
    regularisation: float = setting(
        0.0,
        Number(inclusive=True),
        "weight of the prior; 0: the maximum over λ is the largest loss",
        letter="μ",
    )
    extrapolation: float = setting(
        1.0, Number(inclusive=True), "how far the losses are extrapolated; 0 is a plain ascent", letter="θ"
    )
    global_step: float = setting(
        1.0, Number(), "step of w along the mean of the workers' moves", letter="η_g"
    )

    name: ClassVar[str] = "scaff-pd"
    phases: ClassVar[int] = 2
    adapts: ClassVar[bool] = True
    keeps: ClassVar[tuple[str, ...]] = ("metric", "controls")
    label: ClassVar[str] = "SCAFF-PD"
    year: ClassVar[int] = 2023
    tunable: ClassVar[Mapping[str, Tunable]] = {
        "step": STEP,
        "weight_step": WEIGHT_STEP,
        "local_steps": LOCAL_STEPS,
        "regularisation": Tunable(0.01, Range(1e-3, 1.0), informed=(3.0, Range(0.1, 30.0))),
    }

    def draw(self, state: RoundState, phase: int, live: Sequence[int], rng: Generator) -> Job:
        """Ask all live workers: first for a gradient, then for corrected steps."""
        control = mean_control(state, live)
        return Job(list(live), 1) if phase == 0 else Job(list(live), self.local_steps, control=control)

    def close(self, state: RoundState, phase: int, job: Job, replies: Replies, rng: Generator) -> None:
        """Phase 1: set c_j and take the step of λ. Phase 2: take that of w."""
        if phase == 0:
            follow_controls(self, state, job, replies)
            self._ascend(state)
            return
        w = state.w
        super().close(state, phase, job, replies, rng)
        state.w = w + self.global_step * (state.w - w)

    def _ascend(self, state: RoundState) -> None:
        losses = state.losses.copy()
        earlier = losses if state.earlier is None else state.earlier
        extrapolated = losses + self.extrapolation * (losses - earlier)
        ascend(state, extrapolated, self.weight_step * self.local_steps, self.regularisation)
        state.earlier = losses
