"""Requests on their way through a grid of Flower: pushed, pulled for, at most one to a worker at a time.

Flower promises no order between two messages to one node, so the second waits for the reply to the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fdro_core.engines.flower_ import package
from fdro_core.errors import ClusterLost, MalformedMessage

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
