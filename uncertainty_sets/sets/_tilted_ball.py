"""The intersection of a KL ball with linear inequalities: p ∝ q·exp(θf - Dᵀw), w >= 0.

For every θ, w minimises the convex function log Σ q·exp(θf - Dᵀw) + cᵀw over w >= 0 (over all w for a pair of
rows that is an equation), by Newton's method on the multipliers that are not held at 0. The divergence of the
resulting p rises with θ; its derivative is θ times the variance of f under p that the rows with a multiplier
do not explain. θ is found by Newton's method on the square root of the divergence, within a bracket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from uncertainty_sets.answer import WorstCase, stack
from uncertainty_sets.errors import EmptySet
from uncertainty_sets.kernels.dispatch import reject_not_finite
from uncertainty_sets.kernels.layout import FEASIBLE, ULPS
from uncertainty_sets.verdict import keeps_promise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from uncertainty_sets.arrays import Array
    from uncertainty_sets.base import UncertaintySet
    from uncertainty_sets.sets.polyhedron import Polyhedron

STEPS, HALVINGS, ROUNDS = 60, 40, 60  # Newton steps for w, halvings of each, and values of θ, at most
EXACT, NEARLY = 1e-14, 1e-11  # residuals of the rows: what is aimed at, and what is enough
AIM, OVER = 1e-13, 1e-11  # of the radius: what the divergence is aimed at, and how far over it may end
HIGHEST = 1e12  # of θ: the ball does not matter any more, or a solver has to find out
FAR = 1e12  # a step of w this long goes to infinity
EQUAL = 4 * 2.0**-52  # of rows in units of their largest entry: what the rounding of a unit may change
SLACK = 1e-12  # by how much the nearest point's divergence may exceed the radius, relative to it


class Tilt(NamedTuple):
    """p ∝ q·exp(θg - Dᵀw) at the best w, and what the search needs of it."""

    theta: float
    w: Array
    p: Array
    log_weight: float
    divergence: float
    variance: float  # of g under p, as far as the rows with a multiplier do not explain it
    residual: float  # of the rows, and of w·(c - D p) = 0
    shortfall: float  # w·(c - D p)


class TiltedBall:
    """{p : Σ p·log(p/q) <= radius, D p <= c}; EmptySet if there is no such p.

    `is_usable` is False if the nearest point has entries of 0, for which no finite multipliers exist.

    Args:
        center: q, (N,).
        radius: of the ball.
        D: rows of coefficients, (m, N).
        c: their right-hand sides; an infinite one asks for nothing, and its multiplier is 0.
    """

    def __init__(self, center: Array, radius: float, D: Array, c: Array) -> None:
        self.inside = center > 0.0
        self._q, self._radius, self._count = center[self.inside], radius, c.size
        bounded = np.flatnonzero(np.isfinite(c))
        bounded = bounded[_needed(D[bounded][:, self.inside], c[bounded])]
        D, c = D[bounded], c[bounded]
        size = np.maximum(np.abs(D[:, self.inside]).max(axis=1, initial=0.0), np.abs(c))
        units = np.where(size > 0.0, size, 1.0)
        rows, right = D[:, self.inside] / units[:, None], c / units
        first, second = _paired(rows, right)
        self._is_equation = second >= 0
        self._units, self._second_units = units[first], units[np.maximum(second, 0)]
        self._D, self._c = rows[first], right[first]
        self._first = bounded[first]  # the rows as given
        self._second = np.where(self._is_equation, bounded[second], -1) if bounded.size else second
        self._at_center = self._balance(0.0, np.zeros(self._q.size), np.zeros(self._c.size))
        self.is_usable = self._at_center.residual <= NEARLY and self._at_center.divergence < radius

    def reference(self) -> Array:
        """The distribution with these rows that is nearest to the centre."""
        return self._spread_out(self._at_center.p)

    def worst_case(self, losses: Array, warm_start: WorstCase | None) -> WorstCase:
        """The answer to one loss vector, with `eta` and `y` in `dual`; unproved if the search fails."""
        with np.errstate(over="ignore", invalid="ignore"):  # next to a single point θ is next to 0
            return self._tilted(losses, warm_start)

    def _tilted(self, losses: Array, warm_start: WorstCase | None) -> WorstCase:
        f = losses[self.inside]
        top, half = float(f.max()), 0.5 * float(f.max()) - 0.5 * float(f.min())
        if half == 0.0:
            p = self.reference()
            dual = self._named(0.0, np.zeros(self._c.size))
            return WorstCase(p, top, top, 0.0, self._off(self._at_center), dual, "closed-form", 0)
        g = (0.5 * f - 0.5 * top) / half
        found, rounds = self._search(g, *self._start(g, 2.0 * half, warm_start))
        value = float(found.p @ g)
        gap = float(np.float64(self._radius - found.divergence + found.shortfall) / found.theta)
        eta = float(np.float64(2.0 * half) / found.theta)
        y = 2.0 * half * (found.w / found.theta)
        answer = WorstCase(
            self._spread_out(found.p),
            top + 2.0 * half * value,
            top + 2.0 * half * (value + gap),
            2.0 * half * gap,
            self._off(found),
            self._named(eta, y),
            "closed-form",
            rounds,
        )
        rounding = ULPS / np.finfo(float).eps * float(np.spacing(np.abs(f).max())) / (2.0 * half)
        answer.unproved = () if keeps_promise(gap, answer.violation, 1.0, rounding) else (0,)
        return answer

    def _spread_out(self, p: Array) -> Array:
        whole = np.zeros(self.inside.size)
        whole[self.inside] = p
        return whole

    def _off(self, tilt: Tilt) -> float:
        """The violation of p."""
        rows = np.maximum(self._D @ tilt.p - self._c, 0.0)
        missed = np.where(self._is_equation, np.abs(self._D @ tilt.p - self._c), rows)
        scale = np.maximum(1.0, np.abs(self._c * self._units)) / self._units
        excess = (tilt.divergence - self._radius) / max(1.0, self._radius)
        return max(float((missed / scale).max(initial=0.0)), abs(float(tilt.p.sum()) - 1.0), excess, 0.0)

    def _named(self, eta: float, y: Array) -> dict[str, float | Array]:
        """The multipliers of the ball and of all rows as given."""
        whole = np.zeros(self._count)
        whole[self._first] = np.where(self._is_equation, np.maximum(y, 0.0), y) / self._units
        opposite = np.maximum(-y, 0.0) / self._second_units  # which may be given in another unit
        whole[self._second[self._is_equation]] = opposite[self._is_equation]
        return {"eta": eta, "y": whole}

    def _start(self, g: Array, spread: float, warm_start: WorstCase | None) -> tuple[float, Array]:
        """θ and w to begin with: from an earlier answer if it fits, else from the curvature at θ = 0."""
        if warm_start is not None:
            eta, y = (np.asarray(warm_start.dual.get(key, np.nan), dtype=float) for key in ("eta", "y"))
            if eta.ndim == 0 and y.shape == (self._count,) and 0.0 < eta < np.inf and np.isfinite(y).all():
                opposite = np.where(self._is_equation, y[self._second] * self._second_units, 0.0)
                net = y[self._first] * self._units - opposite
                return min(spread / float(eta), HIGHEST), net / float(eta)
        base = self._at_center
        variance = _unexplained(base.p, g, self._D[(base.w > 0.0) | self._is_equation])
        theta = float(np.sqrt(2.0 * (self._radius - base.divergence) / max(variance, 1e-24)))
        return min(theta, HIGHEST), base.w

    def _search(self, g: Array, theta: float, w: Array) -> tuple[Tilt, int]:
        """The tilt whose divergence is the radius, and the number of values of θ that were tried."""
        least = self._at_center.divergence
        below, above, reach = 0.0, np.inf, np.inf
        best: Tilt | None = None
        for rounds in range(1, ROUNDS + 1):
            tilt = self._balance(theta, g, w)
            off = tilt.divergence - self._radius
            if tilt.residual > NEARLY and best is not None and best.theta < theta and above == np.inf:
                # Too far from where its multipliers came from: this divergence says nothing.
                reach = np.sqrt(theta / best.theta)
                if reach <= 1.01:
                    break
                w, theta = best.w * reach, float(best.theta * reach)
                continue
            if abs(off) <= max(min(AIM * self._radius, 1e-11 * theta), 3e-16 * self._radius):
                return tilt, rounds
            if off <= OVER * self._radius and tilt.residual <= NEARLY:
                best = tilt if best is None or theta > best.theta else best
            below, above = (below, theta) if off > 0.0 else (theta, above)
            # Newton on √(D - least), whose slope in θ is θ·variance/2√(D - least).
            root, aim = np.sqrt(max(tilt.divergence - least, 0.0)), np.sqrt(self._radius - least)
            slope = theta * tilt.variance
            step = theta - 2.0 * root * (root - aim) / slope if slope > 0.0 else np.nan
            if not below < step < above:
                step = 4.0 * theta if above == np.inf else np.sqrt(max(below, 1e-3 * above) * above)
            step = min(step, reach * theta)
            if step == theta or step > HIGHEST or above <= below * (1.0 + 1e-15):
                break
            w, theta = tilt.w * (step / theta), float(step)
        return best if best is not None else tilt, rounds

    def _balance(self, theta: float, g: Array, w: Array) -> Tilt:
        """The tilt at this θ with the best multipliers of the rows, by projected Newton steps from w."""
        w = np.where(self._is_equation, w, np.maximum(w, 0.0))
        p, log_weight, objective = self._at(theta, g, w)
        before = np.inf
        for _ in range(STEPS):
            gradient = self._c - self._D @ p
            free = self._is_equation | (w > 0.0) | (gradient < 0.0)
            residual = float(np.abs(gradient[free]).max(initial=0.0))
            if residual <= EXACT or (residual <= NEARLY and residual > 0.5 * before):
                break
            before = residual
            if theta == 0.0:
                self._check_not_empty(-objective)
            direction = np.zeros(w.size)
            direction[free] = -_solve(_covariance(p, self._D[free]), gradient[free])
            if not np.abs(direction).max() < FAR:
                break
            moved = self._line_search(theta, g, w, direction, gradient, objective)
            if moved is None:
                break
            w, (p, log_weight, objective) = moved
        if theta == 0.0:
            self._check_not_empty(-objective)
        gradient = self._c - self._D @ p
        active = self._is_equation | (w > 0.0)
        residual = float(np.max(np.where(active, np.abs(gradient), np.maximum(-gradient, 0.0)), initial=0.0))
        x = theta * g - w @ self._D - log_weight
        divergence = float(p @ x - self._q @ np.expm1(np.minimum(x, 700.0)))
        variance = _unexplained(p, g, self._D[active])
        return Tilt(theta, w, p, log_weight, divergence, variance, residual, float(w @ gradient))

    def _at(self, theta: float, g: Array, w: Array) -> tuple[Array, float, float]:
        """p, log Σ q·exp(θg - Dᵀw), and that plus cᵀw, which w minimises."""
        x = theta * g - w @ self._D
        top = float(x.max())
        weights = self._q * np.exp(x - top)
        total = float(weights.sum())
        log_weight = float(np.log(total)) + top
        return weights / total, log_weight, log_weight + float(w @ self._c)

    def _line_search(
        self, theta: float, g: Array, w: Array, direction: Array, gradient: Array, objective: float
    ) -> tuple[Array, tuple[Array, float, float]] | None:
        """The first of the steps 1, ½, ¼, … along the projected direction that descends enough."""
        step = 1.0
        for _ in range(HALVINGS):
            trial = w + step * direction
            trial = np.where(self._is_equation, trial, np.maximum(trial, 0.0))
            found = self._at(theta, g, trial)
            enough = 1e-4 * float(gradient @ (trial - w))
            if found[2] <= objective + enough + 4e-16 * (1.0 + abs(objective)):
                return trial, found
            step *= 0.5
        return None

    def _check_not_empty(self, least: float) -> None:
        """Raise if this bound on the divergence of every p with D p <= c is beyond the radius."""
        if least > self._radius * (1.0 + SLACK) + 1e-12:
            raise EmptySet(
                f"the intersection is empty: every distribution that satisfies the linear rows has a "
                f"divergence of at least {least:.6g} from the centre, and the radius is {self._radius:.6g}"
            )


class TiltedRows:
    """The same with a ball for each row of a batch, or one for all.

    Args:
        balls: the rows' sets.
        ball: the ball alone.
        linear: D p <= c alone.
    """

    def __init__(
        self,
        balls: Sequence[TiltedBall],
        ball: UncertaintySet,
        linear: Polyhedron,
    ) -> None:
        self._balls, self._ball, self._linear = balls, ball, linear

    def without_ball(self, losses: Array) -> WorstCase | None:
        """The answer of the rows on the support alone, if it is in the ball, which then does not matter."""
        inside, linear = self._balls[0].inside, self._linear
        if not inside.all():
            linear = type(linear)(linear.D[:, inside], linear.c)
        found = linear.worst_case(losses[inside])
        p = np.zeros(losses.size)
        p[inside] = found.p
        if not self._ball.contains(p, tol=FEASIBLE):
            return None
        found.p, found.dual = p, {"eta": 0.0, **found.dual}
        return found

    def reference(self) -> Array:
        """The distributions nearest to the centres, (1 or B, N)."""
        return np.array([ball.reference() for ball in self._balls])

    def worst_case(self, losses: Array, warm_start: WorstCase | None, out: Array | None) -> WorstCase:
        """The answers to one loss vector or a batch."""
        reject_not_finite(losses)
        if losses.ndim == 1:
            answer = self._balls[0].worst_case(losses, warm_start)
        else:
            many = len(self._balls) > 1
            each = [
                self._balls[b if many else 0].worst_case(row, row_of(warm_start, b))
                for b, row in enumerate(losses)
            ]
            answer = stack(each)
            answer.unproved = tuple(b for b, one in enumerate(each) if one.unproved)
        if out is not None:
            np.copyto(out, answer.p)
            answer.p = out
        return answer


def row_of(answer: WorstCase | None, row: int) -> WorstCase | None:
    """The multipliers of one row of an earlier batch; those of a single answer serve all rows."""
    if answer is None or answer.p.ndim == 1:
        return answer
    if row >= len(answer.p):
        return None
    dual = {key: np.asarray(each)[row] for key, each in answer.dual.items()}
    return WorstCase(answer.p[row], 0.0, 0.0, 0.0, 0.0, dual, answer.backend, 0)


def _needed(D: Array, c: Array) -> NDArray[np.bool_]:
    """The rows without those of zeros that always hold, and without those that another makes superfluous.

    Of parallel rows the covariance is singular, and Newton's method has no direction that serves both.
    """
    size = np.abs(D).max(axis=1, initial=0.0)
    kept: NDArray[np.bool_] = (size > 0.0) | (c < 0.0)
    unit = np.where(size > 0.0, size, 1.0)
    rows, right, places = D / unit[:, None], c / unit, np.arange(len(c))
    for k in np.flatnonzero(kept & (size > 0.0)):
        same = np.abs(rows - rows[k]).max(axis=1) <= EQUAL
        kept &= ~(same & ((right > right[k]) | ((right == right[k]) & (places > k))))
    return kept


def _paired(D: Array, c: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The rows to keep, and for each the row that makes it an equation, or -1: D_j = -D_i with c_j = -c_i.

    Up to rounding, since they may be given in different units: as inequalities they leave no room.
    """
    rows = np.column_stack([D, c])
    kept = np.ones(len(rows), dtype=bool)
    partner = np.full(len(rows), -1, dtype=np.intp)
    for k, row in enumerate(rows):
        waiting = np.flatnonzero(kept[:k] & (partner[:k] < 0))
        near = np.abs(rows[waiting] + row).max(axis=1, initial=0.0) <= EQUAL
        if near.any():
            partner[waiting[near.argmax()]], kept[k] = k, False
    return np.flatnonzero(kept), partner[kept]


def _covariance(p: Array, D: Array) -> Array:
    """The covariance of the rows of D under p."""
    about = D - (D @ p)[:, None]
    covariance: Array = (about * p) @ about.T
    return covariance


def _solve(H: Array, right: Array) -> Array:
    """H⁻¹·right, for a covariance that may be singular."""
    ridge = 1e-15 * max(float(np.trace(H)), np.finfo(float).tiny)
    return np.asarray(np.linalg.lstsq(H + ridge * np.eye(len(H)), right, rcond=None)[0], dtype=np.float64)


def _unexplained(p: Array, g: Array, D: Array) -> float:
    """The variance of g under p that remains after a regression on the rows of D."""
    about = g - p @ g
    total = float(p @ about**2)
    if not len(D):
        return total
    with_rows = (D * p) @ about
    return max(total - float(with_rows @ _solve(_covariance(p, D), with_rows)), 0.0)
