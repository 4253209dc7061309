"""Check every reply before anything else uses it.

Engines call `fault` on each reply: it checks the kind, and the type and shape of what is in it. A reply of
the wrong form is treated like an exception of the worker. The master checks the numbers of an update
(`in_range`, and the pass over w_j that it makes anyway): one that is out of range is counted and asked for
again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fdro_core.contracts.messages import (
    Begin,
    Hello,
    Introduction,
    Probe,
    Probed,
    Reply,
    Request,
    Step,
    Train,
    Trained,
    Update,
)
from fdro_core.errors import InvalidReply

FLOAT = np.dtype(np.float64)
ANSWERS = {Step: Update, Begin: Update, Hello: Introduction, Probe: Probed, Train: Trained}

LARGEST = 1e150  # of a parameter, loss, metric or curvature: beyond it squares overflow
LARGEST_SQ = LARGEST**2
_ABSENT = object()


def fault(request: Request, reply: Any) -> str:
    """What is wrong with a reply's form, "" if nothing is."""
    if type(request) is Step and type(reply) is Update:  # one for every step: the common case is fast
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
    expected: Any = ANSWERS[type(request)]
    if type(reply) is not expected:
        return f"a {type(reply).__name__} for a {type(request).__name__}, where {expected.__name__} is needed"
    if isinstance(reply, Update):
        return _update_fault(request, reply)
    if isinstance(reply, Trained):
        return _trained_fault(request, reply)
    if isinstance(reply, Probed):
        return (
            _number(reply, "loss_at_z", -LARGEST, LARGEST)
            or _number(reply, "loss_at_w", -LARGEST, LARGEST)
            or _number(reply, "worker_sq", 0.0, np.inf)
        )
    return _introduction_fault(reply)


def checked(worker: int, request: Request, reply: Any) -> Reply:
    """Return the reply, or raise `InvalidReply`."""
    wrong = fault(request, reply)
    if wrong:
        raise InvalidReply(f"worker {worker} replied {wrong}")
    answer: Reply = reply
    return answer


def in_range(update: Update) -> bool:
    """Whether the scalars of an update are finite and in the range that the master can use."""
    return (
        -LARGEST <= update.loss <= LARGEST
        and 0.0 <= update.gradient_sq <= LARGEST_SQ
        and 0.0 <= update.curvature <= LARGEST
    )


def _update_fault(request: Any, reply: Update) -> str:
    begins = isinstance(request, Begin)
    size = request.z.size if begins else request.pull.size
    least = -1 if begins else request.ticket
    wrong = _whole(reply, "ticket", least) or _vector(reply, "w", size)
    for name in ("loss", "gradient_sq", "curvature"):
        wrong = wrong or _number(reply, name)
    if not begins or wrong:
        return wrong
    wrong = _number(reply, "loss", -LARGEST, LARGEST) or _number(reply, "gradient_sq", 0.0, LARGEST_SQ)
    wrong = wrong or _number(reply, "curvature", 0.0, LARGEST)
    return f"{wrong} (at the starting point)" if wrong else ""


def _trained_fault(request: Any, reply: Trained) -> str:
    wrong = _whole(reply, "ticket", request.ticket) or _number(reply, "loss")
    for name, needed in (("w", request.steps > 0), ("marked", request.mark > 0)):
        if needed:
            wrong = wrong or _vector(reply, name, request.w.size)
        elif getattr(reply, name, None) is not None:
            wrong = wrong or f"{name}, which was not asked for"
    return wrong


def _introduction_fault(reply: Any) -> str:
    wrong = _whole(reply, "dimension", 1)
    for name in ("metric", "start"):
        if not wrong and getattr(reply, name, _ABSENT) is not None:
            wrong = _vector(reply, name, reply.dimension)
    samples = getattr(reply, "samples", _ABSENT)
    if samples is not None and type(samples) is not int:
        wrong = wrong or _number(reply, "samples", 0.0, LARGEST)
    if type(getattr(reply, "identity", _ABSENT)) is not str:
        wrong = wrong or "identity, which must be a string"
    return wrong


def _vector(reply: Any, name: str, size: int) -> str:
    value = getattr(reply, name, None)
    if not isinstance(value, np.ndarray):
        return f"{name} of type {type(value).__name__}; {size} numbers of float64 are needed"
    if value.dtype != FLOAT or value.shape != (size,):
        return f"{name} of shape {value.shape} and {value.dtype}; {size} numbers of float64 are needed"
    return ""


def _number(reply: Any, name: str, least: float = -np.inf, most: float = np.inf) -> str:
    value = getattr(reply, name, None)
    if not isinstance(value, float):
        return f"{name} of type {type(value).__name__}, where a float is needed"
    unbounded = least == -np.inf and most == np.inf
    return (
        "" if unbounded or least <= value <= most else f"{name} = {value}; it must be in {least:g}..{most:g}"
    )


def _whole(reply: Any, name: str, least: int) -> str:
    value = getattr(reply, name, None)
    if type(value) is not int:
        return f"{name} of type {type(value).__name__}, where an int is needed"
    return "" if value >= least else f"{name} = {value}; it must be at least {least}"
