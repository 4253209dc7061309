"""The dual cone K* of a program: whether a point is in it, and a member near the point.

The zero cone's dual is free, nonneg and soc are their own, and the exponential cone's is the closure of
{(u, v, w) : u < 0, -u·exp(v/u - 1) <= w}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from uncertainty_sets.arrays import Array
    from uncertainty_sets.conic.program import ConicProgram


class DualCone:
    """K* of a program, as arrays of rows: the zero cone's is free, nonneg and soc are their own."""

    def __init__(self, program: ConicProgram) -> None:
        self.zero = program.rows("zero")
        self.nonneg = program.rows("nonneg")
        self.soc = [
            np.arange(start, start + size)
            for start, (kind, size) in zip(program.starts, program.cones, strict=True)
            if kind == "soc"
        ]
        self.exp = program.rows("exp").reshape(-1, 3)

    def margins(self, y: Array) -> Array:
        """One number per cone (per row, for nonneg), >= 0 if and only if that part of y is in K*.

        The dual exponential cone is the closure of {u < 0, -u·exp(v/u - 1) <= w}; with u = 0 it is
        v, w >= 0. Where finite, each margin is concave and positively homogeneous.
        """
        parts = [y[self.nonneg]]
        if self.soc:
            parts.append(np.array([y[rows[0]] - np.linalg.norm(y[rows[1:]]) for rows in self.soc]))
        if self.exp.size:
            u, v, w = y[self.exp].T
            edge = np.minimum(v, w)
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                inside = w + u * np.exp(v / u - 1.0)
            parts.append(np.where(u < 0, inside, np.where(u == 0, edge, -u)))
        return np.concatenate(parts)

    def lift(self, y: Array) -> Array:
        """A point of K* near y: each cone's bounding coordinate is raised as far as needed."""
        y = y.copy()
        y[self.nonneg] = np.maximum(y[self.nonneg], 0.0)
        for rows in self.soc:
            # A few ulp more than the norm, so that rounding cannot leave the point outside.
            y[rows[0]] = max(y[rows[0]], np.linalg.norm(y[rows[1:]]) * (1.0 + 4e-16 * len(rows)))
        if self.exp.size:
            y[self.exp] = _lift_exp(y[self.exp])
        return y


def _lift_exp(y: Array) -> Array:
    """Rows (u, v, w) moved into the dual exponential cone by the shortest of three ways.

    Raise w, raise v, or go to the face u = 0: for u near 0 the first may be far.
    """
    u, v, w = np.minimum(y[:, 0], 0.0), y[:, 1], y[:, 2]
    edge = np.zeros_like(u)

    def above(v: Array) -> Array:
        """The least w for (u, v), and a few ulp more, so that rounding cannot leave the point outside."""
        return np.asarray(-u * np.exp(v / u - 1.0) * (1.0 + 4e-16 * (2.0 + np.abs(v / u))))

    with np.errstate(all="ignore"):
        if ((y[:, 0] < 0.0) & (w >= above(v))).all():  # inside, as an interior-point method's mostly are
            return y
        other_v = np.maximum(v, u * (1.0 + np.log(w / -u)))
        ways = np.stack(
            [
                np.stack([u, v, np.maximum(w, above(v))], axis=1),
                np.stack([u, other_v, np.maximum(w, above(other_v))], axis=1),
                np.stack([edge, np.maximum(v, edge), np.maximum(w, edge)], axis=1),
            ]
        )
    length = np.abs(ways - y).sum(axis=2)
    length = np.where(np.isfinite(length), length, np.inf)  # nan where u = 0, or w <= 0 for the second
    return np.asarray(ways[np.argmin(length, axis=0), np.arange(len(y))])
