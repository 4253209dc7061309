"""One θ of a clipped ball (clipped.py): how far p has moved from p₀, and the μ that makes Σp = Σp₀."""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Matrix, Vector
from uncertainty_sets.kernels.exponential import growth, times_exp
from uncertainty_sets.kernels.jit import entry, kernel, strict, summing
from uncertainty_sets.kernels.scan import larger, smaller

KL, QUADRATIC = 0, 1  # modes
MANY = 1000  # entries whose sum is rounded by more than one of them is worth

PASSES, HALVINGS = 200, 30  # values of μ for one θ at most, and those from which the bracket is halved


@kernel
def place(h: float, offset: float, pivot: float, rate: float, shift: float) -> float:
    """x of an entry, whose differences are taken in this order: what `summing` would add up first cancels."""
    x: float = (rate * h - (offset - pivot)) - shift
    return x


@summing
def measure_kl(
    f: Array,
    base: Array,
    q: Array,
    offset: Array,
    least: Array,
    most: Array,
    c: float,
    anchor: float,
    pivot: float,
    rate: float,
    shift: float,
    scale: float,
) -> tuple[float, float, float, float, float]:
    """Σ(p - p₀), G, and over the entries between their bounds Σp, Σp·g, Σp·g², with g about the anchor."""
    excess, divergence, m0, m1, m2 = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(f.size):
        h = f[i] - anchor
        x = place(h, offset[i], pivot, rate, shift)
        a, b = least[i], most[i]
        d = smaller(larger(x, a), b)
        moved, own = growth(q[i], d + (offset[i] - c), base[i], d)
        excess += moved
        divergence += own + moved * offset[i]
        m = base[i] + moved if x >= a and x <= b and a < b else 0.0
        g = h * scale
        m0 += m
        m1 += m * g
        m2 += m * g * g
    return excess, divergence, m0, m1, m2


@summing
def measure_quadratic(
    f: Array,
    s: Array,
    offset: Array,
    least: Array,
    most: Array,
    anchor: float,
    pivot: float,
    rate: float,
    shift: float,
    scale: float,
) -> tuple[float, float, float, float, float]:
    """Σ(p - p₀), G, and over the entries between their bounds Σs, Σs·g, Σs·g², likewise."""
    excess, divergence, m0, m1, m2 = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(f.size):
        h = f[i] - anchor
        x = place(h, offset[i], pivot, rate, shift)
        a, b = least[i], most[i]
        d = smaller(larger(x, a), b)
        moved = s[i] * d
        excess += moved
        divergence += moved * (d + 2.0 * offset[i])
        m = s[i] if x >= a and x <= b and a < b else 0.0
        g = h * scale
        m0 += m
        m1 += m * g
        m2 += m * g * g
    return excess, divergence, m0, m1, m2


@kernel
def measure(
    mode: int,
    f: Array,
    base: Array,
    weight: Array,
    offset: Array,
    least: Array,
    most: Array,
    c: float,
    anchor: float,
    pivot: float,
    rate: float,
    shift: float,
    scale: float,
) -> tuple[float, float, float, float, float]:
    """One of the two."""
    if mode == KL:
        return measure_kl(f, base, weight, offset, least, most, c, anchor, pivot, rate, shift, scale)
    return measure_quadratic(f, weight, offset, least, most, anchor, pivot, rate, shift, scale)


@kernel
def middle(low: float, high: float) -> float:
    """Halfway between two numbers; if they are of different size, halfway between their logarithms."""
    if low >= 0.0 and high > 4.0 * low:
        found: float = np.sqrt(max(low, 1e-40 * high)) * np.sqrt(high)
    elif high <= 0.0 and low < 4.0 * high:
        found = -np.sqrt(max(-high, -1e-40 * low)) * np.sqrt(-low)
    elif low < 0.0 < high:
        found = 0.0
    else:
        found = 0.5 * low + 0.5 * high
    return found


@kernel
def jumping(
    mode: int,
    f: Array,
    base: Array,
    weight: Array,
    offset: Array,
    least: Array,
    most: Array,
    c: float,
    anchor: float,
    pivot: float,
    rate: float,
    low: float,
    high: float,
) -> int:
    """The entry of which p changes most from one shift to the other; -1 if none does by much."""
    found, jump = -1, 1e-16
    for i in range(f.size):
        x = place(f[i] - anchor, offset[i], pivot, rate, low)
        y = place(f[i] - anchor, offset[i], pivot, rate, high)
        x, y = min(max(x, least[i]), most[i]), min(max(y, least[i]), most[i])
        if mode == QUADRATIC:
            change = weight[i] * (x - y)
        else:
            lift = offset[i] - c
            change = times_exp(weight[i], x + lift) - times_exp(weight[i], y + lift) if x > y else 0.0
        if change > jump:
            found, jump = i, change
    return found


@kernel
def exactness(size: int) -> float:
    """How near to 1 a sum of that many numbers can be brought."""
    least: float = 2e-16 * (1.0 + np.sqrt(size) / 16.0)
    return least


@kernel
def balance(
    mode: int,
    f: Array,
    base: Array,
    weight: Array,
    offset: Array,
    least: Array,
    most: Array,
    c: float,
    anchor: float,
    pivot: float,
    rate: float,
    shift: float,
    low: float,
    high: float,
    scale: float,
    tolerance: float,
    nearness: float,
) -> tuple[float, float, float, float, float, float, float, float, int]:
    """Anchor, pivot and shift that make Σp = Σp₀ at this θ, what `measure` finds there, and the passes.

    Newton's method, for KL on eˢʰⁱᶠᵗ, in which Σp is linear between kinks, within a bracket of the shift
    from `low` to `high`. Between two neighbouring numbers an entry may still go from one bound to the other;
    then x is measured from that entry's, where there are numbers enough.
    """
    before, passes, turned, exact = np.inf, 0, False, exactness(f.size)
    low, high = low - 4e-16 * abs(low), high + 4e-16 * abs(high)  # they are rounded
    shift = min(max(shift, low), high)
    while True:
        passes += 1
        excess, divergence, m0, m1, m2 = measure(
            mode, f, base, weight, offset, least, most, c, anchor, pivot, rate, shift, scale
        )
        part = excess / m0 if m0 > 0.0 else np.nan
        # Unless it is exact, the shift has to be near too: where hardly anything moves, Σp says little of it.
        near = tolerance <= exact or abs(part) <= nearness
        if (abs(excess) <= tolerance and near) or passes >= PASSES:
            break
        if abs(excess) <= 100.0 * exact and abs(excess) > 0.5 * before and abs(part) > 4e-16 * abs(shift):
            break  # there are numbers enough, so what is left is the rounding of the sum
        before = abs(excess)
        if excess > 0.0:
            low = shift
        else:
            high = shift
        step = shift + (part if mode == QUADRATIC else (-np.log1p(-part) if part < 1.0 else np.nan))
        if not (step > low and step < high) or passes > HALVINGS:
            step = middle(low, high)
        if step in (shift, low, high):
            if abs(excess) <= 100.0 * exact and f.size >= MANY:
                break
            i = jumping(mode, f, base, weight, offset, least, most, c, anchor, pivot, rate, low, high)
            if turned or i < 0:
                break
            by = rate * (f[i] - anchor) - (offset[i] - pivot)
            off = 1e-15 * (abs(rate * (f[i] - anchor)) + abs(offset[i] - pivot) + abs(low) + abs(high))
            step, low, high = shift - by, low - by - off, high - by + off
            turned, anchor, pivot = True, f[i], offset[i]
        shift = step
    return anchor, pivot, shift, excess, divergence, m0, m1, m2, passes


@entry("out")
@kernel
def nearest_rows(mode: int, center: Matrix, weight: Matrix, least: Matrix, most: Matrix, out: Vector) -> None:
    """c of every row."""
    nothing = np.zeros(center.shape[1])
    for b in range(center.shape[0]):
        q, low, high = center[b], np.inf, -np.inf
        for i in range(q.size):
            low, high = min(low, -most[b, i]), max(high, -least[b, i])
        _, _, shift, _, _, _, _, _, _ = balance(
            mode, nothing, q, weight[b], nothing, least[b], most[b], 0.0, 0.0, 0.0, 0.0, 0.0, low, high, 1.0,
            exactness(q.size), 0.0,
        )  # fmt: skip
        out[b] = shift


@strict
def times(a: float, b: float) -> tuple[float, float]:
    """a·b and what it is rounded by (Dekker)."""
    product = a * b
    x, y = a * 134217729.0, b * 134217729.0  # 2^27 + 1
    high_a, high_b = x - (x - a), y - (y - b)
    low_a, low_b = a - high_a, b - high_b
    return product, ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b


@strict
def plus(a: float, b: float) -> tuple[float, float]:
    """a + b and what it is rounded by (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@entry("out")
@strict
def total_rows(p: Matrix, out: Vector) -> None:
    """Σp - 1 of every row, rounded once."""
    for b in range(p.shape[0]):
        total, rest = -1.0, 0.0
        for i in range(p.shape[1]):
            total, more = plus(total, p[b, i])
            rest += more
        out[b] = total + rest


@entry("out")
@strict
def room_rows(center: Matrix, shape: Matrix, p: Matrix, c: Vector, radius: Vector, out: Vector) -> None:
    """radius - Σ (p-q)²/s - 2c·(Σp - 1) for every row, with twice the digits: it may be tiny."""
    for b in range(center.shape[0]):
        spent, spent_more, total, total_more = -radius[b], 0.0, -1.0, 0.0
        for i in range(center.shape[1]):
            total, more = plus(total, p[b, i])
            total_more += more
            if p[b, i] == center[b, i]:
                continue
            d, d_more = plus(p[b, i], -center[b, i])
            far = d / shape[b, i]
            back, error = times(far, shape[b, i])
            far_more = (((d - back) - error) + d_more) / shape[b, i]
            term, term_more = times(far, d)
            spent, more = plus(spent, term)
            spent_more += more + (term_more + (far * d_more + far_more * d))
        out[b] = -(spent + spent_more) - 2.0 * c[b] * (total + total_more)
