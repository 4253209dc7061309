"""Newton's method on the minimax problem, for models with a curvature.

    minimise over w    max over p in P of Σ_g p_g f_g(w)  +  l2/2·‖w‖²

With f_g replaced by its tangent, and Σ_g p_g f_g + l2/2·‖w‖² bent by its Hessian H, the step s and the new p
are the saddle point of

    pᵀ(f + Jᵀs) + ½ sᵀHs + l2·wᵀs:     p  maximises  cᵀp - ½ pᵀKp  over P,   K = JᵀH⁻¹J,   c = f - JᵀH⁻¹l2·w,

and s = -H⁻¹(Jp + l2·w). So kinks of the worst case are met exactly, and near the minimum every step squares
the distance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from fdro_core.estimators.curvature import Point
from uncertainty_sets.arrays import Array
from uncertainty_sets.projection import Projection

if TYPE_CHECKING:
    from fdro_core.estimators.central import Look, Search

MOST_STEPS = 60  # of Newton's method: it stops far earlier, or makes no progress
MOST_CALLS = 200  # of the oracle, for one saddle point
FLOOR = 1e-4  # of a group's fair share: the least weight of its curvature
SHORTEST = 1e-5  # the step at which the search along a direction gives up
ENOUGH = 1e-2  # of the decrease that the tangents promise


class Saddle:
    """p in P with the largest cᵀp - ½‖Mp‖²; what it knows of P is kept from call to call."""

    def __init__(self, oracle: Any, member: Array) -> None:
        self.oracle, self.mix = oracle, Projection(oracle, member, MOST_CALLS, np.zeros((1, member.size)))

    def solve(self, c: Array, factor: Array, tolerance: float) -> Array:
        """p, up to that much of the largest value."""
        # 1. Without the set but Σp = 1, which is all if it is inside: no vertex of P would be near.
        size = c.size
        K = factor.T @ factor
        scale = float(K.trace()) / size
        plane = np.zeros((size + 1, size + 1))
        plane[:-1, :-1], plane[:-1, -1], plane[-1, :-1] = K, scale, scale
        free = np.linalg.lstsq(plane, np.append(c, scale), rcond=1e-13)[0][:-1]
        if free.min() >= 0.0 and self.oracle.contains(free / free.sum(), tol=1e-12):
            return np.asarray(free / free.sum())
        # 2. As a mix of points of P.
        self.mix.change_metric(factor)
        return self.mix.nearest(c, tolerance)


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
