"""Many machines: workers in actors of Ray. The only file that imports ray, and only when an engine starts."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from math import isfinite
from time import monotonic, sleep
from typing import Any

from fdro_core.contracts.engine import WorkerFactory
from fdro_core.contracts.failures import words
from fdro_core.contracts.messages import Request, copied
from fdro_core.engines.host import Host, Shared
from fdro_core.engines.memory import Past
from fdro_core.engines.wall import Answer, Arrival, Gone, Here, WallEngine
from fdro_core.errors import ClusterUnreachable, InvalidProblem, InvalidSetting
from uncertainty_sets.errors import BackendMissing

SMALL = {"object_store_memory": 100 * 2**20, "node_ip_address": "127.0.0.1"}  # a node among several here

BATCH = 0.01  # seconds of work that may go to a host in one call


def load() -> Any:
    """The module ray, told to send no usage statistics."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # By default Ray lets its workers run only when nobody else wants to: on a busy machine a step takes ages.
    os.environ.setdefault("RAY_worker_niceness", "0")
    try:
        import ray
    except ImportError as error:
        raise BackendMissing('RayEngine needs ray: pip install "fdro[ray]"') from error
    return ray


def connect(
    address: str | None, *, cpus: int = 2, object_store_mb: int = 200, join_timeout: float = 30.0
) -> bool:
    """Connect this process to Ray; whether that was done here (else it was connected before).

    Without an address a cluster of this process's own is started: on the loopback interface, without
    dashboard and usage statistics, with a token that only this process and its children know.
    """
    if address is None:
        _token()
    ray = load()
    if ray.is_initialized():
        return False
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address is not None:
        local = address.rpartition(":")[0] in {"127.0.0.1", "localhost", "[::1]"}
        with _on_loopback() if local else nullcontext():  # else Ray looks for a node at another address here
            try:
                if address.rpartition(":")[2].isdecimal() and "//" not in address:
                    _knock(address, join_timeout)
                ray.init(address=address, **quiet)
            except Exception as error:
                raise ClusterUnreachable(
                    f"no cluster of Ray can be joined at {address}: {_first_line(error)}. Is it running, and "
                    "are RAY_AUTH_MODE and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) as they are there? "
                    "docs/cluster.md has the commands"
                ) from error
    else:
        # "local", since without it Ray takes any cluster that it finds a trace of.
        with _on_loopback():
            ray.init(
                address="local",
                num_cpus=cpus,
                num_gpus=0,
                object_store_memory=object_store_mb * 2**20,
                include_dashboard=False,
                **quiet,
            )
    return True


def _knock(address: str, seconds: float) -> None:
    """Wait until the head of a cluster answers at an address; `TimeoutError` after that many seconds.

    Ray itself tries for a quarter of an hour where nobody listens, in calls that no Ctrl-C ends. So they are
    made on a thread of their own, which is left alone when the time is up.
    """
    ray = load()
    answers: list[Exception | None] = []

    def knock() -> None:
        try:
            ray._raylet.GcsClient(address=address)  # asks for the cluster's name
            answers.append(None)
        except Exception as error:
            answers.append(error)

    end, last = monotonic() + seconds, "nobody answers"
    while True:
        thread = threading.Thread(target=knock, name="fdro-knock", daemon=True)
        thread.start()
        while thread.is_alive() and monotonic() < end:
            thread.join(timeout=0.1)
        answer: Exception | None = answers.pop() if answers else TimeoutError(last)
        if answer is None:
            return
        last = _first_line(answer)
        if isinstance(answer, ray.exceptions.AuthenticationError):
            raise answer
        if monotonic() >= end:
            raise TimeoutError(f"{last}, for {seconds:g} s (`join_timeout`)") from answer
        sleep(min(1.0, max(0.0, end - monotonic())))


def _token() -> None:
    """Have clusters of this process ask for a token that only it and its children know.

    Ray would write one for all clusters to the home folder, and refuse those who come with another.
    """
    if "RAY_AUTH_MODE" not in os.environ:
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Have Ray choose 127.0.0.1 as this machine's address, the only one it then listens on.

    Asked for it by name, Ray takes it for "any" and listens on every interface. This switch of its own is
    meant for systems without clusters; it holds while a local one is started or joined, not later.
    """
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


class _Cluster:
    """Several nodes on this machine; see `several_nodes`."""

    def __init__(self, cluster: Any, resources: Mapping[str, float]) -> None:
        self._cluster, self._resources = cluster, dict(resources)
        self.address: str = cluster.address

    @property
    def size(self) -> int:
        """How many nodes there are, without the head."""
        return len(self._cluster.worker_nodes)

    def add(self) -> None:
        """One more node, from any thread."""
        self._cluster.add_node(num_cpus=1, resources=self._resources, **SMALL)

    def kill(self, choice: int) -> str:
        """SIGKILL for the raylet of a node, `choice` modulo their number; who it was."""
        nodes = sorted(self._cluster.worker_nodes, key=lambda node: str(node.unique_id))
        if not nodes:
            return "nobody"
        node = nodes[choice % len(nodes)]
        node.kill_raylet(check_alive=False)
        self._cluster.worker_nodes.discard(node)
        return f"node {node.unique_id}"


@contextmanager
def several_nodes(count: int, resources: Mapping[str, float]) -> Iterator[_Cluster]:
    """A cluster of several nodes on this machine's loopback interface, to try what happens when one dies.

    The head has none of the resources, so that hosts that need them live on the other nodes.
    """
    _token()
    load()
    from ray.cluster_utils import Cluster

    with _on_loopback():
        # A node counts as dead after 5 s of silence instead of half a minute.
        impatient = {"health_check_period_ms": 1000, "health_check_failure_threshold": 5}
        head = {"num_cpus": 1, "include_dashboard": False, "_system_config": impatient, **SMALL}
        cluster = Cluster(initialize_head=True, head_node_args=head)
    # No hooks at exit for the others: those need the main thread, and a node may be added from another one.
    # Nodes without their head end by themselves.
    cluster._shutdown_at_exit = False
    try:
        nodes = _Cluster(cluster, resources)
        for _ in range(count):
            nodes.add()
        yield nodes
    finally:
        cluster.shutdown()


class _Place:
    """One host: where it may run, its workers, and the actor that it is now."""

    def __init__(self, index: int, options: dict[str, Any], workers: list[int]) -> None:
        self.index = index
        self.options = options
        self.workers = workers
        self.actor: Any = None
        self.outbox: list[tuple[int, int, Any]] = []  # number, worker, message
        self.pace = BATCH  # seconds a message, as its actor says; at first nothing goes together


class RayEngine(WallEngine):
    """Workers in Ray actors, several to an actor, on this machine or a cluster.

    A host that dies loses its workers; a new one is started wherever Ray finds room, builds their problems
    again and gives them the w_j that the master's side has kept. Replies are checked for kind, shape and type
    before the master sees them.

    Ray runs the code that it is sent: a cluster must not be open to anyone who is not to run code on it
    (docs/cluster.md).

    Args:
        address: of a running cluster, "host:port"; None starts one for this run on the loopback interface.
        hosts: how many actors, or for each the resources that its node must have, such as `{"site-a": 1}`.
        placement: the host of each worker; even blocks by default.
        cpus: of a cluster that is started here.
        object_store_mb: shared memory of a cluster that is started here.
        patience: seconds that a round of questions waits without any further answer, the start included.
        restarts: how often in a row a worker is made again before it is given up; 0 for never.
        restart_after: seconds from a loss to the first attempt, twice as long after each failure in a row.
        deadline_floor: the least seconds of silence that `deadline="auto"` takes for a sign of anything.
        join_timeout: seconds after which a cluster that does not answer at `address` is `ClusterUnreachable`.

    `solve(problems, uncertainty_set, engine=RayEngine(hosts=2))` is all it takes.
    """

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
        if not (isfinite(join_timeout) and join_timeout > 0):
            raise InvalidSetting(
                f"RayEngine.join_timeout must be a finite number of seconds > 0, got {join_timeout}"
            )
        self.address, self.join_timeout = address, join_timeout
        self.hosts = _check_hosts(hosts)
        self.placement = None if placement is None else list(placement)
        for name, value, least in (("cpus", cpus, 1), ("object_store_mb", object_store_mb, 80)):
            if not (isinstance(value, int) and value >= least):
                raise InvalidSetting(f"RayEngine.{name} must be a whole number >= {least}, got {value!r}")
        self.cpus, self.object_store_mb = cpus, object_store_mb
        self._ours = False
        self._places: list[_Place] = []

    def __repr__(self) -> str:
        return f"RayEngine(address={self.address!r}, hosts={len(self.hosts)}, clock={self.clock:.3g})"

    # -- the transport --------------------------------------------------------------------------------

    def _open(self, factories: Sequence[WorkerFactory]) -> None:
        N = len(factories)
        groups = _groups(self.placement, len(self.hosts), N)
        self._places = []
        self._refs: dict[Any, tuple[_Place, list[int], list[int]]] = {}
        self._ours = connect(
            self.address,
            cpus=self.cpus,
            object_store_mb=self.object_store_mb,
            join_timeout=self.join_timeout,
        )
        self._ray = load()
        self._factories = list(factories)
        self._latest_shared: Request | None = None
        self._reference: Shared | None = None
        self._actors = self._ray.remote(Host)
        self._places = [
            _Place(i, {"num_cpus": 0, "max_restarts": 0, "resources": dict(resources)}, workers)
            for i, (resources, workers) in enumerate(zip(self.hosts, groups, strict=True))
        ]
        self._place_of = {j: place for place in self._places for j in place.workers}
        for place in self._places:
            self._make(place, dict.fromkeys(place.workers), afresh=True)

    def _make(self, place: _Place, pasts: Mapping[int, Past | None], *, afresh: bool) -> None:
        if not pasts:
            return
        if place.actor is None:
            place.actor = self._actors.options(**place.options).remote(self._ray.get)
        ref = place.actor.make.remote({j: (self._pack(j), past) for j, past in pasts.items()}, afresh)
        first = all(past is None for past in pasts.values())
        self._refs[ref] = (place, [], [] if first else list(pasts))

    def _pack(self, worker: int) -> bytes:
        """A worker's factory as bytes, unpacked where it is used: a failure there is that worker's alone."""
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
            if message is not self._latest_shared:
                self._latest_shared = message
                self._reference = Shared(secrets.token_hex(8), self._ray.put(message))
            content = self._reference
        self._place_of[worker].outbox.append((number, worker, content))

    def _flush(self) -> None:
        """Send what was posted; to one host together as far as it will not hold up a reply for long."""
        for place in self._places:
            box = place.outbox
            if box:
                most = max(1, int(BATCH / place.pace))
                for first in range(0, len(box), most):
                    letters = box[first : first + most]
                    ref = place.actor.handle.remote([letter[1:] for letter in letters])
                    self._refs[ref] = (place, [letter[0] for letter in letters], [])
                box.clear()

    def _collect(self, seconds: float) -> list[Arrival]:
        self._flush()
        if not self._refs:
            sleep(seconds)
            return []
        refs = list(self._refs)
        done, _ = self._ray.wait(refs, num_returns=1, timeout=seconds)
        if done and len(refs) > 1:
            done, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0)
        found: list[Arrival] = []
        try:
            contents = self._ray.get(done)  # all at once is cheaper, where all are well
        except self._ray.exceptions.RayError:
            contents = None
        for place, ref in enumerate(done):
            if ref in self._refs:
                self._take(ref, found, contents and contents[place : place + 1])
        return found

    def _take(self, ref: Any, found: list[Arrival], got: list[Any] | None) -> None:
        place, numbers, workers = self._refs.pop(ref)
        errors = self._ray.exceptions
        try:
            content = got[0] if got else self._ray.get(ref)
        except (errors.RayTaskError, errors.RaySystemError) as error:
            # The host lives: something could not be packed or unpacked, as between two versions of fdro.
            said = RuntimeError(_first_line(getattr(error, "cause", None) or error))
            said.add_note(str(error))
            found.extend(Answer(number, said) for number in numbers)
            if workers:
                found.append(Gone(workers, f"raised {said}", said))
            return
        except errors.RayError as error:
            found.append(Gone(self._bury(place), f"host {place.index} died: {_first_line(error)}"))
            return
        if numbers:
            replies, spent = content
            place.pace += 0.2 * (max(spent / len(numbers), 1e-6) - place.pace)
            for number, reply in zip(numbers, replies, strict=True):
                found.append(Answer(number, reply if isinstance(reply, Exception) else copied(reply)))
            return
        for j in workers:
            if j in content:
                found.append(Gone([j], f"raised {words(content[j])}", content[j]))
        found.append(Here(j for j in workers if j not in content))

    def _bury(self, place: _Place) -> list[int]:
        """A host is dead: forget its actor and what it was asked."""
        if place.actor is not None:
            self._ray.kill(place.actor)
            place.actor = None
        place.outbox.clear()
        self._refs = {ref: entry for ref, entry in self._refs.items() if entry[0] is not place}
        return place.workers

    def _remake(self, pasts: Mapping[int, Past], *, afresh: bool) -> None:
        for place in self._places:
            self._make(place, {j: pasts[j] for j in place.workers if j in pasts}, afresh=afresh)

    def _abandon(self, workers: Sequence[int]) -> Sequence[int]:
        places = dict.fromkeys(self._place_of[j] for j in workers)
        return [j for place in places for j in self._bury(place)]

    def _close(self) -> None:
        for place in self._places:
            self._bury(place)
        self._latest_shared = self._reference = None
        if self._ours:
            self._ours = False
            self._ray.shutdown()


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _check_hosts(hosts: int | Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    if isinstance(hosts, int):
        if hosts < 1:
            raise InvalidSetting(f"RayEngine.hosts must be at least 1, got {hosts}")
        return [{} for _ in range(hosts)]
    found = [dict(resources) for resources in hosts]
    if not found or not all(isfinite(v) and v > 0 for resources in found for v in resources.values()):
        raise InvalidSetting(
            "RayEngine.hosts is a number, or for each host the resources it needs as {name: amount > 0}; "
            f"got {hosts!r}"
        )
    return found


def _groups(placement: Sequence[int] | None, hosts: int, workers: int) -> list[list[int]]:
    """The workers of each host."""
    chosen: Iterable[int] = (
        placement if placement is not None else (j * hosts // workers for j in range(workers))
    )
    groups: list[list[int]] = [[] for _ in range(hosts)]
    if placement is not None and len(placement) != workers:
        raise InvalidSetting(f"RayEngine.placement names a host for {len(placement)} of {workers} workers")
    for j, host in enumerate(chosen):
        if not 0 <= host < hosts:
            raise InvalidSetting(
                f"RayEngine.placement sends worker {j} to host {host}; there are 0..{hosts - 1}"
            )
        groups[host].append(j)
    return groups
