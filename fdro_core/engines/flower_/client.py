"""The workers' side: a ClientApp that makes its worker from the message, asks it, and sends the reply.

Flower starts a client app anew for every message in a deployment, and keeps its process in a simulation. Both
work: a worker that is no longer in memory is made again and continues from what the message tells of its
past.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fdro_core.engines.flower_ import package, wire
from fdro_core.engines.flower_.problem import Allowed, factory_of
from fdro_core.engines.wall_clock import restore_worker
from fdro_core.privacy.policy import PLACE, PrivacyPolicy, make_under, policy_at_worker, read, refused
from fdro_core.protocol.engine import WorkerFactory, WorkerMachine
from fdro_core.protocol.failures import as_exception
from fdro_core.protocol.replies import checked
from fdro_core.protocol.settings import Number, Whole, check_setting

Factories = Callable[[Mapping[str, Any], int, Mapping[str, Any]], WorkerFactory]
"""From a worker's description, its index and the node's config to what makes it."""

NAMES = (
    "worker",
    "partition-id",
)  # of the node-config that says which worker a node is; the second, Flower's own
POLICY = "privacy"  # of the node-config that names the file of the node's policy


def client_app(
    problems: Iterable[Callable[..., Any] | str],
    *,
    algorithms: Iterable[str] = (),
    privacy: PrivacyPolicy | str | Path | None = None,
    details: bool = True,
    keep: int = 64,
    message_mb: float = 1024.0,
) -> Any:
    """Return a ClientApp whose nodes are fdro's workers.

    A node runs what its own app allows: these factories of problems, fdro's algorithms, and no other code.

    Args:
        problems: the functions, or "module:function", that the master may name (`NamedProblem`).
        algorithms: further packages whose algorithms the master may name.
        privacy: the policy of a node that has none of its own (docs/privacy.md), or the path of its file. A
            node's own is named by its `--node-config 'privacy="policy.toml"'` or by FDRO_PRIVACY, and comes
            first: an app may have been sent by somebody else.
        details: whether the text and traceback of an exception leave the node; both may quote data.
        keep: how many workers stay in memory while the process lives, as in a simulation.
        message_mb: arrays of a longer message are refused.

    Costs, per message: making the problem if the process is new, and one gradient if the worker has a state.
    """
    node = Node(
        _factories(Allowed(problems), tuple(algorithms)),
        privacy=privacy if isinstance(privacy, PrivacyPolicy | None) else read(privacy),
        details=details,
        keep=check_setting("client_app.keep", keep, Whole(0)),
        largest=int(check_setting("client_app.message_mb", message_mb, Number()) * 2**20),
    )
    return node.app()


def _factories(allowed: Allowed, packages: tuple[str, ...]) -> Factories:
    def find(description: Mapping[str, Any], worker: int, node_config: Mapping[str, Any]) -> WorkerFactory:
        return factory_of(description, worker, allowed, node_config, packages)

    return find


class _Kept:
    """A worker in memory, and the number of the last message that it answered."""

    __slots__ = ("answered", "machine")

    def __init__(self, machine: WorkerMachine) -> None:
        self.machine = machine
        self.answered = 0


_WORKERS: OrderedDict[tuple[Any, str, int], _Kept] = OrderedDict()
"""The workers in this process's memory; not in the app, which a simulation copies for every message."""


class Node:
    """Answers requests; its workers stay in memory as long as this process lives.

    Args:
        factories: makes a worker from its description.
        privacy: the policy of the app, None for none.
        details: as in `client_app`.
        keep: as in `client_app`.
        largest: bytes of the arrays of one message.
    """

    def __init__(
        self,
        factories: Factories,
        *,
        details: bool,
        keep: int,
        largest: int,
        privacy: PrivacyPolicy | None = None,
    ) -> None:
        self._factories = factories
        self._privacy = privacy
        self._details = details
        self._keep = keep
        self._largest = largest

    def app(self) -> Any:
        """Return the ClientApp."""
        app = package.load_apps()[1]()
        app.train()(self.reply)
        app.query()(self.reply)
        return app

    def reply(self, message: Any, context: Any) -> Any:
        """Return the reply to one of Flower's messages; an exception of the worker is a reply, too."""
        response = self._answer(message.content, context)
        try:
            content = wire.write_response(response, details=self._details)
        except TypeError as error:  # a reply with something in it that no record holds
            response.content, response.state = error, None
            content = wire.write_response(response, details=self._details)
        return package.load().Message(content, reply_to=message)

    def _answer(self, records: Any, context: Any) -> wire.Response:
        response = wire.Response(-1, 0)
        try:
            request = wire.read_header(records, self._largest)
            response.worker, response.number = request.worker, request.number
            if request.action == wire.WHO:
                response.worker = which_worker(context.node_config)
                return response
            key = (context.run_id, request.session, request.worker)
            kept = _WORKERS.pop(key, None)  # put back below; one that raises is made again
            if kept is None:
                kept = _Kept(self._make(request, context.node_config))
            wire.read_content(records, request, self._largest)
            self._continue(kept, request)
            if request.action == wire.HANDLE:
                reply = kept.machine.handle(request.message)
                # The master checks again; here the traceback still tells where it went wrong.
                response.content = checked(request.worker, request.message, reply)
            kept.answered = request.number
            self._remember(key, kept, response)
        except BaseException as error:  # sys.exit of a problem, too, is that worker's failure
            if isinstance(error, KeyboardInterrupt):
                raise
            response.content = as_exception(error)
        return response

    def _make(self, request: wire.Request, node_config: Mapping[str, Any]) -> WorkerMachine:
        """Make the worker as the node's policy allows; a node that has one answers as itself alone."""
        policy, number = self._policy(node_config), which_worker(node_config)
        if policy is not None and number not in {-1, request.worker}:
            raise refused(f"this node is worker {number}, and was asked as worker {request.worker}")
        if policy is not None and number < 0 and PLACE in policy.ledger:
            raise refused(
                f'its ledger is one for each worker, and the node has no number: add "{NAMES[0]}=0"'
            )
        factory = self._factories(request.description, request.worker, node_config)
        return make_under(policy, factory, number if number >= 0 else 0)

    def _policy(self, node_config: Mapping[str, Any]) -> PrivacyPolicy | None:
        """The node's own policy, else that of the app."""
        path = node_config.get(POLICY)
        own = policy_at_worker(str(path) if path is not None else None)
        return self._privacy if own is None else own

    def _continue(self, kept: _Kept, request: wire.Request) -> None:
        """Restore the worker to what the master knows of it, unless it is there already."""
        past = request.past
        if request.action == wire.HANDLE and past.after and kept.answered == past.after:
            return
        if past.memory == wire.STATE:
            if past.state is not None:
                kept.machine.restore(past.state)
        elif past.memory == wire.RECORD:
            restore_worker(kept.machine, past.record)

    def _remember(self, key: tuple[Any, str, int], kept: _Kept, response: wire.Response) -> None:
        """Keep the worker in memory, and say how a new one could continue."""
        state = kept.machine.snapshot()
        if state is not None:
            recalls = hasattr(kept.machine, "recall")
            response.memory = wire.RECORD if recalls else wire.STATE
            response.state = None if recalls else dict(state)
        if self._keep:
            _WORKERS[key] = kept
            while len(_WORKERS) > self._keep:
                _WORKERS.popitem(last=False)


def which_worker(node_config: Mapping[str, Any]) -> int:
    """Return the index in a node's config, -1 if it has none.

    >>> which_worker({"worker": 3}), which_worker({"partition-id": 1}), which_worker({})
    (3, 1, -1)
    """
    for name in NAMES:
        value = node_config.get(name)
        if type(value) is int and value >= 0:
            return value
    return -1
