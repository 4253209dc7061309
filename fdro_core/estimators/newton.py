"""Newton's method on the minimax problem, for models with a curvature.

    minimise over w    max over p in P of Σ_g p_g f_g(w)  +  l2/2·‖w‖²

With f_g replaced by its tangent, and Σ_g p_g f_g + l2/2·‖w‖² bent by its Hessian H, the step s and the new p
are the saddle point of

    pᵀ(f + Jᵀs) + ½ sᵀHs + l2·wᵀs:     p  maximises  cᵀp - ½ pᵀKp  over P,   K = JᵀH⁻¹J,   c = f - JᵀH⁻¹l2·w,

and s = -H⁻¹(Jp + l2·w). So kinks of the worst case are met exactly, and near the minimum every step squares
the distance.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular

from fdro_core.estimators.curvature import Point, hessian_rows
from fdro_core.estimators.groups import Grouped
from fdro_core.problems.kernels import ABSOLUTE, SMOOTHED
from uncertainty_sets import Box, CVaR
from uncertainty_sets.arrays import Array
from uncertainty_sets.derivatives import face_of
from uncertainty_sets.errors import BackendUnsuitable, InvalidInput
from uncertainty_sets.projection import Projection

if TYPE_CHECKING:
    from fdro_core.estimators.central import Look, Search
    from uncertainty_sets.face import Face

MOST_STEPS = 60  # of Newton's method: it stops far earlier, or makes no progress
MOST_HALVINGS = 8  # of steps one after the other: where all are too long, L-BFGS is better
MOST_GROUPS = 300  # for which matrices of their number are made
MOST_CALLS = 200  # of the oracle, for one saddle point
FLOOR = 1e-4  # of a group's fair share: the least weight of its curvature
SHORTEST = 1e-6  # the step at which the search along a direction gives up
ENOUGH = 1e-2  # of the decrease that the tangents promise
ULPS = 1e-13  # of the objective: what rounding may add to it

LARGEST = 2000  # rows of a Hessian
MOST_GRADIENTS = 2 * 10**7  # numbers in the Jacobian of all groups
STEPS, STEPS_BY_SAMPLES = 6, 15  # that a fit takes to a relative gap of 1e-6, of sets with corners by samples
SMOOTH_PASSES, CORNER_PASSES = 30, 80  # in which L-BFGS may be done: for fewer it is not begun


def suits(groups: Any, l2: float) -> bool:
    """Whether Newton's method can do with the model: it needs a curvature and matrices of moderate size."""
    if not isinstance(groups, Grouped) or groups.kind in {ABSOLUTE, SMOOTHED} or l2 <= 0.0:
        return False
    gradients = 0 if groups.alone else groups.sizes.size * groups.dimension
    return groups.dimension <= LARGEST and gradients <= MOST_GRADIENTS


def patience(search: Search, start: Array | None) -> int:
    """As many passes of L-BFGS as Newton's method costs: 0 if L-BFGS would hardly be done in so few.

    L-BFGS for so long and Newton's method after it take at most twice the time of the better one. The costs
    are measured ones in ns, for a core that multiplies and adds 16 numbers in one (`python -m bench fits`).
    """
    groups = search.groups
    assert isinstance(groups, Grouped)
    corners = has_corners(first_look(search, start).answer)
    samples, size, outputs = groups.group.size, groups.dimension, groups.outputs
    numbers = groups.X.nnz if groups.sparse else groups.X.size
    rows = min(samples, hessian_rows(groups))
    per_sample = 20.0 * samples if groups.alone else 4.0 * samples
    one_pass = (2.0 if groups.sparse else 0.55) * numbers * outputs + per_sample + 1.2e5
    product = rows * size**2 / 32.0
    filled = 2.0 * rows * size if groups.sparse else 0.0
    step = product + filled + size**3 / 48.0 + 2.0 * one_pass + per_sample + 1e6
    steps = STEPS_BY_SAMPLES if corners and groups.alone else STEPS
    passes = int(steps * step / one_pass)
    return 0 if passes <= (CORNER_PASSES if corners else SMOOTH_PASSES) else passes


def minimise(search: Search, start: Array | None) -> None:
    """Newton's method from `start` or 0, until the gap is proved or no step gets lower."""
    assert isinstance(search.groups, Grouped)
    groups = search.groups
    look = first_look(search, start)
    many = groups.alone or (look.losses.size > MOST_GROUPS and not has_corners(look.answer))
    with suppress(np.linalg.LinAlgError):  # features of 1e200: L-BFGS says more, if it fails too
        (by_samples if many else by_groups)(search, look, start is None)


def first_look(search: Search, start: Array | None) -> Look:
    """At `start` or 0."""
    return search.look(np.zeros(search.groups.dimension) if start is None else start)


def has_corners(answer: Any) -> bool:
    """Whether the worst case stays where it is for most moves of the losses, or nobody knows how it moves."""
    face = face_or_none(answer)
    return face is None or bool(face.stiff)


def face_or_none(answer: Any) -> Face | None:
    """How the worst case moves with the losses, if that is known."""
    try:
        with np.errstate(divide="ignore", invalid="ignore"):  # a radius of 0 has the multiplier inf
            return face_of(answer)
    except (BackendUnsuitable, InvalidInput):
        return None


# -- a few groups ---------------------------------------------------------------------------------------


class Saddle:
    """p in P with the largest cᵀp - ½‖Mp‖²; what it knows of P is kept from call to call."""

    def __init__(self, oracle: Any, member: Array) -> None:
        self.oracle, self.p = oracle, member
        self.mix = Projection(oracle, member, MOST_CALLS, np.zeros((1, member.size)))

    def solve(self, c: Array, factor: Array, tolerance: float) -> Array:
        """p, up to that much of the largest value."""
        found = None
        if c.size <= MOST_GROUPS:
            K = factor.T @ factor
            found = self._inside(c, K, tolerance)
            if found is None:
                found = self._curved(c, K, tolerance)
        if found is None:
            self.mix.change_metric(factor)
            found = self.mix.nearest(c, tolerance)
        self.p = found
        return found

    def _inside(self, c: Array, K: Array, tolerance: float) -> Array | None:
        """The largest value on the simplex, if it is in P: oracles answer with points of P's surface.

        Entries that get negative without the bounds are dropped, which is right if the bound holds after it.
        """
        p, kept = np.zeros(c.size), np.arange(c.size)
        while True:
            size, part = kept.size, K[np.ix_(kept, kept)]
            scale = max(float(part.trace()) / size, 1e-300)
            plane = np.full((size + 1, size + 1), scale)
            plane[:-1, :-1], plane[-1, -1] = part, 0.0
            plane.flat[: -size - 1 : size + 2] += 1e-13 * scale
            found = np.linalg.solve(plane, np.append(c[kept], scale))[:-1]
            if found.min() >= 0.0:
                break
            kept = kept[found > 0.0]
        p[kept] = found / found.sum()
        towards = c - K @ p
        above = float(self.oracle.worst_case(towards).upper_bound - p @ towards)
        return p if above <= tolerance and self.oracle.contains(p, tol=1e-12) else None

    def _curved(self, c: Array, K: Array, tolerance: float) -> Array | None:
        """Newton's method on σ(c - Ky) + ½yᵀKy, whose least value is the largest sought; None for kinks.

        σ is the worst case of P, and its second derivative how p moves with the losses.
        """
        y, best, value = self.p, self.p, float(c @ self.p - 0.5 * self.p @ K @ self.p)
        answer = self.oracle.worst_case(c - K @ y)
        for _ in range(MOST_STEPS):
            q, bend = answer.p, 0.5 * float(y @ K @ y)
            here = float(c @ q - 0.5 * q @ K @ q)
            if here > value:
                best, value = q, here
            if answer.upper_bound + bend - value <= tolerance:
                return best
            face = face_or_none(answer)
            if face is None or face.stiff or not np.any(face.S1):
                return None
            step = np.linalg.solve(np.eye(c.size) + face.apply(np.eye(c.size)) @ K, q - y)
            slope, length = float((y - q) @ K @ step), 1.0
            start = answer.value + bend
            while True:
                z = y + length * step
                new = self.oracle.worst_case(c - K @ z)
                if new.value + 0.5 * z @ K @ z <= start + 1e-4 * length * slope + 1e-15 * abs(start):
                    break
                length *= 0.5
                if length < SHORTEST:
                    return None
            y, answer = z, new
        return None


def by_groups(search: Search, look: Look, at_zero: bool) -> None:
    """Newton's method by the saddle points of the module's docstring."""
    p = search.reference if at_zero else look.answer.p
    saddle, halvings = Saddle(search.oracle, p), 0
    for _ in range(MOST_STEPS):
        w, losses, at = look.w, look.losses, look.pull
        assert isinstance(at, Point)
        # 1. The model at w.
        root = factored(at.hessian(np.maximum(p, FLOOR / p.size)), search.l2)
        J, ridge = at.jacobian(), search.l2 * w
        factor = solve_triangular(root, J, lower=True, check_finite=False)
        pull = solve_triangular(root, ridge, lower=True, check_finite=False)
        # 2. Its saddle point, of which p is a proof for the problem itself.
        c, tolerance = losses - factor.T @ pull, 1e-3 * search.target
        p = saddle.solve(c, factor, tolerance)
        gradient, expected = J @ p + ridge, float(p @ losses)
        search.prove(min(expected, look.bound) + look.ridge, gradient, p, look.value - expected)
        image = factor @ p + pull
        promised = look.value - expected + 0.5 * float(image @ image)  # by which the objective should fall
        # 3. As far along the step as the objective falls.
        step, length = -cho_solve((root, True), gradient, check_finite=False), 1.0
        while True:
            new = search.look(w + length * step)
            least = look.objective - ENOUGH * length * max(promised, 0.0) + ULPS * abs(look.objective)
            if new.objective <= least:
                break
            if length == 1.0:
                # The losses at the end of the step, instead of their tangents: a second-order correction.
                other = saddle.solve(new.losses - J.T @ step - factor.T @ pull, factor, tolerance)
                again = -cho_solve((root, True), J @ other + ridge, check_finite=False)
                new = search.look(w + again)
                if new.objective <= least:
                    break
            length, halvings = 0.5 * length, halvings + 1
            if length < SHORTEST or halvings > MOST_HALVINGS:
                return
        look, halvings = new, 0 if length == 1.0 else halvings


def factored(H: Array, l2: float) -> Array:
    """The lower Cholesky factor of H + l2·I."""
    H.flat[:: len(H) + 1] += l2 + 1e-12 * H.trace() / len(H)
    root: Array = cholesky(H, lower=True, overwrite_a=True, check_finite=False)
    return root


# -- a group for each sample, or many -------------------------------------------------------------------


class Local(NamedTuple):
    """A function of the losses at one point: its value and gradient p.

    Its Hessian is S - S1 1ᵀS/1ᵀS1 - S g gᵀS/gᵀS g for a diagonal S and g with gᵀS1 = 0; 0 for None.
    """

    value: float
    p: Array
    S: Array | None = None
    g: Array | None = None


class Worst:
    """The worst case itself."""

    def value(self, look: Look) -> float:
        """At these losses."""
        return look.value

    def local(self, look: Look) -> Local | None:
        """With its derivatives; None if they are not known."""
        face = face_or_none(look.answer)
        if face is None or face.stiff or callable(face.S):
            return None
        return Local(look.value, look.answer.p, *((face.S, face.g) if np.any(face.S) else ()))

    def follow(self, local: Local, look: Look, excess: float) -> bool:
        """Whether the function changed, because w is near its minimum up to `excess`."""
        return False


class Nominal(Worst):
    """The expected loss under the reference distribution."""

    def __init__(self, search: Search) -> None:
        self.reference = search.reference

    def value(self, look: Look) -> float:
        """At these losses."""
        return float(self.reference @ look.losses)

    def local(self, look: Look) -> Local:
        """With its derivatives."""
        return Local(self.value(look), self.reference)


class Softened(Worst):
    """The method of multipliers for boxes on the simplex: max over P of pᵀf - μ/2·‖p - p̂‖², and p̂ ← p."""

    def __init__(self, search: Search, look: Look, box: tuple[Array, Array]) -> None:
        self.target, self.center = search.target, look.answer.p
        self.nearest = search.oracle._projection()
        self.lower, self.upper = box
        size = max(float(look.losses.std()), 0.03 * float(np.abs(look.losses).max()), 1e-9)
        self.softness = 0.3 * size / float(self.upper.max())
        self.least = 1e-6 * self.softness  # hundreds of short rounds would take it to 0
        self.before = np.inf

    def value(self, look: Look) -> float:
        """At these losses."""
        return self.local(look).value

    def local(self, look: Look) -> Local:
        """With its derivatives: the entries between their bounds move."""
        p = self.nearest(self.center + look.losses / self.softness)
        move = p - self.center
        free = (p > self.lower + 1e-12 * self.upper) & (p < self.upper * (1.0 - 1e-12))
        value = float(p @ look.losses) - 0.5 * self.softness * float(move @ move)
        return Local(value, p, free / self.softness)

    def follow(self, local: Local, look: Look, excess: float) -> bool:
        """Move p̂ if w is as accurate as p̂, and soften less if that gained little."""
        gain = look.value - float(local.p @ look.losses)
        if excess > max(0.2 * gain, 0.05 * self.target):
            return False
        self.center = local.p
        if gain > 0.3 * self.before:
            self.softness = max(0.3 * self.softness, self.least)
        self.before = gain
        return True


def box_of(oracle: Any) -> tuple[Array, Array] | None:
    """The bounds of a set that is a box on the simplex; None for others."""
    if isinstance(oracle, CVaR):
        return np.zeros(oracle.center.size), np.minimum(oracle.center / oracle.tail, 1.0)
    if isinstance(oracle, Box):
        return np.maximum(oracle.lower, 0.0), np.minimum(oracle.upper, 1.0)
    return None


def by_samples(search: Search, look: Look, at_zero: bool) -> None:
    """Newton's method on w ↦ max over p in P of Σ p_i ℓ_i(w).

    From 0 the first step is for the reference distribution: all losses may be equal there.
    """
    box, halvings = box_of(search.oracle), 0
    if has_corners(look.answer) and box is None:
        return
    worst = Nominal(search) if at_zero else Worst()
    for _ in range(MOST_STEPS):
        local = worst.local(look)
        if local is None:
            if box is None:
                return
            worst = Softened(search, look, box)
            local = worst.local(look)
        w, at = look.w, look.pull
        assert isinstance(at, Point)
        gradient, expected = at(local.p) + search.l2 * w, float(local.p @ look.losses)
        proved = min(expected, look.bound) + look.ridge
        excess = search.prove(proved, gradient, local.p, look.value - expected)
        if worst.follow(local, look, excess) and (next_one := worst.local(look)) is not None:
            local, gradient = next_one, at(next_one.p) + search.l2 * w
        root = factored(at.hessian(local.p, local.S, local.g), search.l2)
        step = -cho_solve((root, True), gradient, check_finite=False)
        slope, length, start = float(gradient @ step), 1.0, local.value + look.ridge
        while True:
            new = search.look(w + length * step)
            if worst.value(new) + new.ridge <= start + 1e-4 * length * slope + ULPS * abs(start):
                break
            length, halvings = 0.5 * length, halvings + 1
            if length < SHORTEST or halvings > MOST_HALVINGS:
                return
        look, halvings = new, 0 if length == 1.0 else halvings
        if isinstance(worst, Nominal):
            worst = Worst()
