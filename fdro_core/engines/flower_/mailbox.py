"""Requests on their way through a grid of Flower: pushed, pulled for, at most one to a worker at a time.

Flower promises no order between two messages to one node, so the second waits for the reply to the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fdro_core.engines.flower_ import package
from fdro_core.errors import ClusterLost, InvalidSetting, MalformedMessage

NETWORK = ("httpx", "httpcore", "grpc", "requests")  # whose exceptions mean that the SuperLink is not there


class ReplyLost(ConnectionError):
    """A reply that may have come together with one that Flower could not read, and is gone if it did."""


class Sent:
    """A request: to which worker (-1: none) at which node, its number and what it asks for."""

    __slots__ = ("action", "node", "number", "worker")

    def __init__(self, worker: int, number: int, action: str, node: int) -> None:
        self.worker = worker
        self.number = number
        self.action = action
        self.node = node


class Mailbox:
    """What is under way.

    Args:
        grid: Flower's.
        ttl: seconds that Flower keeps a message.
    """

    def __init__(self, grid: Any, ttl: float) -> None:
        self._grid = grid
        self._ttl = ttl
        self._under_way: dict[str, Sent] = {}
        self._id_of: dict[int, str] = {}
        self._singly = False

    def busy(self, worker: int) -> bool:
        """Whether a worker has a request under way."""
        return worker in self._id_of

    def drop(self, worker: int) -> None:
        """Ask no longer for the reply of a worker."""
        message = self._id_of.pop(worker, None)
        if message is not None:
            del self._under_way[message]

    def push(self, letters: Sequence[tuple[Sent, Any]]) -> list[Sent]:
        """Send requests with their records; return those that Flower did not take."""
        if not letters:
            return []
        app = package.load()
        query, train = app.MessageType.QUERY, app.MessageType.TRAIN
        messages = [
            app.Message(records, sent.node, query if sent.worker < 0 else train, ttl=self._ttl)
            for sent, records in letters
        ]
        with superlink_there():
            taken = {str(each) for each in self._grid.push_messages(messages) if each}
        if not taken and len(letters) > 1:  # too large together
            return [sent for letter in letters for sent in self.push([letter])]
        refused = []
        for (sent, _), message in zip(letters, messages, strict=True):
            name = str(message.metadata.message_id)
            if name not in taken:
                refused.append(sent)
                continue
            self._under_way[name] = sent
            if sent.worker >= 0:
                self._id_of[sent.worker] = name
        return refused

    def pull(self) -> list[tuple[Sent, Any]]:
        """Return the requests that were answered, each with Flower's message or what it raised on it.

        Flower reads all replies in one call, so one that it cannot read takes the others with it. When that
        happens the others count as lost, and from then on replies are pulled one by one.
        """
        names = list(self._under_way)
        if not names:
            return []
        if not self._singly:
            try:
                with superlink_there():
                    return self._sorted(self._grid.pull_messages(names))
            except ClusterLost:
                raise
            except Exception as error:
                self._singly = True
                found = self._pull_singly(names)
                lost = ReplyLost(f"lost with another that Flower cannot read: {type(error).__name__}")
                return found + [(self._take(name), lost) for name in list(self._under_way)]
        return self._pull_singly(names)

    def _pull_singly(self, names: Sequence[str]) -> list[tuple[Sent, Any]]:
        found: list[tuple[Sent, Any]] = []
        for name in names:
            try:
                with superlink_there():
                    found += self._sorted(self._grid.pull_messages([name]))
            except ClusterLost:
                raise
            except Exception as error:
                wrong = MalformedMessage(
                    f"a reply that Flower cannot read: {type(error).__name__}: {error!s:.200}"
                )
                found.append((self._take(name), wrong))
        return found

    def _sorted(self, replies: Any) -> list[tuple[Sent, Any]]:
        known = [reply for reply in replies if reply.metadata.reply_to_message_id in self._under_way]
        return [(self._take(reply.metadata.reply_to_message_id), reply) for reply in known]

    def _take(self, name: str) -> Sent:
        sent = self._under_way.pop(name)
        if self._id_of.get(sent.worker) == name:
            del self._id_of[sent.worker]
        return sent


@contextmanager
def superlink_there() -> Iterator[None]:
    """Raise `ClusterLost` instead of an exception that means that the SuperLink is not there."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) or type(error).__module__.partition(".")[0] in NETWORK:
            raise ClusterLost(
                f"the SuperLink does not answer any more ({type(error).__name__}: {error!s:.200}), and all "
                "workers are lost with it. Start it again: on the same --database the nodes find it by "
                "themselves, without one make them known and start them too (docs/flower.md). "
                "Then resume(path, ..., engine=FlowerEngine(grid)) in a new run continues from the file of a "
                "Checkpoint, if this run had one among its observers"
            ) from error
        raise


def limit_outage(grid: Any, seconds: float) -> None:
    """Make a grid give up after so many seconds without the SuperLink; by itself it would try for ever."""
    retries: Any = getattr(grid, "_retry_invoker", None)  # no public name; a grid in memory has none
    if retries is not None and retries.max_time is None:
        retries.max_time = seconds


# -- nodes and their workers ---------------------------------------------------------------------------
# A node says which worker it is (`--node-config "worker=3"`; in a simulation its partition). Nodes without a
# number take the free places in the order in which they answered. A node that returns may have another id:
# what counts is the number that it says, and a place is given away only while its node is away. Of two nodes
# that say one number nobody can tell which is the right one, so before the first step that ends the run.


class Nodes:
    """The places of N workers, and the nodes in them.

    Args:
        workers: N.
        fixed: the node id of every worker, if the caller knows them; then no node is asked.

    >>> nodes = Nodes(2)
    >>> nodes.seen([11, 12])
    [11, 12]
    >>> nodes.introduced(12, 0), nodes.introduced(11, -1), nodes.complete
    ('', '', True)
    >>> nodes.of_worker
    [12, 11]
    >>> nodes.introduced(13, 0)
    'node 13 says that it is worker 0, which node 12 is; it is left out'
    """

    def __init__(self, workers: int, fixed: Sequence[int] | None = None) -> None:
        if fixed is not None and (len(fixed) != workers or len(set(fixed)) != workers):
            raise InvalidSetting(
                f"FlowerEngine.nodes must name another node for each of {workers} workers, got "
                f"{list(fixed)!r:.80}"
            )
        self.fixed = fixed is not None
        self.of_worker: list[int | None] = [None] * workers if fixed is None else list(fixed)
        self._says: dict[int, int | None] = dict.fromkeys(fixed or ())  # None: asked, no answer yet
        self._online: set[int] = set()

    @property
    def complete(self) -> bool:
        """Whether every worker has a node that is there."""
        return all(self.present(worker) for worker in range(len(self.of_worker)))

    @property
    def missing(self) -> list[int]:
        """The workers without a node that is there."""
        return [worker for worker in range(len(self.of_worker)) if not self.present(worker)]

    @property
    def unanswered(self) -> bool:
        """Whether a node that is there was asked and has not said yet which worker it is."""
        return any(self._says.get(node, 0) is None for node in self._online) and not self.fixed

    def rivals(self) -> tuple[int, list[int]] | None:
        """A worker that two nodes say they are, both of them there, and these nodes; None if none."""
        claims: dict[int, list[int]] = {}
        for node in sorted(self._online):
            says = self._says.get(node)
            if says is not None and 0 <= says < len(self.of_worker):
                claims.setdefault(says, []).append(node)
        return next(((worker, nodes) for worker, nodes in claims.items() if len(nodes) > 1), None)

    def present(self, worker: int) -> bool:
        """Whether a worker has a node that is there."""
        return self.of_worker[worker] in self._online

    def seen(self, online: Iterable[int]) -> list[int]:
        """Take in which nodes are there now; return those to ask which worker they are."""
        self._online = set(online)
        new = [] if self.fixed else [node for node in sorted(self._online) if node not in self._says]
        self._says |= dict.fromkeys(new)
        return new

    def gone(self, node: int) -> None:
        """Take in that a node is away."""
        self._online.discard(node)

    def unheard(self, node: int) -> None:
        """Forget that a node was asked: its answer will not come, and it may be asked again."""
        if self._says.get(node, 0) is None and not self.fixed:
            del self._says[node]

    def introduced(self, node: int, worker: int) -> str:
        """Take in which worker a node says it is, -1 for any; return why it is left out, "" if it is not."""
        self._says[node] = worker
        if worker >= len(self.of_worker):
            return (
                f"node {node} says that it is worker {worker}; there are workers 0..{len(self.of_worker) - 1}"
            )
        if worker < 0:
            self._place_unnamed()
            return ""
        other = self.of_worker[worker]
        if other is not None and other != node and other in self._online and self._says.get(other, -1) != -1:
            return f"node {node} says that it is worker {worker}, which node {other} is; it is left out"
        self.of_worker[worker] = node
        self._place_unnamed()
        return ""

    def _place_unnamed(self) -> None:
        """Give nodes without a number the places that nobody claims, once there are enough nodes for all."""
        claimed = {worker for worker in self._says.values() if worker is not None and worker >= 0}
        settled = {node for node in self.of_worker if node in self._online}
        waiting = [node for node, says in self._says.items() if says == -1 and node in self._online - settled]
        free = [worker for worker in self.missing if worker not in claimed]
        if len(waiting) < len(free) and None in self.of_worker:
            return  # a node with a number may still join
        for worker, node in zip(free, waiting, strict=False):
            self.of_worker[worker] = node
