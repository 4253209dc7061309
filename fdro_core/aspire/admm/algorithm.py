"""ASPIRE-EASE, Algorithm 1 of the paper: its settings, and how masters and workers are made from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, ClassVar, TypeAlias

from fdro_core.aspire.admm.master import Master
from fdro_core.aspire.admm.worker import Worker
from fdro_core.aspire.settings import AspireSettings
from fdro_core.errors import InvalidSetting
from fdro_core.protocol.engine import WorkerFactory, WorkerMachine
from fdro_core.protocol.messages import Begin
from fdro_core.protocol.problem import ProblemSource, build
from fdro_core.protocol.settings import Number, OneOf, Steps, documented, setting

Step: TypeAlias = float | Callable[[int, int], float] | None


@documented
@dataclass(frozen=True, kw_only=True)
class AspireEase(AspireSettings):
    """ASPIRE-EASE, Algorithm 1 of the paper: every worker takes one gradient step per message on its own w_j.

    The defaults follow the paper's updates with step sizes that converge without tuning; `AspireEase.paper()`
    has the paper's choice wherever it makes one. A step size may be a number or a function of the iteration
    and the number of planes, as `fdro_core.aspire.theory.Theorem1`. None means the rule in docs/settings.md.

    >>> AspireEase(active_workers=4).resolve(workers=8).iterations
    3000
    >>> AspireEase(active_workers=9).resolve(workers=8)
    Traceback (most recent call last):
    fdro_core.errors.InvalidSetting: active_workers (S) must be in 1..8, the number of workers, got 9
    """

    name: ClassVar[str] = "aspire-ease"

    penalty: float | None = setting(
        None,
        Number(),
        "penalty on w_j - z",
        letter="κ₁",
        why="½·mean(q_jL_j): half of one worker's curvature in the sum",
    )
    worker_step: Step = setting(
        None,
        Steps(),
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
    consensus_step: Step = setting(
        None, Steps(), "step of z", letter="η_z", why="1/(Nκ₁) is the exact z, from running sums"
    )
    value_update: str = setting(
        "exact",
        OneOf("exact", "gradient"),
        '"exact" uses the h for which Σλ = 1, "gradient" is the paper\'s step on h',
        letter="h",
        why="the paper's gradient step on h oscillates without damping",
    )
    value_step: Step = setting(
        None,
        Steps(),
        'step of h for value_update="gradient"; None: c₁ᵗ/(2|A|), which needs regularisation="setting-2"',
        letter="η_h",
        why="damps h as fast as λ is damped",
    )
    plane_dual_step: float | None = setting(
        None,
        Number(),
        "step of λ; None: from the planes and the gradients (docs/driver-internals.md)",
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
        why="the paper's Setting 2 is often still 1e-2 from the optimum at the usual horizon",
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
    reported_loss: str = setting(
        "full",
        OneOf("full", "average"),
        'with mini-batches, "full" sends f_j on all data, "average" a running mean of batches',
        letter="f_j",
        why="the noise of a mini-batch loss biases the maximum, and makes weights oscillate on round sets",
    )

    @classmethod
    def paper(cls, **settings: Any) -> AspireEase:
        """The paper's choice wherever it makes one; what it leaves open keeps its default.

        Steps in D = 1, h by a gradient step within H = [0, α₂], c₁ᵗ and c₂ᵗ by Setting 2, planes by EASE with
        at most M (Setting 1), S = 1. The paper gives no numbers for ρ₁, ρ₂, η_w, η_z, κ₁ and the bounds α.

        >>> AspireEase.paper(active_workers=2).regularisation
        'setting-2'
        """
        chosen = {
            "metric": "none",
            "value_update": "gradient",
            "value_floor": 0.0,
            "regularisation": "setting-2",
        }
        return cls(**{**chosen, **settings})

    def worker(self, index: int, source: ProblemSource) -> WorkerFactory:
        """Return a function that creates worker j on the machine where it runs."""
        return partial(make_worker, index, source, self)

    def _opening(self) -> dict[str, Any]:
        return {"begin_with": Begin, "bound": self.parameter_bound}

    @property
    def master_kind(self) -> type[Master]:
        """The class of the master."""
        return Master

    def _check_pairs(self, workers: int) -> None:
        super()._check_pairs(workers)
        if self.value_floor >= self.value_bound:
            raise InvalidSetting(
                f"value_floor must be below value_bound (α₂), got {self.value_floor} and {self.value_bound}",
                parameter="value_floor",
                value=self.value_floor,
            )
        if self.value_update == "gradient" and self.value_step is None and self.regularisation == "none":
            message = 'value_update="gradient" needs a value_step (η_h), for example 0.1'
            raise InvalidSetting(message, parameter="value_update", value=self.value_update)
        if self.value_update == "exact" and self.plane_dual_bound < 1:
            raise InvalidSetting(
                f"plane_dual_bound (α₃) must be at least 1 for Σλ = 1, got {self.plane_dual_bound}",
                parameter="plane_dual_bound",
                value=self.plane_dual_bound,
            )


def make_worker(index: int, source: ProblemSource, settings: AspireEase) -> WorkerMachine:
    """Make worker j; called on the machine where it runs."""
    return Worker(index, build(source, index), settings)
