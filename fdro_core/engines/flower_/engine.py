"""Machines of many owners, a wall clock: the master in a ServerApp of Flower, workers in ClientApps."""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Mapping, Sequence
from time import monotonic, sleep
from typing import Any

from fdro_core.engines.flower_ import wire
from fdro_core.engines.flower_.mailbox import Mailbox, Nodes, ReplyLost, Sent, limit_outage, superlink_there
from fdro_core.engines.flower_.problem import describe
from fdro_core.engines.wall_clock import (
    Answer,
    Arrival,
    WallEngine,
    WorkerRecord,
    WorkersLost,
    WorkersReady,
)
from fdro_core.errors import ClusterUnreachable, InvalidSetting, MalformedMessage
from fdro_core.protocol.engine import WorkerFactory
from fdro_core.protocol.failures import words
from fdro_core.protocol.messages import Message, Request
from fdro_core.protocol.settings import Number, check_setting

LOG = logging.getLogger("flwr")  # Flower's own, so that its user sees who is waited for
TELL_AFTER = 10.0  # seconds between two lines while nodes are waited for
SETTLE = 30.0  # seconds for which nodes that are not needed may still say who they are
LOOK_AFTER = 1.0  # seconds between two looks at which nodes are there


class FlowerEngine(WallEngine):
    """Workers in client apps of Flower, one to a node: TLS, known nodes, parsed messages, no pickle.

    It is made in a ServerApp from the grid that Flower passes to it; `fdro flower new` writes such an app
    (docs/flower.md). Problems are given by name (`NamedProblem`) and made where their data is. A request
    carries all that a worker must know, so a client app may be started anew for every message. A node that is
    away loses its worker, and gets it back when it returns.

    A message costs seconds in a deployment: give the algorithm many `local_steps`.

    Args:
        grid: of the ServerApp.
        nodes: the node id of every worker; by default each node says which worker it is, and two that say
            the same end the run before its first step.
        poll: seconds between two looks for replies.
        ttl: seconds after which Flower gives up a message that is not answered; its worker is then lost.
        join_timeout: seconds to wait for a node for every worker before the run begins.
        message_mb: arrays of a longer reply are refused, and its worker is lost.
        patience: seconds that a round of questions waits without any further answer, that a lost worker's
            node may stay away before that counts as a failure in a row, and for which the SuperLink may not
            answer before that is `ClusterLost`.
        restarts: how often in a row a lost worker is created again before it is given up; 0: never.
        restart_after: seconds from a loss to the first attempt, twice as long after each failure in a row.
        deadline_floor: the least seconds of silence after which `deadline="auto"` acts.

    `solve(problems, uncertainty_set, engine=FlowerEngine(grid))` is all it takes.
    """

    name = "flower"
    own_processes = True
    survives_hangs = True
    package = "flwr"
    extra = "flower"

    def __init__(
        self,
        grid: Any = None,
        *,
        nodes: Sequence[int] | None = None,
        poll: float = 0.1,
        ttl: float = 3600.0,
        join_timeout: float = 300.0,
        message_mb: float = 1024.0,
        patience: float = 300.0,
        restarts: int = 10,
        restart_after: float = 0.5,
        deadline_floor: float = 60.0,
    ) -> None:
        super().__init__(
            patience=patience, restarts=restarts, restart_after=restart_after, deadline_floor=deadline_floor
        )
        self.grid = grid
        self.nodes = nodes
        self.poll = check_setting("FlowerEngine.poll", poll, Number(unit="seconds"))
        self.ttl = check_setting("FlowerEngine.ttl", ttl, Number(unit="seconds"))
        self.join_timeout = check_setting("FlowerEngine.join_timeout", join_timeout, Number(unit="seconds"))
        self.message_mb = check_setting("FlowerEngine.message_mb", message_mb, Number())

    def __repr__(self) -> str:
        return f"FlowerEngine(poll={self.poll:g}, clock={self.clock:.3g})"

    # -- the transport --------------------------------------------------------------------------------

    def _open(self, factories: Sequence[WorkerFactory]) -> None:
        if not all(hasattr(self.grid, name) for name in ("push_messages", "pull_messages", "get_node_ids")):
            raise InvalidSetting(
                "FlowerEngine needs the grid that Flower passes to a ServerApp, FlowerEngine(grid), got "
                f"{self.grid!r:.80}; `fdro flower new` writes an app that does this"
            )
        N = len(factories)
        self._session = secrets.token_hex(8)
        self._largest = int(self.message_mb * 2**20)
        self._descriptions = [self._describe(j, factory) for j, factory in enumerate(factories)]
        self._pasts = [wire.Past() for _ in factories]
        self._waiting: list[deque[tuple[int, str, Request | None]]] = [deque() for _ in factories]
        self._packed: dict[int, tuple[Message, dict[str, Any]]] = {}
        self._news: list[Arrival] = []
        self._own_number = 0  # of requests that are not the master's: negative
        self._next_pull = self._next_look = 0.0
        limit_outage(self.grid, self.patience)
        self._mailbox = Mailbox(self.grid, self.ttl)
        self._nodes = Nodes(N, self.nodes)
        self._wait_for_nodes()

    def _describe(self, worker: int, factory: WorkerFactory) -> Mapping[str, Any]:
        """Return the worker's factory in plain values."""
        return describe(worker, factory)

    def _wait_for_nodes(self) -> None:
        begin = told = complete = monotonic()
        while not self._nodes.complete or (self._nodes.unanswered and monotonic() - complete < SETTLE):
            self._look_for_nodes()
            self._pull_due()
            now, missing = monotonic(), self._nodes.missing
            complete = now if missing else complete
            if missing and now - begin >= self.join_timeout:
                raise ClusterUnreachable(
                    f"{_count(len(missing), 'worker')} of {len(self._pasts)} had no node within "
                    f"{self.join_timeout:g} s (`join_timeout`): {_some(missing)}. Start a SuperNode for "
                    'each, with --node-config "worker=0" and so on; docs/flower.md has the commands'
                )
            if missing and now - told >= TELL_AFTER:
                told = now
                LOG.info(
                    "fdro waits for nodes: %s of %s still without one (worker %s)",
                    _count(len(missing), "worker"), len(self._pasts), _some(missing),
                )  # fmt: skip
            sleep(min(self.poll, 0.25))

    def _look_for_nodes(self) -> None:
        """Learn which nodes are there, and ask new ones which worker they are."""
        now = monotonic()
        if now < self._next_look:
            return
        self._next_look = now + max(LOOK_AFTER, self.poll) if self._nodes.complete else now + self.poll
        with superlink_there():
            online = list(self.grid.get_node_ids())
        for node in self._nodes.seen(online):
            request = wire.Request(wire.WHO, self._session, -1, self._new_number())
            sent = Sent(-1, request.number, wire.WHO, node)
            if not self._mailbox.push([(sent, wire.write_request(request))]):
                continue
            self._nodes.unheard(node)

    def _new_number(self) -> int:
        self._own_number -= 1
        return self._own_number

    def _post(self, worker: int, number: int, message: Request) -> None:
        self._waiting[worker].append((number, wire.HANDLE, message))

    def _flush(self) -> None:
        """Push the next request of every worker that has none under way and whose node is there."""
        letters = []
        for worker, queue in enumerate(self._waiting):
            if not queue or self._mailbox.busy(worker) or not self._nodes.present(worker):
                continue
            number, action, message = queue.popleft()
            try:
                records = self._request(worker, number, action, message)
            except TypeError as error:  # the message holds something that no record does
                self._news.append(Answer(number, error))
                continue
            node = self._nodes.of_worker[worker]
            assert node is not None
            letters.append((Sent(worker, number, action, node), records))
        for sent in self._mailbox.push(letters):
            self._lose_node(sent, f"Flower takes no message for node {sent.node}")

    def _request(self, worker: int, number: int, action: str, message: Request | None) -> Any:
        request = wire.Request(action, self._session, worker, number)
        request.description, request.message = self._descriptions[worker], message
        past, kept = self._pasts[worker], self.records.of_worker[worker]
        past.record.opening = kept.opening
        if past.record.last is None:  # no step was answered yet
            past.record.last = kept.last
        request.past = past
        return wire.write_request(request, packed=self._packed)

    def _collect(self, seconds: float) -> list[Arrival]:
        end = monotonic() + seconds
        while True:
            self._flush()
            if self._nodes.missing:
                self._look_for_nodes()
            self._pull_due()
            now = monotonic()
            if self._news or now >= end:
                found, self._news = self._news, []
                return found
            sleep(max(0.0, min(end, self._next_pull) - now))

    def _pull_due(self) -> None:
        """Look for replies, unless that was done a moment ago."""
        now = monotonic()
        if now < self._next_pull:
            return
        for sent, reply in self._mailbox.pull():
            self._take(sent, reply)
        self._next_pull = monotonic() + self.poll

    # -- replies --------------------------------------------------------------------------------------

    def _take(self, sent: Sent, reply: Any) -> None:
        """Take in a reply of Flower: a node's, Flower's own error, or what it raised on a reply."""
        if isinstance(reply, ReplyLost):
            if sent.action == wire.WHO:
                self._nodes.unheard(sent.node)
            else:
                self._lose_node(sent, f"node {sent.node}: its reply was {reply}", CRASHED)
            return
        if not isinstance(reply, Exception) and reply.has_error():
            self._take_error(sent, reply.error)
            return
        try:
            if isinstance(reply, Exception):
                raise reply
            response = wire.read_response(reply.content, self._largest)
            if response.number != sent.number:
                raise MalformedMessage(f"an answer to message {response.number}, which was not asked")
        except Exception as error:  # whatever a node sends: it counts as its worker's failure
            failure = error if isinstance(error, MalformedMessage) else MalformedMessage(words(error)[:400])
            response = wire.Response(sent.worker, sent.number, failure)
        if sent.action == wire.WHO:
            self._take_name(sent, response)
        elif sent.action == wire.MAKE:
            self._take_made(sent, response)
        else:
            self._take_answer(sent, response)

    def _take_name(self, sent: Sent, response: wire.Response) -> None:
        if isinstance(response.content, Exception):
            LOG.warning("fdro leaves out node %s: %s", sent.node, words(response.content))
            return
        left_out = self._nodes.introduced(sent.node, response.worker)
        rivals = self._nodes.rivals() if self._opening else None
        if rivals is not None:
            worker, nodes = rivals
            raise InvalidSetting(
                f"nodes {' and '.join(map(str, nodes))} both say that they are worker {worker}: give every "
                "SuperNode a number of its own (one that was just started again: wait a minute), or say "
                "which node is which worker, FlowerEngine(grid, nodes=[...])",
                parameter="nodes",
            )
        if left_out:
            LOG.warning("fdro: %s", left_out)

    def _take_made(self, sent: Sent, response: wire.Response) -> None:
        error = response.content
        if isinstance(error, Exception):
            self._news.append(WorkersLost([sent.worker], f"raised {words(error)}", error))
            return
        self._remember(sent, response)
        self._news.append(WorkersReady([sent.worker]))

    def _take_answer(self, sent: Sent, response: wire.Response) -> None:
        content = response.content
        if content is None:
            content = MalformedMessage("no reply in the answer")
        if isinstance(content, Message):
            self._remember(sent, response)
            asked = self._in_flight.get(sent.number)
            if asked is not None and not asked.of_round:
                record = self._pasts[sent.worker].record
                ticket = getattr(content, "ticket", None)
                record.replies += ticket is None or ticket != getattr(record.last, "ticket", None)
                record.last = content
        self._news.append(Answer(sent.number, content))

    def _remember(self, sent: Sent, response: wire.Response) -> None:
        past = self._pasts[sent.worker]
        past.memory, past.state, past.after = response.memory, response.state, sent.number

    def _take_error(self, sent: Sent, error: Any) -> None:
        """Take in an error of Flower: a node that is away or a crash loses the worker, others it raised."""
        reason = f"{error.reason or 'no reason'} (Flower's error {error.code})"[:400]
        if sent.action == wire.WHO:
            self._nodes.unheard(sent.node)
        elif error.code in LOSSES:
            self._lose_node(sent, f"node {sent.node}: {LOSSES[error.code]}: {reason}", error.code)
        else:
            failure = RuntimeError(f"the client app of node {sent.node} failed: {reason}")
            if sent.action == wire.MAKE:
                self._news.append(WorkersLost([sent.worker], str(failure), failure))
            else:
                self._news.append(Answer(sent.number, failure))

    def _lose_node(self, sent: Sent, reason: str, code: int | None = None) -> None:
        if code != CRASHED:
            self._nodes.gone(sent.node)
        if sent.worker >= 0:
            self._forget(sent.worker)
            self._news.append(WorkersLost([sent.worker], reason))

    # -- lost workers ---------------------------------------------------------------------------------

    def _forget(self, worker: int) -> None:
        """Drop what a worker was asked; answers that still come are nobody's."""
        self._waiting[worker].clear()
        self._mailbox.drop(worker)

    def _remake(self, records: Mapping[int, WorkerRecord], *, afresh: bool) -> None:
        for worker, record in records.items():
            self._forget(worker)
            old = self._pasts[worker]
            copy = WorkerRecord(record.opening, record.last, record.replies)
            past = self._pasts[worker] = wire.Past(copy, wire.RECORD if record.opening else wire.NO_MEMORY)
            if (
                afresh and old.memory == wire.STATE
            ):  # else a checkpoint knows better than this run's first questions
                past.memory, past.state = old.memory, old.state
            self._waiting[worker].append((self._new_number(), wire.MAKE, None))
            if not self._nodes.present(worker):
                self._may_hang[worker] = True  # nobody knows when its node returns: rounds do not wait long

    def _abandon(self, workers: Sequence[int]) -> Sequence[int]:
        for worker in workers:
            self._forget(worker)
        return workers

    def _excuse(self, worker: int) -> str:
        return super()._excuse(worker) if self._nodes.present(worker) else "its node is away"

    def _close(self) -> None:
        self._waiting, self._news, self._packed = [], [], {}


CRASHED = 8
LOSSES = {
    3: "the message was not answered in time (`ttl`)",
    4: "the reply was lost",
    5: "away",
    CRASHED: "its client app crashed",
}
"""Flower's error codes after which a worker is lost rather than wrong."""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _some(workers: Sequence[int]) -> str:
    shown = ", ".join(map(str, workers[:8]))
    return shown if len(workers) <= 8 else f"{shown}, …"
