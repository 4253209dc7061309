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
            unit = np.where(rho > 0.0, rho, 1.0 / s.max(axis=1))
            with np.errstate(over="ignore", under="ignore"):
                weight = np.where(inside, np.clip(s * unit[:, None], NARROWEST, WIDEST), 0.0)
        # 2. p₀, the point of the box nearest to q, and what is left of the radius there.
        ends = self._ends(q, weight, low, high)
        c, divergence, excess = self._nearest(q, weight, *ends)
        y = np.clip(-c[:, None], *ends)
        with np.errstate(over="ignore", under="ignore"):
            between = q * np.exp(0.5 * y) * np.exp(0.5 * y) if self._is_kl else q + weight * y
        base = np.clip(np.where(y == ends[0], low, np.where(y == ends[1], high, between)), low, high)
        bounded = rho if self._is_kl else np.where(rho > 0.0, 1.0, 0.0)
        if self._is_kl:
            room = bounded - (divergence + c * excess)
        else:
            from uncertainty_sets.kernels.clipped_balance import room_rows

            room = np.empty(len(q))
            exponent = np.frexp(unit)[1]  # powers of two, which round nothing
            with np.errstate(over="ignore"):
                shape = np.minimum(np.ldexp(s, exponent[:, None]), 1e200)
            rest = np.ldexp(unit, -exponent)
            room_rows(q, shape, base, c * rest, np.ldexp(rho, -exponent), room)
            room /= rest
        # 3. Entries that cannot move: then the box is as narrow.
        held = np.zeros(q.shape, dtype=bool)
        if not self._is_kl:
            with np.errstate(over="ignore", under="ignore"):
                held = inside & (s * unit[:, None] < NARROWEST) & (low < high)
        lower_in_force, upper_in_force = np.where(held, base, low), np.where(held, base, high)
        least, most = (np.where(held, 0.0, end - y) for end in ends)
        off = self._distance(q, s, base, divergence)
        self._check_not_empty(q, base, rho, room, bounded, off)
        point = (rho == 0.0) | (room <= 0.0)
        numbers = np.zeros((len(q), 7))
        numbers[:, 0] = np.maximum(0.0, 1.0 - lower_in_force.sum(axis=1))
        numbers[:, 1], numbers[:, 2], numbers[:, 3] = c, room, unit
        numbers[:, 4] = unit / np.maximum(1.0, rho)
        numbers[:, 5] = np.maximum(0.0, off - rho) / np.maximum(1.0, rho)
        numbers[:, 6] = np.where(point, 1.0, np.where(held.any(axis=1), 2.0, 0.0))
        self._base = base
        self._arguments = (
            base, weight, np.where(inside, y + c[:, None], 0.0), least, most,
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

    def _nearest(self, q: Array, s: Array, least: Array, most: Array) -> tuple[Array, Array, Array]:
        from uncertainty_sets.kernels.clipped_balance import KL, QUADRATIC, nearest_rows

        found = np.empty((len(q), 3))
        nearest_rows(KL if self._is_kl else QUADRATIC, q, s, least, most, found)
        return found[:, 0], found[:, 1], found[:, 2]

    def _distance(self, q: Array, s: Array, p: Array, divergence: Array) -> Array:
        """The divergence of p, as the set measures it."""
        if self._is_kl:
            return divergence
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            return np.asarray(np.where(p != q, (p - q) * ((p - q) / s), 0.0).sum(axis=1))

    def _check_not_empty(
        self, q: Array, nearest: Array, rho: Array, room: Array, bounded: Array, off: Array
    ) -> None:
        """Raise if the nearest point is outside the ball by more than the rounding of p and of q."""
        rounded = (np.abs(nearest - q).max(axis=1) <= UNMOVED) & (off <= SLACK * np.maximum(1.0, rho))
        outside = (room < -SLACK * bounded) & ~rounded
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
