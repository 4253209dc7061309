"""Powers of cvxpy expressions as second-order cones.

`cvxpy.power` writes the same cones, but cvxpy 1.8 and later warn if there are more than four of them and the
solver has a power cone, which the backends here do not use.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import cvxpy

DENOMINATOR = 1024
"""The largest denominator of a power; another power is replaced by the nearest such fraction."""


def power_cones(base: cvxpy.Expression, power: float, bound: cvxpy.Expression) -> list[cvxpy.constraints.SOC]:
    """bound >= base**power by entries, or bound <= base**power if the power is between 0 and 1.

    >>> import cvxpy
    >>> x, t = cvxpy.Variable(2), cvxpy.Variable(2)
    >>> problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum(t)), [*power_cones(x, -0.7, t), x == [1, 2]])
    >>> round(float(problem.solve()), 5)  # 1 + 2**-0.7
    1.61557
    """
    k = Fraction(power).limit_denominator(DENOMINATOR)
    n, d = abs(k.numerator), k.denominator
    one = np.ones(base.shape)
    if k > 1:  # base^n <= bound^d
        return _below_mean(base, [(bound, d), (one, n - d)], n)
    if k > 0:  # bound^d <= base^n
        return _below_mean(bound, [(base, n), (one, d - n)], d)
    return _below_mean(one, [(base, n), (bound, d)], n + d)


def _below_mean(
    least: cvxpy.Expression, factors: list[tuple[cvxpy.Expression, int]], total: int
) -> list[cvxpy.constraints.SOC]:
    """least^total <= the product of factors to their weights, which sum to `total`.

    With least^(2^m - total) on both sides the weights sum to a power of two: then square roots give the mean.
    """
    whole = 1 << (total - 1).bit_length()
    cones: list[cvxpy.constraints.SOC] = []
    left, right = _halves([*factors, (least, whole - total)], whole)
    cones.append(_root(least, _mean(left, whole // 2, cones), _mean(right, whole // 2, cones)))
    return cones


def _mean(
    factors: list[tuple[cvxpy.Expression, int]], total: int, cones: list[cvxpy.constraints.SOC]
) -> cvxpy.Expression:
    """An expression that is at most the weighted geometric mean; `total` is a power of two."""
    import cvxpy

    if len(factors) == 1:
        return factors[0][0]
    left, right = _halves(factors, total)
    mean = cvxpy.Variable(factors[0][0].shape)
    cones.append(_root(mean, _mean(left, total // 2, cones), _mean(right, total // 2, cones)))
    return mean


def _halves(
    factors: list[tuple[cvxpy.Expression, int]], total: int
) -> tuple[list[tuple[cvxpy.Expression, int]], list[tuple[cvxpy.Expression, int]]]:
    """Two products with half of the weight each, the largest weights first: a half of one factor is free."""
    left, right, room = [], [], total // 2
    for factor, weight in sorted(factors, key=lambda each: -each[1]):
        part = min(weight, room)
        room -= part
        if part:
            left.append((factor, part))
        if weight > part:
            right.append((factor, weight - part))
    return left, right


def _root(least: cvxpy.Expression, a: cvxpy.Expression, b: cvxpy.Expression) -> cvxpy.constraints.SOC:
    """least² <= a·b with a, b >= 0."""
    import cvxpy

    return cvxpy.SOC(a + b, cvxpy.vstack([a - b, 2.0 * least]), axis=0)
