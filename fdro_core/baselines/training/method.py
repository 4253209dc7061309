"""The settings that every baseline has, and the steps that follow from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fdro_core.master import preconditioner
from fdro_core.master import settings as shared
from fdro_core.master.roster import RosterSettings
from fdro_core.protocol.algorithm import AlgorithmTraits
from fdro_core.protocol.settings import Number, OneOf, Whole, setting
from fdro_core.protocol.tuning import PRECONDITIONED, Tunable, Variant


@dataclass(frozen=True, kw_only=True)
class TrainingMethod(AlgorithmTraits, ABC):
    """A method whose workers take local steps from the master's model. Its kinds have fields of their own."""

    iterations: int = setting(1500, Whole(), "models that the master makes")
    step: float | None = setting(
        None,
        Number(),
        "step size of the local steps w ← w - η/D·∇f_j",
        letter="η",
        why="1/max_j L_j, with L_j measured at the start; with a preconditioner 0.006, the longest step, "
        "or with full batches the first one: it then follows the progress",
    )
    preconditioner: str = setting(
        "none",
        OneOf("none", "gradients"),
        '"gradients" steps in the metric P of AspireModels with mini-batches, which follows the gradients',
        letter="P",
    )
    averaging: float = setting(
        0.0,
        Number(inclusive=True),
        "share of the iterations so far over which w is averaged for the result; 0: the result is the last w",
    )
    local_steps: int = setting(1, Whole(), "local steps per message", letter="E")
    batch_size: int | None = shared.batch_size()
    reported_loss: str = setting(
        "full",
        OneOf("full", "batch"),
        'with mini-batches, "full" sends f_j on all data, "batch" that of the first batch',
    )
    metric: str = shared.metric()
    deadline: float | str | None = shared.deadline()
    resends: int = shared.resends()
    max_bad_updates: int = shared.max_bad_updates()
    on_failed_start: str = shared.on_failed_start()
    seed: int = shared.seed()

    label: ClassVar[str] = ""  # the method's name in the experiments' tables; "": it has no row there
    year: ClassVar[int] = 0  # of its publication, which orders the rows
    tunable: ClassVar[Mapping[str, Tunable]] = {}  # what the experiments search, and from where
    variants: ClassVar[tuple[Variant, ...]] = (PRECONDITIONED,)  # further rows of a method with a label

    @abstractmethod
    def roster(self, workers: int) -> RosterSettings:
        """What the roster needs of the settings."""

    @property
    def proximal_weight(self) -> float:
        """μ, if local steps are on f_j(w) + (μ/2)‖w - w_t‖² in the metric D, w_t the model sent; else 0."""
        return 0.0

    @property
    def preconditioned(self) -> bool:
        """Whether steps are in the metric that follows the gradients."""
        return self.preconditioner == "gradients"

    @property
    def follows(self) -> bool:
        """Whether η follows the steps: the default one in the metric of the gradients, if these are exact."""
        return self.preconditioned and self.step is None and self.batch_size is None

    def start_step(self, curvature: float) -> float:
        """η: the setting, else a default; the curvature is max_j L_j."""
        if self.step is not None:
            return self.step
        if self.preconditioned:
            return preconditioner.STEP
        return 1.0 / curvature if curvature > 0 else 1.0
