"""The point of a set nearest to a given one, in closed form, by a conic solver or by the oracle alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.conic.membership import projection_of
from uncertainty_sets.errors import EmptySet, InvalidInput, SolverFailed
from uncertainty_sets.kernels.layout import PROMISE

if TYPE_CHECKING:
    from uncertainty_sets.base import UncertaintySet

NEGLIGIBLE = 1e-13  # a weight that counts as zero
USABLE, FEASIBLE = (
    1e-6,
    1e-9,
)  # the largest gap, in units of the point's size, and violation that are returned
FAR, FARTHEST = 1e4, 1e15  # points for conic solvers; points beside which p still has a digit
EPS, LARGEST = 2.0**-52, 1e300
MOST_STEPS = 200


@dataclass(frozen=True)
class Nearest:
    """The point of a set nearest to a given vector, with its proof.

    Attributes:
        p: the nearest distribution, in the set up to `violation`.
        distance: the Euclidean distance ‖point - p‖.
        lower_bound: no distribution in the set is nearer than this, by the oracle's certified bound.
        gap: by how much half the squared distance may be above the least one: with d = point - p, the
            largest p'ᵀd over the set (an upper bound on it) minus pᵀd. Never clipped.
        violation: the largest residual of p over the simplex and the set's constraints.
        backend: "closed-form", "conic", or for a far point "oracle" or the worst case's own.
    """

    p: Array
    distance: float
    lower_bound: float
    gap: float
    violation: float
    backend: str


def project(subject: UncertaintySet, point: Array) -> Nearest:
    """Answer `UncertaintySet.project`."""
    size = float(np.abs(point).max())
    if size > LARGEST:
        raise InvalidInput(
            f"a point must have entries up to {LARGEST:g}, got one of {size:g}; divide by the size for a "
            "direction, and ask worst_case",
            parameter="point",
            value=point,
        )
    towards = point - point.mean()  # the same nearest point, without the digits that a constant takes
    far = float(np.abs(towards).max())
    exact = subject._projection() if far <= FARTHEST else None
    if exact is not None:
        found = _proved(subject, point, exact(towards), "closed-form")
        if _is_usable(found, far, PROMISE):
            return found
    best = _by_solver(subject, point) if far <= FAR else None
    if best is not None and _is_usable(best, far, USABLE):
        return best
    # Beside so large a point p hardly counts: the worst case, and some steps from there.
    start = subject.worst_case(towards)
    found = _proved(subject, point, start.p, start.backend)
    if far <= FARTHEST and found.gap > 64.0 * EPS * far:
        steps = Projection(subject, found.p, most=MOST_STEPS)
        steps.exact = None
        found = _proved(subject, point, steps.nearest(towards, 16.0 * EPS * far), "oracle")
    if not _is_usable(found, far, USABLE):
        raise SolverFailed(
            f"no usable projection onto {subject!r}: the best point has a gap of {found.gap:.2g} and a "
            f"violation of {found.violation:.2g}. Give a point nearer to the set, or constraints with "
            "numbers nearer to 1"
        )
    return found


def _by_solver(subject: UncertaintySet, point: Array) -> Nearest | None:
    """A conic solver's answer; None if it has none, or takes the set for empty, of which this is no proof.

    Where it is the centre up to a few ulp, which are no digits of the solver's, it becomes the centre:
    weights or distances of 1e20 and more magnify them to any size.
    """
    try:
        p = projection_of(subject, point)
        center = getattr(subject, "center", None)
        if isinstance(center, np.ndarray) and center.shape == p.shape:
            p = np.where(np.abs(p - center) <= 8.0 * EPS * center, center, p)
        return _proved(subject, point, p, "conic")
    except (SolverFailed, EmptySet):
        return None


def _proved(subject: UncertaintySet, point: Array, p: Array, backend: str) -> Nearest:
    towards = (point - point.mean()) - p  # Σ(p' - p) = 0: a constant changes nothing but the rounding
    answer = subject.worst_case(towards)
    size = max(float(np.abs(point).max()), 1.0)
    gap, far = float(answer.upper_bound - p @ towards), size * float(np.linalg.norm((point - p) / size))
    lower = max(0.0, far - max(gap, 0.0) / far) if far > 0.0 else 0.0
    return Nearest(p, far, lower, gap, subject.violation(p), backend)


def _is_usable(found: Nearest, far: float, gap: float) -> bool:
    """Whether the gap keeps that promise, in units of the distances, and p is in the set."""
    return abs(found.gap) <= gap * max(1.0, far) and found.violation <= FEASIBLE


def prox(subject: UncertaintySet, point: Array, step: float) -> Array:
    """Answer `UncertaintySet.prox`."""
    if not 0.0 < step < np.inf:
        raise InvalidInput(f"step must be positive and finite, got {step!r}", parameter="step", value=step)
    moved: Array = point - step * project(subject, point / step).p
    return moved


class Oracle(Protocol):
    """A convex set, by its worst case; a `_projection` as of `UncertaintySet` is used if there is one."""

    def worst_case(self, losses: Array) -> Any:
        """An answer whose `p` has the largest pᵀlosses."""
        ...


class Projection:
    """The nearest point in closed form if the set has one (`_projection`), else by Wolfe's method.

    Wolfe's method holds the nearest point as a mix of oracle answers, kept from call to call. Each step asks
    the oracle for the point of the set farthest towards the target, adds it to the mix, and finds the nearest
    point of the new mix; points that lose their weight are dropped. For a polytope it ends at the exact
    answer. A step costs an oracle call and O(k³ + kN) for k points in the mix.

    In another metric ‖Mp‖ it finds the p with the largest targetᵀp - ½‖Mp‖², and never in closed form.

    Args:
        oracle: the set.
        member: any point of it.
        most: steps in one call; the mix reached then is in the set, if not quite the nearest point.
        factor: M, with a column for each entry of p; None: the identity.

    >>> from uncertainty_sets import Polyhedron
    >>> anywhere = Polyhedron([[1.0, 0.0, 0.0]], [1.0])
    >>> Projection(anywhere, np.array([1.0, 0.0, 0.0])).nearest(np.array([0.5, 0.9, -1.0]), 1e-12).round(12)
    array([0.3, 0.7, 0. ])
    """

    def __init__(self, oracle: Oracle, member: Array, most: int = 25, factor: Array | None = None) -> None:
        self.oracle, self.most = oracle, most
        closed_form = getattr(oracle, "_projection", None) if factor is None else None
        self.exact = None if closed_form is None else closed_form()
        self.points = member[None, :].copy()
        self.weights = np.ones(1)
        self.change_metric(factor)

    def change_metric(self, factor: Array | None) -> None:
        """Go on from the same mix in the metric of another M."""
        self.factor = factor
        self.images = self._image(self.points)
        self.products = self.images @ self.images.T

    def _image(self, points: Array) -> Array:
        return points if self.factor is None else points @ self.factor.T

    def nearest(self, target: Array, tolerance: float) -> Array:
        """The nearest p: no point of the set has (point - p)ᵀ(target - p) above the tolerance."""
        if self.exact is not None:
            exact: Array = self.exact(target)
            return exact
        towards_points = self._correct(self.points @ target)
        for _ in range(self.most):
            p = self.weights @ self.points
            near = p if self.factor is None else (self.weights @ self.images) @ self.factor
            towards = target - near
            farthest = self.oracle.worst_case(towards).p
            if float((farthest - p) @ towards) <= tolerance:
                break
            if (np.abs(self.points - farthest).max(axis=1) < 1e-14).any():
                break  # rounding: it is in the mix already
            self._add(farthest)
            towards_points = self._correct(np.append(towards_points, farthest @ target))
        nearest: Array = self.weights @ self.points
        return nearest

    def _add(self, point: Array) -> None:
        image = self._image(point)
        column = self.images @ image
        self.products = np.block(
            [[self.products, column[:, None]], [column[None, :], np.array([[image @ image]])]]
        )
        self.points, self.images = np.vstack([self.points, point]), np.vstack([self.images, image])
        self.weights = np.append(self.weights, 0.0)

    def _correct(self, towards: Array) -> Array:
        """Move the weights to the nearest point of the mix, dropping points until all weights are positive.

        `towards` is points·target; returns its entries for the points that stay.
        """
        while True:
            free = _nearest_in_plane(self.products, towards)
            negative = free <= NEGLIGIBLE
            if not negative.any():
                self.weights = free / free.sum()
                return towards
            # From the old weights as far towards the free ones as all stay >= 0; drop those that are 0 there.
            fall = np.where(negative, self.weights - free, 0.0)
            limit = np.full(free.size, np.inf)
            np.divide(self.weights, fall, out=limit, where=fall > 0.0)
            limit[negative & (self.weights <= NEGLIGIBLE)] = 0.0
            step = min(1.0, float(limit.min()))
            mixed = self.weights + step * (free - self.weights)
            keep = mixed > NEGLIGIBLE
            keep[int(limit.argmin())] = False
            if not keep.any():
                keep[int(mixed.argmax())] = True
            self.points, self.images = self.points[keep], self.images[keep]
            self.products = self.products[np.ix_(keep, keep)]
            self.weights, towards = mixed[keep] / mixed[keep].sum(), towards[keep]


def _nearest_in_plane(products: Array, towards: Array) -> Array:
    """λ with Σλ = 1 that makes ‖λᵀpoints - target‖ least, from points·pointsᵀ and points·target."""
    size = towards.size
    if size == 1:
        return np.ones(1)
    scale = float(products.trace()) / size
    matrix = products + scale  # the same on Σλ = 1, and regular if the points' plane holds the origin
    matrix.flat[:: size + 1] += 1e-13 * scale
    both = np.linalg.solve(matrix, np.column_stack([towards, np.ones(size)]))
    weights: Array = both[:, 0] + (1.0 - both[:, 0].sum()) / both[:, 1].sum() * both[:, 1]
    return weights
