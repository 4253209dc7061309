"""Newton's method on the minimax problem, for models with a curvature.

    minimise over w    max over p in P of Σ_g p_g f_g(w)  +  l2/2·‖w‖²

With f_g replaced by its tangent, and Σ_g p_g f_g + l2/2·‖w‖² bent by its Hessian H, the step s and the new p
are the saddle point of

    pᵀ(f + Jᵀs) + ½ sᵀHs + l2·wᵀs:     p  maximises  cᵀp - ½ pᵀKp  over P,   K = JᵀH⁻¹J,   c = f - JᵀH⁻¹l2·w,

and s = -H⁻¹(Jp + l2·w). So kinks of the worst case are met exactly, and near the minimum every step squares
the distance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from fdro_core.estimators.curvature import Point
from uncertainty_sets import Box, CVaR
from uncertainty_sets.arrays import Array
from uncertainty_sets.derivatives import face_of
from uncertainty_sets.errors import BackendUnsuitable
from uncertainty_sets.projection import Projection

if TYPE_CHECKING:
    from fdro_core.estimators.central import Look, Search
    from uncertainty_sets.face import Face

MOST_STEPS = 60  # of Newton's method: it stops far earlier, or makes no progress
MOST_GROUPS = 300  # for which matrices of their number are made
MOST_CALLS = 200  # of the oracle, for one saddle point
FLOOR = 1e-4  # of a group's fair share: the least weight of its curvature
SHORTEST = 1e-5  # the step at which the search along a direction gives up
ENOUGH = 1e-2  # of the decrease that the tangents promise


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
            found = self._inside(c, K)
            if found is None:
                found = self._curved(c, K, tolerance)
        if found is None:
            self.mix.change_metric(factor)
            found = self.mix.nearest(c, tolerance)
        self.p = found
        return found

    def _inside(self, c: Array, K: Array) -> Array | None:
        """The largest value on the plane Σp = 1, if it is in P: oracles answer with points of P's surface."""
        size, scale = c.size, float(K.trace()) / c.size
        plane = np.full((size + 1, size + 1), scale)
        plane[:-1, :-1], plane[-1, -1] = K, 0.0
        p = np.linalg.lstsq(plane, np.append(c, scale), rcond=1e-13)[0][:-1]
        if p.min() < 0.0:
            return None
        p /= p.sum()
        return p if self.oracle.contains(p, tol=1e-12) else None

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
            face = smooth_face(answer)
            if face is None:
                return None
            step = np.linalg.solve(np.eye(c.size) + face.apply(np.eye(c.size)) @ K, q - y)
            slope, length = float((y - q) @ K @ step), 1.0
            while True:
                z = y + length * step
                new = self.oracle.worst_case(c - K @ z)
                if new.value + 0.5 * z @ K @ z <= answer.value + bend + 1e-4 * length * slope:
                    break
                length *= 0.5
                if length < SHORTEST:
                    return None
            y, answer = z, new
        return None


def smooth_face(answer: Any) -> Face | None:
    """How the worst case moves with the losses; None if it does not, or nobody knows."""
    try:
        face = face_of(answer)
    except BackendUnsuitable:
        return None
    return None if face.stiff or not np.any(face.S1) else face


def by_groups(search: Search, start: Array | None) -> None:
    """Newton's method from `start` or 0, until the gap is proved or no step gets lower."""
    w = np.zeros(search.groups.dimension) if start is None else start
    look = search.look(w)
    p, saddle = search.reference, Saddle(search.oracle, search.reference)
    for _ in range(MOST_STEPS):
        search.iterations += 1
        losses, at, ridge = look.losses, look.pull, look.ridge
        assert isinstance(at, Point)
        # 1. The model at w.
        H = at.hessian(np.maximum(p, FLOOR / p.size))
        H.flat[:: len(H) + 1] += search.l2 + 1e-12 * H.trace() / len(H)
        root, J = cho_factor(H, lower=True, overwrite_a=True, check_finite=False), at.jacobian()
        lower = np.tril(root[0])
        factor = solve_triangular(lower, J, lower=True, check_finite=False)
        pull = solve_triangular(lower, search.l2 * w, lower=True, check_finite=False)
        # 2. Its saddle point, of which p is a proof for the problem itself.
        c, tolerance = losses - factor.T @ pull, 1e-3 * search.target
        p = saddle.solve(c, factor, tolerance)
        gradient = J @ p + search.l2 * w
        search.prove(min(float(p @ losses), look.bound) + ridge, gradient, p, look.value - float(p @ losses))
        image = factor @ p
        promised = look.value - float(c @ p) + 0.5 * float(image @ image) + 0.5 * float(pull @ pull)
        # 3. As far along the step as the objective falls.
        step, length = -cho_solve(root, gradient, check_finite=False), 1.0
        while True:
            new = search.look(w + length * step)
            if new.objective <= look.objective - ENOUGH * length * max(promised, 0.0):
                break
            if length == 1.0:
                # The losses at the end of the step, instead of their tangents: a second-order correction.
                other = saddle.solve(new.losses - J.T @ step - factor.T @ pull, factor, tolerance)
                again = -cho_solve(root, J @ other + search.l2 * w, check_finite=False)
                corrected = search.look(w + again)
                if corrected.objective <= look.objective - ENOUGH * max(promised, 0.0):
                    new, step = corrected, again
                    break
            length *= 0.5
            if length < SHORTEST:
                return
        w, look = w + length * step, new


# -- a group for each sample, or many -------------------------------------------------------------------


class Local(NamedTuple):
    """A smooth function of the losses near the worst case: its value, gradient p, and Hessian.

    The Hessian is S - S1 1ᵀS/1ᵀS1 - S g gᵀS/gᵀS g for a diagonal S; 0 for None.
    """

    value: float
    p: Array
    S: Array | None = None
    g: Array | None = None


class Nominal:
    """The expected loss under the reference distribution."""

    def __init__(self, search: Search) -> None:
        self.reference = search.reference

    def value(self, look: Look) -> float:
        return float(self.reference @ look.losses)

    def local(self, look: Look) -> Local | None:
        return Local(self.value(look), self.reference)

    def follow(self, local: Local, look: Look, excess: float) -> bool:
        return False


class Smooth:
    """The worst case itself, of a set without corners there."""

    def value(self, look: Look) -> float:
        return look.value

    def local(self, look: Look) -> Local | None:
        face = smooth_face(look.answer)
        if face is None or callable(face.S):
            return None
        return Local(look.value, look.answer.p, face.S, face.g)

    def follow(self, local: Local, look: Look, excess: float) -> bool:
        return False


class Softened:
    """The method of multipliers for boxes: max over P of pᵀf - μ/2·‖p - p̂‖², and p̂ ← p now and then."""

    def __init__(self, search: Search, look: Look) -> None:
        self.search, self.center = search, look.answer.p
        self.nearest = search.oracle._projection()
        self.lower, self.upper = bounds(search.oracle)
        self.softness = 0.3 * float(look.losses.std()) / float(self.upper.max())
        self.before = np.inf
        self.rounds = 0

    def value(self, look: Look) -> float:
        p = self.nearest(self.center + look.losses / self.softness)
        move = p - self.center
        return float(p @ look.losses) - 0.5 * self.softness * float(move @ move)

    def local(self, look: Look) -> Local | None:
        p = self.nearest(self.center + look.losses / self.softness)
        move = p - self.center
        free = (p > self.lower + 1e-12 * self.upper) & (p < self.upper * (1.0 - 1e-12))
        value = float(p @ look.losses) - 0.5 * self.softness * float(move @ move)
        return Local(value, p, free / self.softness)

    def follow(self, local: Local, look: Look, excess: float) -> bool:
        """Move p̂ if w is as accurate as p̂; whether it moved."""
        gain = look.value - float(local.p @ look.losses)
        if excess > max(0.2 * gain, 0.05 * self.search.target):
            return False
        self.center = local.p
        self.rounds += 1
        if self.rounds > 1 and gain > 0.3 * self.before:
            self.softness *= 0.3
        self.before = gain
        return True


def bounds(oracle: Any) -> tuple[Array, Array] | None:
    """The bounds of a set that is a box on the simplex; None for others."""
    if isinstance(oracle, CVaR):
        return np.zeros(oracle.center.size), oracle.center / oracle.tail
    if isinstance(oracle, Box):
        return np.maximum(oracle.lower, 0.0), np.minimum(oracle.upper, 1.0)
    return None


def by_samples(search: Search, start: Array | None) -> None:
    """Newton's method on w ↦ max over p in P of Σ p_i ℓ_i(w), until its gap is proved or no step gets lower.

    The first step is for the reference distribution: at w = 0 all losses may be equal.
    """
    w = np.zeros(search.groups.dimension) if start is None else start
    look = search.look(w)
    worst: Nominal | Smooth | Softened = Nominal(search) if start is None else Smooth()
    for step_number in range(MOST_STEPS):
        search.iterations += 1
        local = worst.local(look)
        if local is None and bounds(search.oracle) is not None:
            worst = Softened(search, look)
            local = worst.local(look)
        if local is None:
            return
        at, gradient = look.pull, look.pull(local.p) + search.l2 * w
        assert isinstance(at, Point)
        expected = float(local.p @ look.losses)
        proved = min(expected, look.bound) + look.ridge
        excess = search.prove(proved, gradient, local.p, look.value - expected)
        if worst.follow(local, look, excess):
            local = worst.local(look)
            gradient = look.pull(local.p) + search.l2 * w
        H = at.hessian(local.p, local.S, local.g)
        H.flat[:: len(H) + 1] += search.l2 + 1e-12 * H.trace() / len(H)
        step = -cho_solve(cho_factor(H, lower=True, overwrite_a=True), gradient)
        slope, length = float(gradient @ step), 1.0
        while True:
            new = search.look(w + length * step)
            if worst.value(new) + new.ridge <= local.value + look.ridge + 1e-4 * length * slope:
                break
            length *= 0.5
            if length < SHORTEST:
                return
        w, look = w + length * step, new
        if step_number == 0 and isinstance(worst, Nominal):
            worst = Smooth()
