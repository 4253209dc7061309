"""The worker of a private run: what leaves it is noised and counted, or does not depend on its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fdro_core.aspire.models.messages import Begun
from fdro_core.aspire.models.private_messages import Accounted, AskAccount, Release, Released
from fdro_core.contracts.messages import Begin, Hello, Introduction, Reply, Request
from fdro_core.contracts.problem import (
    Problem,
    as_vector,
    check_dimension,
    check_samples,
    checked_evaluation,
    read_only,
)
from fdro_core.errors import DriverError, InvalidProblem, InvalidSetting
from fdro_core.federation import kernels
from fdro_core.privacy.account import Account
from fdro_core.privacy.entropy import Entropy, SeededEntropy, SystemEntropy
from fdro_core.privacy.ledger import Ledger
from fdro_core.privacy.mechanism import release
from fdro_core.privacy.settings import SAMPLE, Privacy
from uncertainty_sets.arrays import Array


class PrivateWorker:
    """Worker j. A release costs the gradients of a batch, one per sample.

    It introduces itself by the dimension and the problem's class only: a metric, a starting point, a number
    of samples or a fingerprint would depend on its data. Of its curvature it says 0, which nothing uses.
    """

    def __init__(self, index: int, problem: Problem, privacy: Privacy, *, batch_size: int) -> None:
        self.index = index
        self.problem = problem
        self.privacy = privacy
        self.batch_size = batch_size
        self.samples = self._count_samples()
        self.expected = float(min(batch_size, self.samples)) if privacy.unit == SAMPLE else 1.0  # qn
        seed = privacy.noise_seed
        self.entropy: Entropy = SystemEntropy() if seed is None else SeededEntropy(seed, index)
        ledger = None if privacy.ledger is None else Ledger(privacy.ledger, index, privacy)
        self.account = Account(privacy, self.expected / self.samples, ledger)
        self._last: tuple[Array, Released] | None = None

    def _count_samples(self) -> int:
        """n; 1 if all data are one unit."""
        if self.privacy.unit != SAMPLE:
            return 1
        named = f"problems[{self.index}]"
        if not callable(getattr(self.problem, "sample_gradients", None)):
            raise InvalidProblem(
                f"{named} is a {type(self.problem).__name__} without `sample_gradients`, which privacy of "
                'samples needs (docs/privacy.md); Privacy(unit="client") does without'
            )
        samples = check_samples(getattr(self.problem, "samples", None), named)
        if not samples or self.privacy.delta * samples >= 1.0:
            raise InvalidSetting(
                f"Privacy.delta must be below 1 over the number of samples, got {self.privacy.delta:g} and "
                f"{named}.samples = {samples}",
                parameter="delta",
                value=self.privacy.delta,
            )
        return samples

    def handle(self, message: Request) -> Reply:
        """The reply to a message; what would need exact numbers is refused."""
        if isinstance(message, Release):
            return self._step(message)
        if isinstance(message, AskAccount):
            return Accounted(self.account.releases)
        if isinstance(message, Begin):
            return self._begin(message)
        if isinstance(message, Hello):
            dimension = check_dimension(self.problem.dimension, f"problems[{self.index}]")
            return Introduction(dimension, None, None, None, type(self.problem).__name__)
        raise InvalidSetting(f"worker {self.index} is private and does not answer {type(message).__name__}")

    def _step(self, message: Release) -> Released:
        """A new release; for a message that is repeated, the same one, which costs nothing."""
        if self._last is not None:
            z, last = self._last
            if last.ticket == message.ticket and np.array_equal(z, message.z):
                return last
        if not self.account.charge():
            return Released(message.ticket, 0.0, np.zeros_like(message.z), spent=True)
        reply = Released(message.ticket, *self._release(message.z))
        self._last = message.z, reply
        return reply

    def _begin(self, message: Begin) -> Begun:
        if not self.account.charge():
            privacy = self.privacy
            raise InvalidSetting(
                f"worker {self.index} has nothing left to release within epsilon = {privacy.epsilon:g} at "
                f"noise = {privacy.noise:g}: {self.account.limit} releases are allowed and "
                f"{self.account.count} were made. Raise noise, or epsilon",
                parameter="epsilon",
                value=privacy.epsilon,
            )
        z = message.z
        loss, gradient = self._release(z)
        size = kernels.curvature(z, z, gradient, gradient, message.metric, message.inverse)[2]
        return Begun(loss, gradient, size, 0.0)

    # -- the only place that looks at data ------------------------------------------------------------

    def _release(self, z: Array) -> tuple[float, Array]:
        """Noised loss and gradient at z; the penalty is added afterwards, since it depends on z only."""
        if self.privacy.unit != SAMPLE:
            return release(*self._whole(z), 1.0, self.privacy, self.entropy)
        rows = np.flatnonzero(self.entropy.uniform(self.samples) < self.account.rate)
        losses, gradients = self._per_sample(z, rows)
        loss, gradient = release(losses, gradients, self.expected, self.privacy, self.entropy)
        penalty = getattr(self.problem, "penalty", None)
        if callable(penalty):
            more, slope = penalty(read_only(z))
            return loss + float(more), gradient + as_vector(slope, z.size, "penalty()")
        return loss, gradient

    def _whole(self, z: Array) -> tuple[Array, Array]:
        """Loss and gradient of all data as those of one sample, on a batch that nobody else knows."""
        evaluate, rng = self.problem.loss_and_gradient, self.entropy.generator()
        given = self._hushed(lambda: evaluate(read_only(z), rng, self.batch_size))
        loss, gradient = checked_evaluation(given, z, self.index)
        return np.array([loss]), gradient[None, :]

    def _per_sample(self, z: Array, rows: Any) -> tuple[Array, Array]:
        """Loss and gradient of every sample in the batch, checked for their shapes."""
        problem: Any = self.problem
        given = self._hushed(lambda: problem.sample_gradients(read_only(z), rows))
        losses, gradients = (np.asarray(part, dtype=np.float64) for part in given)
        if losses.shape != (rows.size,) or gradients.shape != (rows.size, z.size):
            raise InvalidProblem(
                f"problems[{self.index}].sample_gradients must give one loss and one row of {z.size} numbers "
                "for each of the rows that it is given"
            )
        return losses, gradients

    def _hushed(self, evaluate: Callable[[], Any]) -> Any:
        """Call the problem; the text of an error may quote data, so it stays here."""
        try:
            return evaluate()
        except Exception as error:
            kind = type(error).__name__
        raise DriverError(
            f"the problem of worker {self.index} raised a {kind}; its message is not sent, since it may "
            "quote data: evaluate the problem at the worker to see it"
        )

    # -- a worker that is made again ------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """How much was released; neither noise nor data."""
        return {"released": self.account.count}

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Go on if all releases are known: a checkpoint does not know of those that came after it."""
        self.account.go_on(0 if state is None else int(state["released"]))

    def recall(self, opening: Sequence[Request], last: Reply | None, replies: int) -> None:
        """Go on in a new process if all releases are known; one that is still there knows its own."""
        begun = any(isinstance(message, Begin) for message in opening)
        self.account.go_on(1 if begun or replies else 0)
