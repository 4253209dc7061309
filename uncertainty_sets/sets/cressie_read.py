"""CressieRead: distributions within a power divergence of a centre, for any power but 1."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.parameters import as_array
from uncertainty_sets.rows import CENTER, EACH_ROW, Along, Layout
from uncertainty_sets.sets._balls import KEYS, PowerBall

if TYPE_CHECKING:
    import cvxpy


MOST = 8.0  # of |power|: what the search is tested for
APART = 0.05  # from 0 and 1: nearer, φ is the small difference of large numbers


class CressieRead(PowerBall):
    """Distributions near a centre q in a power divergence:
    {p : Σ q·φ(p/q) <= radius, φ(t) = (tᵏ - kt + k - 1)/(k(k-1))}.

    k is the power, and φ''(1) = 1 for every k: 2 is half of `ChiSquare`'s divergence, ½ four times
    `Hellinger`'s, 0 is `Burg`'s, -1 half of Neyman's Σ(p-q)²/p. The limit 1 is `KL`, a set of its own.
    (Cressie and Read's λ is k - 1.)

    The worst case is p ∝ q·(1 + (k-1)(f-ν)/η)₊^{1/(k-1)}. For k > 1, p_i = 0 where q_i = 0; for k < 1 mass
    may go there. O(N): 3 to 12 passes, with exp and log per entry unless k is 0, ½, -1 or 2.

    ======  ===========================================================================
    dual    meaning
    ======  ===========================================================================
    margin  how far from max f the pole (k < 1: above) or the zero (k > 1: below max f
            over q > 0) of p/q is, in [0, ∞]; 0: only the largest losses count, or they
            have q = 0; ∞: radius 0, where p = q
    eta     multiplier of the radius, by which the bound grows with it
    ======  ===========================================================================

    With R = 1 + k(k-1)·radius and c = k/(k-1), Hölder's inequality gives the bound, for any margin m > 0:
    T - R^{1/k}·(Σ q·(T-f)^c)^{1/c} with T = max f + m if k < 1, and τ + R^{1/k}·(Σ q·(f-τ)₊^c)^{1/c} with
    τ = max f - m if k > 1 (Burg's for k = 0):

    >>> import numpy as np
    >>> f, q, radius, k = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.3, 0.2]), 0.1, 1.5
    >>> r = CressieRead(q, radius, power=k).worst_case(f)
    >>> r.p.round(4), round(r.value, 4)
    (array([0.3272, 0.2975, 0.3752]), 2.4232)
    >>> m, R, c = r.dual["margin"], 1 + k * (k - 1) * radius, k / (k - 1)
    >>> h = np.maximum(m - (f.max() - f), 0)
    >>> bound = f.max() - m + R ** (1 / k) * (q @ h**c) ** (1 / c)
    >>> round(float(bound), 6), round(r.upper_bound, 6)
    (2.423213, 2.423213)

    Args:
        center: probabilities, shape (N,), or (B, N) for one centre per batch row.
        radius: at least 0; a number, or shape (B,).
        power: k, between -8 and 8, not within 0.05 of 1, nor of 0 but for 0 itself; one number for all rows.
    """

    name: ClassVar[str] = "cressie-read"
    summary: ClassVar[str] = "Distributions near a centre q in a power divergence"
    formula: ClassVar[str] = "Σ q·φ(p/q) <= radius, φ(t) = (tᵏ - kt + k - 1)/(k(k-1))"
    complexity: ClassVar[str] = "O(N)"
    by_row: ClassVar[tuple[str, ...]] = ("center", "radius")
    layout: ClassVar[Layout | None] = Layout(
        "cressie_read",
        KEYS,
        center=CENTER,
        radius=EACH_ROW._replace(read=lambda *given: _check_radius(EACH_ROW.read(*given))),
        power=Along("all", lambda name, power, structure: _check_power(power)),
    )

    def __init__(self, center: ArrayLike, radius: ArrayLike, power: float) -> None:
        super().__init__(center, radius)
        self.power = _check_power(power)
        _check_radius(self._radius)

    @classmethod
    def default_parameters(cls, center: Array) -> dict[str, Any]:
        """The power 1.5, between KL and χ²."""
        return super().default_parameters(center) | {"power": 1.5}

    def constraints(self, p: cvxpy.Variable) -> list[cvxpy.Constraint]:
        """Σ q·(p/q)^k against 1 + k(k-1)·radius over q > 0; p = 0 elsewhere if k > 1.

        A power is written as second-order cones: exactly if it is a fraction with a denominator up to 1024,
        else as the nearest such fraction. The closed form takes the power as it is.
        """
        import cvxpy

        q, radius, k = self._center[0], self._radius[0], self.power
        inside = np.flatnonzero(q > 0.0)
        room = 1.0 + k * (k - 1.0) * radius
        if k == 0.0:
            return [cvxpy.sum(cvxpy.rel_entr(q[inside], p[inside])) <= radius]
        if 0.0 < k < 1.0 and room <= 0.0:
            return []
        powers = cvxpy.Variable(len(inside))
        moment = q[inside] @ powers
        limits = [moment >= room if 0.0 < k < 1.0 else moment <= room]
        limits += power_cones(cvxpy.multiply(1.0 / q[inside], p[inside]), k, powers)
        return [*limits, *self._none_outside(p)] if self._keeps_support else limits


LARGEST_RADIUS = 1e300
"""k(k-1)·radius must be a number."""


def _check_radius(radius: Array) -> Array:
    """Return the radius, or refuse one that is too large."""
    if radius.dtype.kind in "fiu" and (radius > LARGEST_RADIUS).any():
        raise InvalidParameter(
            f"radius must be at most {LARGEST_RADIUS:g}, got {radius.max():g}; all mass is on one entry long "
            "before",
            parameter="radius",
            value=radius,
        )
    return radius


def _check_power(power: Any) -> float:
    """Return the power as a number, or refuse one that the search is not made for."""
    given = as_array("power", power)
    if given.ndim:
        raise InvalidParameter(
            f"power must be one number, got shape {given.shape}; make a set for each power",
            parameter="power",
            value=power,
        )
    k = float(given)
    if abs(k - 1.0) < APART:
        raise InvalidParameter(
            f"power must not be within {APART} of 1, got {k:g}; the limit at 1 is KL: use KL(center, radius)",
            parameter="power",
            value=power,
        )
    if 0.0 < abs(k) < APART:
        raise InvalidParameter(
            f"power must be 0 or not within {APART} of it, got {k:g}; the limit at 0 is Burg: use power=0",
            parameter="power",
            value=power,
        )
    if abs(k) > MOST:
        raise InvalidParameter(
            f"power must be between -{MOST:g} and {MOST:g}, got {k:g}", parameter="power", value=power
        )
    return k


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
