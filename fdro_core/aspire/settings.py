"""Every setting of ASPIRE-EASE, checked before the first step.

Each field carries its paper letter and the reason for its default as metadata; `settings_table` prints them
for the docs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from math import ceil, inf, isfinite, isnan
from typing import TYPE_CHECKING, Any

from fdro_core.aspire.adaptive import Adaptive
from fdro_core.errors import InvalidSetting

if TYPE_CHECKING:
    from fdro_core.aspire.master import Master
    from fdro_core.contracts.algorithm import Ask
    from fdro_core.contracts.engine import WorkerFactory
    from fdro_core.contracts.problem import ProblemSource
    from uncertainty_sets.arrays import Array


def _setting(default: Any, letter: str, why: str) -> Any:
    return field(default=default, metadata={"letter": letter, "why": why})


@dataclass(frozen=True, kw_only=True)
class AspireEase:
    """ASPIRE-EASE, Algorithm 1 of the paper. None means "by the rule in docs/driver.md".

    Attributes:
        active_workers: S, the updates the master waits for.
        iterations: T, master iterations; None: 1,500·⌈N/S⌉.
        max_staleness: τ, the most iterations between a worker's visits; None: 10·⌈N/S⌉.
        planes: "ease" drops planes whose λ stays zero, "cp" keeps all (ASPIRE-CP).
        plane_interval: k, iterations between plane updates; None: ⌈N/S⌉, once an epoch.
        plane_horizon: T₁, no plane update from this iteration on; None: never stop.
        max_planes: M, binds "ease" only: the two planes of smallest λ are merged when it is full.
        penalty: κ₁; None: ½·mean_j(q_jL_j).
        worker_step: η_w; None: step_scale/(s_jL_j + κ₁).
        step_scale: of the default η_w; below 1 where mini-batches are noisy.
        consensus_step: η_z; None: 1/(Nκ₁), the exact minimiser.
        value_update: "exact" takes the h with Σλ = 1; "gradient" is the paper's step on h.
        value_step: η_h, for value_update="gradient".
        plane_dual_step: ρ₁; None: from the planes and the gradients (docs/driver.md).
        consensus_dual_step: ρ₂; None: κ₁.
        regularisation: "none" for c₁ = c₂ = 0, or "setting-2" for 1/(ρ(t+1)^⅙) with the floors below.
        plane_damping_floor: c̲₁, for "setting-2".
        consensus_damping_floor: c̲₂, for "setting-2".
        parameter_bound: α₁, |w| and |z| at most this.
        value_bound: α₂, h at most this.
        value_floor: the least h; the paper has 0, which is wrong for losses below zero and then refused.
        plane_dual_bound: α₃, λ at most this.
        consensus_dual_bound: α₄, |φ| at most this.
        metric: "problem" takes steps in the mean of the problems' metrics, "none" in D = 1 (the paper).
        local_steps: E, local steps between two messages (ASPIRE-EASE_per).
        batch_size: samples a gradient; None: all.
        reported_loss: with mini-batches, "full" sends f_j on all data, "average" a running mean of batches.
        adaptive: ADP, the rule that changes S; None: S stays.
        deadline: seconds of silence after which a worker is asked again; "auto" goes by the answers seen so
            far, on engines whose workers can hang (never on a virtual clock); None: wait for ever.
        resends: how often it is asked again before it counts as dead until it speaks.
        dead_losses: "freeze" keeps a dead worker's last loss in the oracle; "drop" gives it no weight.
        max_bad_updates: updates out of range (NaN, infinity, beyond 1e150) after which a worker is dropped.
        on_failed_start: "raise" where a worker fails before the first step, or "warn" and go on without it.
        report_interval: iterations between two reports to history and observers.
        seed: of start points, power iterations and mini-batches.

    >>> AspireEase(active_workers=4).resolve(workers=8).iterations
    3000
    >>> AspireEase(active_workers=9).resolve(workers=8)
    Traceback (most recent call last):
    fdro_core.errors.InvalidSetting: active_workers (S) must be in 1..8, the number of workers, got 9
    """

    active_workers: int = _setting(1, "S", "fully asynchronous, as in the paper's experiments")
    iterations: int | None = _setting(None, "T", "1,500·⌈N/S⌉: 1e-3 of the optimum on every shipped problem")
    max_staleness: int | None = _setting(
        None, "τ", "10·⌈N/S⌉: the rarest visitor sets the pace, so more steps of the others are wasted"
    )
    planes: str = _setting("ease", "EASE / CP", "fewer planes at the same objective")
    plane_interval: int | None = _setting(None, "k", "⌈N/S⌉: one oracle call an epoch, so its O(N) is shared")
    plane_horizon: int | None = _setting(None, "T₁", "stopping early leaves the wrong planes for good")
    max_planes: int = _setting(20, "M", "more did not converge faster; merged planes stay in P")
    penalty: float | None = _setting(None, "κ₁", "½·mean(q_jL_j): half of one worker's curvature in the sum")
    worker_step: float | None = _setting(None, "η_w", "1/(s_jL_j + κ₁): the local Lagrangian's curvature")
    step_scale: float = _setting(1.0, "", "the whole step; mini-batches may want less")
    consensus_step: float | None = _setting(None, "η_z", "1/(Nκ₁) is the exact z, from running sums")
    value_update: str = _setting("exact", "h", "the paper's gradient step on h oscillates")
    value_step: float | None = _setting(None, "η_h", 'needed only for value_update="gradient"')
    plane_dual_step: float | None = _setting(
        None, "ρ₁", "from the planes' spread; a fixed one fits one scale only"
    )
    consensus_dual_step: float | None = _setting(None, "ρ₂", "κ₁, as in the method of multipliers")
    regularisation: str = _setting("none", "c₁ᵗ, c₂ᵗ", "Setting 2 stalls at 1e-2 of the optimum")
    plane_damping_floor: float = _setting(0.0, "c̲₁", "Setting 2's floor")
    consensus_damping_floor: float = _setting(0.0, "c̲₂", "Setting 2's floor")
    parameter_bound: float = _setting(inf, "α₁", "no box unless asked for")
    value_bound: float = _setting(inf, "α₂", "no box unless asked for")
    value_floor: float = _setting(-inf, "0 in H", "losses may be negative; the paper's 0 as an option")
    plane_dual_bound: float = _setting(inf, "α₃", "Σλ = 1 bounds λ already")
    consensus_dual_bound: float = _setting(inf, "α₄", "no box unless asked for")
    metric: str = _setting("problem", "", "features of condition 1e4 stall without it")
    local_steps: int = _setting(1, "per", "one local step a message")
    batch_size: int | None = _setting(None, "", "full batches reach the optimum")
    reported_loss: str = _setting(
        "full", "f_j", "a mini-batch's loss biases the maximum, and makes weights swing on round sets"
    )
    adaptive: Adaptive | None = field(default=None, metadata={"letter": "ADP", "why": "S stays as set"})
    deadline: float | str | None = _setting("auto", "", "a worker that hangs must not stop the run")
    resends: int = _setting(1, "", "one lost message should not cost a worker its place in z")
    dead_losses: str = _setting("freeze", "", "a silent worker's loss is still the best guess")
    max_bad_updates: int = _setting(3, "", "one NaN can be an accident")
    on_failed_start: str = _setting(
        "raise", "", "a worker that never began is a mistake more often than a fault"
    )
    report_interval: int | None = _setting(None, "", "⌈N/S⌉ iterations: one report an epoch")
    seed: int = _setting(0, "", "fixes every bit")

    def check(self, workers: int, uncertainty_set: Any) -> None:
        """Refuse what cannot work, before anything is made."""
        from fdro_core.federation import handshake as setup

        setup.check(self, workers, uncertainty_set)

    def worker(self, index: int, source: ProblemSource) -> WorkerFactory:
        """What makes worker j where it is to live."""
        from fdro_core.federation import handshake as setup

        return partial(setup.make_worker, index, source, self)

    def master(self, uncertainty_set: Any, workers: int, ask: Ask, start: Array | None) -> Master:
        """The master at the start, after two rounds: what are the problems like, how curved are they."""
        from fdro_core.federation import handshake as setup

        return setup.make_master(self, uncertainty_set, workers, ask, start)

    def restore(self, uncertainty_set: Any, workers: int, state: Mapping[str, Any]) -> Master:
        """The master of a snapshot."""
        from fdro_core.aspire.master import Master

        return Master.restored(self.resolve(workers), uncertainty_set, state)

    def resolve(self, workers: int) -> Plan:
        """The settings for N workers, counts worked out; refuses what cannot work."""
        _check(self, workers)
        rounds = ceil(workers / self.active_workers)
        staleness = 10 * rounds if self.max_staleness is None else self.max_staleness
        if staleness * self.active_workers < workers:
            raise InvalidSetting(
                f"max_staleness (τ) = {staleness} is too small for active_workers (S) = "
                f"{self.active_workers}: {workers} workers need τ >= ⌈N/S⌉ = {rounds}"
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


@dataclass(frozen=True)
class Plan:
    """An AspireEase whose counts are settled for N workers."""

    config: AspireEase
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


_CHOICES = {
    "planes": ("ease", "cp"),
    "value_update": ("exact", "gradient"),
    "regularisation": ("none", "setting-2"),
    "metric": ("problem", "none"),
    "reported_loss": ("full", "average"),
    "dead_losses": ("freeze", "drop"),
    "on_failed_start": ("raise", "warn"),
}
_COUNTS = (
    "iterations",
    "max_staleness",
    "plane_interval",
    "max_planes",
    "local_steps",
    "batch_size",
    "max_bad_updates",
    "report_interval",
)
_STEPS = (
    "penalty",
    "worker_step",
    "step_scale",
    "consensus_step",
    "value_step",
    "plane_dual_step",
    "consensus_dual_step",
)
_BOUNDS = ("parameter_bound", "plane_dual_bound", "consensus_dual_bound")
_FLOORS = ("plane_damping_floor", "consensus_damping_floor")


def _label(name: str) -> str:
    letter = next(f.metadata["letter"] for f in fields(AspireEase) if f.name == name)
    return f"{name} ({letter})" if letter else name


def _check(config: AspireEase, workers: int) -> None:
    S = config.active_workers
    if not _whole(S) or not 1 <= S <= workers:
        raise InvalidSetting(f"active_workers (S) must be in 1..{workers}, the number of workers, got {S}")
    for name, choices in _CHOICES.items():
        if getattr(config, name) not in choices:
            raise InvalidSetting(f"{name} must be one of {', '.join(choices)}, got {getattr(config, name)!r}")
    for name in _COUNTS:
        value = getattr(config, name)
        if value is not None and (not _whole(value) or value < 1):
            raise InvalidSetting(f"{_label(name)} must be a whole number >= 1, got {value!r}")
    if config.planes == "ease" and config.max_planes < 2:
        raise InvalidSetting(f"max_planes (M) must be at least 2 for planes='ease', got {config.max_planes}")
    horizon = config.plane_horizon
    if horizon is not None and (not _whole(horizon) or horizon < 0):
        raise InvalidSetting(f"plane_horizon (T₁) must be a whole number >= 0, got {horizon!r}")
    if not _whole(config.resends) or config.resends < 0:
        raise InvalidSetting(f"resends must be a whole number >= 0, got {config.resends!r}")
    for name in _STEPS:
        value = getattr(config, name)
        if value is not None and not (isfinite(value) and value > 0):
            raise InvalidSetting(f"{_label(name)} must be a finite number > 0, got {value!r}")
    if config.deadline not in (None, "auto") and not _positive(config.deadline):
        raise InvalidSetting(
            f'deadline must be "auto", None or a finite number of seconds > 0, got {config.deadline!r}'
        )
    for name in _BOUNDS:
        if not getattr(config, name) > 0:
            raise InvalidSetting(f"{_label(name)} must be > 0, got {getattr(config, name)!r}")
    for name in _FLOORS:
        if not getattr(config, name) >= 0:
            raise InvalidSetting(f"{_label(name)} must be >= 0, got {getattr(config, name)!r}")
    if isnan(config.value_floor) or isnan(config.value_bound) or config.value_floor >= config.value_bound:
        raise InvalidSetting(
            f"value_floor must be below value_bound (α₂), got {config.value_floor} and {config.value_bound}"
        )
    if config.value_update == "gradient" and config.value_step is None:
        raise InvalidSetting('value_update="gradient" needs a value_step (η_h), for example 0.1')
    if config.value_update == "exact" and config.plane_dual_bound < 1:
        raise InvalidSetting(
            f"plane_dual_bound (α₃) must be at least 1 for Σλ = 1, got {config.plane_dual_bound}"
        )
    if not _whole(config.seed) or config.seed < 0:
        raise InvalidSetting(f"seed must be a whole number >= 0, got {config.seed!r}")
    if config.adaptive is not None:
        config.adaptive.check(workers)


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value > 0


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def settings_table() -> str:
    """Every setting as a Markdown table: name, the paper's letter, default, why.

    >>> print(settings_table().splitlines()[2])
    | `active_workers` | S | `1` | fully asynchronous, as in the paper's experiments |
    """
    lines = ["| setting | paper | default | why |", "|---|---|---|---|"]
    for item in fields(AspireEase):
        default = item.default.replace('"', "") if isinstance(item.default, str) else item.default
        lines.append(f"| `{item.name}` | {item.metadata['letter']} | `{default}` | {item.metadata['why']} |")
    return "\n".join(lines)
