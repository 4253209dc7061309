"""Diagonal ellipsoid, for losses and shapes of any range: an active set that only shrinks.

In units where the spread of the losses and the radius are 1, with w = radius·Q and t = q/w:
p(V) = max(0, q + w(f - ν)/V), ν such that Σp = 1. As V falls entries leave A = {p > 0} and none comes back,
the distance Σ(p-q)²/w grows from 0, and the right V is where it is 1. If it is d <= 1, p(V) is feasible and
its gap is V(√d - d), so values of V below SMALLEST need not be told apart.

With an A that holds the right one, the closed form without p >= 0 gives a V that is too large or right, and
entries that it makes negative are 0 in the answer too: A shrinks round by round and ends at the right one.
It starts from V <= max f - qᵀf, and p <= 1 says ν >= f - V(1-q)/w for every entry, which removes at once the
heavy entries that would otherwise go one per round. If rounds remain many (shapes that fall like powers),
bisection on log V helps, with ν for each V by selection.

What keeps digits: losses are measured from the loss of the heaviest entry of A, whose own h = f - ν may be
far below the rounding of ν. Its weight then also bounds what cancels in the variance, to a factor N.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels.jit import kernel, strict, summing
from uncertainty_sets.kernels.scan import larger

ROUNDS = 500
LOOKS = 20
FIRST = 4  # rounds before bisection joins in
SMALLEST = 1e-13  # the least V that matters
ROUNDING = 1e-14  # of the radius: what its part that is left may lose to the sums
F, CENTER, W, T, ROOM = range(5)  # the rows of x: f, q, w, q/w, (1-q)/w


@kernel
def gather(f: Array, q: Array, Q: Array, radius: float) -> tuple[Array, int]:
    """Collect what the search reads into x; return it and the place of the heaviest entry."""
    x, heavy = np.empty((5, f.size)), 0
    for i in range(f.size):
        w = radius * Q[i]
        x[F, i], x[CENTER, i], x[W, i], x[T, i] = f[i], q[i], w, q[i] / w
        x[ROOM, i] = (1.0 - q[i] + 1e-15) / w  # q may be 1 by rounding
        heavy = i if Q[i] > Q[heavy] else heavy
    return x, heavy


@strict
def is_heavier(w: float, b: float, w1: float, b1: float) -> bool:
    """Whether an entry is better to measure from than another: heavier, or equally heavy and deeper in A."""
    return w > w1 or (w == w1 and b > b1)


@strict
def keep(x: Array, count: int, base: float, unit: float, n: float, V: float) -> tuple[int, int, float, float]:
    """Move the columns of x with p >= 0 to the front.

    Returns their number, the place of the heaviest, and Σq, Σq·t of those that leave.
    """
    kept, heavy, most, mass, cost = 0, 0, 0.0, 0.0, 0.0
    for i in range(count):
        b = ((x[F, i] - base) * unit - n) + V * x[T, i]
        if b >= 0.0:
            for k in range(5):
                x[k, kept] = x[k, i]
            if kept == 0 or is_heavier(x[W, kept], b, x[W, heavy], most):
                heavy, most = kept, b
            kept += 1
        else:
            mass += x[CENTER, i]
            cost += x[CENTER, i] * x[T, i]
    return kept, heavy, mass, cost


@summing
def moments(f: Array, w: Array, base: float, unit: float, n: float) -> tuple[float, float, float]:
    """Σw, Σwh, Σwh² with h = f - base - n."""
    s0, s1, s2 = 0.0, 0.0, 0.0
    for i in range(f.size):
        h = (f[i] - base) * unit - n
        s0 += w[i]
        s1 += w[i] * h
        s2 += w[i] * h * h
    return s0, s1, s2


@kernel
def mean_and_square(f: Array, w: Array, base: float, unit: float) -> tuple[float, float, float]:
    """Σw, the mean of f - base with weights w, and Σw(f - mean)²: about the mean if about base it cancels."""
    s0, s1, s2 = moments(f, w, base, unit, 0.0)
    mean = s1 / s0
    square = s2 - s1 * mean
    if not square > 1e-3 * s2:
        _, r1, r2 = moments(f, w, base, unit, mean)
        square = max(0.0, r2 - r1 * (r1 / s0))
        mean += r1 / s0
    return s0, mean, square


@summing
def least(f: Array, room: Array, base: float, unit: float, V: float) -> float:
    """A lower bound on ν - base, from p <= 1."""
    found = -np.inf
    for i in range(f.size):
        found = larger(found, (f[i] - base) * unit - V * room[i])
    return found - 4e-16 * abs(found)


@kernel
def swap(y: Array, i: int, k: int) -> None:
    """Exchange two columns."""
    for row in range(4):
        y[row, i], y[row, k] = y[row, k], y[row, i]


@kernel
def level(y: Array, count: int, V: float, mass: float) -> float:
    """c with Σw(g - c) = V·(mass + Σq), left over the columns with b > c and right over the others.

    The rows of y are b, g, w and q. By selection; the columns are reordered.
    """
    # Columns before `low` are known to be left, those from `high` on right; s0, s1 and mass are their sums.
    low, high, s0, s1, draw = 0, count, 0.0, 0.0, 1
    while low < high:
        draw = (draw * 1103515245 + 12345) % 2147483648
        pivot = y[0, low + draw % (high - low)]
        # 1. Split what is undecided at a random pivot.
        k, above0, above1, below = low, s0, s1, mass
        for i in range(low, high):
            if y[0, i] > pivot:
                above0 += y[2, i]
                above1 += y[2, i] * y[1, i]
                swap(y, i, k)
                k += 1
            else:
                below += y[3, i]
        # 2. c lies at the pivot or above: the lower part is right. Otherwise the upper part is left.
        if above1 - above0 * pivot >= V * below:
            high, mass = k, below
            continue
        s0, s1, low = above0, above1, k
        for i in range(k, high):
            if y[0, i] == pivot:
                s0 += y[2, i]
                s1 += y[2, i] * y[1, i]
                swap(y, i, low)
                low += 1
    return (s1 - V * mass) / s0


@kernel
def place(x: Array, count: int, heavy: int, unit: float, V: float) -> tuple[float, float]:
    """base, the loss of the heaviest entry that p <= 1 leaves in A, and a lower bound on ν - base.

    Measured from an entry outside A, ν and the heavy entries next to it may round to the same number; so each
    round measures from a lighter entry, until that one is in A.
    """
    base, floor = x[F, heavy], 0.0
    for _ in range(LOOKS):
        base = x[F, heavy]
        floor = least(x[F, :count], x[ROOM, :count], base, unit, V)
        heaviest, most = -1, 0.0
        for i in range(count):
            b = ((x[F, i] - base) * unit - floor) + V * x[T, i]
            if b >= 0.0 and (heaviest < 0 or is_heavier(x[W, i], b, x[W, heaviest], most)):
                heaviest, most = i, b
        if heaviest < 0 or heaviest == heavy:
            break
        heavy = heaviest
    return base, floor


@kernel
def at(
    x: Array, count: int, heavy: int, unit: float, V: float, mass: float, y: Array
) -> tuple[float, float, float]:
    """base, n and the distance of p(V) among the first `count`; `mass` is Σq of the others, y work space."""
    # 1. The entries that can be in A, measured from the heaviest of them.
    base, floor = place(x, count, heavy, unit, V)
    found = 0
    for i in range(count):
        g = (x[F, i] - base) * unit - floor
        b = g + V * x[T, i]
        if b >= 0.0:
            y[0, found], y[1, found], y[2, found], y[3, found] = b, g, x[W, i], x[CENTER, i]
            found += 1
        else:
            mass += x[CENTER, i]
    # 2. ν by selection, and the distance of p(V).
    n, size = floor + level(y, found, V, mass), 0.0
    for i in range(count):
        h = (x[F, i] - base) * unit - n
        size += x[W, i] * (h / V) * (h / V) if h + V * x[T, i] > 0.0 else x[CENTER, i] * x[T, i]
    return base, n, size


@kernel
def search(
    f: Array, q: Array, Q: Array, radius: float, top: float, unit: float
) -> tuple[float, float, float, int]:
    """base, n, V of p = max(0, q + radius·Q·((f - base)·unit - n)/V), and the passes over all entries."""
    # 1. The smallest V that matters may do already.
    x, heavy = gather(f, q, Q, radius)
    y = np.empty((4, f.size))
    base, n, size = at(x, f.size, heavy, unit, SMALLEST, 0.0, y)
    if size <= 1.0:
        return base, n, SMALLEST, 8
    # 2. Start from the largest V there can be, max f - qᵀf.
    low, V = SMALLEST, 0.0
    for i in range(f.size):
        V += q[i] * ((top - f[i]) * unit)
    mass, cost, count, visits = 0.0, 0.0, f.size, 12 * f.size
    base, n = place(x, count, heavy, unit, V)
    closed = False  # whether ν and V are the closed form of A
    for k in range(ROUNDS):
        # 3. Drop the entries that ν and V make negative; done if none leaves the closed form's A.
        kept, heavy, lost_mass, lost_cost = keep(x, count, base, unit, n, V)
        visits += 3 * count
        if (closed and kept == count) or kept == 0:
            break
        count = kept
        mass += lost_mass
        cost += lost_cost
        # 4. The closed form of ν and V on A.
        base = x[F, heavy]
        s0, mean, square = mean_and_square(x[F, :count], x[W, :count], base, unit)
        left = max(1.0 - cost - mass * (mass / s0), ROUNDING)
        V = min(V, np.sqrt(square / left))
        n, closed = mean - V * (mass / s0), True
        # 5. Many rounds: every second one tries the middle of log V, the others the right ν for this V.
        if k < FIRST:
            continue
        visits += 6 * count
        if k % 2 == 0 and 4.0 * low < V:
            middle = np.sqrt(low * V)
            start, n1, size = at(x, count, heavy, unit, middle, mass, y)
            if cost + size > 1.0:
                low = middle
            else:
                base, n, V, closed = start, n1, middle, False
        else:
            base, n, size = at(x, count, heavy, unit, V, mass, y)
    return base, n, V, visits // f.size
