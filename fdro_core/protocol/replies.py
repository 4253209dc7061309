"""Check every reply before anything else uses it.

Engines call `fault` on each reply: its class, and the type and shape of its fields. The numbers of an update
are for the master (`in_range`, and the pass over w_j that it makes anyway): an update that is out of range
is counted and asked for again, while a reply of the wrong form counts as an exception of the worker.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fdro_core.errors import InvalidReply
from fdro_core.protocol.forms import LARGEST, LARGEST_SQ
from fdro_core.protocol.messages import Message, Reply, Request, Update, copied

__all__ = ["LARGEST", "LARGEST_SQ", "checked", "fault", "in_range"]


def fault(request: Request, reply: Any) -> str:
    """Return what is wrong with a reply's form, "" if nothing is."""
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
    """Return the reply as the master's kernels take it, or raise `InvalidReply`.

    A worker in this process may send any kind of float and of array. Of a subclass only the number and the
    entries are taken, before they are compared: it could compare as it likes. An array that has gaps, runs
    backwards or cannot be written to is copied once its size is known to be right.
    """
    usual = getattr(type(request), "_usual", None)
    if usual is not None and type(reply) is request.answer:  # one for every step: the common case
        try:
            if usual(reply, request):
                return reply
        except AttributeError:
            pass  # a field is missing, which is reported below
    reply = _of_plain_types(reply)
    wrong = fault(request, reply)
    if wrong:
        raise InvalidReply(f"worker {worker} replied {wrong}")
    answer: Reply = reply
    for name in answer._slots:
        value = getattr(answer, name)
        if type(value) is np.ndarray and not value.flags.carray:
            plain: Reply = copied(answer)
            return plain
    return answer


def _of_plain_types(reply: Any) -> Any:
    """The reply, or one like it if a field is of a subclass of float or of arrays."""
    if not isinstance(reply, Message):
        return reply
    for name in reply._slots:
        value = getattr(reply, name, None)
        kind = type(value)
        if kind is not float and kind is not np.ndarray and isinstance(value, float | np.ndarray):
            break
    else:
        return reply
    cls = type(reply)
    plain = cls.__new__(cls)
    for name, value in reply.fields().items():
        setattr(plain, name, _plain(value))
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float.__pos__(value)
    return np.asarray(value) if isinstance(value, np.ndarray) else value


def in_range(update: Update) -> bool:
    """Whether the scalars of an update are numbers that the master can go on with."""
    return (
        -LARGEST <= update.loss <= LARGEST
        and 0.0 <= update.gradient_sq <= LARGEST_SQ
        and 0.0 <= update.curvature <= LARGEST
    )
