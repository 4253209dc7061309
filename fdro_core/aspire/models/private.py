"""Private runs: what a worker is asked, the worker, and the master.

What leaves the worker is noised and counted, or does not depend on its data.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from fdro_core.aspire.models.master import ModelMaster
from fdro_core.aspire.models.messages import Begun, Evaluate, Evaluation
from fdro_core.errors import InvalidData, InvalidProblem, InvalidSetting
from fdro_core.master import kernels
from fdro_core.master.base import Outgoing, Standing
from fdro_core.privacy.account import Account, Ledger
from fdro_core.privacy.accounting import Releases
from fdro_core.privacy.gate import Gate, Refusal, hushed
from fdro_core.privacy.mechanism import Entropy, SeededEntropy, SystemEntropy, release
from fdro_core.privacy.policy import ledger_in_force
from fdro_core.privacy.settings import SAMPLE, Privacy, report
from fdro_core.protocol.forms import FLOAT, flag, message
from fdro_core.protocol.messages import Begin, Hello, Introduction, Message, Reply, Request
from fdro_core.protocol.problem import (
    Problem,
    ProblemSource,
    as_vector,
    build,
    check_dimension,
    check_samples,
    checked_evaluation,
    read_only,
)
from fdro_core.protocol.settings import Whole, check_setting
from fdro_core.result import BUDGET_SPENT
from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import FdroError

# -- messages ------------------------------------------------------------------------------------------


@message
class Released(Evaluation):
    """The noised f_j and ∇f_j; zeros that mean nothing if the budget is `spent`."""

    spent: bool = flag(default=False)


@message
class Release(Evaluate):
    """Report noised loss and gradient at z."""

    answer: ClassVar[type[Message] | None] = Released


@message
class Accounted(Message):
    """The worker's count of its releases: one row of rate, noise multiplier and number for every kind."""

    releases: Any

    def __post_init__(self) -> None:
        self.releases = np.array(self.releases, dtype=np.float64).reshape(-1, 3)

    def kinds(self) -> Releases:
        """The releases as the accountant takes them."""
        return tuple((float(rate), float(noise), int(count)) for rate, noise, count in self.releases)


@message
class AskAccount(Message):
    """In a round of its own: report how much you have released. The answer does not look at data."""

    answer = Accounted
    numbers = 1  # the question itself
    shared = True

    def fault(self, reply: Accounted) -> str:
        """Check that the rows can be counted."""
        rows: Any = getattr(reply, "releases", None)
        good = isinstance(rows, np.ndarray) and rows.dtype == np.float64 and rows.ndim == 2
        if not (good and rows.shape[1] == 3 and np.isfinite(rows).all() and (rows >= 0).all()):
            return "releases, which must be rows of three finite numbers >= 0"
        return ""


# -- the worker ----------------------------------------------------------------------------------------


LOG = logging.getLogger("fdro.privacy")

PROBLEMS = ("SoftmaxRegression", "LeastSquares", "HuberRegression", "DenseNetwork", "TorchProblem")
"""The classes of problems that a worker tells; of any other it says `OTHER`."""

OTHER = "Problem"


class PrivateWorker(Gate):
    """Worker j. A release costs the gradients of a batch, one per sample.

    It introduces itself by the dimension and the problem's class only: a metric, a starting point, a number
    of samples or a fingerprint would depend on its data. Of its curvature it says 0, which nothing uses.
    """

    kinds = (Introduction, Begun, Released, Accounted)
    words = frozenset((*PROBLEMS, OTHER))

    def __init__(self, index: int, source: ProblemSource, privacy: Privacy, *, batch_size: int) -> None:
        self.privacy = privacy
        self.batch_size = batch_size
        super().__init__(index, lambda: self._make(source))

    def _make(self, source: ProblemSource) -> None:
        privacy = self.privacy
        try:  # the settings came from elsewhere
            privacy.check()
            check_setting("batch_size", self.batch_size, Whole())
        except FdroError as error:  # the accountant may be missing
            raise Refusal(error) from None
        self.problem: Problem = self._look(lambda: build(source, self.index))
        named = f"problems[{self.index}]"
        self.dimension = self._look(lambda: check_dimension(self.problem.dimension, named))
        self.samples = self._count_samples()
        sampled = privacy.unit == SAMPLE
        self.expected = float(min(self.batch_size, self.samples)) if sampled else 1.0  # qn
        seed = privacy.noise_seed
        self.entropy: Entropy = SystemEntropy() if seed is None else SeededEntropy(seed, self.index)
        self.account = self._counted(lambda: Account(privacy, self.expected / self.samples, self._ledger()))
        self._last: tuple[Array, Released] | None = None

    def _look(self, call: Callable[[], Any]) -> Any:
        """Call what may look at data, such as anything of the problem."""
        return hushed(self.index, call)

    def _ledger(self) -> Ledger | None:
        """The ledger of the machine's policy, if there is one."""
        found = ledger_in_force(self.index)
        if found is None:
            return None
        policy, path = found
        return Ledger(path, policy)

    def _counted(self, call: Callable[[], Any]) -> Any:
        """Call what reads or writes the ledger; why it cannot is for the machine's own log."""
        try:
            return call()
        except (InvalidData, InvalidSetting, OSError) as error:
            LOG.warning("worker %d releases nothing: %s", self.index, error)
        raise Refusal(
            InvalidData(
                f"worker {self.index} cannot count in its ledger, and releases nothing; its log says why"
            )
        )

    def _count_samples(self) -> int:
        """n; 1 if all data are one unit."""
        if self.privacy.unit != SAMPLE:
            return 1
        named = f"problems[{self.index}]"
        if not self._look(lambda: callable(getattr(self.problem, "sample_gradients", None))):
            raise Refusal(
                InvalidProblem(
                    f"{named} is a {self._kind()} without `sample_gradients`, which privacy of samples needs "
                    '(docs/privacy.md); Privacy(unit="client") does without'
                )
            )
        samples: int = self._look(lambda: check_samples(getattr(self.problem, "samples", None), named)) or 0
        if not samples or self.privacy.delta * samples >= 1.0:
            raise Refusal(
                InvalidSetting(
                    "Privacy.delta must be below 1 over the number of samples, got "
                    f"{self.privacy.delta:g} and {named}.samples = {samples}",
                    parameter="delta",
                    value=self.privacy.delta,
                )
            )
        return samples

    def _kind(self) -> str:
        """The problem's class, or the one of ours that it derives from."""
        return next(
            (each.__name__ for each in type(self.problem).__mro__ if each.__name__ in PROBLEMS), OTHER
        )

    def _answer(self, message: Request) -> Reply:
        """The reply to a message; what would need exact numbers is refused."""
        if isinstance(message, Release):
            self._check_point(message.z)
            return self._step(message)
        if isinstance(message, AskAccount):
            return Accounted(self.account.releases)
        if isinstance(message, Begin):
            self._check_point(message.z, message.metric, message.inverse)
            return self._begin(message)
        if isinstance(message, Hello):
            return Introduction(self.dimension, None, None, None, self._kind())
        raise Refusal(
            InvalidSetting(f"worker {self.index} is private and does not answer {type(message).__name__:.80}")
        )

    def _check_point(self, *given: Any) -> None:
        """Refuse vectors of another size: kernels would read what lies behind them."""
        for each in given:
            if type(each) is not np.ndarray or each.dtype != FLOAT or each.shape != (self.dimension,):
                raise Refusal(
                    InvalidSetting(
                        f"worker {self.index} is asked at {self.dimension} numbers, and got others"
                    )
                )

    def _step(self, message: Release) -> Released:
        """A new release; for a message that is repeated, the same one, which costs nothing."""
        if self._last is not None:
            z, last = self._last
            if last.ticket == message.ticket and np.array_equal(z, message.z):
                return last
        if not self._counted(self.account.charge):
            return Released(message.ticket, 0.0, np.zeros_like(message.z), spent=True)
        reply = Released(message.ticket, *self._release(message.z))
        self._last = message.z, reply
        return reply

    def _begin(self, message: Begin) -> Begun:
        if not self._counted(self.account.charge):
            privacy = self.privacy
            raise Refusal(
                InvalidSetting(
                    f"worker {self.index} has nothing left to release within epsilon = {privacy.epsilon:g} "
                    f"at noise = {privacy.noise:g}: {self.account.limit} releases are allowed and "
                    f"{self.account.count} were made. Raise noise, or epsilon",
                    parameter="epsilon",
                    value=privacy.epsilon,
                )
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
        more, slope = self._look(lambda: self._penalty(z))
        return loss + more, gradient + slope

    def _penalty(self, z: Array) -> tuple[float, Any]:
        penalty = getattr(self.problem, "penalty", None)
        if not callable(penalty):
            return 0.0, 0.0
        more, slope = penalty(read_only(z))
        return float(more), as_vector(slope, z.size, "penalty()")

    def _whole(self, z: Array) -> tuple[Array, Array]:
        """Loss and gradient of all data as those of one sample, on a batch that nobody else knows."""
        rng = self.entropy.generator()

        def evaluated() -> tuple[float, Array]:
            given = self.problem.loss_and_gradient(read_only(z), rng, self.batch_size)
            return checked_evaluation(given, z, self.index)

        loss, gradient = self._look(evaluated)
        return np.array([loss]), gradient[None, :]

    def _per_sample(self, z: Array, rows: Any) -> tuple[Array, Array]:
        """Loss and gradient of every sample in the batch, checked for their shapes."""
        problem: Any = self.problem

        def evaluated() -> tuple[Array, Array]:
            losses, gradients = problem.sample_gradients(read_only(z), rows)
            return np.asarray(losses, dtype=np.float64), np.asarray(gradients, dtype=np.float64)

        losses, gradients = self._look(evaluated)
        if losses.shape != (rows.size,) or gradients.shape != (rows.size, z.size):
            raise Refusal(
                InvalidProblem(
                    f"problems[{self.index}].sample_gradients must give one loss and one row of {z.size} "
                    "numbers for each of the rows that it is given"
                )
            )
        return losses, gradients

    # -- a worker that is made again ------------------------------------------------------------------

    def _state(self) -> dict[str, int]:
        """How much was released; neither noise nor data."""
        return {"released": self.account.count}

    def _restore(self, state: Mapping[str, Any] | None) -> None:
        """Go on if all releases are known: a checkpoint does not know of those that came after it."""
        self._go_on(0 if state is None else int(state["released"]))

    def _recall(self, opening: Sequence[Request], last: Reply | None, replies: int) -> None:
        """Go on in a new process if all releases are known; one that is still there knows its own."""
        begun = any(isinstance(message, Begin) for message in opening)
        self._go_on(1 if begun or replies else 0)

    def _go_on(self, released: int) -> None:
        try:
            self.account.go_on(released)
        except InvalidSetting as error:
            raise Refusal(error) from None


# -- the master ----------------------------------------------------------------------------------------


class PrivateMaster(ModelMaster):
    """The master for `AspireModels(privacy=...)`.

    What it knows at the end are running means of noised losses, so nothing is proved about the model. It does
    not go on without a worker whose budget is spent: its last gradient would push the model for ever.
    """

    def _accept(self, j: int, reply: Any) -> Outgoing:
        if isinstance(reply, Released) and reply.spent:
            if not self.finished:
                self.notice("budget-spent", worker=j)
            self.finished = BUDGET_SPENT
            return []
        return super()._accept(j, reply)

    def _repeat(self, j: int) -> Release:
        z = self.sent_points[j]
        self.sent += z.size + 1
        return Release(self.roster.tickets[j], z)

    def probes(self) -> dict[int, Request]:
        """Ask every worker for its account; a loss on all its data would be one release more."""
        return dict.fromkeys(self.roster.kept(), AskAccount())

    def _standing(self, replies: Mapping[int, Reply | Exception], losses: Array, answer: Any) -> Standing:
        """The weights, the planes and what was released; how far from optimal the model is, is not known."""
        accounts = {j: reply.kinds() for j, reply in replies.items() if isinstance(reply, Accounted)}
        privacy = self.plan.config.privacy
        assert privacy is not None
        known = report(privacy, self.plan.workers, accounts)
        return Standing(self.planes.weights(), self.planes.matrix(), np.inf, model="average", privacy=known)
