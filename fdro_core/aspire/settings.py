"""Every setting of ASPIRE-EASE, each stated once, and the counts that follow from N and S."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields
from math import ceil, inf

import numpy as np

from fdro_core.aspire.adaptive import Adaptive
from fdro_core.contracts.settings import (
    Instance,
    Number,
    OneOf,
    Whole,
    WorkerCount,
    check_settings,
    setting,
)
from fdro_core.errors import InvalidSetting
from fdro_core.federation import settings as shared
from fdro_core.federation.roster import RosterSettings
from fdro_core.privacy.settings import Privacy

ONLY = {
    "admm": (
        "penalty", "worker_step", "step_scale", "consensus_step", "value_update", "value_step",
        "plane_dual_step", "consensus_dual_step", "regularisation", "plane_damping_floor",
        "consensus_damping_floor", "parameter_bound", "value_bound", "value_floor", "plane_dual_bound",
        "consensus_dual_bound", "reported_loss",
    ),
    "models": ("model_step", "weight_step", "averaging", "rest", "tolerance", "clip"),
}  # fmt: skip
"""Settings that only one form of `consensus` has."""

FEWEST = 3  # workers for `clip`: with two, nobody knows which of them lies


@dataclass(frozen=True, kw_only=True)
class AspireSettings:
    """The settings of `AspireEase`, without what makes masters and workers from them."""

    active_workers: int = setting(
        1,
        WorkerCount(),
        "updates that the master waits for",
        letter="S",
        why="fully asynchronous, as in the paper's experiments",
    )
    consensus: str | None = setting(
        None,
        OneOf("models", "admm"),
        '"models" moves z by quadratic models at the master, "admm" is the paper\'s update of w_j, φ_j and z',
        why='"models": several times fewer gradients; "admm", with a `DeprecationWarning`, if a setting that '
        "only it has is given",
    )
    model_step: float = setting(
        0.006,
        Number(),
        'longest step of z for consensus="models" with mini-batches, in the metric of the gradients; '
        "steps rise for 50 epochs, or 5,000 gradients if that is sooner, and then fall",
        letter="η",
        why="as for RMSprop; networks and softmax regression alike",
    )
    weight_step: float = setting(
        0.1,
        Number(),
        'step of the weights per epoch for consensus="models" with mini-batches; '
        "with more than twenty workers times 20/N",
        letter="ρ",
        why="running losses are noisy; a longer step lets the weights swing",
    )
    averaging: float = setting(
        0.1,
        Number(inclusive=True),
        'share of the epochs so far over which consensus="models" with mini-batches averages z',
        why="the noise of the last steps cancels",
    )
    rest: float = setting(
        3.0,
        Number(inclusive=True),
        'most epochs that consensus="models" with mini-batches lets a worker of little weight rest; 0: none',
        why="a gradient counts by its weight; a worker without weight is asked for its loss's sake only",
    )
    iterations: int | None = setting(
        None,
        Whole(),
        "master iterations",
        letter="T",
        why="1,500·⌈N/S⌉: within 1e-3 of the optimum on every shipped problem",
    )
    tolerance: float = setting(
        1e-8,
        Number(inclusive=True),
        'for consensus="models" with full batches: end the run when no more than this share of the objective '
        "seems left to gain, or of its fall since the start if that is smaller; 0: never",
        why="ends within 1e-8 of the optimum on every convex problem measured",
    )
    max_staleness: int | None = setting(
        None,
        Whole(),
        "the most iterations between two updates of one worker",
        letter="τ",
        why="10·⌈N/S⌉: the worker that answers most rarely limits progress; more steps of others are wasted; "
        "3·⌈N/S⌉ with mini-batches, where an old gradient is old noise",
    )
    planes: str = setting(
        "ease",
        OneOf("ease", "cp"),
        '"ease" drops planes whose λ stays zero, "cp" keeps all (ASPIRE-CP)',
        letter="EASE / CP",
        why="fewer planes at the same objective",
    )
    plane_interval: int | None = setting(
        None,
        Whole(),
        "iterations between plane updates",
        letter="k",
        why="⌈N/S⌉: one oracle call per epoch, so its O(N) is shared",
    )
    plane_horizon: int | None = setting(
        None,
        Whole(0),
        "no plane update after this iteration; None: never stop",
        letter="T₁",
        why="if updates stop early, planes that are still wrong stay",
    )
    max_planes: int = setting(
        20,
        Whole(),
        'limit for "ease" only; beyond it, the two planes with the smallest λ are merged',
        letter="M",
        why="more did not converge faster; merged planes stay in P",
    )
    penalty: float | None = setting(
        None,
        Number(),
        "penalty on w_j - z",
        letter="κ₁",
        why="½·mean(q_jL_j): half of one worker's curvature in the sum",
    )
    worker_step: float | None = setting(
        None,
        Number(),
        "step of w_j; None: step_scale/(s_jL_j + κ₁)",
        letter="η_w",
        why="1/(s_jL_j + κ₁): the local Lagrangian's curvature",
    )
    step_scale: float = setting(
        1.0,
        Number(),
        "factor of the default worker_step; below 1 if mini-batches are noisy",
        why="the full step; noisy mini-batches may need a smaller one",
    )
    consensus_step: float | None = setting(
        None, Number(), "step of z", letter="η_z", why="1/(Nκ₁) is the exact z, from running sums"
    )
    value_update: str = setting(
        "exact",
        OneOf("exact", "gradient"),
        '"exact" uses the h for which Σλ = 1, "gradient" is the paper\'s step on h',
        letter="h",
        why="the paper's gradient step on h oscillates",
    )
    value_step: float | None = setting(
        None, Number(), "step of h", letter="η_h", why='needed only for value_update="gradient"'
    )
    plane_dual_step: float | None = setting(
        None,
        Number(),
        "step of λ; None: from the planes and the gradients (docs/driver.md)",
        letter="ρ₁",
        why="from the planes' spread; a fixed step fits only one scale of losses",
    )
    consensus_dual_step: float | None = setting(
        None, Number(), "step of φ_j", letter="ρ₂", why="κ₁, as in the method of multipliers"
    )
    regularisation: str = setting(
        "none",
        OneOf("none", "setting-2"),
        '"none" is c₁ = c₂ = 0, "setting-2" is 1/(ρ(t+1)^⅙) with the floors below',
        letter="c₁ᵗ, c₂ᵗ",
        why="the paper's Setting 2 stalls at 1e-2 of the optimum",
    )
    plane_damping_floor: float = setting(
        0.0,
        Number(inclusive=True, finite=False),
        'smallest c₁ᵗ for regularisation="setting-2"',
        letter="c̲₁",
        why="no floor unless you set it",
    )
    consensus_damping_floor: float = setting(
        0.0,
        Number(inclusive=True, finite=False),
        'smallest c₂ᵗ for regularisation="setting-2"',
        letter="c̲₂",
        why="no floor unless you set it",
    )
    parameter_bound: float = setting(
        inf, Number(finite=False), "largest |w| and |z|", letter="α₁", why="unbounded unless you set it"
    )
    value_bound: float = setting(
        inf,
        Number(-inf, inclusive=True, finite=False),
        "largest h",
        letter="α₂",
        why="unbounded unless you set it",
    )
    value_floor: float = setting(
        -inf,
        Number(-inf, inclusive=True, finite=False),
        "smallest h; with the paper's 0, negative losses are rejected",
        letter="0 in H",
        why="losses may be negative; the paper uses 0",
    )
    plane_dual_bound: float = setting(
        inf, Number(finite=False), "largest λ", letter="α₃", why="Σλ = 1 bounds λ already"
    )
    consensus_dual_bound: float = setting(
        inf, Number(finite=False), "largest |φ|", letter="α₄", why="unbounded unless you set it"
    )
    metric: str = shared.metric()
    local_steps: int = setting(
        1,
        Whole(),
        "local steps between two messages, E (ASPIRE-EASE_per)",
        letter="per",
        why="one local step per message",
    )
    batch_size: int | None = shared.batch_size()
    reported_loss: str = setting(
        "full",
        OneOf("full", "average"),
        'with mini-batches, "full" sends f_j on all data, "average" a running mean of batches',
        letter="f_j",
        why="the noise of a mini-batch loss biases the maximum, and makes weights oscillate on round sets",
    )
    adaptive: Adaptive | None = setting(
        None, Instance(Adaptive), "the rule that changes S; None: S stays", letter="ADP", why="S stays as set"
    )
    privacy: Privacy | None = setting(
        None,
        Instance(Privacy),
        'differential privacy of the workers\' data (docs/privacy.md); it needs consensus="models" and a '
        "batch_size",
        why="noise costs accuracy",
    )
    deadline: float | str | None = shared.deadline()
    resends: int = shared.resends()
    dead_losses: str = setting(
        "freeze",
        OneOf("freeze", "drop"),
        '"freeze" keeps a lost worker\'s last loss in the oracle, "drop" gives it no weight',
        why="a silent worker's loss is still the best guess",
    )
    clip: float | None = setting(
        None,
        Number(1.0, inclusive=True),
        'for consensus="models": a reply\'s gradient, curvature and distance of the loss are bounded by this '
        "factor times the median of the other workers' (docs/bad-actors.md); None: no bound",
        why="honest workers may differ by any factor; 2 where one may lie",
    )
    max_bad_updates: int = shared.max_bad_updates()
    on_failed_start: str = shared.on_failed_start()
    report_interval: int | None = setting(
        None,
        Whole(),
        "iterations between two reports to history and observers",
        why="⌈N/S⌉ iterations: one report per epoch",
    )
    seed: int = shared.seed()

    def __post_init__(self) -> None:
        """Choose `consensus` if it is not given."""
        if self.consensus is None:
            object.__setattr__(self, "consensus", self._default_form())

    def _default_form(self) -> str:
        """ "models", or "admm" if only settings of that form are given: until 0.2 it was the default."""
        given = self._given("admm")
        if not given or self._given("models"):
            return "models"
        warnings.warn(
            f'{given[0]} belongs to consensus="admm", which is no longer the default: write '
            f'AspireEase(consensus="admm", {given[0]}=...). From 0.3 on, {given[0]} without it is an error',
            DeprecationWarning,
            stacklevel=4,  # where AspireEase(...) is called
        )
        return "admm"

    def _given(self, form: str) -> list[str]:
        """The settings that only this form has and that are not at their default."""
        defaults = {item.name: item.default for item in fields(AspireSettings)}
        return [name for name in ONLY[form] if np.any(getattr(self, name) != defaults[name])]

    def resolve(self, workers: int) -> Plan:
        """Check the settings for N workers and work out the counts."""
        check_settings(self, workers)
        self._check_pairs(workers)
        if self.adaptive is not None:
            self.adaptive.check(workers)
        rounds = ceil(workers / self.active_workers)
        staleness = self._patience() * rounds if self.max_staleness is None else self.max_staleness
        if staleness * self.active_workers < workers:
            raise InvalidSetting(
                f"max_staleness (τ) = {staleness} is too small for active_workers (S) = "
                f"{self.active_workers}: {workers} workers need τ >= ⌈N/S⌉ = {rounds}",
                parameter="max_staleness",
                value=self.max_staleness,
            )
        return Plan(
            config=self,
            workers=workers,
            iterations=1500 * rounds if self.iterations is None else self.iterations,
            max_staleness=staleness,
            plane_interval=rounds if self.plane_interval is None else self.plane_interval,
            plane_horizon=self.plane_horizon,
            report_interval=rounds if self.report_interval is None else self.report_interval,
        )

    def _patience(self) -> int:
        """Epochs that the default rule waits for a slow worker (docs/driver.md has what was measured)."""
        return 3 if self.consensus == "models" and self.batch_size is not None else 10

    def _check_pairs(self, workers: int) -> None:
        """Raise `InvalidSetting` for settings that do not go together."""
        for form in ONLY:
            given = [] if form == self.consensus else self._given(form)
            if given:
                raise InvalidSetting(
                    f'{given[0]} belongs to consensus="{form}" and consensus is "{self.consensus}": write '
                    f'AspireEase(consensus="{form}", {given[0]}=...), or leave {given[0]} out',
                    parameter=given[0],
                    value=getattr(self, given[0]),
                )
        if self.privacy is not None:
            self._check_privacy(self.privacy)
        if self.clip is not None and workers < FEWEST:
            raise InvalidSetting(
                f"clip compares a worker with the median of the others and needs {FEWEST} workers or more, "
                f"got {workers}: leave clip out",
                parameter="clip",
                value=self.clip,
            )
        if self.planes == "ease" and self.max_planes < 2:
            raise InvalidSetting(
                f"max_planes (M) must be at least 2 for planes='ease', got {self.max_planes}",
                parameter="max_planes",
                value=self.max_planes,
            )
        if self.value_floor >= self.value_bound:
            raise InvalidSetting(
                f"value_floor must be below value_bound (α₂), got {self.value_floor} and {self.value_bound}",
                parameter="value_floor",
                value=self.value_floor,
            )
        if self.value_update == "gradient" and self.value_step is None:
            message = 'value_update="gradient" needs a value_step (η_h), for example 0.1'
            raise InvalidSetting(message, parameter="value_update", value=self.value_update)
        if self.value_update == "exact" and self.plane_dual_bound < 1:
            raise InvalidSetting(
                f"plane_dual_bound (α₃) must be at least 1 for Σλ = 1, got {self.plane_dual_bound}",
                parameter="plane_dual_bound",
                value=self.plane_dual_bound,
            )

    def _check_privacy(self, privacy: Privacy) -> None:
        """Raise `InvalidSetting` for settings that would need exact numbers, or spend more than they gain."""
        privacy.check()
        if self.consensus != "models" or self.batch_size is None or self.local_steps > 1:
            raise InvalidSetting(
                'privacy needs consensus="models", a batch_size (for all data one of at least the number of '
                "samples) and local_steps=1, since every gradient is a release; got "
                f"{self.consensus!r}, {self.batch_size} and {self.local_steps}",
                parameter="privacy",
                value=privacy,
            )


@dataclass(frozen=True)
class Plan:
    """Settings whose counts are worked out for N workers."""

    config: AspireSettings
    workers: int
    iterations: int
    max_staleness: int
    plane_interval: int
    plane_horizon: int | None
    report_interval: int

    def updates_planes(self, iteration: int) -> bool:
        """Whether iteration t (counted from 1) ends with a plane update: t mod k = 0 and t <= T₁."""
        if iteration % self.plane_interval:
            return False
        return self.plane_horizon is None or iteration <= self.plane_horizon

    def roster(self) -> RosterSettings:
        """What the roster needs of the settings."""
        config = self.config
        return RosterSettings(
            workers=self.workers,
            active_workers=self.workers if config.adaptive else config.active_workers,
            max_staleness=self.max_staleness,
            deadline=config.deadline,
            resends=config.resends,
            max_bad_updates=config.max_bad_updates,
            adaptive=config.adaptive,
        )
