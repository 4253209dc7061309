"""Flower without its servers: its link state and grid in this process, client apps in child processes.

For tests and measurements. Messages pass the checks of Flower's link state and its serialisation, and a child
that dies is answered for as a SuperNode does; only the network and the waiting times are left out.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterable
from typing import Any
from uuid import uuid4

from fdro_core.engines.flower_ import package
from fdro_core.engines.flower_.problem import function_at

PAUSE = 0.05  # seconds between two looks whether it is over
RUN, TASK = 7, 1


def grid_at(address: str) -> Any:
    """Return the grid that a server app gets from Flower, for a SuperLink at an address, without TLS."""
    package.load()
    from flwr.superlink.grid.http_grid import HttpGrid

    return HttpGrid(address, insecure=True, token="none")


class LocalNodes:
    """Nodes with a client app each, in a child process each, and the grid that reaches them.

    Args:
        count: how many nodes; node j has the config `worker = j`.
        app: "module:function", called in the child for its ClientApp.
        preload: modules that children need, loaded once for all of them.
    """

    def __init__(self, count: int, app: str, preload: Iterable[str] = ()) -> None:
        package.load()
        from flwr.common.constant import SUPERLINK_NODE_ID
        from flwr.proto.task_pb2 import Task
        from flwr.server.superlink.linkstate import LinkStateFactory
        from flwr.server.superlink.linkstate.in_memory_linkstate import RunRecord
        from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID
        from flwr.supercore.object_store import ObjectStoreFactory
        from flwr.supercore.run import Run
        from flwr.supercore.task_identity import TaskIdentity
        from flwr.superlink.federation import NoOpFederationManager
        from flwr.superlink.grid import InMemoryGrid

        factory = LinkStateFactory(FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), ObjectStoreFactory())
        self.state = factory.state()
        run = Run.create_empty(RUN)
        run.federation_id, run.primary_task_id = NOOP_FEDERATION_ID, TASK
        self.state.run_ids[RUN] = RunRecord(run=run)  # as Flower's own simulation does
        self.state.task_store[TASK] = Task(task_id=TASK, run_id=RUN)
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = TASK, RUN, SUPERLINK_NODE_ID
        self.grid = InMemoryGrid(state_factory=factory)
        self.grid.set_run(run)
        self._pushed = threading.Condition()
        push = self.grid.push_messages

        def push_and_tell(messages: Any) -> Any:
            taken = push(messages)
            with self._pushed:
                self._pushed.notify_all()
            return taken

        self.grid.push_messages = push_and_tell  # so that nodes wait for messages instead of looking often
        self._app, self._preload = app, ["tests.fdro_core.flower_loopback", *preload]
        self._over = threading.Event()
        self.ids: list[int] = []
        self._threads: list[threading.Thread] = []
        for worker in range(count):
            self.join({"worker": worker})

    def join(self, node_config: dict[str, Any]) -> int:
        """Start one more node; return its id."""
        from flwr.common.constant import HEARTBEAT_INTERVAL_INF, NOOP_ACCOUNT_NAME, NOOP_FLWR_AID

        node: int = self.state.create_node(
            NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, uuid4().bytes, heartbeat_interval=HEARTBEAT_INTERVAL_INF
        )
        self.state.acknowledge_node_heartbeat(node_id=node, heartbeat_interval=HEARTBEAT_INTERVAL_INF)
        self.ids.append(node)
        thread = threading.Thread(
            target=self._serve, args=(node, node_config), name=f"fdro-node-{node}", daemon=True
        )
        self._threads.append(thread)
        thread.start()
        return node

    def leave(self, node: int) -> None:
        """Let a node fall silent: Flower then counts it as away."""
        self.state.acknowledge_node_heartbeat(node_id=node, heartbeat_interval=0.0)

    def close(self) -> None:
        """End all nodes; a child that is in a message is killed."""
        self._over.set()
        with self._pushed:
            self._pushed.notify_all()
        for thread in self._threads:
            thread.join()

    def _serve(self, node: int, node_config: dict[str, Any]) -> None:
        from flwr.app import Context, Error, Message, RecordDict
        from flwr.common.constant import ErrorCode
        from flwr.common.serde import context_to_proto

        context = Context(RUN, node, node_config, RecordDict(), {})
        packed = context_to_proto(context).SerializeToString()
        child = None
        while not self._over.is_set():
            with self._pushed:  # a message that came before is seen here, a later one is told
                messages = self.state.get_message_ins(node_id=node, limit=1)
                if not messages:
                    self._pushed.wait(PAUSE)
            for message in messages:
                child = child or _Child(self._app, self._preload)
                reply = child.answer(message, packed, self._over)
                if reply is None:
                    child = None
                    crash = Error(ErrorCode.CLIENT_APP_CRASHED, "ClientApp stopped responding.")
                    reply = Message(crash, reply_to=message)
                reply.metadata.__dict__["_message_id"] = str(uuid4())
                self.state.store_message_res(reply)
        if child is not None:
            child.rest()


class _Child:
    """A process that answers messages; those that rest are used again."""

    resting: list[tuple[str, Any, Any]] = []  # noqa: RUF012  # shared by all, so that tests need not start new ones
    lock = threading.Lock()

    def __init__(self, app: str, preload: list[str]) -> None:
        self.app = app
        with self.lock:
            for place, (name, process, connection) in enumerate(self.resting):
                if name == app and process.is_alive():
                    self.process, self.connection = process, connection
                    del self.resting[place]
                    return
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(preload)
            self.connection, other = context.Pipe()
            self.process = context.Process(target=answer_messages, args=(app, other), daemon=True)
            self.process.start()
            other.close()

    def answer(self, message: Any, context: bytes, over: threading.Event) -> Any:
        """Return the child's reply, None if it died or the nodes are closed before it came."""
        from flwr.common.serde import message_from_proto, message_to_proto
        from flwr.proto.message_pb2 import Message as ProtoMessage

        try:
            self.connection.send_bytes(message_to_proto(message).SerializeToString())
            self.connection.send_bytes(context)
            while not self.connection.poll(0.05):
                if over.is_set():
                    self.end()
                    return None
            return message_from_proto(ProtoMessage.FromString(self.connection.recv_bytes()))
        except (EOFError, OSError):
            self.end()
            return None

    def rest(self) -> None:
        """Wait for the next nodes."""
        with self.lock:
            self.resting.append((self.app, self.process, self.connection))

    def end(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.join()
        self.connection.close()


def answer_messages(app: str, connection: Any) -> None:
    """Answer messages with a ClientApp, as a process of a SuperNode; runs in the child."""
    package.load()
    from flwr.app import Error, Message
    from flwr.common.constant import ErrorCode
    from flwr.common.serde import context_from_proto, message_from_proto, message_to_proto
    from flwr.proto.message_pb2 import Context as ProtoContext
    from flwr.proto.message_pb2 import Message as ProtoMessage

    client_app = function_at(app)()
    while True:
        try:
            message = message_from_proto(ProtoMessage.FromString(connection.recv_bytes()))
            context = context_from_proto(ProtoContext.FromString(connection.recv_bytes()))
        except EOFError:
            return
        try:
            reply = client_app(message, context)
        except Exception as error:
            reply = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, repr(error)), reply_to=message)
        connection.send_bytes(message_to_proto(reply).SerializeToString())
