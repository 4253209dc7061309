"""Many machines, a wall clock: workers in actors of Ray. Ray is imported when an engine starts."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from time import sleep
from typing import Any

from fdro_core.engines.ray_ import cluster
from fdro_core.engines.ray_.cluster import HeadWatch
from fdro_core.engines.wall_clock import (
    Answer,
    Arrival,
    WallEngine,
    WorkerRecord,
    WorkersLost,
    WorkersReady,
)
from fdro_core.engines.wall_clock.host import Host, SharedMessage
from fdro_core.errors import ClusterLost, InvalidProblem, InvalidSetting
from fdro_core.privacy.policy import asked_for
from fdro_core.protocol.engine import WorkerFactory
from fdro_core.protocol.failures import words
from fdro_core.protocol.messages import Request, copied
from fdro_core.protocol.settings import Number, Whole, check_setting

BATCH = 0.01  # seconds of work that may go to a host in one call


class _HostSlot:
    """One host: where it may run, its workers, and the actor that runs it now.

    Attributes:
        index: its number among the hosts.
        options: of Ray, for its actor.
        workers: of this host.
        actor: None while there is none.
        outbox: number, worker and message of what was posted and not sent.
        seconds_per_message: as its actor reports; at first so large that messages are sent one by one.
    """

    def __init__(self, index: int, options: dict[str, Any], workers: list[int]) -> None:
        self.index = index
        self.options = options
        self.workers = workers
        self.actor: Any = None
        self.outbox: list[tuple[int, int, Any]] = []
        self.seconds_per_message = BATCH


class _Call:
    """A call of an actor that has not returned: of `handle` for messages, or of `make` for workers."""

    __slots__ = ("host", "numbers", "workers")

    def __init__(self, host: _HostSlot, numbers: list[int], workers: list[int]) -> None:
        self.host = host
        self.numbers = numbers
        self.workers = workers


class RayEngine(WallEngine):
    """Workers in Ray actors, several to an actor, on this machine or a cluster.

    A host that dies loses its workers; a new one is started wherever Ray finds room, builds their problems
    again and restores them from the records that the master's side has kept. Replies are checked for class,
    shape and type before the master sees them.

    Ray runs the code that it is sent: only people who may run code on the cluster must be able to reach it
    (docs/cluster.md).

    Args:
        address: of a running cluster, "host:port"; None starts one for this run on the loopback interface.
        hosts: how many actors, or for each the resources that its node must have, such as `{"site-a": 1}`.
        placement: the host of each worker; even blocks by default.
        cpus: of a cluster that is started here.
        object_store_mb: shared memory of a cluster that is started here.
        patience: seconds that a round of questions waits without any further answer, the start included.
        restarts: how often in a row a lost worker is created again before it is given up; 0: never.
        restart_after: seconds from a loss to the first attempt, twice as long after each failure in a row.
        deadline_floor: the least seconds of silence after which `deadline="auto"` acts.
        join_timeout: seconds after which a cluster that does not answer at `address` is `ClusterUnreachable`.

    `solve(problems, uncertainty_set, engine=RayEngine(hosts=2))` is all it takes.
    """

    name = "ray"
    own_processes = True
    survives_hangs = True
    package = "ray"

    def __init__(
        self,
        address: str | None = None,
        hosts: int | Sequence[Mapping[str, float]] = 2,
        *,
        placement: Sequence[int] | None = None,
        cpus: int = 2,
        object_store_mb: int = 200,
        patience: float = 300.0,
        restarts: int = 10,
        restart_after: float = 0.5,
        deadline_floor: float = 60.0,
        join_timeout: float = 30.0,
    ) -> None:
        super().__init__(
            patience=patience, restarts=restarts, restart_after=restart_after, deadline_floor=deadline_floor
        )
        if not (address is None or isinstance(address, str)):
            raise InvalidSetting(f'RayEngine.address must be "host:port" or None, got {address!r}')
        self.address = address
        self.join_timeout = check_setting("RayEngine.join_timeout", join_timeout, Number(unit="seconds"))
        self.hosts = _check_hosts(hosts)
        self.placement = None if placement is None else _check_placement(placement, len(self.hosts))
        self.cpus = check_setting("RayEngine.cpus", cpus, Whole())
        self.object_store_mb = check_setting("RayEngine.object_store_mb", object_store_mb, Whole(80))
        self._started_cluster = False
        self._host_slots: list[_HostSlot] = []
        self._watch: HeadWatch | None = None

    def __repr__(self) -> str:
        return f"RayEngine(address={self.address!r}, hosts={len(self.hosts)}, clock={self.clock:.3g})"

    # -- the transport --------------------------------------------------------------------------------

    def _open(self, factories: Sequence[WorkerFactory]) -> None:
        workers_of = _workers_of_hosts(self.placement, len(self.hosts), len(factories))
        self._host_slots = []
        self._calls: dict[Any, _Call] = {}
        self._started_cluster = cluster.connect(
            self.address,
            cpus=self.cpus,
            object_store_mb=self.object_store_mb,
            join_timeout=self.join_timeout,
        )
        self._ray = cluster.load()
        places = cluster.whereabouts()
        self._watch = None if places is None else HeadWatch(*places)
        self._factories = list(factories)
        self._private = [asked_for(factory) is not None for factory in factories]
        self._latest_shared: Request | None = None
        self._shared_reference: SharedMessage | None = None
        self._actors = self._ray.remote(Host)
        self._host_slots = [
            _HostSlot(i, {"num_cpus": 0, "max_restarts": 0, "resources": dict(resources)}, workers)
            for i, (resources, workers) in enumerate(zip(self.hosts, workers_of, strict=True))
        ]
        self._host_of = {j: host for host in self._host_slots for j in host.workers}
        for host in self._host_slots:
            self._make(host, dict.fromkeys(host.workers), afresh=True)

    def _make(self, host: _HostSlot, records: Mapping[int, WorkerRecord | None], *, afresh: bool) -> None:
        if not records:
            return
        if host.actor is None:
            host.actor = self._actors.options(**host.options).remote(self._ray.get)
        ref = host.actor.make.remote(
            {j: (self._pack(j), record, self._private[j]) for j, record in records.items()}, afresh
        )
        first = all(record is None for record in records.values())
        self._calls[ref] = _Call(host, [], [] if first else list(records))

    def _pack(self, worker: int) -> bytes:
        """Pickle a worker's factory; it is unpickled when used, so a failure there is that worker's alone."""
        try:
            packed: bytes = self._ray.cloudpickle.dumps(self._factories[worker])
        except Exception as error:
            raise InvalidProblem(
                f"problems[{worker}] cannot be sent to another process ({error}); give "
                "ProblemFrom(callable, arguments), so that it is made where its worker lives"
            ) from error
        return packed

    def _post(self, worker: int, number: int, message: Request) -> None:
        content: Any = message
        if message.shared:
            if self._watch is not None and self._watch.look_here():
                return  # `ray.put` would end the process; the next `_collect` raises
            if message is not self._latest_shared:
                self._latest_shared = message
                self._shared_reference = SharedMessage(secrets.token_hex(8), self._ray.put(message))
            content = self._shared_reference
        self._host_of[worker].outbox.append((number, worker, content))

    def _flush(self) -> None:
        """Send what was posted: to one host in one call, as far as that does not delay a reply for long."""
        if self._watch is not None and self._watch.gone:
            return
        for host in self._host_slots:
            box = host.outbox
            if box:
                most = max(1, int(BATCH / host.seconds_per_message))
                for first in range(0, len(box), most):
                    batch = box[first : first + most]
                    ref = host.actor.handle.remote([(worker, content) for _, worker, content in batch])
                    self._calls[ref] = _Call(host, [number for number, _, _ in batch], [])
                box.clear()

    def _collect(self, seconds: float) -> list[Arrival]:
        self._flush()
        self._raise_if_gone()
        if not self._calls:
            sleep(seconds)
            return []
        refs = list(self._calls)
        done, _ = self._ray.wait(refs, num_returns=1, timeout=seconds)
        if done and len(refs) > 1:
            done, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0)
        found: list[Arrival] = []
        try:
            contents = self._ray.get(done)  # all at once is cheaper, if none has failed
        except self._ray.exceptions.RayError:
            contents = None
        for place, ref in enumerate(done):
            if ref in self._calls:
                self._process_call(ref, found, contents and contents[place : place + 1])
        return found

    def _raise_if_gone(self) -> None:
        if self._watch is not None and self._watch.gone:
            raise ClusterLost(
                f"the cluster of Ray is lost, and all workers with it: {self._watch.gone}. Start it again "
                "(docs/cluster.md has the commands); then, in a new process, resume(path, ..., "
                "engine=RayEngine(...)) continues from the file of a Checkpoint, if the run had one among "
                "its observers"
            )

    def _process_call(self, ref: Any, found: list[Arrival], got: list[Any] | None) -> None:
        """Append the arrivals of a call that has returned; `got` holds its content if that was fetched."""
        call = self._calls.pop(ref)
        errors = self._ray.exceptions
        try:
            content = got[0] if got else self._ray.get(ref)
        except (errors.RayTaskError, errors.RaySystemError) as error:
            # The host lives: something could not be pickled or unpickled, as between two versions of fdro.
            cause = RuntimeError(cluster.first_line(getattr(error, "cause", None) or error))
            cause.add_note(str(error))
            found.extend(Answer(number, cause) for number in call.numbers)
            if call.workers:
                found.append(WorkersLost(call.workers, f"raised {cause}", cause))
            return
        except errors.RayError as error:
            reason = f"host {call.host.index} died: {cluster.first_line(error)}"
            found.append(WorkersLost(self._drop_actor(call.host), reason))
            return
        if call.numbers:
            replies, spent = content
            mean = max(spent / len(call.numbers), 1e-6)
            call.host.seconds_per_message += 0.2 * (mean - call.host.seconds_per_message)
            for number, reply in zip(call.numbers, replies, strict=True):
                found.append(Answer(number, reply if isinstance(reply, Exception) else copied(reply)))
            return
        for j in call.workers:
            if j in content:
                found.append(WorkersLost([j], f"raised {words(content[j])}", content[j]))
        found.append(WorkersReady(j for j in call.workers if j not in content))

    def _drop_actor(self, host: _HostSlot) -> list[int]:
        """End a host's actor and forget what it was asked; return its workers."""
        if host.actor is not None:
            self._ray.kill(host.actor)
            host.actor = None
        host.outbox.clear()
        self._calls = {ref: call for ref, call in self._calls.items() if call.host is not host}
        return host.workers

    def _remake(self, records: Mapping[int, WorkerRecord], *, afresh: bool) -> None:
        for host in self._host_slots:
            self._make(host, {j: records[j] for j in host.workers if j in records}, afresh=afresh)

    def _abandon(self, workers: Sequence[int]) -> Sequence[int]:
        hosts = dict.fromkeys(self._host_of[j] for j in workers)
        return [j for host in hosts for j in self._drop_actor(host)]

    def _excuse(self, worker: int) -> str:
        host = self._host_of[worker]
        lacking = cluster.lacking(host.options["resources"])
        if lacking:
            return f"host {host.index} was never started: no node of the cluster has {lacking}"
        return super()._excuse(worker)

    def _close(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.stop()
            if watch.gone:  # Ray would wait a minute for the head, and then end the process
                self._host_slots, self._started_cluster = [], False
        for host in self._host_slots:
            self._drop_actor(host)
        self._latest_shared = self._shared_reference = None
        if self._started_cluster:
            self._started_cluster = False
            self._ray.shutdown()


def _check_hosts(hosts: Any) -> list[dict[str, float]]:
    if isinstance(hosts, Integral):
        return [{} for _ in range(check_setting("RayEngine.hosts", hosts, Whole()))]
    found = list(hosts) if isinstance(hosts, Iterable) and not isinstance(hosts, str | Mapping) else []
    if not found or not all(isinstance(resources, Mapping) for resources in found):
        raise InvalidSetting(
            "RayEngine.hosts must be a number, or for each host the resources it needs as "
            f"{{name: amount > 0}}; got {hosts!r}"
        )
    return [
        {
            str(name): check_setting(f"RayEngine.hosts[{index}][{name!r}]", amount, Number())
            for name, amount in resources.items()
        }
        for index, resources in enumerate(found)
    ]


def _check_placement(placement: Any, hosts: int) -> list[int]:
    if not isinstance(placement, Iterable) or isinstance(placement, str):
        raise InvalidSetting(f"RayEngine.placement must be a list of hosts, got {placement!r}")
    found = [check_setting(f"RayEngine.placement[{j}]", host, Whole(0)) for j, host in enumerate(placement)]
    for j, host in enumerate(found):
        if host >= hosts:
            raise InvalidSetting(
                f"RayEngine.placement sends worker {j} to host {host}; there are hosts 0..{hosts - 1}"
            )
    return found


def _workers_of_hosts(placement: Sequence[int] | None, hosts: int, workers: int) -> list[list[int]]:
    """Return the workers of each host."""
    if placement is None:
        placement = [j * hosts // workers for j in range(workers)]
    elif len(placement) != workers:
        raise InvalidSetting(f"RayEngine.placement names a host for {len(placement)} of {workers} workers")
    groups: list[list[int]] = [[] for _ in range(hosts)]
    for j, host in enumerate(placement):
        groups[host].append(j)
    return groups
