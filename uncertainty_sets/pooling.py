"""Entropy pooling: the distribution nearest to a centre in relative entropy that agrees with given views.

    minimise Σ p·log(p/q)   with   A_eq·p = b_eq,   A_ub·p <= b_ub,   p >= 0,   Σp = 1

The dual has one multiplier per view, and its maximum is found by Newton's method: each step is one pass over
the views and one small linear system.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import EmptySet, InvalidParameter, SolverFailed
from uncertainty_sets.parameters import as_array, as_center

MOST_STEPS = 200
AIM = 1e-13  # of a view, in standard deviations of its row under the centre
FEASIBLE = 1e-8  # the largest violation that is returned


@dataclass(frozen=True)
class Pooled:
    """The distribution of least relative entropy under views, with its proof.

    Attributes:
        p: the distribution, which satisfies the views up to `violation`.
        divergence: Σ p·log(p/q).
        lower_bound: no distribution that satisfies the views has a divergence below this, by `dual` alone.
        gap: divergence - lower_bound. Never clipped.
        violation: the largest residual of p over the views, each scaled by max(1, |right-hand side|).
        dual: the multipliers "eq" (any sign) and "ub" (>= 0), one per view.
        iterations: Newton steps.
    """

    p: Array
    divergence: float
    lower_bound: float
    gap: float
    violation: float
    dual: Mapping[str, Array]
    iterations: int


class _Views(NamedTuple):
    """All views as rows·p = values, or rows·p >= values from `equal` on, on the support of q."""

    rows: Array
    values: Array
    equal: int


class _Point(NamedTuple):
    """The dual function at multipliers y: its value, p, and log(p/q)."""

    y: Array
    height: float
    p: Array
    log_ratio: Array


def entropy_pooling(
    center: ArrayLike,
    *,
    A_eq: ArrayLike | None = None,
    b_eq: ArrayLike | None = None,
    A_ub: ArrayLike | None = None,
    b_ub: ArrayLike | None = None,
) -> Pooled:
    """Return the distribution nearest to a centre in relative entropy that agrees with linear views.

    O(views²·N) per Newton step, 4 to 10 steps. Raises EmptySet if no distribution with the centre's support
    agrees with the views.

    Args:
        center: probabilities q, shape (N,). If q_i = 0, then p_i = 0.
        A_eq: views that hold exactly, A_eq·p = b_eq: shape (views, N), or (N,) for one.
        b_eq: their values.
        A_ub: views with a limit, A_ub·p <= b_ub, likewise.
        b_ub: their limits.

    For any y and any z >= 0 the divergence is at least
    b_eqᵀy - b_ubᵀz - log Σ q·exp(A_eqᵀy - A_ubᵀz):

    >>> import numpy as np
    >>> q, returns = np.full(4, 0.25), np.array([-0.1, 0.0, 0.1, 0.2])
    >>> view = entropy_pooling(q, A_eq=returns, b_eq=0.1, A_ub=[0, 0, 0, 1], b_ub=0.3)
    >>> view.p.round(4), round(view.divergence, 6)
    (array([0.0639, 0.1722, 0.4639, 0.3   ]), 0.190118)
    >>> y, z = view.dual["eq"], view.dual["ub"]
    >>> tilt = returns * y[0] - np.array([0, 0, 0, 1]) * z[0]
    >>> bool(np.isclose(0.1 * y[0] - 0.3 * z[0] - np.log(q @ np.exp(tilt)), view.lower_bound))
    True
    """
    q = as_center(center)
    if len(q) > 1 or np.ndim(center) != 1:
        raise InvalidParameter(
            f"center must be one probability vector (N,), got shape {np.shape(center)}; call it per row",
            parameter="center",
            value=center,
        )
    inside = q[0] > 0.0
    weights = q[0][inside]
    exact, limits = _read("eq", A_eq, b_eq, q.shape[1]), _read("ub", A_ub, b_ub, q.shape[1])
    rows = np.vstack([exact[0], -limits[0]])[:, inside]
    values = np.concatenate([exact[1], -limits[1]])
    # In units of each view's standard deviation under q, about its mean: multipliers of one size.
    means = rows @ weights
    deviations = np.sqrt(((rows - means[:, None]) ** 2) @ weights)
    units = np.where(deviations > 0.0, deviations, 1.0)
    views = _Views((rows - means[:, None]) / units[:, None], (values - means) / units, len(exact[1]))
    _refuse_constant(views, deviations)
    best, steps = _maximise(weights, views)
    p = np.zeros(q.shape[1])
    p[inside] = best.p
    divergence = float(best.p @ best.log_ratio)
    violation = _violation(p, exact, limits)
    if violation > FEASIBLE:
        raise SolverFailed(
            f"no distribution found for the views: after {steps} steps the largest residual is "
            f"{violation:.2g}. The views leave no distribution, or only ones with zeros where the centre is "
            "positive: check them, or give limits (A_ub) with some room instead of equalities"
        )
    y = best.y / units
    dual = {"eq": y[: views.equal], "ub": y[views.equal :]}
    gap = divergence - best.height
    return Pooled(p, divergence, best.height, gap, violation, dual, steps)


def _read(kind: str, matrix: ArrayLike | None, values: ArrayLike | None, size: int) -> tuple[Array, Array]:
    """Views of one kind as (views, N) and (views,)."""
    if (matrix is None) != (values is None):
        raise InvalidParameter(f"A_{kind} and b_{kind} belong together: give both or neither")
    if matrix is None or values is None:
        return np.empty((0, size)), np.empty(0)
    A, b = np.atleast_2d(as_array(f"A_{kind}", matrix)), np.atleast_1d(as_array(f"b_{kind}", values))
    if A.ndim != 2 or A.shape[1] != size or b.shape != (len(A),):
        raise InvalidParameter(
            f"A_{kind} must have shape (views, {size}) and b_{kind} one number per view, got "
            f"{np.shape(matrix)} and {np.shape(values)}",
            parameter=f"A_{kind}",
            value=matrix,
        )
    return A, b


def _refuse_constant(views: _Views, deviations: Array) -> None:
    """Refuse a view whose row is constant on the support, if its value is not that constant."""
    short = np.abs(views.values)
    short[views.equal :] = np.maximum(views.values[views.equal :], 0.0)
    wrong = np.flatnonzero((deviations == 0.0) & (short > 1e-12))
    if wrong.size:
        raise _impossible(f"view {wrong[0]} has the same value at every atom of the centre, and not its b")


def _evaluate(weights: Array, views: _Views, y: Array) -> _Point:
    x = y @ views.rows
    top = float(x.max())
    tilted = weights * np.exp(x - top)
    total = float(tilted.sum())
    shift = top + float(np.log(total))
    return _Point(y, float(y @ views.values) - shift, tilted / total, x - shift)


def _maximise(weights: Array, views: _Views) -> tuple[_Point, int]:
    """The maximum of the dual: Newton's method on the multipliers that are free, halved until it rises."""
    now = _evaluate(weights, views, np.zeros(len(views.values)))
    most = -float(np.log(weights.min())) + 1.0  # no distribution on the support is further from the centre
    for step in range(1, MOST_STEPS + 1):
        rise = views.values - views.rows @ now.p
        free = np.ones(rise.size, bool)
        free[views.equal :] = (now.y[views.equal :] > 0.0) | (rise[views.equal :] > 0.0)
        if np.abs(rise[free]).max(initial=0.0) <= AIM:
            return now, step - 1
        moved = _step(weights, views, now, rise, free)
        if moved is None:
            return now, step
        now = moved
        if now.height > most:
            raise _impossible(
                f"its divergence would be above {now.height:.3g}, and at most {most - 1.0:.3g} is possible"
            )
    return now, MOST_STEPS


def _step(weights: Array, views: _Views, now: _Point, rise: Array, free: Array) -> _Point | None:
    """The point after one Newton step, halved until the dual rises; None if it rises no more."""
    rows = views.rows[free]
    mean = rows @ now.p
    curvature = (rows * now.p) @ rows.T - np.outer(mean, mean)
    curvature.flat[:: len(mean) + 1] += 1e-14 * max(float(np.trace(curvature)), 1e-300)
    change = np.zeros(rise.size)
    change[free] = np.linalg.lstsq(curvature, rise[free], rcond=None)[0]
    length = 1.0
    while length > 1e-10:
        y = now.y + length * change
        y[views.equal :] = np.maximum(y[views.equal :], 0.0)
        then = _evaluate(weights, views, y)
        if then.height >= now.height + 1e-4 * float(rise @ (y - now.y)):
            return then
        # At the end the dual is flat to rounding, but the views may still improve.
        left = np.abs((views.values - views.rows @ then.p)[free]).max()
        if length == 1.0 and left < 0.5 * np.abs(rise[free]).max() and then.height > now.height - 1e-12:
            return then
        length *= 0.5
    return None


def _violation(p: Array, exact: tuple[Array, Array], limits: tuple[Array, Array]) -> float:
    off = np.abs(exact[0] @ p - exact[1]) / np.maximum(1.0, np.abs(exact[1]))
    over = (limits[0] @ p - limits[1]) / np.maximum(1.0, np.abs(limits[1]))
    return max(float(off.max(initial=0.0)), float(over.max(initial=0.0)))


def _impossible(reason: str) -> EmptySet:
    return EmptySet(f"no distribution on the centre's support satisfies the views: {reason}")
