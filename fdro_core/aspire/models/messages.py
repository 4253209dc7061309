"""What master and workers send each other: points one way, losses and gradients the other."""

from __future__ import annotations

from math import inf
from typing import ClassVar

import numpy as np

from fdro_core.protocol.forms import FLOAT, LARGEST, integer_fault, number_fault, vector_fault
from fdro_core.protocol.messages import Begin, Message, Probed
from uncertainty_sets.arrays import Array


class Evaluation(Message):
    """f_j and ∇f_j at the point that was sent.

    Attributes:
        ticket: of the Evaluate it answers.
        loss: f_j, on all data or on the batch of the gradient.
        gradient: ∇f_j; nobody writes to it any more.
    """

    __slots__ = ("gradient", "loss", "ticket")

    def __init__(self, ticket: int, loss: float, gradient: Array) -> None:
        self.ticket = ticket
        self.loss = loss
        self.gradient = gradient

    @property
    def numbers(self) -> int:
        """The inherited count in one line, since the master takes it of every reply."""
        return self.gradient.size + 2


class Evaluate(Message):
    """Report loss and gradient at z. The ticket numbers the random stream of the batch."""

    __slots__ = ("ticket", "z")

    answer = Evaluation

    def __init__(self, ticket: int, z: Array) -> None:
        self.ticket = ticket
        self.z = z

    def fault(self, reply: Evaluation) -> str:
        """Check the form of the reply; its numbers are for the master to judge."""
        try:  # one for every reply: the common case in few lines
            gradient = reply.gradient
            if (
                type(gradient) is np.ndarray
                and gradient.dtype is FLOAT
                and gradient.shape == self.z.shape
                and type(reply.loss) is float
                and type(reply.ticket) is int
                and reply.ticket >= self.ticket
            ):
                return ""
        except AttributeError:
            pass  # reported below
        return (
            integer_fault(reply, "ticket", self.ticket)
            or number_fault(reply, "loss")
            or vector_fault(reply, "gradient", self.z.size)
        )


class EvaluateMean(Evaluate):
    """Take local steps from z, each on a batch of its own, and report the mean loss and the mean gradient.

    Attributes:
        scale, shift: a and b of the local steps (`models.local`).
    """

    __slots__ = ("scale", "shift")

    def __init__(self, ticket: int, z: Array, scale: Array, shift: Array) -> None:
        super().__init__(ticket, z)
        self.scale = scale
        self.shift = shift


class EvaluationAhead(Evaluation):
    """f_j and ∇f_j at the end of local steps.

    Attributes:
        point: the end.
        first: ∇f_j at the point that was sent.
    """

    __slots__ = ("first", "point")

    def __init__(self, ticket: int, loss: float, gradient: Array, point: Array, first: Array) -> None:
        super().__init__(ticket, loss, gradient)
        self.point = point
        self.first = first

    @property
    def numbers(self) -> int:
        """With the two vectors more."""
        return super().numbers + self.point.size + self.first.size


class EvaluateAhead(EvaluateMean):
    """Take local steps from z on all data and report where they end, with loss and gradient there."""

    __slots__ = ()

    answer: ClassVar[type[Message] | None] = EvaluationAhead  # type: ignore[assignment]  # a narrower form

    def fault(self, reply: EvaluationAhead) -> str:  # type: ignore[override]  # the class is checked before
        """Check the form of the reply; its numbers are for the master to judge."""
        size = self.z.size
        return (
            super().fault(reply) or vector_fault(reply, "point", size) or vector_fault(reply, "first", size)
        )


class Begun(Message):
    """f_j, ∇f_j and the largest curvature c_j at the starting point, in the metric."""

    __slots__ = ("curvature", "gradient", "gradient_sq", "loss")

    def __init__(self, loss: float, gradient: Array, gradient_sq: float, curvature: float) -> None:
        self.loss = loss
        self.gradient = gradient
        self.gradient_sq = gradient_sq
        self.curvature = curvature


class BeginModels(Begin):
    """`Begin`, with the gradient in the reply."""

    __slots__ = ()

    answer: ClassVar[type[Message] | None] = Begun

    def fault(self, reply: Begun) -> str:
        """Check that the run can start from the reply."""
        wrong = (
            vector_fault(reply, "gradient", self.z.size)
            or number_fault(reply, "loss", -LARGEST, LARGEST)
            or number_fault(reply, "gradient_sq", 0.0, LARGEST**2)
            or number_fault(reply, "curvature", 0.0, LARGEST)
        )
        return f"{wrong} (at the starting point)" if wrong else ""


class Inspected(Probed):
    """f_j and ∇f_j at z on all data, and μ_j, the strong convexity of f_j (-inf: unknown)."""

    __slots__ = ("gradient", "strong_convexity")

    def __init__(self, loss: float, gradient: Array, strong_convexity: float = -inf) -> None:
        super().__init__(loss, loss, 0.0)
        self.gradient = gradient
        self.strong_convexity = strong_convexity


class Inspect(Message):
    """In a round of its own: report loss and gradient at z on all your data."""

    __slots__ = ("z",)

    answer = Inspected
    shared = True

    def __init__(self, z: Array) -> None:
        self.z = z

    def fault(self, reply: Inspected) -> str:
        """Check that the three can be used."""
        return (
            number_fault(reply, "loss_at_z", -LARGEST, LARGEST)
            or vector_fault(reply, "gradient", self.z.size)
            or number_fault(reply, "strong_convexity", -inf, LARGEST)
        )
