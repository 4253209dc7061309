"""Check every reply before anything else uses it.

Engines call `fault` on each reply: its class, and the type and shape of its fields. The numbers of an update
are for the master (`in_range`, and the pass over w_j that it makes anyway): an update that is out of range
is counted and asked for again, while a reply of the wrong form counts as an exception of the worker.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fdro_core.contracts.forms import FLOAT, LARGEST, LARGEST_SQ
from fdro_core.contracts.messages import Message, Reply, Request, Step, Update
from fdro_core.errors import InvalidReply

__all__ = ["LARGEST", "LARGEST_SQ", "checked", "fault", "in_range"]


def fault(request: Request, reply: Any) -> str:
    """Return what is wrong with a reply's form, "" if nothing is."""
    if type(request) is Step and type(reply) is Update:  # one for every step: the common case in few lines
        try:
            w = reply.w
            if (
                type(w) is np.ndarray
                and w.dtype is FLOAT
                and w.shape == request.pull.shape
                and type(reply.loss) is type(reply.gradient_sq) is type(reply.curvature) is float
                and type(reply.ticket) is int
                and reply.ticket >= request.ticket
            ):
                return ""
        except AttributeError:
            pass  # reported below
    if not isinstance(request, Message):
        raise TypeError(f"{type(request).__name__} is not a message: derive it from messages.Message")
    expected = request.answer
    if expected is None:
        right, needed = isinstance(reply, Message), "a subclass of Message"
    else:
        right, needed = type(reply) is expected, expected.__name__
    if not right:
        return f"a {type(reply).__name__} for a {type(request).__name__}; {needed} is needed"
    return request.fault(reply)


def checked(worker: int, request: Request, reply: Any) -> Reply:
    """Return the reply, or raise `InvalidReply`."""
    wrong = fault(request, reply)
    if wrong:
        raise InvalidReply(f"worker {worker} replied {wrong}")
    answer: Reply = reply
    return answer


def in_range(update: Update) -> bool:
    """Whether the scalars of an update are numbers that the master can go on with."""
    return (
        -LARGEST <= update.loss <= LARGEST
        and 0.0 <= update.gradient_sq <= LARGEST_SQ
        and 0.0 <= update.curvature <= LARGEST
    )
