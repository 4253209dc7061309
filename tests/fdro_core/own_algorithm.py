"""A small algorithm whose messages are its own; importable, so that its workers can live in other processes.

Asynchronous gradient descent on Σ_j q_j f_j, q the set's reference, with the last gradient of every worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from fdro_core.protocol.algorithm import Assessment
from fdro_core.protocol.engine import Back, Lost
from fdro_core.protocol.forms import integer_fault, vector_fault
from fdro_core.protocol.messages import Hello, Introduction, Message
from fdro_core.protocol.problem import identity_of


class Ready(Message):
    __slots__ = ("loss",)

    def __init__(self, loss):
        self.loss = loss


class Settle(Message):
    """Before the first step: one message for all workers."""

    __slots__ = ("scale", "start")

    answer, shared = Ready, True

    def __init__(self, start, scale):
        self.start, self.scale = start, scale


class Pushed(Message):
    __slots__ = ("gradient", "loss", "ticket")

    def __init__(self, ticket, gradient, loss):
        self.ticket, self.gradient, self.loss = ticket, gradient, loss


class Pull(Message):
    """A step; `w` is the master's own array, which it goes on writing to."""

    __slots__ = ("ticket", "w")

    answer, live = Pushed, True

    def __init__(self, ticket, w):
        self.ticket, self.w = ticket, w

    def fault(self, reply):
        return vector_fault(reply, "gradient", self.w.size) or integer_fault(reply, "ticket", self.ticket)


class Look(Message):
    __slots__ = ("w",)

    answer, live = Ready, True

    def __init__(self, w):
        self.w = w


class DescentWorker:
    def __init__(self, source):
        self.problem = source
        self.scale = None

    def handle(self, message):
        if isinstance(message, Hello):
            return Introduction(self.problem.dimension, None, None, None, identity_of(self.problem))
        if isinstance(message, Settle):
            self.scale = message.scale
            return Ready(self.problem.loss_and_gradient(message.start)[0])
        loss, gradient = self.problem.loss_and_gradient(message.w)
        if isinstance(message, Look):
            return Ready(loss)
        return Pushed(message.ticket, self.scale * gradient, loss)

    def snapshot(self):
        return {"scale": self.scale}

    def restore(self, state):
        self.scale = state["scale"]


class DescentMaster:
    notices: list
    wake_at = None

    def __init__(self, config, oracle, workers, w, losses):
        self.config, self.oracle, self.last = config, oracle, config.iterations
        self.iteration = self.gradients = 0
        self.next_report, self.notices, self.time = config.report_interval, [], 0.0
        self.w, self.losses = w, losses
        self.known = np.zeros((workers, w.size))
        self.tickets = [0] * workers

    @property
    def z(self):
        return self.w

    def start(self):
        return [(j, self.pull(j)) for j in range(len(self.tickets))]

    def pull(self, j):
        self.tickets[j] += 1
        return Pull(self.tickets[j], self.w if self.config.in_place else self.w.copy())

    def handle(self, event):
        self.time, j, payload = event.time, event.worker, event.payload
        if isinstance(payload, Pushed) and payload.ticket == self.tickets[j]:
            self.known[j], self.losses[j] = payload.gradient, payload.loss
            self.w -= self.config.rate * self.oracle.reference() @ self.known
            self.iteration, self.gradients = self.iteration + 1, self.gradients + 1
            return [(j, self.pull(j))]
        if isinstance(payload, Lost | Back):
            name = "worker-lost" if isinstance(payload, Lost) else "worker-back"
            self.notices.append({"event": name, "iteration": self.iteration, "clock": self.time, "worker": j})
        return [(j, self.pull(j))] if isinstance(payload, Back) else []

    def report(self):
        self.next_report = self.iteration + self.config.report_interval
        return {
            "event": "report", "iteration": self.iteration, "clock": self.time,
            "objective": float(self.losses.max()), "losses": self.losses.copy(),
        }  # fmt: skip

    def take_notices(self):
        notices, self.notices = self.notices, []
        return notices

    def probes(self):
        return {j: Look(self.w) for j in range(len(self.tickets))}

    def assess(self, replies):
        losses = np.array([getattr(replies[j], "loss", np.nan) for j in sorted(replies)])
        answer, q = self.oracle.worst_case(losses), self.oracle.reference()
        known_at = np.full(losses.size, self.iteration)
        return Assessment(losses, known_at, answer, float(q @ losses), q, q[None, :], np.inf)

    def snapshot(self):
        names = ("iteration", "gradients", "next_report", "time", "w", "losses", "known", "tickets")
        return {name: getattr(self, name) for name in names} | {"notices": self.notices}


@dataclass(frozen=True)
class Descent:
    iterations: int = 400
    rate: float = 0.1
    report_interval: int = 20
    in_place: bool = True

    def check(self, workers, uncertainty_set):
        pass

    def worker(self, index, source):
        return partial(DescentWorker, source)

    def master(self, uncertainty_set, workers, ask, start):
        dimension = ask({j: Hello() for j in range(workers)})[0].dimension
        w = np.zeros(dimension)
        settle = Settle(w.copy(), np.ones(dimension))
        replies = ask(dict.fromkeys(range(workers), settle))
        return DescentMaster(self, uncertainty_set, workers, w, np.array([replies[j].loss for j in replies]))

    def restore(self, uncertainty_set, workers, state):
        master = DescentMaster(self, uncertainty_set, workers, state["w"].copy(), state["losses"].copy())
        for name, value in state.items():
            setattr(master, name, value.copy() if isinstance(value, np.ndarray) else value)
        return master
