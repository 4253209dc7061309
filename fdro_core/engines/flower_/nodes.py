"""Which node runs which worker. Nothing here talks to Flower: the engine passes in what it hears.

A node says which worker it is (`--node-config "worker=3"`; in a simulation its partition). Nodes without a
number take the free places in the order in which they answered. A node that returns may have another id: what
counts is the number that it says, and a place is given away only while its node is away. Of two nodes that
say one number nobody can tell which is the right one, so before the first step that ends the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fdro_core.errors import InvalidSetting


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
