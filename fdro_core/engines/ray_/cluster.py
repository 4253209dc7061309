"""Clusters of Ray: join one, start one on this machine. The only file that imports ray, on first use."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from time import monotonic, sleep
from typing import Any

from fdro_core.errors import ClusterUnreachable
from uncertainty_sets.errors import BackendMissing

LOCAL_NODE = {"object_store_memory": 100 * 2**20, "node_ip_address": "127.0.0.1"}  # one of several here


def load() -> Any:
    """Import ray, with usage statistics off."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # By default Ray's workers have the lowest priority: on a busy machine a step takes very long.
    os.environ.setdefault("RAY_worker_niceness", "0")
    try:
        import ray
    except ImportError as error:
        raise BackendMissing('RayEngine needs ray: pip install "fdro[ray]"') from error
    return ray


def connect(
    address: str | None, *, cpus: int = 2, object_store_mb: int = 200, join_timeout: float = 30.0
) -> bool:
    """Connect this process to Ray; return False if it was connected before.

    Without an address a cluster is started for this process: on the loopback interface, without dashboard and
    usage statistics, with a token that only this process and its children know.
    """
    if address is None:
        _require_token()
    ray = load()
    if ray.is_initialized():
        return False
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address is not None:
        local = address.rpartition(":")[0] in {"127.0.0.1", "localhost", "[::1]"}
        with _on_loopback() if local else nullcontext():  # else Ray looks for a node at another address
            try:
                if address.rpartition(":")[2].isdecimal() and "//" not in address:
                    _wait_for_head(address, join_timeout)
                ray.init(address=address, **quiet)
            except Exception as error:
                raise ClusterUnreachable(
                    f"no cluster of Ray can be joined at {address}: {first_line(error)}. Is it running, and "
                    "are RAY_AUTH_MODE and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) as they are there? "
                    "docs/cluster.md has the commands"
                ) from error
    else:
        # "local", because otherwise Ray joins any cluster that it finds traces of.
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


def whereabouts() -> tuple[str, str] | None:
    """Return the head's address and the path of a socket of this machine's raylet; None for a Ray client."""
    ray = load()
    node = ray._private.worker.global_worker.node
    if node is None:  # "ray://": a proxy elsewhere is the driver
        return None
    return str(node.gcs_address), str(node.plasma_store_socket_name or "")


def _wait_for_head(address: str, seconds: float) -> None:
    """Wait until the head of a cluster answers at an address; `TimeoutError` after that many seconds.

    If nobody listens, Ray itself tries for a quarter of an hour, in calls that Ctrl-C does not end. So they
    are made on a separate thread, which is left behind when the time is up.
    """
    ray = load()
    answers: list[Exception | None] = []

    def connect_once() -> None:
        try:
            ray._raylet.GcsClient(address=address)  # asks for the cluster's name
            answers.append(None)
        except Exception as error:
            answers.append(error)

    end, last = monotonic() + seconds, "nobody answers"
    while True:
        thread = threading.Thread(target=connect_once, name="fdro-join", daemon=True)
        thread.start()
        while thread.is_alive() and monotonic() < end:
            thread.join(timeout=0.1)
        answer: Exception | None = answers.pop() if answers else TimeoutError(last)
        if answer is None:
            return
        last = first_line(answer)
        if isinstance(answer, ray.exceptions.AuthenticationError):
            raise answer
        if monotonic() >= end:
            raise TimeoutError(f"{last}, for {seconds:g} s (`join_timeout`)") from answer
        sleep(min(1.0, max(0.0, end - monotonic())))


def _require_token() -> None:
    """Make clusters of this process require a token that only it and its children know.

    Otherwise Ray writes one token for all clusters to the home folder, and refuses clients with another.
    """
    if "RAY_AUTH_MODE" not in os.environ:
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


def lacking(resources: Mapping[str, float]) -> str:
    """Return the resources in words if no node of the cluster has them all; "" if one has."""
    nodes = [node["Resources"] for node in load().nodes() if node["Alive"]]
    if any(all(node.get(name, 0.0) >= amount for name, amount in resources.items()) for node in nodes):
        return ""
    return ", ".join(f"{name}: {amount:g}" for name, amount in resources.items())


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Make Ray choose 127.0.0.1 as this machine's address, the only one it then listens on.

    If given that address as an argument, Ray listens on every interface. This internal switch is meant for
    systems without clusters; it is on only while a local cluster is started or joined.
    """
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


class LocalCluster:
    """Several nodes on this machine; see `several_nodes`."""

    def __init__(self, cluster: Any, resources: Mapping[str, float]) -> None:
        self._cluster, self._resources = cluster, dict(resources)
        self.address: str = cluster.address

    @property
    def size(self) -> int:
        """How many nodes there are, without the head."""
        return len(self._cluster.worker_nodes)

    def add(self) -> None:
        """Start one more node; works on any thread."""
        self._cluster.add_node(num_cpus=1, resources=self._resources, **LOCAL_NODE)

    def kill(self, choice: int) -> str:
        """Kill the raylet of node number `choice`, modulo their count; return its name."""
        nodes = sorted(self._cluster.worker_nodes, key=lambda node: str(node.unique_id))
        if not nodes:
            return "nobody"
        node = nodes[choice % len(nodes)]
        node.kill_raylet(check_alive=False)
        self._cluster.worker_nodes.discard(node)
        return f"node {node.unique_id}"


@contextmanager
def several_nodes(count: int, resources: Mapping[str, float]) -> Iterator[LocalCluster]:
    """Start a cluster of several nodes on the loopback interface, to test what happens when one dies.

    The head has none of the resources, so hosts that need them run on the other nodes.
    """
    _require_token()
    load()
    from ray.cluster_utils import Cluster

    with _on_loopback():
        # A node counts as dead after 5 s of silence instead of half a minute.
        quick_checks = {"health_check_period_ms": 1000, "health_check_failure_threshold": 5}
        head = {"num_cpus": 1, "include_dashboard": False, "_system_config": quick_checks, **LOCAL_NODE}
        cluster = Cluster(initialize_head=True, head_node_args=head)
    # No exit hooks for the other nodes: those need the main thread, and a node may be added from another one.
    # Nodes without their head end by themselves.
    cluster._shutdown_at_exit = False
    try:
        nodes = LocalCluster(cluster, resources)
        for _ in range(count):
            nodes.add()
        yield nodes
    finally:
        cluster.shutdown()


def first_line(error: Exception) -> str:
    """Return the first line of an exception's text; Ray's texts go on with tracebacks."""
    return str(error).strip().partition("\n")[0]


# -- the head ------------------------------------------------------------------------------------------
# If the raylet of this machine dies, Ray ends the process at the next object that it stores; if the head does
# not answer for a minute, then. Neither is an exception, so a run would end without saying what is lost.


EVERY = 1.0  # seconds between two looks
PATIENCE = 30.0  # seconds without the head: it may be a partition, and Ray gives up after 60


class HeadWatch:
    """Looks, on a thread of its own, whether the raylet of this machine and the cluster's head are there.

    Args:
        address: of the head, "host:port".
        raylet: path of the socket of this machine's raylet; "" where it has none.
        patience: seconds for which the head may be away.
        every: seconds between two looks.

    Attributes:
        gone: why the cluster is lost, "" while it is not.
    """

    def __init__(
        self, address: str, raylet: str, *, patience: float = PATIENCE, every: float = EVERY
    ) -> None:
        host, _, port = address.rpartition(":")
        self._address, self._place = address, (host.strip("[]"), int(port))
        self._raylet, self._patience, self._every = raylet, patience, every
        self._answered = self._looked = monotonic()
        self.gone = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="fdro-head", daemon=True)
        self._thread.start()

    def look_here(self) -> str:
        """Look at the raylet of this machine, unless that was done a moment ago; return `gone`."""
        now = monotonic()
        if self._raylet and not self.gone and now - self._looked >= self._every / 10:
            self._looked = now
            try:
                with socket.socket(socket.AF_UNIX) as raylet:
                    raylet.settimeout(self._every)
                    raylet.connect(self._raylet)
            except (ConnectionRefusedError, FileNotFoundError) as error:
                self.gone = f"the raylet of this machine has ended ({error.strerror})"
            except OSError:  # it is there and busy
                pass
        return self.gone

    def _watch(self) -> None:
        while not self._over.wait(self._every) and not self.look_here():
            try:
                socket.create_connection(self._place, timeout=self._every).close()
                self._answered = monotonic()
            except OSError as error:
                away = monotonic() - self._answered
                if away >= self._patience:
                    self.gone = f"nothing has answered at {self._address} for {away:.0f} s ({error})"

    def stop(self) -> None:
        """End the thread."""
        self._over.set()
