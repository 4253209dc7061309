"""The master of a baseline: what rounds and arrivals do alike with the model, its average and the reports."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

from fdro_core.baselines.training.method import TrainingMethod
from fdro_core.errors import CheckpointMismatch
from fdro_core.master import kernels, preconditioner
from fdro_core.master.base import FederatedMaster, Figures, Standing
from fdro_core.master.handshake import Handshake
from fdro_core.master.outliers import Outliers
from fdro_core.protocol.algorithm import Oracle
from fdro_core.protocol.messages import Probe, Reply, Request, Trained
from uncertainty_sets.arrays import Array


class TrainingState(Protocol):
    """What the state of every method has.

    Attributes:
        w: the model; replaced, never written to.
        weights: the weight of each worker.
        losses: f_j as last reported.
        step: η.
        squares: v of the preconditioner, None without one and before the first step.
        average: the running mean of w, which is the result; None if w itself is.
    """

    w: Array
    weights: Array
    losses: Array
    step: float
    squares: Array | None
    average: Array | None


Method = TypeVar("Method", bound=TrainingMethod)
State = TypeVar("State", bound=TrainingState)


class TrainingMaster(FederatedMaster, Generic[Method, State]):
    """The parent of the masters of rounds and of arrivals.

    Attributes:
        method: the settings and the updates.
        state: the model and what the method works on.
        inverse: 1/P, which workers need from their second local step on; None if v is not known.
    """

    reply_kind = Trained
    method: Method
    state: State

    def __init__(self, method: Method, oracle: Oracle, handshake: Handshake) -> None:
        super().__init__(method.roster(len(handshake.first)), oracle, handshake)
        self.method = method

    @classmethod
    @abstractmethod
    def restored(cls, method: Method, oracle: Oracle, workers: int, saved: Mapping[str, Any]) -> Self:
        """The master of a snapshot."""

    @property
    @abstractmethod
    def _epochs(self) -> float:
        """The epochs so far, of N gradients each."""

    @property
    @abstractmethod
    def _taking_part(self) -> int:
        """How many workers an iteration is made of."""

    def _derive(self) -> None:
        super()._derive()
        self._derive_inverse()

    def _derive_inverse(self) -> None:
        squares = self.state.squares
        self.inverse = None if squares is None else 1.0 / preconditioner.metric(squares)

    @property
    def z(self) -> Array:
        """The model: w, or its running mean."""
        state = self.state
        return state.w if state.average is None else state.average

    @property
    def _step(self) -> float:
        """η; with a preconditioner it rises and falls with the epochs, as that of `AspireModels` does."""
        if not self.method.preconditioned:
            return self.state.step
        return self.state.step * preconditioner.pace(self._epochs, self.state.losses.size)

    @property
    def reported(self) -> Array:
        """Every worker's loss as it last reported it."""
        return self.state.losses

    def _enter(self, j: int, began: Array, size: float) -> None:
        """Enter ‖w_j‖² into the book that compares workers; `began` is where its steps began."""
        book = self.outliers.books[j]
        book[1] = kernels.norm_sq(began)
        kernels.enter(book, size, size)

    def _average(self) -> None:
        """Take w into its running mean, over the last share `averaging` of the iterations."""
        state = self.state
        if state.average is not None:
            pace = 1.0 / max(1.0, self.method.averaging * self.iteration)
            state.average = state.average + pace * (state.w - state.average)

    # -- reports, assessment, checkpoints -------------------------------------------------------------

    def _figures(self) -> Figures:
        losses = self.state.losses.copy()
        return Figures(
            objective=float(self.oracle.worst_case(losses).value),
            value=float(self.state.weights @ losses),
            losses=losses,
            weights=self.state.weights.copy(),
            planes=1,
            active_workers=self._taking_part,
            theorem_numbers=self.sent + self.received,
        )

    def probes(self) -> dict[int, Request]:
        """The loss at the model, from every worker that is not dropped."""
        w = self.z
        return {j: Probe(w, w, 0.0, 0.0) for j in self.roster.kept()}

    def _standing(self, replies: Mapping[int, Reply | Exception], losses: Array, answer: Any) -> Standing:
        """Definition 1 is about ASPIRE's Lagrangian: here the gap is infinite."""
        weights = self.state.weights.copy()
        return Standing(weights, weights[None, :], np.inf)

    def _no_outliers(self, workers: int) -> Outliers:
        """The books of a restored master, before it has its own from the snapshot."""
        none = np.zeros(workers)
        return Outliers(workers, self.state.w, self.state.losses, none, none)


def check_saved(method: TrainingMethod, workers: int, saved: Mapping[str, Any], part: str) -> None:
    """Raise `CheckpointMismatch` if a snapshot lacks that part, or is of another number of workers."""
    if part not in saved or len(saved["state"]["weights"]) != workers:
        raise CheckpointMismatch(
            f"the checkpoint is not one of {type(method).__name__} with {workers} workers: give the same "
            "problems and algorithm as the first time"
        )
