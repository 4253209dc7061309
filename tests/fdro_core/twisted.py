"""Workers whose replies are not what they should be; importable, so that they can live in other processes."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from fdro_core.aspire.models.messages import Evaluate, Inspect
from fdro_core.protocol.messages import Probe, Step, from_fields, to_fields
from fdro_core.protocol.replies import LARGEST
from tests.fdro_core.helpers import Quadratic


def changed(reply, **fields):
    return from_fields(to_fields(reply) | fields)


class Twisted:
    """A worker machine whose replies to one kind of message go through a function."""

    def __init__(self, machine, asked, twist):
        self.machine, self.asked, self.twist = machine, asked, twist

    def handle(self, message):
        reply = self.machine.handle(message)
        return self.twist(reply) if isinstance(message, self.asked) else reply

    def snapshot(self):
        return self.machine.snapshot()

    def restore(self, state):
        self.machine.restore(state)


class With:
    """A config, one of whose workers is twisted."""

    def __init__(self, config, worker, asked, twist):
        self.config, self.twisted = config, (worker, asked, twist)

    def __getattr__(self, name):
        return getattr(self.config, name)

    def worker(self, index, source):
        factory = self.config.worker(index, source)
        worker, *rest = self.twisted
        return partial(_twisted, factory, *rest) if index == worker else factory


def _twisted(factory, asked, twist):
    return Twisted(factory(), asked, twist)


STEPS, PROBES = (Step, Evaluate), (Probe, Inspect)
"""What both forms of ASPIRE-EASE send in every iteration, and to measure the model."""


def vector(reply):
    """The name of the vector in a reply: a model, or a gradient."""
    return "gradient" if hasattr(reply, "gradient") else "w"


def with_vector(reply, by):
    """The reply with by(vector) in the place of its vector."""
    return changed(reply, **{vector(reply): by(getattr(reply, vector(reply)))})


def scaled(factor, reply):
    return with_vector(reply, lambda v: factor * v)


def terabytes():
    """A vector that takes no memory until it is copied, read or sent."""
    return np.broadcast_to(np.zeros(1), 10**12)


STRANGE = {
    "an array": lambda reply: getattr(reply, vector(reply)),
    "a function": lambda reply: len,
    "nothing": lambda reply: None,
    "too short": lambda reply: with_vector(reply, lambda v: v[:1]),
    "too long": lambda reply: with_vector(reply, lambda v: np.append(v, 1.0)),
    "single precision": lambda reply: with_vector(reply, lambda v: v.astype(np.float32)),
    "a huge whole number": lambda reply: changed(reply, loss=10**400),
    "words": lambda reply: changed(reply, loss="low"),
    "eight terabytes": lambda reply: with_vector(reply, lambda v: terabytes()),
    "a ticket of 5,000 digits": lambda reply: changed(reply, ticket=-(10**5000)),
}
WRONG = {
    "NaN": lambda reply: changed(reply, loss=math.nan),
    "infinity in the vector": lambda reply: with_vector(reply, lambda v: np.full_like(v, np.inf)),
    "a huge vector": lambda reply: with_vector(reply, lambda v: v + 10 * LARGEST),
    "a huge loss": lambda reply: changed(reply, loss=1e300),
    "a ticket of the future": lambda reply: changed(reply, ticket=10**9),
}
OF_STEPS = {  # of `AspireEase`
    "negative curvature": lambda reply: changed(reply, curvature=-1.0),
    "negative square": lambda reply: changed(reply, gradient_sq=-1.0),
    "huge curvature": lambda reply: changed(reply, curvature=1e300),
}


# -- problems that raise ----------------------------------------------------------------------------


class Raising(Quadratic):
    """Raises from its call number `at` on, or when it is asked for its metric.

    `error` is an exception, or makes one where it is raised.
    """

    def __init__(self, centre, error, at=10**9, metric=False):
        super().__init__(centre)
        self.error, self.at, self.calls = error, at, 0
        if metric:
            self.metric = self.fail

    def fail(self):
        raise self.error() if callable(self.error) else self.error

    def loss_and_gradient(self, w, rng=None, batch_size=None):
        self.calls += 1
        if self.calls >= self.at:
            self.fail()
        return super().loss_and_gradient(w)


class Mute(Exception):
    """Has no words for itself."""

    def __str__(self):
        raise RuntimeError("no words")


class NoTraveller(Exception):
    """Can be packed and not unpacked: its arguments are not those of its constructor."""

    def __init__(self, one, other):
        super().__init__("lost on the way")
        self.both = one, other
