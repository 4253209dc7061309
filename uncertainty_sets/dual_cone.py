"""The dual cone K* of a program: membership, nearby members, and a metric that stays inside.

The zero cone's dual is free, nonneg and soc are their own, and the exponential cone's is the closure of
{(u, v, w) : u < 0, -u·exp(v/u - 1) <= w}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from uncertainty_sets.base import Array
    from uncertainty_sets.program import ConicProgram

FLOOR = 1e-10
"""The smallest step that the metric of step 2 allows, relative to the largest multiplier."""

DENSE = 12
"""Second-order cones up to this size get their full metric."""


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
        """One number a cone (a row, for nonneg), >= 0 exactly where that part of y is in K*.

        The dual exponential cone is the closure of {u < 0, -u·exp(v/u - 1) <= w}; with u = 0 it is
        v, w >= 0. Each margin is concave and positively homogeneous where it is finite.
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
        """A point of K* near y: the coordinate that pays for the others is raised."""
        y = y.copy()
        y[self.nonneg] = np.maximum(y[self.nonneg], 0.0)
        for rows in self.soc:
            # One ulp more than the norm: rounding may not leave us outside.
            y[rows[0]] = max(y[rows[0]], np.linalg.norm(y[rows[1:]]) * (1.0 + 4e-16 * len(rows)))
        if self.exp.size:
            u, v, w = y[self.exp].T
            u = np.minimum(u, 0.0)
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                needed = -u * np.exp(v / u - 1.0) * (1.0 + 4e-16 * (2.0 + np.abs(v / u)))
            # Where w would have to grow beyond the multipliers' own size, u = 0 costs less.
            large = 1e3 * (1.0 + np.abs(y).max())
            flat = (u == 0) | ~(needed <= large)
            y[self.exp[:, 0]] = np.where(flat, 0.0, u)
            y[self.exp[:, 1]] = np.where(flat, np.maximum(v, 0.0), v)
            y[self.exp[:, 2]] = np.where(flat, np.maximum(w, 0.0), np.maximum(w, needed))
        return y

    def metric(self, y: Array) -> Any:
        """R with W = R Rᵀ the inverse Hessian of the cones' barrier at y, sparse and block-diagonal.

        A step R z with ‖z‖ < 1 cannot leave the cone from inside (Dikin's ellipsoid), however near
        the boundary y is. A floor lets entries on the boundary move a little. Large second-order cones
        get a ball inside that ellipsoid, since their block would be dense.
        """
        from scipy import sparse

        largest = np.abs(y).max() or 1.0
        floor = FLOOR * largest
        diagonal = np.full(y.size, largest)
        diagonal[self.nonneg] = np.maximum(y[self.nonneg], floor)
        blocks: list[tuple[Any, Array]] = []
        for rows in self.soc:
            top, rest = y[rows[0]], y[rows[1:]]
            if len(rows) > DENSE:
                diagonal[rows] = max(top - np.linalg.norm(rest), floor)
                continue
            reflected = np.concatenate([[1.0], -np.ones(rest.size)])
            inverse_hessian = np.outer(y[rows], y[rows]) - 0.5 * (top**2 - rest @ rest) * np.diag(reflected)
            blocks.append((rows[None, :], inverse_hessian[None]))
        if self.exp.size:
            blocks.append((self.exp, _inverse(_exp_hessian(y[self.exp], floor))))
        if not blocks:
            return sparse.diags_array(diagonal)
        i, j, entries = [], [], []
        for rows, inverse_hessian in blocks:
            values, vectors = np.linalg.eigh(inverse_hessian)
            root = vectors * np.sqrt(np.clip(values, floor**2, largest**2))[:, None, :]
            diagonal[rows] = 0.0
            i.append(np.broadcast_to(rows[:, :, None], root.shape).ravel())
            j.append(np.broadcast_to(rows[:, None, :], root.shape).ravel())
            entries.append(root.ravel())
        dense = sparse.coo_array(
            (np.concatenate(entries), (np.concatenate(i), np.concatenate(j))), (y.size,) * 2
        )
        return (sparse.diags_array(diagonal) + dense).tocsr()


def _exp_hessian(y: Array, floor: float) -> Array:
    """Hessians of -log(m) - log(w) - log(-u), m = -u·log(-w/u) - u + v, at the rows (u, v, w) of y."""
    u, v, w = y.T
    u, w = np.minimum(u, -floor), np.maximum(w, floor)
    m = np.maximum(-u * np.log(-w / u) - u + v, floor)
    gradient = np.stack([-np.log(-w / u), np.ones_like(m), -u / w], axis=1)
    hessian = (gradient[:, :, None] * gradient[:, None, :]) / m[:, None, None] ** 2
    # minus the Hessian of m, over m: m is concave in (u, w)
    hessian[:, 0, 0] += -1.0 / (u * m) + 1.0 / u**2
    hessian[:, 0, 2] += 1.0 / (w * m)
    hessian[:, 2, 0] += 1.0 / (w * m)
    hessian[:, 2, 2] += -u / (w**2 * m) + 1.0 / w**2
    return np.asarray(hessian)


def _inverse(hessian: Array) -> Array:
    values, vectors = np.linalg.eigh(hessian)
    return np.asarray((vectors / np.maximum(values, 1e-300)[:, None, :]) @ vectors.transpose(0, 2, 1))
