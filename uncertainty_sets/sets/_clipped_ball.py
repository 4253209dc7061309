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

FAR = 1e150
"""Beyond any x of the search."""

WIDEST, NARROWEST = 1e25, 1e-250
"""Of shape times radius: above, an entry costs nothing; below, it cannot move."""

LEAST = 1e-290
"""Of the radius: below, the ball is its centre."""

FACTORIALS = np.array([2.0, 6.0, 24.0, 120.0, 720.0, 5040.0])
"""Of the series of e^x - 1 - x."""

UNMOVED = 1e-15
"""What rounding moves an entry of p."""


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
        # 1. A quadratic ball of radius 1, by the shape; of radius 0: of any size, for the nearest point.
        weight, unit = s, np.ones(len(s))
        if not self._is_kl:
            unit = np.where(rho >= LEAST, rho, 1.0 / s.max(axis=1))
            with np.errstate(over="ignore", under="ignore"):
                weight = np.where(inside, np.clip(s * unit[:, None], NARROWEST, WIDEST), 0.0)
        # 2. p₀, the point of the box nearest to q, and what is left of the radius there.
        ends = self._ends(q, weight, low, high)
        c, y, base = self._nearest(q, weight, ends, (low, high))
        room, off = self._room(q, s, y, base, c, rho, unit)
        # 3. Entries that cannot move: then the box is as narrow.
        held = np.zeros(q.shape, dtype=bool)
        if not self._is_kl:
            with np.errstate(over="ignore", under="ignore"):
                held = inside & (s * unit[:, None] < NARROWEST) & (low < high)
        lower_in_force, upper_in_force = np.where(held, base, low), np.where(held, base, high)
        least, most = (np.where(held, 0.0, end - y) for end in ends)
        self._check_not_empty(q, s, base, rho, room, off)
        point = (rho < LEAST) | ~(room > 0.0)
        numbers = np.zeros((len(q), 9))
        numbers[:, 0] = np.maximum(0.0, 1.0 - lower_in_force.sum(axis=1))
        numbers[:, 1], numbers[:, 2], numbers[:, 3] = c, room, unit
        numbers[:, 4] = unit / np.maximum(1.0, rho)
        numbers[:, 5] = np.maximum(0.0, off - rho) / np.maximum(1.0, rho)
        at_center = (np.abs(base - q) <= UNMOVED).all(axis=1)
        kind = np.where(point, np.where(at_center, 1.0, 3.0), np.where(held.any(axis=1), 2.0, 0.0))
        numbers[:, 6] = kind
        offset = np.where(inside, y + c[:, None], 0.0)
        numbers[:, 7], numbers[:, 8] = rho, 1.0 + 2.0 * np.abs(offset).max(axis=1)
        self._base = base
        self._arguments = (
            base, weight, offset, least, most,
            lower_in_force, upper_in_force - lower_in_force, numbers,
        )  # fmt: skip

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

    def _ends(self, q: Array, s: Array, low: Array, high: Array) -> tuple[Array, Array]:
        """The x at which p reaches its bounds; 0 where it has none."""
        inside = s > 0.0
        base = np.where(inside, s, 1.0)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            if self._is_kl:
                near = [(each - q) / base for each in (low, high)]
                ends = [
                    np.where(np.abs(d) < 0.5, np.log1p(d), np.maximum(np.log(each) - np.log(base), NOTHING))
                    for d, each in zip(near, (low, high), strict=True)
                ]
            else:
                ends = [np.clip((each - q) / base, -FAR, FAR) for each in (low, high)]
        least, most = (np.ascontiguousarray(np.where(inside, each, 0.0)) for each in ends)
        return least, most

    def _nearest(
        self, q: Array, weight: Array, ends: tuple[Array, Array], bounds: tuple[Array, Array]
    ) -> tuple[Array, Array, Array]:
        """c, the x of the point of the box nearest to q, and that point.

        Σp comes from the kernel with the rounding of a sum of N numbers; a step of Newton's method, from the
        sum as exact as it can be, gives small entries their last digits.
        """
        from uncertainty_sets.kernels.clipped_balance import KL, QUADRATIC, nearest_rows, total_rows

        shift, excess = np.empty(len(q)), np.empty(len(q))
        nearest_rows(KL if self._is_kl else QUADRATIC, q, weight, *ends, shift)

        def at(shift: Array) -> tuple[Array, Array]:
            y = np.clip(-shift[:, None], *ends)
            with np.errstate(over="ignore", under="ignore"):
                between = q * np.exp(0.5 * y) * np.exp(0.5 * y) if self._is_kl else q + weight * y
            base = np.where(y == ends[0], bounds[0], np.where(y == ends[1], bounds[1], between))
            return y, np.clip(base, *bounds)

        y, base = at(shift)
        total_rows(base, excess)
        free = (y > ends[0]) & (y < ends[1])
        slope = np.where(free, base if self._is_kl else weight, 0.0).sum(axis=1)
        with np.errstate(over="ignore"):
            better = shift + np.divide(excess, slope, out=np.zeros_like(slope), where=slope > 0.0)
        left = np.empty(len(q))
        total_rows(at(better)[1], left)
        shift = np.where((shift != 0.0) & (np.abs(left) < np.abs(excess)), better, shift)
        return shift, *at(shift)

    def _room(
        self, q: Array, s: Array, y: Array, base: Array, c: Array, rho: Array, unit: Array
    ) -> tuple[Array, Array]:
        """What p₀ leaves of the radius, in its unit, and the divergence of p₀."""
        from uncertainty_sets.kernels.clipped_balance import room_rows, total_rows

        if self._is_kl:
            excess = np.empty(len(q))
            total_rows(base, excess)
            x = np.clip(y, -1.0, 1.0)
            little = x * x * np.polynomial.polynomial.polyval(x, 1.0 / FACTORIALS)
            near = q * (x * np.expm1(x) - np.where(np.abs(x) < 0.01, little, np.expm1(x) - x))
            divergence = np.where(np.abs(y) < 1.0, near, base * y - (base - q)).sum(axis=1)
            return rho - divergence - c * excess, divergence
        # Powers of two round nothing.
        room, exponent = np.empty(len(q)), np.frexp(unit)[1]
        rest = np.ldexp(unit, -exponent)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            shape = np.minimum(np.ldexp(s, exponent[:, None]), 1e200)
            room_rows(q, shape, base, c * rest, np.ldexp(rho, -exponent), room)
            far = np.where(base != q, (base - q) * ((base - q) / s), 0.0).sum(axis=1)
        return room / rest, np.asarray(far)

    def _check_not_empty(
        self, q: Array, s: Array, nearest: Array, rho: Array, room: Array, off: Array
    ) -> None:
        """Raise if the nearest point is outside the ball by more than the rounding of p and of q."""
        if not self._is_kl:  # half a unit in the last place of every entry
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                unit = np.abs(nearest - q) * np.spacing(np.maximum(nearest, q)) / s
                room = room + np.where(rho > 0.0, np.where(s > 0.0, unit, 0.0).sum(axis=1) / rho, 0.0)
        rounded = (np.abs(nearest - q).max(axis=1) <= UNMOVED) & (off <= SLACK * np.maximum(1.0, rho))
        outside = ~(room >= -SLACK * (rho if self._is_kl else 1.0)) & ~rounded
        if outside.any():
            row = int(outside.argmax())
            where = f" in row {row}" if len(rho) > 1 else ""
            raise EmptySet(
                f"the intersection is empty{where}: the point of the box that is nearest to the centre has a "
                f"divergence of {off[row]:.6g}, and the radius is {rho[row]:.6g}"
            )

    def reference(self) -> Array:
        """The points of the box nearest to the centre, (1 or B, N)."""
        return self._base.copy()

    def worst_case(self, losses: Array, warm_start: WorstCase | None, out: Array | None) -> WorstCase:
        """The answer, with `eta` and `nu` in `dual`."""
        from uncertainty_sets.kernels.clipped import kl_rows, quadratic_rows

        rows: Callable[..., None] = kl_rows if self._is_kl else quadratic_rows
        f = losses if self._inside is None else on_support(losses, self._inside)
        return answer(rows, f, self._arguments, ("eta", "nu"), warm_start, out)
