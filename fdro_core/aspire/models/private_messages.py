"""What a private worker is asked: noised losses and gradients, and at the end how many it gave."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fdro_core.aspire.models.messages import Evaluate, Evaluation
from fdro_core.privacy.accounting import Releases
from fdro_core.protocol.messages import Message
from uncertainty_sets.arrays import Array


class Released(Evaluation):
    """The noised f_j and ∇f_j; zeros that mean nothing if the budget is `spent`."""

    __slots__ = ("spent",)

    def __init__(self, ticket: int, loss: float, gradient: Array, spent: bool = False) -> None:
        super().__init__(ticket, loss, gradient)
        self.spent = spent


class Release(Evaluate):
    """Report noised loss and gradient at z."""

    __slots__ = ()

    answer: ClassVar[type[Message] | None] = Released  # type: ignore[assignment]  # a narrower form

    def fault(self, reply: Released) -> str:  # type: ignore[override]  # the class is checked before
        """Check the form of the reply; its numbers are for the master to judge."""
        if type(getattr(reply, "spent", None)) is not bool:
            return "spent, which must be true or false"
        return super().fault(reply)


class Accounted(Message):
    """The worker's count of its releases: one row of rate, noise multiplier and number for every kind."""

    __slots__ = ("releases",)

    def __init__(self, releases: Releases) -> None:
        self.releases = np.array(releases, dtype=np.float64).reshape(-1, 3)

    def kinds(self) -> Releases:
        """The releases as the accountant takes them."""
        return tuple((float(rate), float(noise), int(count)) for rate, noise, count in self.releases)


class AskAccount(Message):
    """In a round of its own: report how much you have released. The answer does not look at data."""

    __slots__ = ()

    answer = Accounted
    numbers = 1  # the question itself
    shared = True

    def fault(self, reply: Accounted) -> str:
        """Check that the rows can be counted."""
        rows: Any = getattr(reply, "releases", None)
        good = isinstance(rows, np.ndarray) and rows.dtype == np.float64 and rows.ndim == 2
        if not (good and rows.shape[1] == 3 and np.isfinite(rows).all() and (rows >= 0).all()):
            return "releases, which must be rows of three finite numbers >= 0"
        return ""
