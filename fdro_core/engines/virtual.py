"""One process, a virtual clock: asynchrony that a seed repeats bit for bit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import isfinite
from typing import Any, ClassVar

import numpy as np

from fdro_core.engines.delays import Crash, DelayLaw, Delays, Draws, LogNormal, Straggler
from fdro_core.errors import CheckpointMismatch, Deadlock, InvalidSetting
from fdro_core.privacy.policy import admitted
from fdro_core.protocol.engine import (
    Away,
    Back,
    EngineTraits,
    Event,
    Lost,
    WorkerFactory,
    WorkerMachine,
    gradients_of,
)
from fdro_core.protocol.failures import as_exception
from fdro_core.protocol.messages import Reply, Request, copied, from_fields, to_fields
from fdro_core.protocol.replies import checked
from fdro_core.protocol.saved import Form, Saved, listing, numbers, real, whole, worker_index
from fdro_core.protocol.settings import Chance, ListOf, Number, Whole, check_setting

ARRIVAL, CRASH, RETURN = 0, 1, 2
VECTORS = {"w", "gradient", "metric", "inverse"}  # in the state of a worker of fdro's
REPEAT_AFTER = 0.5  # of a delay: when a repeated message comes


def _scheduled(saved: Saved, name: str, value: Any) -> None:
    """One event of a snapshot."""
    if not isinstance(value, list) or len(value) != 6 or not isfinite(value[0]):
        raise saved.error(name, "must be lists of six: a time, and what happens then")
    worker_index(saved, name, value[3])


class VirtualEngine(EngineTraits):
    """Workers in this process, times from delay laws, no waiting.

    A step's delay is drawn when it is sent; the worker computes when the reply arrives, so between events
    its state is what the master knows. Rounds of questions (`ask`) take no virtual time. Workers cannot hang
    here: a slow one answers in the end, and if nothing is under way the run ends with `Deadlock`. So
    `deadline="auto"` never acts.

    A step takes delay + compute·E, where E is the number of gradients that the worker says its answer takes
    (`WorkerMachine.gradients`); a straggler's factor multiplies the sum. By default computing is free.

    Args:
        seed: fixes every delay, loss and repetition.
        delays: one law for all workers, or one for each.
        stragglers: workers that are slower for a time.
        crashes: workers that are lost, and may return.
        lost: the chance that a message (either way) never arrives; the master notices by its `deadline`.
        repeated: the chance that a message arrives twice.
        compute: seconds per gradient, on top of the delay.

    >>> from fdro_core import Exponential, Straggler
    >>> VirtualEngine(seed=0, delays=Exponential(), stragglers=[Straggler(2, factor=20.0)])
    VirtualEngine(seed=0, clock=0)
    """

    name = "virtual"

    def __init__(
        self,
        seed: int = 0,
        delays: DelayLaw | Sequence[DelayLaw] | None = None,
        stragglers: Sequence[Straggler] = (),
        crashes: Sequence[Crash] = (),
        lost: float = 0.0,
        repeated: float = 0.0,
        compute: float = 0.0,
    ) -> None:
        self.seed = check_setting("VirtualEngine.seed", seed, Whole(0))
        self.law = LogNormal() if delays is None else _check_laws(delays)
        self.stragglers = check_setting("VirtualEngine.stragglers", _listed(stragglers), ListOf(Straggler))
        self.crashes = check_setting("VirtualEngine.crashes", _listed(crashes), ListOf(Crash))
        self.lost = check_setting("VirtualEngine.lost", lost, Chance())
        self.repeated = check_setting("VirtualEngine.repeated", repeated, Chance())
        self.compute = check_setting("VirtualEngine.compute", compute, Number(inclusive=True))
        self._clock = 0.0

    def __repr__(self) -> str:
        return f"VirtualEngine(seed={self.seed}, clock={self._clock:g})"

    @property
    def clock(self) -> float:
        """Virtual seconds since the run began."""
        return self._clock

    def start(self, factories: Sequence[WorkerFactory]) -> None:
        """Make the workers and schedule the crashes."""
        N = len(factories)
        faults: list[Straggler | Crash] = [*self.stragglers, *self.crashes]
        for fault in faults:
            if not 0 <= fault.worker < N:
                raise InvalidSetting(f"{fault} names worker {fault.worker}; there are 0..{N - 1}")
        laws = list(self.law) if isinstance(self.law, Sequence) else [self.law]
        if len(laws) not in {1, N}:
            message = f"VirtualEngine.delays must be one law, or {N}, got {len(laws)}"
            raise InvalidSetting(message, parameter="delays", value=laws)
        self._clock = 0.0
        self._workers: list[WorkerMachine] = [_make(factory) for factory in factories]
        streams = np.random.SeedSequence(self.seed).spawn(len(laws) + 1)
        self._delays = [Delays(law, np.random.default_rng(s)) for law, s in zip(laws, streams, strict=False)]
        self._chances = Delays(Draws(), np.random.default_rng(streams[-1]))
        self._slow: dict[int, list[Straggler]] = {}
        for straggler in self.stragglers:
            self._slow.setdefault(straggler.worker, []).append(straggler)
        self._order = 0
        self._life = [0] * N  # which life of a worker a message belongs to
        self._away = [False] * N
        self._heap: list[tuple[float, int, int, int, int, Any]] = []
        for crash in self.crashes:
            self._push(crash.at, CRASH, crash.worker, None)
            if np.isfinite(crash.until):
                self._push(crash.until, RETURN, crash.worker, None)

    def _push(self, time: float, kind: int, worker: int, payload: Any) -> None:
        self._order += 1
        heappush(self._heap, (time, self._order, kind, worker, self._life[worker], payload))

    def send(self, worker: int, message: Request) -> None:
        """Schedule the step's arrival, unless the message is lost."""
        if self._away[worker]:
            return
        if message.live:  # the worker computes when the reply is due
            message = copied(message)
        streams = self._delays
        delay = streams[worker if len(streams) > 1 else 0].next()
        if self.compute:
            delay += self.compute * gradients_of(self._workers[worker], message)
        if worker in self._slow:
            for straggler in self._slow[worker]:
                if straggler.start <= self._clock < straggler.end:
                    delay *= straggler.factor
        if self.lost or self.repeated:
            if self._chances.next() < self.lost:
                return
            if self._chances.next() < self.repeated:
                self._push(self._clock + (1 + REPEAT_AFTER) * delay, ARRIVAL, worker, message)
        self._order += 1
        heappush(self._heap, (self._clock + delay, self._order, ARRIVAL, worker, self._life[worker], message))

    def receive(self, until: float | None) -> Event:
        """Return the next arrival, crash or return; the worker computes now."""
        heap = self._heap
        while True:
            if until is not None and (not heap or heap[0][0] > until):
                self._clock = max(self._clock, until)
                return Event(self._clock, -1, None)
            if not heap:
                raise Deadlock(
                    "nothing is under way and the master still waits: messages were lost and no `deadline` "
                    "is set (AspireModels(deadline=seconds) makes the master ask again)"
                )
            time, _, kind, worker, life, payload = heappop(heap)
            if kind == ARRIVAL:
                if life != self._life[worker]:
                    continue
                self._clock = time
                try:
                    reply = checked(worker, payload, self._workers[worker].handle(payload))
                except (Exception, SystemExit) as error:
                    return self._lose(time, worker, as_exception(error))
                if self.lost and self._chances.next() < self.lost:
                    continue
                return Event(time, worker, reply)
            self._clock = time
            if kind == CRASH:
                return self._lose(time, worker)
            self._away[worker] = False
            return Event(time, worker, Back())

    def _lose(self, time: float, worker: int, error: Exception | None = None) -> Event:
        self._away[worker] = True
        self._life[worker] += 1
        returns = any(kind == RETURN and who == worker for _, _, kind, who, _, _ in self._heap)
        lost = Lost("crashed", returns=returns) if error is None else Lost.raised(error, returns=returns)
        return Event(time, worker, lost)

    def ask(self, messages: Mapping[int, Request]) -> dict[int, Reply | Exception]:
        """Return every worker's reply at once, outside virtual time."""
        replies: dict[int, Reply | Exception] = {}
        for worker, message in messages.items():
            if self._away[worker]:
                replies[worker] = Away(f"worker {worker} is away")
                continue
            try:
                replies[worker] = checked(worker, message, self._workers[worker].handle(message))
            except (Exception, SystemExit) as error:
                replies[worker] = as_exception(error)
        return replies

    def stop(self) -> None:
        """There is nothing to release."""

    def snapshot(self) -> dict[str, Any]:
        """Return the clock, random streams, messages under way and the workers' states."""
        events = []
        for time, order, kind, worker, life, payload in sorted(self._heap, key=lambda item: item[:2]):
            fields = None if payload is None else to_fields(payload)
            events.append([time, order, kind, worker, life, fields])
        return {
            "clock": self._clock,
            "order": self._order,
            "life": self._life,
            "away": self._away,
            "delays": [stream.snapshot() for stream in self._delays],
            "chances": self._chances.snapshot(),
            "events": events,
            "workers": [worker.snapshot() for worker in self._workers],
        }

    saved: ClassVar[Form] = {
        "clock": real(),
        "order": whole(),
        **dict.fromkeys(("life", "away", "workers"), listing("N")),
        "events": listing("", _scheduled),
    }
    """What a snapshot holds that is checked before it is taken up."""

    mark: ClassVar[str] = "events"

    @classmethod
    def check_saved(cls, saved: Saved, name: str, value: Any) -> None:
        """Check a snapshot; of the workers' states the vectors that kernels take."""
        saved.entries(cls.saved, name, value)
        for state in value["workers"]:
            for part in VECTORS & state.keys() if isinstance(state, Mapping) else ():
                numbers("p")(saved, f"{name}.workers' {part}", state[part])

    def fingerprint(self) -> dict[str, Any]:
        """Return all that fixes the times: seed, laws and faults."""
        names = ["seed", "stragglers", "crashes", "lost", "repeated"]
        if self.compute:  # without it, the checkpoints of releases that did not know it still fit
            names.append("compute")
        return {"": type(self).__name__, "delays": self.law} | {name: getattr(self, name) for name in names}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a snapshot."""
        if "events" not in state:
            raise CheckpointMismatch(
                "this checkpoint is from an engine on a wall clock; VirtualEngine cannot go on from it. "
                "Resume with an engine of the kind that the run was started with"
            )
        if len(state["delays"]) != len(self._delays):
            raise CheckpointMismatch(
                f"the checkpoint has {len(state['delays'])} delay laws and VirtualEngine.delays "
                f"{len(self._delays)}: give the same laws as the first time"
            )
        self._clock = state["clock"]
        self._order = state["order"]
        self._life = list(state["life"])
        self._away = list(state["away"])
        for stream, saved in zip(self._delays, state["delays"], strict=True):
            stream.restore(saved)
        self._chances.restore(state["chances"])
        self._heap = [
            (time, order, kind, worker, life, None if fields is None else from_fields(fields))
            for time, order, kind, worker, life, fields in state["events"]
        ]
        heapify(self._heap)
        for worker, saved in zip(self._workers, state["workers"], strict=True):
            worker.restore(saved)


class _Unmade:
    """Stands for a worker that could not be made: it answers with the error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def handle(self, message: Request) -> Reply:
        """Raise it again."""
        raise self.error

    def snapshot(self) -> None:
        """It has no state."""
        return

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Raise the error if the worker had a state: the run cannot be resumed without it."""
        if state is not None:
            raise self.error


def _make(factory: WorkerFactory) -> WorkerMachine:
    try:
        return admitted(factory)
    except (Exception, SystemExit) as error:
        return _Unmade(as_exception(error))


def _listed(given: Any) -> Any:
    return list(given) if isinstance(given, Iterable) else given


def _check_laws(delays: Any) -> Any:
    for law in delays if isinstance(delays, Sequence) else [delays]:
        if not callable(getattr(law, "draw", None)):
            raise InvalidSetting(
                "VirtualEngine.delays must be a delay law such as LogNormal(), or a list with one for each "
                f"worker; got {law!r:.80}"
            )
    return delays
