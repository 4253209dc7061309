"""Entropy pooling: the distribution nearest to a centre in relative entropy that agrees with given views.

    minimise Σ p·log(p/q)   with   A_eq·p = b_eq,   A_ub·p <= b_ub,   p >= 0,   Σp = 1

The dual has one multiplier per view, and is largest where p ∝ q·exp(yᵀ(A - b)) agrees with the views.
Newton's method gives the direction, and a search finds the largest value along it: a view that only the
boundary satisfies (p_i = 0) sends its multiplier to infinity, and a full step may lead anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import EmptySet, InvalidParameter, SolverFailed
from uncertainty_sets.kernels.layout import FEASIBLE, PROMISE, ULPS
from uncertainty_sets.parameters import as_array, as_center
from uncertainty_sets.verdict import keeps_promise

EPS = 2.0**-52
MOST_STEPS, MOST_TRIALS = 300, 100
CENTERS = 21  # between a uniform one and q
AIM, FLOOR = (
    1e-13,
    1e-17,
)  # of a view's row: where a search may end that no longer improves, and where any ends
RIDGE, HUGE = 1e-12, 1e150  # of the curvature, in units of each view's variance; of a direction
FAR = 1500.0  # of a tilt: beyond it a weight is 0 beside another
CONSTANT = 1e-14  # of the size of a row: entries that differ by less are equal


@dataclass(frozen=True)
class Pooled:
    """The distribution of least relative entropy under views, with its proof.

    Attributes:
        p: the distribution, which satisfies the views up to `violation`.
        divergence: Σ p·log(p/q).
        lower_bound: no distribution that satisfies the views has a divergence below this, by `dual` alone.
        gap: divergence - lower_bound. Never clipped: one of rounding size may be negative.
        violation: the largest residual of p over the views, each in units of the difference between the
            largest and the smallest entry of its row. The rounding of the row is not counted.
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
    """All views as rows·p = 0, or rows·p >= 0 from `equal` on, and the centre q, on its support.

    With the value in the row, x = y·rows is 0 where the row meets its value, however large y is.
    """

    q: Array
    log_q: Array
    rows: Array
    units: Array
    rounding: Array
    equal: int


class _Point(NamedTuple):
    """The dual function at multipliers y: p, how short each view is, and the largest residual or gap."""

    y: Array
    x: Array
    p: Array
    short: Array
    off: float


def entropy_pooling(
    center: ArrayLike,
    *,
    A_eq: ArrayLike | None = None,
    b_eq: ArrayLike | None = None,
    A_ub: ArrayLike | None = None,
    b_ub: ArrayLike | None = None,
) -> Pooled:
    """Return the distribution nearest to a centre in relative entropy that agrees with linear views.

    O(views²·N) per Newton step, 4 to 10 steps; 40 if an entry must become 0. The gap is at most 1e-9 of the
    divergence (or what the rounding of the rows makes of it), the violation at most 1e-10. Raises EmptySet
    if multipliers prove that no distribution with the centre's support agrees with the views. Views whose
    rows differ by less than a millionth may be refused (SolverFailed): their multipliers are as large as the
    difference is small, and beyond that their last digit is worth more than the promise.

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
    views = _centered(weights, rows, np.concatenate([exact[1], -limits[1]]), len(exact[1]))
    best, steps = _maximise(views, np.zeros(len(views.units)))
    if best.off > FEASIBLE:
        best, steps = _from_uniform(views, best, steps)
    p = np.zeros(q.shape[1])
    p[inside] = best.p
    divergence, bound = _divergence(best.p, weights), _bound(views, best)
    with np.errstate(over="ignore"):  # a row of 1e-320
        y = best.y / views.units
    dual = {"eq": y[: views.equal], "ub": y[views.equal :]}
    found = Pooled(p, divergence, bound, divergence - bound, _violation(best.p, views), dual, steps)
    _judge(found, views, best)
    return found


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


def _centered(q: Array, rows: Array, values: Array, equal: int) -> _Views:
    """Subtract each view's value from its row, in units of the row's own size; refuse what no p satisfies."""
    size = np.maximum(np.abs(rows).max(axis=1), np.abs(values))
    power = np.where(size > 0.0, np.frexp(size)[1], 0)  # a power of two keeps every digit
    about = np.ldexp(rows, -power[:, None]) - np.ldexp(values, -power)[:, None]
    least, most = about.min(axis=1), about.max(axis=1)
    flat = most - least <= CONSTANT
    for k in range(len(rows)):
        kind, at = ("A_eq", k) if k < equal else ("A_ub", k - equal)
        too_small = most[k] < -(1e-12 if flat[k] else 4.0 * EPS)
        too_large = k < equal and least[k] > (1e-12 if flat[k] else 4.0 * EPS)
        if too_small or too_large:
            row = np.unique(rows[k][[rows[k].argmin(), rows[k].argmax()]]) * (1.0 if k < equal else -1.0)
            asked = values[k] if k < equal else -values[k]
            raise _impossible(
                f"row {at} of {kind} has the same value {row[0]:.12g} at every atom of the centre, and its b "
                f"is {asked:.12g}"
                if flat[k]
                else f"row {at} of {kind} is between {row.min():.12g} and {row.max():.12g}, and its b is "
                f"{asked:.12g}"
            )
    # A value that is beyond its row by rounding is at its end: no multiplier reaches one that is beyond.
    about -= np.where(most < 0.0, most, np.where((np.arange(len(rows)) < equal) & (least > 0.0), least, 0.0))[
        :, None
    ]
    unit = np.where(flat, 1.0, np.maximum(about.max(axis=1), -about.min(axis=1)))
    about[flat] = 0.0
    with np.errstate(over="ignore"):
        return _Views(q, np.log(q), about / unit[:, None], np.ldexp(unit, power), ULPS / unit, equal)


def _at(views: _Views, y: Array) -> _Point:
    """p ∝ q·exp(y·rows), and what is missing there."""
    x = y @ views.rows
    p = _tilted(views, x)
    short = -(views.rows @ p)
    felt = (np.arange(y.size) < views.equal) | (y > 0.0)
    residual = np.where(felt, np.abs(short), np.maximum(short, 0.0))
    return _Point(y, x, p, short, max(float(residual.max(initial=0.0)), abs(float(y @ short))))


def _tilted(views: _Views, x: Array) -> Array:
    if not x.any():
        return views.q  # to the last digit
    height = views.log_q + x
    weight: Array = np.exp(height - height.max())
    weight /= weight.sum()
    return weight


def _from_uniform(views: _Views, best: _Point, steps: int) -> tuple[_Point, int]:
    """The better of a point and the one found by way of the centres ∝ q^s, from s = 0, uniform, to 1.

    Where masses differ by hundreds of decades, p jumps from atom to atom on the way from q; from each of
    these centres to the next it hardly moves, and the multipliers move along a line.
    """
    y = before = np.zeros(len(views.units))
    for share in np.linspace(0.0, 1.0, CENTERS):
        log_q = share * views.log_q
        q = np.exp(log_q - log_q.max())
        between = views if share == 1.0 else views._replace(q=q / q.sum(), log_q=log_q)
        start = 2.0 * y - before
        start[views.equal :] = np.maximum(start[views.equal :], 0.0)
        found, more = _maximise(between, start)
        y, before, steps = found.y, y, steps + more
        if share == 0.0 and found.off > FEASIBLE:  # the masses are not what stands in the way
            break
    return (found if share == 1.0 and found.off < best.off else best), steps


def _maximise(views: _Views, start: Array) -> tuple[_Point, int]:
    """The best point found, by residual and gap; raise EmptySet if multipliers prove that there is none."""
    now = best = _at(views, start)
    stale, step = 0, 0
    while step < MOST_STEPS and best.off > FLOOR and stale < (2 if best.off <= AIM else 30):
        step += 1
        last = now
        now = _climb(views, now, _newton(views, now))
        if now.off > 0.5 * last.off:
            # Where p has almost no variance left, Newton's direction says little: one view after another.
            for k in np.flatnonzero(views.rows.any(axis=1)):
                now = _climb(views, now, np.sign(now.short[k]) * np.eye(now.y.size)[k])
        stale = 0 if now.off < 0.5 * best.off else stale + 1
        if now.off < best.off:
            best = now
        if _is_proof_of_nothing(views, now):
            break
    if best.off > FEASIBLE and _is_proof_of_nothing(views, now):
        raise _impossible(f"the multipliers after {step} steps contradict every distribution")
    return best, step


def _newton(views: _Views, now: _Point) -> Array:
    """Newton's direction: the best change by the curvature at p that keeps multipliers of limits >= 0."""
    if not now.short.size:
        return now.y
    about = views.rows + now.short[:, None]
    curvature = (about * now.p) @ about.T
    scale = np.sqrt(np.maximum(np.diag(curvature), np.finfo(float).tiny))
    curvature = curvature / scale[:, None] / scale
    # Views that repeat others, up to rounding, must not send multipliers of opposite signs to infinity.
    curvature.flat[:: len(scale) + 1] += max(RIDGE, 10.0 / AIM * float(views.rounding.max()) ** 2)
    with np.errstate(over="ignore"):
        rise = np.clip(now.short / scale, -HUGE, HUGE)  # p has no variance left
        least = np.where(np.arange(len(scale)) < views.equal, -np.inf, -now.y * scale)
    told = views.rows.any(axis=1)
    fixed = ~told | ((least == 0.0) & (rise <= 0.0))
    change = np.zeros(len(scale))
    for _ in range(4 * len(scale)):
        free, goal = ~fixed, change.copy()
        right = rise[free] - curvature[np.ix_(free, fixed)] @ change[fixed]
        goal[free] = np.linalg.lstsq(curvature[np.ix_(free, free)], right, rcond=None)[0]
        below = free & (goal < least)
        if below.any():  # as far as all multipliers stay >= 0
            share = np.where(below, (change - least) / np.where(below, change - goal, 1.0), np.inf)
            at = int(share.argmin())
            change[free] += share[at] * (goal - change)[free]
            change[at], fixed[at] = least[at], True
            continue
        change = goal
        pull = np.where(fixed & told, rise - curvature @ change, 0.0)
        if pull.max(initial=0.0) <= RIDGE:
            break
        fixed[int(pull.argmax())] = False
    with np.errstate(over="ignore"):
        return np.clip(change / scale, -HUGE, HUGE)


def _climb(views: _Views, now: _Point, change: Array) -> _Point:
    """About the largest dual along a direction, as far as multipliers of limits stay >= 0."""
    along = change @ views.rows
    start = float(now.p @ along)  # the dual falls by this per unit of the step
    noise = np.abs(change) @ (4.0 * EPS * np.abs(views.rows) + views.rounding[:, None])
    if not start < 0.0:
        return now
    falls = (np.arange(change.size) >= views.equal) & (change < 0.0)
    limits = np.where(falls, now.y / np.where(falls, -change, 1.0), np.inf)
    most = float(limits.min(initial=np.inf))
    reach = float(np.abs(along).max())
    low, high, step = 0.0, np.inf, min(1.0, most, FAR / reach)
    for _ in range(MOST_TRIALS):
        p = _tilted(views, now.x + step * along)
        slope = float(p @ along)
        if abs(slope) <= max(0.1 * -start, float(p @ noise)) or (slope < 0.0 and step == most):
            break
        if slope < 0.0:
            low = step
        else:
            high = step
        bend = float(p @ (along - slope) ** 2)
        after = step - slope / bend if bend > 0.0 else np.nan
        if not low < after < high:
            after = np.sqrt(low * high) if 4.0 * low < high and low > 0.0 else 0.5 * (low + high)
            after = 0.05 * high if low == 0.0 else after
        if high == np.inf:
            after = min(max(after, 4.0 * step) if np.isfinite(after) else 4.0 * step, 1e3 * step, most)
        if after in (step, low, high) or not after < 1e200:
            break
        step = after
    y = now.y + step * change
    y[limits <= step] = 0.0
    y[views.equal :] = np.maximum(y[views.equal :], 0.0)
    return _at(views, y)


def _is_proof_of_nothing(views: _Views, now: _Point) -> bool:
    """Whether y·rows < 0 at every atom, beyond rounding, while every p that agrees has a mean >= 0."""
    return bool(
        (now.x + 2.0 * np.abs(now.y) @ (ULPS * np.abs(views.rows) + views.rounding[:, None]) < 0.0).all()
    )


def _divergence(p: Array, q: Array) -> float:
    """Σ p·log(p/q), in terms that are each >= 0, so that a small sum keeps its digits."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        ratio = p / q - 1.0
        little = np.abs(ratio) < 1e-3
        s = np.where(little, ratio, 0.0)
        near = q * s * s * (0.5 - s * (1.0 / 6.0 - s * (1.0 / 12.0 - s * (0.05 - s / 30.0))))
        far = np.where(p > 0.0, p * (np.log(p) - np.log(q)), 0.0) - p + q
    return float(np.where(little, near, far).sum())


def _bound(views: _Views, at: _Point) -> float:
    """-log Σ q·exp(y·rows), again without loss of digits where it is small."""
    q, x = views.q, at.x
    if np.abs(x).max(initial=0.0) > 1.0:
        height = views.log_q + x
        top = float(height.max())
        return -(top + float(np.log(np.exp(height - top).sum())))
    little = np.abs(x) < 1e-3
    s = np.where(little, x, 0.0)
    rest = np.where(little, s * s * (0.5 + s * (1.0 / 6.0 + s * (1.0 / 24.0 + s / 120.0))), np.expm1(x) - x)
    return -float(np.log1p(q @ rest + at.y @ (views.rows @ q)))


def _violation(p: Array, views: _Views) -> float:
    """The largest residual; the rows are in units of their largest entry, at least half their width."""
    met = views.rows @ p
    residual = np.where(np.arange(met.size) < views.equal, np.abs(met), np.maximum(-met, 0.0))
    width = np.ptp(views.rows, axis=1)
    beyond = np.maximum(residual - views.rounding, 0.0) / np.where(width > 0.0, width, 1.0)
    return float(beyond.max(initial=0.0))


def _judge(found: Pooled, views: _Views, at: _Point) -> None:
    """Raise if the certificate breaks the promise."""
    rounding = min(PROMISE, ULPS + float(np.abs(at.y) @ views.rounding))
    if keeps_promise(found.gap, found.violation, found.divergence, rounding):
        return
    raise SolverFailed(
        f"no distribution with a proof found for the views: after {found.iterations} steps the largest "
        f"residual is {found.violation:.2g}, and the gap {found.gap:.2g}. The views leave no distribution, "
        "or hardly any: check them, or give limits (A_ub) with some room instead of equalities"
    )


def _impossible(reason: str) -> EmptySet:
    return EmptySet(f"no distribution on the centre's support satisfies the views: {reason}")
