"""What an expert writes in NumPy for one set, to compare with: whole-array code, without a proof.

Each function takes a set, prepares what does not depend on losses, and returns a function of the losses
whose result is a worst-case distribution. For a polyhedron an expert calls SciPy's `linprog`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from uncertainty_sets.arrays import Array

Expert = Callable[[Array], Array]

CLOSE = 1e-13
"""Searches stop at this, relative to the spread of the losses or to the radius."""


def box(box: Any) -> Expert:
    """Fill the largest losses first, by argsort and cumsum."""
    return _filled(np.maximum(box.lower, 0.0), np.minimum(box.upper, 1.0))


def cvar(cvar: Any) -> Expert:
    """Fill the largest losses first, each to q/tail."""
    return _filled(np.zeros(cvar.center.size), cvar.center / cvar.tail)


def _filled(low: Array, high: Array) -> Expert:
    room, rest = high - low, 1.0 - low.sum()

    def solve(f: Array) -> Array:
        order = np.argsort(-f)
        r = room[order]
        p = low.copy()
        p[order] += np.clip(rest - np.cumsum(r) + r, 0.0, r)
        return p

    return solve


def cvar_mixture(mixture: Any) -> Expert:
    """Sort once; each CVaR takes its share of the largest losses."""
    q: Array = mixture.center

    def solve(f: Array) -> Array:
        order = np.argsort(-f)
        mass = q[order]
        before = np.cumsum(mass) - mass
        p = np.empty_like(q)
        p[order] = sum(
            share / tail * np.clip(tail - before, 0.0, mass)
            for tail, share in zip(mixture.tails, mixture.weights, strict=True)
        )
        return p

    return solve


def total_variation(ball: Any) -> Expert:
    """Move mass from the smallest losses to the largest one."""
    q: Array = ball.center

    def solve(f: Array) -> Array:
        order = np.argsort(f)
        mass = q[order]
        taken = np.clip(ball.radius - np.cumsum(mass) + mass, 0.0, mass)
        p = q.copy()
        p[order] -= taken
        p[order[-1]] += taken.sum()
        return p

    return solve


def kl(ball: Any) -> Expert:
    """Tilt, p ∝ q·exp(t·f), with Newton's method for t in √KL, which is almost linear in t."""
    q, radius = ball.center, float(ball.radius)

    def solve(f: Array) -> Array:
        g = f - f.max()
        at_top = q * (g == 0.0)
        if -np.log(at_top.sum()) <= radius:
            return np.asarray(at_top / at_top.sum())
        t = np.sqrt(2.0 * radius / (q @ (g - q @ g) ** 2))
        for _ in range(100):
            p = q * np.exp(t * g)
            mass = p.sum()
            p /= mass
            mean = p @ g
            distance = t * mean - np.log(mass)
            if abs(distance - radius) <= CLOSE * radius:
                break
            slope = t * (p @ (g - mean) ** 2)
            root = np.sqrt(distance)
            t = max(t + 2.0 * root * (np.sqrt(radius) - root) / slope, 0.1 * t)
        return np.asarray(p)

    return solve


def ellipsoid(ellipsoid: Any) -> Expert:
    """Move along Q·f on the plane, with no p below 0."""
    solve = _dense if ellipsoid.shape.ndim == 2 else _diagonal
    return solve(ellipsoid.center, ellipsoid.shape, float(ellipsoid.radius))


def chi_square(ball: Any) -> Expert:
    """An ellipsoid with the centre as its diagonal shape."""
    return _diagonal(ball.center, ball.center, float(ball.radius))


def _diagonal(q: Array, shape: Array, radius: float) -> Expert:
    """p = max(0, q + tQ(f - price)): Newton's method for t in √distance, and within it for the price."""

    def solve(f: Array) -> Array:
        top = np.flatnonzero(f == f.max())
        p = np.zeros_like(q)
        p[top] = q[top] + shape[top] * (1.0 - q[top].sum()) / shape[top].sum()
        if ((p - q) ** 2 / shape).sum() <= radius:
            return p
        inside = np.ones(q.size, dtype=bool)
        t = np.sqrt(radius / (shape @ (f - shape @ f / shape.sum()) ** 2))
        low, high = 0.0, np.inf
        for _ in range(100):
            while True:
                s = shape * inside
                g = f - s @ f / s.sum()
                p = q + shape * ((1.0 - q @ inside) / s.sum() + t * g)
                if np.array_equal(inside, p > 0.0):
                    break
                inside = p > 0.0
            p *= inside
            moved = p - q
            distance = (moved**2 / shape).sum()
            if abs(distance - radius) <= CLOSE * radius:
                break
            low, high = (t, high) if distance < radius else (low, t)
            slope = max(moved * inside @ g, 1e-300)
            t += np.sqrt(distance) * (np.sqrt(radius) - np.sqrt(distance)) / slope
            if not low < t < high:
                t = 0.5 * (low + high) if high < np.inf else 2.0 * low
        return p

    return solve


def _dense(q: Array, shape: Array, radius: float) -> Expert:
    """Block pivoting: exchange all wrong signs while they get fewer, otherwise the last one alone."""
    rows = shape.sum(axis=1)

    def solve(f: Array) -> Array:
        moved = shape @ f
        fixed = np.zeros(q.size, dtype=bool)
        fewest, patience = q.size + 1, 3
        while True:
            at = np.flatnonzero(fixed)  # p = 0 there, which with Σp = 1 makes at.size + 1 equations
            across = np.column_stack([rows, shape[:, at]])
            inner = np.vstack([across.sum(axis=0), across[at]])
            right = np.column_stack([np.append(moved.sum(), moved[at]), np.append(0.0, -q[at])])
            along, back = np.linalg.solve(inner, right).T
            direction = moved - across @ along
            room, gain = radius - right[:, 1] @ back, f @ direction
            flat = gain <= CLOSE * (f @ moved)  # all losses left are one
            reach = 0.0 if flat else np.sqrt(max(room, 0.0) / gain)
            p = q + across @ back + reach * direction
            prices = along if flat and room >= 0.0 else reach * along - back
            wrong = p < -CLOSE
            wrong[at] = prices[1:] > CLOSE
            p[at] = 0.0
            if not wrong.any():
                return np.asarray(p)
            count = int(wrong.sum())
            patience = 3 if count < fewest else patience - 1
            fewest = min(fewest, count)
            if patience < 0:
                wrong[: np.flatnonzero(wrong)[-1]] = False
            fixed ^= wrong

    return solve


class Tangent(NamedTuple):
    """A point of a convex function of one price, with the distribution that is best at that price."""

    price: float
    value: float
    slope: float
    p: Array


def _at_lowest(tangent: Callable[[float], Tangent], low: float, high: float, close: float) -> Array:
    """Find the price where a convex function is least; mix the two distributions that meet there.

    The mixture's slope is 0, so it keeps the constraint that the price stands for.
    """
    left, right = tangent(low), tangent(high)
    if left.slope >= 0.0:
        return left.p
    if right.slope <= 0.0:
        return right.p
    for turn in range(200):
        share = right.slope / (right.slope - left.slope)
        met = share * left.price + (1.0 - share) * right.price  # where a line through both slopes is 0
        height = share * (left.value - left.slope * left.price)
        height += (1.0 - share) * (right.value - right.slope * right.price)
        if min(left.value, right.value) - height <= close:
            break
        if turn % 2:  # where both tangents meet
            met = left.value - right.value - left.slope * left.price + right.slope * right.price
            met /= right.slope - left.slope
        if not left.price < met < right.price:
            break
        found = tangent(met)
        if found.slope < 0.0:
            left = found
        else:
            right = found
    return np.asarray(share * left.p + (1.0 - share) * right.p)


def cd_norm(cd: Any) -> Expert:
    """Fill from the top and drain from the bottom with equal spreads; otherwise search the price of mass."""
    q, s, budget = cd.center, cd.spread, float(cd.budget)
    down = np.minimum(s, q)
    if np.ptp(s) == 0.0:
        return _equal_spreads(q, s, down, 0.5 * budget * float(s[0]))

    def at_price(f: Array, price: float) -> Tangent:
        """The best p without Σp = 1, at a price of mass: the largest gains first, within the budget."""
        up = f > price
        gain = s * np.abs(f - price)
        order = np.argsort(-gain)
        units = np.where(up, 1.0, down / s)[order]
        used = np.empty_like(q)
        used[order] = np.clip(budget - np.cumsum(units) + units, 0.0, units)
        moved = np.where(up, used, -used) * s
        return Tangent(price, float(np.abs(f - price) @ np.abs(moved)), -float(moved.sum()), q + moved)

    def solve(f: Array) -> Array:
        return _at_lowest(lambda price: at_price(f, price), f.min(), f.max(), CLOSE * np.ptp(f))

    return solve


def _equal_spreads(q: Array, s: Array, down: Array, most: float) -> Expert:
    above = s.sum() - np.cumsum(s)

    def solve(f: Array) -> Array:
        order = np.argsort(f)
        low, up = down[order], s[order]
        below = np.cumsum(low)
        move = min(most, np.minimum(below, above).max())
        p = q.copy()
        p[order] += np.clip(move - above, 0.0, up) - np.clip(move - below + low, 0.0, low)
        return p

    return solve


def wasserstein_1(ball: Any) -> Expert:
    """Search the price of distance; at a price every place sends its mass to the best place."""
    q, radius = ball.center, float(ball.radius)
    if ball.cost is not None and ball.cost.ndim == 2:
        nearest = _by_matrix(ball.cost)
        least = np.where(ball.cost > 0.0, ball.cost, np.inf).min()
    else:
        x = np.arange(float(q.size)) if ball.cost is None else ball.cost
        nearest = _on_line(x)
        least = np.diff(x).min()

    def at_price(f: Array, price: float) -> Tangent:
        to, distance = nearest(f, price)
        spent = q @ distance
        p = np.asarray(np.bincount(to, q, q.size), dtype=np.float64)
        return Tangent(price, float(p @ f + price * (radius - spent)), float(radius - spent), p)

    def solve(f: Array) -> Array:
        high = 2.0 * np.ptp(f) / least  # nothing moves at this price
        return _at_lowest(lambda price: at_price(f, price), 0.0, high, CLOSE * np.ptp(f))

    return solve


def _on_line(x: Array) -> Callable[[Array, float], tuple[Any, Array]]:
    """The best place to the left of each and the best to the right, by running maxima; x is sorted."""
    index = np.arange(x.size)

    def running(height: Array) -> Any:
        return np.maximum.accumulate(np.where(height >= np.maximum.accumulate(height), index, 0))

    def nearest(f: Array, price: float) -> tuple[Any, Array]:
        left = running(f + price * x)
        right = x.size - 1 - running((f - price * x)[::-1])[::-1]
        further = f[right] - price * (x[right] - x) > f[left] - price * (x - x[left])
        to = np.where(further, right, left)
        return to, np.abs(x[to] - x)

    return nearest


def _by_matrix(cost: Array) -> Callable[[Array, float], tuple[Any, Array]]:
    def nearest(f: Array, price: float) -> tuple[Any, Array]:
        to = np.argmax(f - price * cost.T, axis=1)
        return to, cost[to, np.arange(f.size)]

    return nearest


def polyhedron(polyhedron: Any) -> Expert:
    """Call SciPy's HiGHS."""
    from scipy.optimize import linprog

    finite = np.isfinite(polyhedron.c)
    D, c, ones = polyhedron.D[finite], polyhedron.c[finite], np.ones((1, polyhedron.D.shape[1]))

    def solve(f: Array) -> Array:
        return np.asarray(linprog(-f, A_ub=D, b_ub=c, A_eq=ones, b_eq=[1.0], method="highs").x)

    return solve


EXPERTS: dict[str, Callable[[Any], Expert]] = {
    "box": box,
    "cd-norm": cd_norm,
    "chi-square": chi_square,
    "cvar": cvar,
    "cvar-mixture": cvar_mixture,
    "ellipsoid": ellipsoid,
    "evar": kl,
    "kl": kl,
    "polyhedron": polyhedron,
    "total-variation": total_variation,
    "wasserstein-1": wasserstein_1,
}
"""By the set's name in the registry."""
