"""What the master of models and its workers send each other: points, and losses and gradients back."""

from __future__ import annotations

from math import inf
from typing import ClassVar

from fdro_core.protocol.forms import LARGEST, message, number, ticket, vector
from fdro_core.protocol.messages import Begin, Message, Probed
from uncertainty_sets.arrays import Array


@message
class Evaluation(Message):
    """f_j and ∇f_j at the point that was sent.

    Attributes:
        ticket: of the Evaluate it answers.
        loss: f_j, on all data or on the batch of the gradient.
        gradient: ∇f_j; nobody writes to it any more.
    """

    ticket: int = ticket()
    loss: float = number()
    gradient: Array = vector()

    @property
    def numbers(self) -> int:
        """The inherited count in one line, since the master takes it of every reply."""
        return self.gradient.size + 2


@message
class Evaluate(Message):
    """Report loss and gradient at z. The ticket numbers the random stream of the batch."""

    answer: ClassVar[type[Message] | None] = Evaluation

    ticket: int
    z: Array


@message
class EvaluateMean(Evaluate):
    """Take local steps from z, each on a batch of its own, and report the mean loss and the mean gradient.

    Attributes:
        scale, shift: a and b of the local steps (`models.local`).
        reach: how far a parameter may move in a step; only the steps of mini-batches are bounded.
    """

    scale: Array
    shift: Array
    reach: float = inf


@message
class EvaluationAhead(Evaluation):
    """f_j and ∇f_j at the end of local steps.

    Attributes:
        point: the end.
        first: ∇f_j at the point that was sent.
    """

    point: Array = vector()
    first: Array = vector()

    @property
    def numbers(self) -> int:
        """With the two vectors more."""
        return self.gradient.size + 2 + self.point.size + self.first.size


@message
class EvaluateAhead(EvaluateMean):
    """Take local steps from z on all data and report where they end, with loss and gradient there."""

    answer: ClassVar[type[Message] | None] = EvaluationAhead


@message
class Begun(Message):
    """f_j, ∇f_j and the largest curvature c_j at the starting point, in the metric."""

    loss: float = number()
    gradient: Array = vector()
    gradient_sq: float = number()
    curvature: float = number()


@message
class BeginModels(Begin):
    """`Begin`, with the gradient in the reply."""

    answer: ClassVar[type[Message] | None] = Begun


@message
class Inspected(Probed):
    """f_j and ∇f_j at z on all data, and μ_j, the strong convexity of f_j (-inf: unknown)."""

    gradient: Array = vector()
    strong_convexity: float = number(-inf, LARGEST)

    def __init__(self, loss: float, gradient: Array, strong_convexity: float = -inf) -> None:
        self.loss_at_z = self.loss_at_w = loss
        self.worker_sq = 0.0
        self.gradient = gradient
        self.strong_convexity = strong_convexity


@message
class Inspect(Message):
    """In a round of its own: report loss and gradient at z on all your data."""

    answer = Inspected
    shared = True

    z: Array
