"""ASPIRE with quadratic models at the master: its settings, and what makes masters and workers of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from fdro_core.aspire.models.clipping import FEWEST
from fdro_core.aspire.models.master import ModelMaster
from fdro_core.aspire.models.messages import BeginModels
from fdro_core.aspire.models.private import PrivateMaster, PrivateWorker
from fdro_core.aspire.models.worker import ModelWorker
from fdro_core.aspire.settings import AspireSettings
from fdro_core.errors import InvalidSetting
from fdro_core.master import preconditioner
from fdro_core.privacy.settings import Privacy
from fdro_core.protocol.engine import WorkerFactory, WorkerMachine
from fdro_core.protocol.problem import ProblemSource, build
from fdro_core.protocol.settings import Instance, Number, documented, setting


@documented
@dataclass(frozen=True, kw_only=True)
class AspireModels(AspireSettings):
    """Our form of ASPIRE, and the default of `solve`: the master moves z by models of the workers' losses.

    Planes and asynchrony are those of `AspireEase`; a worker answers with its loss and gradient at the point
    that it was sent, keeps no state, and needs several times fewer gradients. None means the rule in
    docs/settings.md.

    >>> AspireModels(active_workers=4).resolve(workers=8).iterations
    3000
    >>> AspireModels(clip=2.0).resolve(workers=2)
    Traceback (most recent call last):
    fdro_core.errors.InvalidSetting: clip compares a worker with the median of the others and needs 3 ...
    """

    name: ClassVar[str] = "aspire-models"

    model_step: float | None = setting(
        None,
        Number(),
        "longest step of z with mini-batches, in the metric of the replies; "
        "steps rise for 15 epochs, or 1,500 gradients if that is sooner, and then fall",
        letter="η",
        why="0.006√N: as for RMSprop, and the mean of N replies that are noise is √N times shorter than one",
    )
    weight_step: float = setting(
        0.1,
        Number(),
        "step of the weights per epoch with mini-batches; with more than twenty workers times 5/N",
        letter="ρ",
        why="running losses are noisy; a longer step lets the weights swing",
    )
    averaging: float = setting(
        0.1,
        Number(inclusive=True),
        "share of the epochs so far over which z is averaged, with mini-batches",
        why="the noise of the last steps cancels",
    )
    rest: float = setting(
        3.0,
        Number(inclusive=True),
        "most epochs for which a worker of little weight may rest, with mini-batches; 0: none",
        why="a gradient counts by its weight; a worker without weight is asked for its loss's sake only",
    )
    tolerance: float = setting(
        1e-8,
        Number(inclusive=True),
        "with full batches: end the run when no more than this share of the objective "
        "seems left to gain, or of its fall since the start if that is smaller; 0: never",
        why="ends within 1e-8 of the optimum on every convex problem measured",
    )
    clip: float | None = setting(
        None,
        Number(1.0, inclusive=True),
        "a reply's gradient, curvature and distance of the loss are bounded by this "
        "factor times the median of the other workers' (docs/bad-actors.md); None: no bound",
        why="honest workers may differ by any factor; 2 where one may lie",
    )
    privacy: Privacy | None = setting(
        None,
        Instance(Privacy),
        "differential privacy of the workers' data (docs/privacy.md); it needs a batch_size",
        why="noise costs accuracy",
    )

    def worker(self, index: int, source: ProblemSource) -> WorkerFactory:
        """Return a function that creates worker j on the machine where it runs."""
        return partial(make_worker, index, source, self)

    def _opening(self) -> dict[str, Any]:
        return {"begin_with": BeginModels, "clip": self.clip}

    @property
    def master_kind(self) -> type[ModelMaster]:
        """The class of the master: with `privacy` one that sees noised numbers."""
        return ModelMaster if self.privacy is None else PrivateMaster

    def longest_step(self, workers: int) -> float:
        """η, by the setting or the rule."""
        return preconditioner.usual_step(workers) if self.model_step is None else self.model_step

    def _patience(self, workers: int) -> int:
        """With mini-batches an old gradient is old noise; but among many workers one counts little."""
        if self.batch_size is None:
            return super()._patience(workers)
        return 3 if workers <= preconditioner.FEW else 50

    def _check_pairs(self, workers: int) -> None:
        super()._check_pairs(workers)
        if self.privacy is not None:
            self._check_privacy(self.privacy)
        if self.clip is not None and workers < FEWEST:
            raise InvalidSetting(
                f"clip compares a worker with the median of the others and needs {FEWEST} workers or more, "
                f"got {workers}: leave clip out",
                parameter="clip",
                value=self.clip,
            )

    def _check_privacy(self, privacy: Privacy) -> None:
        """Raise `InvalidSetting` for settings that would need exact numbers, or spend more than they gain."""
        privacy.check()
        if self.batch_size is None or self.local_steps > 1:
            raise InvalidSetting(
                "privacy needs a batch_size (for all data one of at least the number of samples) and "
                f"local_steps=1, since every gradient is a release; got {self.batch_size} and "
                f"{self.local_steps}",
                parameter="privacy",
                value=privacy,
            )


def make_worker(index: int, source: ProblemSource, settings: AspireModels) -> WorkerMachine:
    """Make worker j; called on the machine where it runs."""
    if settings.privacy is not None:
        size: Any = settings.batch_size  # not None: checked with the settings, and by the worker
        return PrivateWorker(index, source, settings.privacy, batch_size=size)
    return ModelWorker(
        index,
        build(source, index),
        seed=settings.seed,
        batch_size=settings.batch_size,
        local_steps=settings.local_steps,
    )
