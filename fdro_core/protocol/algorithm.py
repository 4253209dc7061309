"""What `solve` asks of an algorithm: settings that make a master and workers.

`AspireModels` is one; a baseline is another. Nothing in the driver's loop knows which. Run files find those
that have a name (`ALGORITHMS`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fdro_core.protocol.engine import Event, WorkerFactory
from fdro_core.protocol.messages import Reply, Request
from fdro_core.protocol.problem import ProblemSource
from uncertainty_sets.arrays import Array
from uncertainty_sets.registry import Registry

Ask = Callable[[Mapping[int, Request]], dict[int, Reply | Exception]]


class Oracle(Protocol):
    """The part of an uncertainty set that algorithms use."""

    def worst_case(self, losses: Array) -> Any:
        """An answer with `p` and `value`."""
        ...

    def reference(self) -> Array:
        """A distribution in the set."""
        ...


@dataclass(frozen=True)
class Assessment:
    """How good the state is, by a round of probes: fields as in `Result`.

    The last three have defaults for algorithms that know no better.
    """

    losses: Array
    known_at: NDArray[np.int64]
    worst_case: Any
    objective: float
    weights: Array
    planes: Array
    stationarity: float
    lower_bound: float = -np.inf
    model: str = "z"
    privacy: Any = None


class MasterMachine(Protocol):
    """The master of some algorithm: events in, messages out, no clock and no I/O.

    One more attribute is used if a master has it: ``finished``, the reason to end the run, "" while it goes
    on. It is read before every event, and must follow from the snapshot.
    """

    iteration: int
    last: int
    next_report: int
    notices: list[dict[str, Any]]
    gradients: int

    @property
    def z(self) -> Array:
        """The model."""
        ...

    @property
    def wake_at(self) -> float | None:
        """When it wants a tick if no event comes before."""
        ...

    def start(self) -> list[tuple[int, Any]]:
        """The first messages."""
        ...

    def handle(self, event: Event) -> list[tuple[int, Any]]:
        """The messages to send after an event."""
        ...

    def report(self) -> dict[str, Any]:
        """The state in numbers, and when the next report is due."""
        ...

    def take_notices(self) -> list[dict[str, Any]]:
        """What happened since the last call."""
        ...

    def probes(self) -> dict[int, Request]:
        """What to ask the workers before `assess`."""
        ...

    def assess(self, replies: Mapping[int, Reply | Exception]) -> Assessment:
        """Assess the state by the workers' answers to `probes`."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """The state as plain values and arrays."""
        ...


class Algorithm(Protocol):
    """Settings, and how to make the two kinds of state machine from them."""

    def check(self, workers: int, uncertainty_set: Any) -> None:
        """Check the settings and the set against the number of workers, before anything is made."""
        ...

    def worker(self, index: int, source: ProblemSource) -> WorkerFactory:
        """What makes worker j on the machine where it is to run."""
        ...

    def master(self, uncertainty_set: Any, workers: int, ask: Ask, start: Array | None) -> MasterMachine:
        """The master at the start, after the rounds of questions that it needs."""
        ...

    def restore(self, uncertainty_set: Any, workers: int, state: Mapping[str, Any]) -> MasterMachine:
        """The master of a snapshot."""
        ...


class AlgorithmTraits:
    """What an algorithm class declares about itself, besides its settings.

    `AspireModels`, `Rounds` and `Arrivals` derive from it. An algorithm that does not is still one for
    `solve`, and run files find it as an entry point.

    Attributes:
        name: the algorithm's name in run files. Only classes that set it themselves are listed. If another
            algorithm has that name, the definition is an error, unless it says
            ``class Mine(Rounds, replace=True)``.
    """

    name: ClassVar[str] = ""

    def __init_subclass__(cls, *, replace: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        ALGORITHMS.define(cls, replace=replace)


ALGORITHMS: Registry[Any] = Registry(
    "algorithm",
    object,
    ["fdro_core.baselines", "fdro_core.aspire.admm", "fdro_core.aspire.models"],
    needs=["check", "worker", "master", "restore"],
)
"""Every algorithm with a name."""


def sized(uncertainty_set: Any, entries: int) -> Any:
    """The set over that many entries, if it leaves them open; an oracle of another kind as it is."""
    give = getattr(uncertainty_set, "with_size", None)
    leaves_open = getattr(uncertainty_set, "size", None) is None
    return give(entries) if leaves_open and callable(give) else uncertainty_set
