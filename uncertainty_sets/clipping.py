"""The intersection of one divergence ball with a box: its parameters as the kernel takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from uncertainty_sets.errors import EmptySet
from uncertainty_sets.kernels.dispatch import answer, on_support
from uncertainty_sets.parameters import same_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from uncertainty_sets.answer import WorstCase
    from uncertainty_sets.arrays import Array

SLACK = 1e-12
"""By how much the nearest point's divergence may exceed the radius, relative to it: rounding."""

NOTHING = -1e5
"""log 0, as far as e^x goes."""


FAR = 1e250
"""Beyond any x of the search."""


class ClippedBall:
    """{p : divergence <= radius, lower <= p <= upper}; EmptySet if there is no such p.

    The divergence is Σ p·log(p/q), or Σ (p-q)²/shape.

    Args:
        center: q, (1 or B, N).
        shape: of the quadratic form, likewise; None for KL. Where it is 0, so is q, and p too.
        radius: (1 or B,).
        lower: bounds in [0, 1], likewise.
        upper: likewise.
    """

    def __init__(self, center: Array, shape: Array | None, radius: Array, lower: Array, upper: Array) -> None:
        self._is_kl = shape is None
        scale = center if shape is None else shape
        q, s, rho, low, high = same_rows(center, scale, radius, lower, upper)
        inside = s > 0.0
        self._inside = None if inside.all() else inside
        low, high = self._where_mass(inside, low, high)
        least, most = self._limits(q, s, low, high)
        rest = np.maximum(0.0, 1.0 - low.sum(axis=1))
        self._ends = low, high
        self._nearest = self._find_nearest(q, s, least, most)
        distance = self._nearest[:, 1]
        outside = distance > rho * (1.0 + SLACK) + 1e-15
        if outside.any():
            row = int(outside.argmax())
            where = f" in row {row}" if len(rho) > 1 else ""
            raise EmptySet(
                f"the intersection is empty{where}: the point of the box that is nearest to the centre has a "
                f"divergence of {distance[row]:.6g}, and the radius is {rho[row]:.6g}"
            )
        self._arguments = (q, s, least, most, low, high - low, rest, rho, self._nearest)

    @staticmethod
    def _where_mass(inside: Any, low: Array, high: Array) -> tuple[Array, Array]:
        """The bounds, with 0 for entries that the ball leaves no mass; refuse bounds that need mass there."""
        needed = np.where(inside, 0.0, low).max(axis=1)
        if (needed > SLACK).any():
            raise EmptySet(
                f"the intersection is empty: the ball leaves no mass where the centre is 0, and lower is "
                f"{needed.max():.6g} there"
            )
        low, high = np.where(inside, low, 0.0), np.where(inside, high, 0.0)
        room = high.sum(axis=1)
        if (room < 1.0 - SLACK).any():
            raise EmptySet(
                "the intersection is empty: Σ min(upper, 1) where the centre is not 0 must be at least 1, "
                f"got {room.min():.12g}"
            )
        return low, high

    def _limits(self, q: Array, s: Array, low: Array, high: Array) -> tuple[Array, Array]:
        """The x at which p reaches its bounds."""
        inside = s > 0.0
        base = np.where(inside, s, 1.0)
        with np.errstate(divide="ignore", over="ignore"):
            if self._is_kl:
                ends = [np.maximum(np.log(each) - np.log(base), NOTHING) for each in (low, high)]
            else:
                ends = [np.clip((each - q) / base, -FAR, FAR) for each in (low, high)]
        least, most = (np.ascontiguousarray(np.where(inside, each, 0.0)) for each in ends)
        return least, most

    def _find_nearest(self, q: Array, s: Array, least: Array, most: Array) -> Array:
        from uncertainty_sets.kernels.clipped import KL, QUADRATIC, nearest_rows

        found = np.empty((len(q), 2))
        nearest_rows(KL if self._is_kl else QUADRATIC, q, s, least, most, found)
        return found

    def reference(self) -> Array:
        """The points of the box nearest to the centre, (1 or B, N)."""
        q, s, least, most, *_ = self._arguments
        y = np.clip(-self._nearest[:, :1], least, most)
        return np.clip(q * np.exp(y) if self._is_kl else q + s * y, *self._ends)

    def worst_case(self, losses: Array, warm_start: WorstCase | None, out: Array | None) -> WorstCase:
        """The answer, with `eta` and `nu` in `dual`."""
        from uncertainty_sets.kernels.clipped import kl_rows, quadratic_rows

        rows: Callable[..., None] = kl_rows if self._is_kl else quadratic_rows
        f = losses if self._inside is None else on_support(losses, self._inside)
        return answer(rows, f, self._arguments, ("eta", "nu"), warm_start, out)
