"""What every master does: sort events, count bad replies, lose and regain workers, report, assess.

A master is a state machine that takes events and returns messages to send. It reads no clock (events carry
the time) and does no I/O.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from fdro_core.errors import CheckpointMismatch
from fdro_core.master.handshake import Handshake
from fdro_core.master.outliers import Outliers
from fdro_core.master.roster import NEVER, Roster, RosterSettings, fill_losses
from fdro_core.protocol.algorithm import Assessment, Oracle
from fdro_core.protocol.engine import Away, Back, Event, Lost, Silent
from fdro_core.protocol.failures import no_workers_left, traceback_of, words
from fdro_core.protocol.messages import Probed, Reply, Request
from fdro_core.protocol.saved import Form, Kept, Saved, anything, listing, real, whole
from uncertainty_sets.arrays import Array

Outgoing = list[tuple[int, Any]]

OUT_OF_RANGE = "NaN, infinity or numbers beyond 1e150"


class Figures(NamedTuple):
    """The numbers of a report that depend on the algorithm; `theorem_numbers` are counted as in Theorem 2."""

    objective: float
    value: float
    losses: Array
    weights: Array
    planes: int
    active_workers: int
    theorem_numbers: int


class Standing(NamedTuple):
    """The part of an `Assessment` that depends on the algorithm: fields as in `Result`."""

    weights: Array
    planes: Array
    stationarity: float
    lower_bound: float = -np.inf
    model: str = "z"
    privacy: Any = None


class FederatedMaster(Kept, ABC):
    """The parent of all masters.

    A subclass sets `last`, `report_interval`, `steps_each`, `next_report`, `outliers` and its own state, then
    calls `_enter_handshake`. It defines which replies it accepts, which messages it sends, and what it does
    when enough replies are in.

    Attributes:
        reply_kind: the replies that are accepted; another one is a bad update.
        moment: how an error names the iteration, before its number.
        saved: what a snapshot keeps; a subclass adds its own.
        model: where the model is in a snapshot.
        mark: an entry that only its own snapshots have.
        in_rounds: whether it asks workers in rounds of one phase or more.
        last: the number of iterations to make.
        report_interval: iterations between two reports.
        steps_each: gradients that a reply takes.
        ticks: whether time alone can change the state.
        never: workers that never reported.
        finished: why the run should end, "" while it should go on.
    """

    reply_kind: ClassVar[type[Any]]
    moment: ClassVar[str] = "at iteration"
    model: ClassVar[str]
    mark: ClassVar[str]
    in_rounds: ClassVar[bool] = False
    saved: ClassVar[Form] = {
        **dict.fromkeys(("iteration", "sent", "received", "gradients", "next_report"), whole()),
        "time": real(),
        "last_words": anything,
        "notices": listing(),
        "roster": Roster.check_saved,
        "outliers": Outliers.check_saved,
    }

    last: int
    report_interval: int
    steps_each: int
    next_report: int
    outliers: Outliers
    finished = ""

    def __init__(self, settings: RosterSettings, oracle: Oracle, handshake: Handshake) -> None:
        self.oracle = oracle
        self.roster = Roster(settings)
        self.iteration = self.gradients = 0
        self.time = 0.0
        self.sent, self.received = handshake.sent, handshake.received
        self.notices: list[dict[str, Any]] = []
        self.last_words = ""
        self.last_failure: tuple[int, Exception] | None = None
        self.last_lost = -1
        self.fell_silent: set[int] = set()  # lost because they did not answer, and not back

    def _enter_handshake(self, handshake: Handshake) -> None:
        """Give notice of what the handshake found, and drop the workers that failed in it."""
        for j, what in handshake.suspicious.items():
            self.notice("suspicious", worker=j, reason=what)
        for j, error in handshake.failures.items():
            self.roster.visited[j] = NEVER
            self._lose(j, f"failed before the first step: {words(error)}", for_good=True, error=error)
        self._derive()

    def _derive(self) -> None:
        """Set what follows from the state and is not saved."""
        self.never = [j for j, visit in enumerate(self.roster.visited) if visit == NEVER]
        self.ticks = self.roster.deadline is not None or self.roster.settings.adaptive is not None

    # -- what an algorithm defines --------------------------------------------------------------------

    @property
    @abstractmethod
    def z(self) -> Array:
        """The model."""

    @property
    @abstractmethod
    def reported(self) -> Array:
        """Every worker's loss as it last reported it."""

    @abstractmethod
    def start(self) -> Outgoing:
        """The first messages."""

    @abstractmethod
    def probes(self) -> dict[int, Request]:
        """A probe for every worker that is not dropped."""

    @abstractmethod
    def _usable(self, j: int, reply: Any) -> bool:
        """Whether the numbers of a reply are in range; what they say of j is entered into its book."""

    @abstractmethod
    def _advance(self) -> Outgoing:
        """Use the replies that are in; the next messages."""

    @abstractmethod
    def _fresh(self, j: int) -> Any:
        """A new message to j, with a new ticket."""

    @abstractmethod
    def _repeat(self, j: int) -> Any:
        """The message under way to j once more, with the same ticket."""

    @abstractmethod
    def _figures(self) -> Figures:
        """The numbers of a report that depend on the algorithm."""

    @abstractmethod
    def _standing(self, replies: Mapping[int, Reply | Exception], losses: Array, answer: Any) -> Standing:
        """Where the algorithm stands, from the answers to `probes`.

        `losses` are those that the oracle was asked about, and `answer` is what it answered.
        """

    def _last_visits(self) -> list[int]:
        """The iteration in which each worker last took part."""
        return self.roster.visited

    @classmethod
    def _blank(cls, algorithm: Any, workers: int, state: Mapping[str, Any]) -> Self:
        """A master without attributes, for a snapshot that is one of these masters."""
        if cls.mark not in state or len(state["roster"]["alive"]) != workers:
            raise CheckpointMismatch(
                f"the checkpoint is not one of {type(algorithm).__name__} with {workers} workers: give the "
                "same problems and algorithm as the first time"
            )
        return cls.__new__(cls)

    # -- events ---------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> float | None:
        """When to tick if no event comes before: the next deadline or look at the delays."""
        return self.roster.wake_at() if self.ticks or self.roster.retries else None

    def handle(self, event: Event) -> Outgoing:
        """The messages to send after an event."""
        self.time = event.time
        payload, j = event.payload, event.worker
        out: Outgoing = []
        if isinstance(payload, self.reply_kind):
            out = self._receive(j, payload)
        elif isinstance(payload, Lost):
            self.roster.expect(j, payload.returns)
            if self.roster.alive[j]:
                self._lose(j, payload.reason, error=payload.error)
        elif isinstance(payload, Back):
            if not self.roster.alive[j] and j not in self.roster.dropped:
                out = self._return(j)
        elif isinstance(payload, Silent):
            out = self._suspect(j, payload)
        elif payload is None:
            out = self._tick()
        else:
            out = self._refuse(j)
        if self.roster.empty:
            last = self.last_lost if self.last_lost >= 0 else j
            when = f"{self.moment} {self.iteration}"
            raise no_workers_left(when, last, self.last_words, self.last_failure, sorted(self.fell_silent))
        return out + self._advance() if self._ready() else out

    def _receive(self, j: int, reply: Any) -> Outgoing:
        """Accept the awaited reply of j, ignore an old one, refuse any other."""
        self.received += reply.numbers
        awaited = self.roster.tickets[j]
        if reply.ticket < awaited or j in self.roster.pending:
            return []  # a repeated message, or one from before a crash
        return self._accept(j, reply) if reply.ticket == awaited else self._refuse(j)

    def _accept(self, j: int, reply: Any) -> Outgoing:
        """Keep the awaited reply of j, unless a number is out of range or j was lost for too long."""
        if not self._usable(j, reply):
            return self._refuse(j)
        roster = self.roster
        if not roster.alive[j]:
            if roster.staleness(j, self.iteration) > roster.max_staleness:
                return self._return(j)
            self._rejoin(j)
        self._keep(j, reply)
        return []

    def _keep(self, j: int, reply: Any) -> None:
        """Keep a reply until the iteration closes."""
        self.gradients += self.steps_each
        self.roster.accept(j, reply, self.time)

    def _ready(self) -> bool:
        """Whether enough replies are in to advance."""
        return self.roster.ready(self.iteration)

    def _adapt(self, *, tick: bool) -> None:
        """Let the rule that changes S look at the delays, if there is one."""
        rule = self.roster.settings.adaptive
        if rule is not None and self.roster.adapt(self.time, self.iteration, tick):
            self.notice("active-workers", active_workers=self.roster.active)

    def _tick(self) -> Outgoing:
        self._adapt(tick=True)
        return [(j, self._ask_silent(j)) for j in self.roster.overdue(self.time)]

    def _suspect(self, j: int, silent: Silent) -> Outgoing:
        """Ask j again, which the engine reports to be silent."""
        if not self.roster.silent(j, silent.deadline):
            return []
        self.notice("worker-silent", worker=j, seconds=silent.seconds, reason=silent.reason)
        return [(j, self._ask_silent(j))]

    def _ask_silent(self, j: int) -> Any:
        """The message for silent j: the one under way again, or a fresh one once j counts as lost."""
        if self.roster.ask_again(j, self.time):
            self.notice("asked-again", worker=j)
            return self._repeat(j)
        if self.roster.alive[j]:
            self._lose(j, f"silent for {self.time - self.roster.sent_at[j]:.3g} s")
            self.fell_silent.add(j)
        message = self._fresh(j)
        self.roster.retry(j, self.time)
        return message

    def _refuse(self, j: int) -> Outgoing:
        """Leave a bad update out and count it; after too many drop the worker for good."""
        another = self.roster.count_bad(j)
        bad = self.roster.bad[j]
        self.notice("bad-update", worker=j, count=bad)
        if another:
            return [(j, self._fresh(j))]
        if self.roster.alive[j]:
            self._lose(j, f"{bad} updates with {OUT_OF_RANGE}", for_good=True)
        return []

    # -- lost workers ---------------------------------------------------------------------------------

    def _lose(self, j: int, reason: str, *, for_good: bool = False, error: Exception | None = None) -> None:
        """Go on without worker j; `for_good` drops it."""
        self.roster.lose(j, for_good)
        if self.roster.settings.drops and self.roster.live:
            self._leave_out(self.roster.alive)
        self.last_words, self.last_lost = reason, j
        facts = {"worker": j, "reason": reason}
        if error is not None:
            self.last_failure = (j, error)
            facts["traceback"] = traceback_of(error)
        self.notice("worker-dropped" if for_good else "worker-lost", **facts)

    def _rejoin(self, j: int) -> None:
        """Go on with worker j, which was lost."""
        self.roster.rejoin(j)
        if self.roster.settings.drops:
            self._leave_out(self._may_weigh())
        self.fell_silent.discard(j)
        self.notice("worker-back", worker=j)

    def _return(self, j: int) -> Outgoing:
        """Let lost worker j start again."""
        self._rejoin(j)
        return [(j, self._fresh(j))]

    def _leave_out(self, kept: Sequence[bool] | None) -> None:
        """Give the weight of the other workers to those that are kept, None: to all their own."""

    def _may_weigh(self) -> Sequence[bool] | None:
        """Who may have weight, None for all: a worker whose loss was never measured has none."""
        if self.roster.settings.drops and self.roster.live < self.roster.settings.workers:
            return self.roster.alive
        return [iteration != NEVER for iteration in self.roster.visited] if self.never else None

    # -- notices, reports, assessment -----------------------------------------------------------------

    def notice(self, event: str, **facts: Any) -> None:
        """Add an event to the history."""
        self.notices.append({"event": event, "iteration": self.iteration, "clock": self.time, **facts})

    def take_notices(self) -> list[dict[str, Any]]:
        """Return the notices since the last call and forget them."""
        notices, self.notices = self.notices, []
        return notices

    def report(self) -> dict[str, Any]:
        """The state in numbers. Bits are 32 per number, as in Theorem 2; bytes are 8 per number, as sent."""
        self.next_report = self.iteration + self.report_interval
        figures = self._figures()
        for j, what in self.outliers.look(self.roster.alive, self.roster.tickets, figures.objective):
            self.notice("suspicious", worker=j, reason=what)
        stalest, self.roster.stalest = self.roster.stalest, 0
        return {
            "event": "report",
            "iteration": self.iteration,
            "clock": self.time,
            "objective": figures.objective,
            "value": figures.value,
            "losses": figures.losses,
            "weights": figures.weights,
            "planes": figures.planes,
            "active_workers": figures.active_workers,
            "live_workers": self.roster.live,
            "staleness": stalest,
            "gradients": self.gradients,
            "bits_down": 32 * self.sent,
            "bits_up": 32 * self.received,
            "bits_theorem_2": 32 * figures.theorem_numbers,
            "bytes": 8 * (self.sent + self.received),
        }

    def assess(self, replies: Mapping[int, Reply | Exception]) -> Assessment:
        """The objective at the model and how far from optimal it is, from the answers to `probes`.

        A worker that gives no answer keeps its last known loss in the oracle and shows NaN in `losses`.
        """
        losses = np.full(self.roster.settings.workers, np.nan)
        for j, reply in replies.items():
            if isinstance(reply, Probed):
                losses[j] = reply.loss_at_z
            elif isinstance(reply, Exception) and not isinstance(reply, Away):  # of those notice was given
                self.notice("probe-failed", worker=j, reason=words(reply), traceback=traceback_of(reply))
        for j, what in self.outliers.probed(losses, self.reported):
            self.notice("suspicious", worker=j, reason=what)
        known = fill_losses(losses, self.reported, self.roster.visited)
        answer = self.oracle.worst_case(known)
        known_at = np.where(np.isfinite(losses), self.iteration, self._last_visits())
        standing = self._standing(replies, known, answer)
        return Assessment(losses, known_at, answer, float(answer.value), *standing)

    # -- checkpoints ----------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The state as plain values and arrays."""
        parts = {name: getattr(self, name) for name in self.saved}
        return {name: part.snapshot() if isinstance(part, Kept) else part for name, part in parts.items()}

    def take(self, state: Mapping[str, Any]) -> None:
        """Set what a snapshot holds, but for parts that the subclass has restored."""
        for name in self.saved:
            if name not in vars(self):
                setattr(self, name, state[name])

    def _restore(self, settings: RosterSettings, oracle: Oracle, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot; the subclass has restored its own parts and set `outliers`."""
        self.oracle = oracle
        self.take(state)
        self.roster = Roster.restored(settings, state["roster"])
        self.outliers.restore(state["outliers"])
        self.last_failure, self.last_lost, self.fell_silent = None, -1, set()
        self._derive()

    @classmethod
    def check_saved(cls, saved: Saved, name: str, value: Any) -> None:
        """Check a snapshot: that no iteration is one to come, and that no worker would wait for ever."""
        super().check_saved(saved, name, value)
        roster = value["roster"]
        for what in () if cls.in_rounds else ("sent_in", "visited"):  # rounds count their phases
            latest, now = max(roster[what]), value["iteration"]
            if latest > now:
                raise saved.error(f"{name}.roster.{what}", f"has iteration {latest}, and the run is at {now}")
        busy = {*roster["under_way"], *(j for j, _ in roster["pending"])}
        busy |= set(cls._at_rest(value)) if busy else set()
        idle = [j for j, lives in enumerate(roster["alive"]) if lives and j not in busy]
        if idle and not (cls.in_rounds and busy):  # in rounds a worker may be left out
            raise saved.error(
                f"{name}.roster.under_way", f"leaves out workers {idle}, who would wait forever"
            )

    @classmethod
    def _at_rest(cls, value: Mapping[str, Any]) -> list[int]:
        """The workers of a snapshot that are alive and were not asked."""
        return []
