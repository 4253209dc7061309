"""Transport distances on a line, measured from a distribution and not from the plan that made it.

The sums run from both ends to the middle of the mass, so that a difference is as exact as the mass
beyond it is small. p itself is rounded: SUMMED of that mass does not count as moved.
"""

from __future__ import annotations

from uncertainty_sets.arrays import Array, Vector
from uncertainty_sets.kernels.jit import entry, kernel, strict
from uncertainty_sets.kernels.scan import larger, smaller
from uncertainty_sets.kernels.wasserstein_envelope import length

SUMMED = 4 * 2.0**-53  # rounding of an entry of p, which is a sum of two products


@strict
def first_order(x: Array, q: Array, p: Array) -> float:
    """The distance of order 1: ∫|P - Q| of the sums, whose rounding errors are summed along."""
    found, middle = 0.0, 0
    for side in (1, -1):
        ahead, error, mass = 0.0, 0.0, 0.0
        i, last = (0, q.size - 1) if side > 0 else (q.size - 1, middle)
        while i != last:
            mass += larger(p[i], q[i])
            if side > 0 and mass > 0.5:
                break
            term = p[i] - q[i]
            further = ahead + term
            rounded = further - ahead
            error += (ahead - (further - rounded)) + (term - rounded)
            ahead = further
            found += larger(0.0, abs(ahead + error) - SUMMED * mass) * abs(x[i + side] - x[i])
            i += side
        middle = i
    return found


@strict
def from_one_end(
    x: Array, q: Array, p: Array, power: float, middle: int, side: int
) -> tuple[float, float, int, float]:
    """Move the mass of q before the entry `middle` to the first of p's mass, seen from one end.

    Returns the cost beyond rounding, the mass, the place of p that was reached and what is left there. Mass
    that rounding has put on the wrong side of a gap costs the difference between both sides of it.
    """
    n = q.size
    i = 0 if side > 0 else n - 1
    place, left, mass, cost, forgiven = i, p[i], 0.0, 0.0, 0.0
    while i != middle:
        need = q[i]
        while need > 0.0:
            if left <= 0.0:
                further = place + side
                while further >= 0 and further < n and p[further] <= 0.0:
                    further += side
                if further < 0 or further >= n:
                    break  # p has less mass than q
                apart = length(abs(x[further] - x[i]), power) - length(abs(x[place] - x[i]), power)
                forgiven += SUMMED * mass * abs(apart)
                place, left = further, p[further]
            moved = smaller(need, left)
            cost += moved * length(abs(x[place] - x[i]), power)
            need -= moved
            left -= moved
            mass += moved
        i += side
    return cost - forgiven, mass, place, left


@strict
def any_order(x: Array, q: Array, p: Array, power: float) -> float:
    """Σ distance^power of the plan that keeps the order of the mass, which is the best one."""
    n = q.size
    # 1. From both ends to the entry at the middle of q's mass.
    middle, mass = 0, q[0]
    while mass <= 0.5 and middle < n - 1:
        middle += 1
        mass += q[middle]
    before, ahead, first, left = from_one_end(x, q, p, power, middle, 1)
    after, behind, last, right = from_one_end(x, q, p, power, middle, -1)
    cost = before + after
    # 2. What is left of p comes from the middle.
    if first == last:
        rest = larger(0.0, left + right - p[first])
        return larger(0.0, cost + rest * length(abs(x[first] - x[middle]), power))
    for i in range(first + 1, last + 1):
        behind += right if i == last else p[i]
    place = first
    for i in range(first, last + 1):
        mass = left if i == first else right if i == last else p[i]
        if mass > 0.0:
            here, there = length(abs(x[i] - x[middle]), power), length(abs(x[place] - x[middle]), power)
            cost += mass * here - SUMMED * smaller(ahead, larger(behind, 0.0)) * abs(here - there)
            place = i
        ahead += mass
        behind -= mass if i > first else 0.0
    return larger(0.0, cost)


@entry()
@kernel
def distance(x: Vector, q: Vector, p: Vector, power: float) -> float:
    """The least Σ distance^power of a plan from q to p beyond the rounding of p; positions x ascend."""
    return first_order(x, q, p) if power == 1.0 else any_order(x, q, p, power)
