"""What the master and the workers send each other.

Every message is a subclass of `Message`. Those below are the ones of ASPIRE-EASE and of the baselines; an
algorithm may define its own in its own file. What an engine has to know about a message is data on its class,
so engines and checkpoints need no list of messages.

Arrays in a message are never written to once it is sent, except those of a `live` message. A class of fdro's
is made by `message`, and its fields say what they may be (`forms`); from that follows the check of a reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, ClassVar

import numpy as np

from fdro_core.errors import CheckpointMismatch
from fdro_core.protocol.forms import (
    LARGEST,
    LARGEST_SQ,
    Check,
    free,
    integer_fault,
    message,
    number,
    number_fault,
    text_fault,
    ticket,
    usual,
    vector,
    vector_fault,
)
from uncertainty_sets.arrays import Array


class Message:
    """A message between the master and a worker. A subclass is made by `message`, or has `__slots__`.

    A message whose class has a field `ticket` is one step of a worker: a reply with the same ticket answers
    it, and a message that is sent twice keeps its ticket.

    Attributes:
        answer: the class of the reply to this message, None if any message will do.
        shared: whether one message serves many workers. An engine may then send it to a process once, and
            the workers of one process share its arrays.
        live: whether its arrays are the master's own and change later. An engine that does not send bytes
            copies such a message.
        sized_by: the field of this message that has one number per parameter, as vectors in the reply do.
        kind: the name of the class in checkpoints: the class name for fdro's own messages, with its module
            for others.

    >>> class Ping(Message):
    ...     __slots__ = ("ticket", "w")
    ...
    ...     def __init__(self, ticket, w):
    ...         self.ticket, self.w = ticket, w
    >>> fields = to_fields(Ping(3, np.zeros(2)))
    >>> type(from_fields(fields)).__name__, from_fields(fields).ticket, from_fields(fields).numbers
    ('Ping', 3, 3)
    """

    __slots__ = ()

    answer: ClassVar[type[Message] | None] = None
    shared: ClassVar[bool] = False
    live: ClassVar[bool] = False
    sized_by: ClassVar[str] = "z"
    kind: ClassVar[str]
    _slots: ClassVar[tuple[str, ...]] = ()
    _checks: ClassVar[tuple[tuple[str, Check], ...]] = ()
    _exact: ClassVar[tuple[tuple[str, str], ...]] = ()
    _usual: ClassVar[Any] = None  # the check of the common case of a reply, if there is one

    def __init_subclass__(cls, **options: Any) -> None:
        """Register the class, so that checkpoints find it by its name."""
        super().__init_subclass__(**options)
        own = cls.__dict__.get("__slots__", ())
        if isinstance(own, str):
            raise TypeError(f"{cls.__name__}.__slots__ must be a tuple of names, got the string {own!r}")
        if "kind" in own:
            raise TypeError(f"{cls.__name__} cannot have a field `kind`: checkpoints keep the class there")
        cls._slots = (*own, *cls._slots)
        cls.kind = cls.__name__ if cls.__module__ == __name__ else f"{cls.__module__}.{cls.__qualname__}"
        _classes[cls.kind] = cls  # a class that is defined again, as in a notebook, replaces the first
        own_check = cls.fault is not Message.fault
        usual_one = None if own_check or cls.answer is None else usual(cls.answer, cls.sized_by)
        cls._usual = None if usual_one is None else staticmethod(usual_one)

    @property
    def numbers(self) -> int:
        """How many numbers the message puts on the wire, as Theorem 2 counts them; text is not counted."""
        total = 0
        for value in self.fields().values():
            if isinstance(value, np.ndarray):
                total += value.size
            elif isinstance(value, _NUMBER):
                total += 1
        return total

    def fields(self) -> dict[str, Any]:
        """Name and value of every field that is set."""
        try:
            found = {name: getattr(self, name) for name in self._slots}
        except AttributeError:  # a worker left one out: `replies.fault` reports that
            found = {name: getattr(self, name) for name in self._slots if hasattr(self, name)}
        return found | self.__dict__ if hasattr(self, "__dict__") else found

    def fault(self, reply: Any) -> str:
        """What is wrong with the type or shape of a reply of class `answer`; "" if nothing is.

        Engines call it on every reply (`replies.fault`). It checks what the reply's fields declare; a class
        overrides it to check more.
        """
        checks: tuple[tuple[str, Check], ...] = type(reply)._checks
        for name, check in checks:
            if wrong := check(reply, name, self):
                return wrong
        return ""

    @property
    def size(self) -> int:
        """How many parameters there are, by the field that has one number for each."""
        vector = getattr(self, self.sized_by, None)
        if not isinstance(vector, np.ndarray):
            raise TypeError(
                f"{type(self).__name__} asks for vectors, and has no array `{self.sized_by}` that says how "
                "long they are: name one of its fields in `sized_by`"
            )
        return vector.size


_NUMBER = (float, int)
_classes: dict[str, type[Message]] = {}

Request = Message
"""A message from the master to a worker."""

Reply = Message
"""A message from a worker to the master."""


def to_fields(message: Message) -> dict[str, Any]:
    """Return a message as plain values and arrays, for checkpoints."""
    return {"kind": message.kind, **message.fields()}


def from_fields(fields: Mapping[str, Any]) -> Any:
    """Return the message that `to_fields` made the values from."""
    cls = _classes.get(fields["kind"])
    if cls is None:
        raise CheckpointMismatch(
            f"the checkpoint holds a message {fields['kind']!r}, which no imported module defines: import "
            "the module of the algorithm that the run was started with, then resume"
        )
    message = cls.__new__(cls)
    for name, value in fields.items():
        if name != "kind":
            setattr(message, name, value)
    return message


def copied(message: Any) -> Any:
    """Return the message with copies of its arrays, also of those in lists, tuples and dicts.

    Anything that is not a message is returned as it is.
    """
    if not isinstance(message, Message):
        return message
    cls = type(message)
    copy = cls.__new__(cls)
    for name, value in message.fields().items():
        setattr(copy, name, _copied_value(value))
    return copy


def _copied_value(value: Any) -> Any:
    if isinstance(value, np.ndarray):  # the usual case; deepcopy takes six times as long
        return value.copy()
    return deepcopy(value) if isinstance(value, list | tuple | dict) else value


# -- from a worker to the master --------------------------------------------------------------------


@message
class Update(Message):
    """The new local variable and what the master's step sizes need.

    Attributes:
        ticket: of the Step it answers.
        w: w_jᵗ⁺¹; nobody writes to it any more.
        loss: f_j(w_jᵗ⁺¹), on all of the worker's data or as a running average.
        gradient_sq: ‖∇f_j(w_jᵗ⁺¹)‖² in the metric.
        curvature: L_j, the largest ‖Δ∇f_j‖ / ‖Δw_j‖ seen, in the metric.
    """

    ticket: int = ticket()
    w: Array = vector()
    loss: float = number()
    gradient_sq: float = number()
    curvature: float = number()


@message
class Introduction(Message):
    """The worker's dimension, its metric and, from the first worker, a point to start from.

    `samples` is how many samples it has, if its problem reports that: FedAvg weighs by it. `identity` is the
    problem's class and its `fingerprint()`, by which a checkpoint recognises its run.
    """

    dimension: int
    metric: Array | None
    start: Array | None
    samples: int | None = None
    identity: str = ""


@message
class Probed(Message):
    """f_j(z), f_j(w_j), and w_j's term of ‖∇G‖² (Definition 1)."""

    loss_at_z: float = number(-LARGEST, LARGEST)
    loss_at_w: float = number(-LARGEST, LARGEST)
    worker_sq: float = number(0.0)


@message
class Trained(Message):
    """Where the local steps led, and the loss at the model they began from.

    Attributes:
        ticket: of the Train it answers.
        w: the local model, None if there was no step; with a preconditioner the mean of the local gradients
            times -1, which the master turns into a model.
        loss: f_j at the model that was sent, on all data or on the first batch.
        marked: the same after step `mark`.
    """

    ticket: int = ticket()
    w: Array | None = vector("steps")
    loss: float = number()
    marked: Array | None = vector("mark", default=None)


# -- from the master to a worker --------------------------------------------------------------------


@message
class Step(Message):
    """Take the next local step.

    Attributes:
        ticket: which step of this worker it is; a repeated message repeats its ticket.
        pull: y_j = φ_j/D + κ₁z: the worker needs φ_j and z only in this sum, so φ_j is kept by the master and
            one vector is sent instead of two being held.
        weight: s_j = Σ_l λ_l p_{l,j}, all that worker j needs of the planes.
        penalty: κ₁.
        start: w_j to start from, for a worker that lost its own or returned NaN.
        step: η_w; None: the worker's own rule.
    """

    answer = Update
    sized_by = "pull"

    ticket: int
    pull: Array
    weight: float
    penalty: float
    start: Array | None = None
    step: float | None = None


@message
class Hello(Message):
    """Before the first step: report what your problem is like."""

    answer = Introduction
    numbers = 1  # the question itself

    def fault(self, reply: Introduction) -> str:
        """Check the dimension and whatever comes with it."""
        wrong = integer_fault(reply, "dimension", 1)
        for name in ("metric", "start"):
            if not wrong and getattr(reply, name, _ABSENT) is not None:
                wrong = vector_fault(reply, name, reply.dimension)
        samples: Any = getattr(reply, "samples", _ABSENT)
        if type(samples) is int:
            wrong = wrong or integer_fault(reply, "samples", 0)
        elif samples is not None:
            wrong = wrong or number_fault(reply, "samples", 0.0, LARGEST)
        return wrong or text_fault(reply, "identity")


@message
class Begin(Message):
    """Start at z in this metric, and measure your curvature there; `inverse`, 1/D, is derived from it."""

    answer: ClassVar[type[Message] | None] = Update
    shared = True

    z: Array
    metric: Array
    inverse: Array = free(init=False)

    def __post_init__(self) -> None:
        self.inverse = 1.0 / self.metric

    @property
    def numbers(self) -> int:
        """Z and the metric."""
        return 2 * self.z.size

    def fault(self, reply: Any) -> str:
        """Check the form of the reply, and that the run can start from its numbers."""
        wrong = (
            Message.fault(self, reply)
            or number_fault(reply, "loss", -LARGEST, LARGEST)
            or number_fault(reply, "gradient_sq", 0.0, LARGEST_SQ)
            or number_fault(reply, "curvature", 0.0, LARGEST)
        )
        return f"{wrong} (at the starting point)" if wrong else ""


@message
class Probe(Message):
    """In a round of its own: report z and your own state on all your data.

    Attributes as in `Step`; z is where the loss is asked for, and is the master's own array.
    """

    answer = Probed
    live = True

    z: Array
    pull: Array
    weight: float
    penalty: float


@message
class Train(Message):
    """Of a baseline: take `steps` local steps from w; with `steps` = 0 send the loss alone.

    Attributes:
        ticket: which message to this worker it is; the worker's random draws depend on it alone.
        w: the model to start from.
        steps: E, local steps.
        step: η.
        mark: send w after this local step too; 0: no.
        inverse: 1/P to step in, from the preconditioner; None if it is not needed or not known yet.
        shift: what is added to every gradient, c - c_j of control variates; None for nothing.
    """

    answer = Trained
    sized_by = "w"

    ticket: int
    w: Array
    steps: int
    step: float
    mark: int = 0
    inverse: Array | None = None
    shift: Array | None = None


_ABSENT = object()
