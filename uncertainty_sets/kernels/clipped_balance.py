"""One θ of a clipped ball (clipped.py): how far p is from p₀, the μ that makes Σp = Σp₀, and p itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from uncertainty_sets.arrays import Array, Matrix, Vector
from uncertainty_sets.kernels.exponential import exp_minus_line, growth, times_exp
from uncertainty_sets.kernels.jit import entry, kernel, owned_by, strict, summing
from uncertainty_sets.kernels.scan import larger, smaller

KL, QUADRATIC = 0, 1  # modes
MANY = 1000  # entries whose sum is rounded by more than one of them is worth

PASSES, HALVINGS = 200, 30  # values of μ for one θ at most, and those from which the bracket is halved
PULLS = 60  # of p to the ball, by less than rounding each


class Ball(NamedTuple):
    """A row's parameters: p₀, q or s, z₀, the least and most that x may be, and c."""

    base: Array
    weight: Array
    offset: Array
    least: Array
    most: Array
    c: float


@kernel
def place(h: float, offset: float, pivot: float, rate: float, shift: float) -> float:
    """x of an entry, whose differences are taken in this order: what `summing` would add up first cancels."""
    x: float = (rate * h - (offset - pivot)) - shift
    return x


@kernel
def move_kl(q: float, base: float, offset: float, c: float, d: float) -> tuple[float, float, float]:
    """Of an entry whose x is d: p - p₀, its part of G, and dp/dx."""
    moved, own = growth(q, d + (offset - c), base, d)
    return moved, own + moved * offset, base + moved


@kernel
def move_quadratic(s: float, base: float, offset: float, c: float, d: float) -> tuple[float, float, float]:
    """Likewise."""
    moved = s * d
    return moved, moved * (d + 2.0 * offset), s


def measure_by(move: Callable[..., tuple[float, float, float]]) -> Callable[..., tuple[float, ...]]:
    """`measure` of a mode."""

    @summing
    @owned_by(__name__, "measure")
    def measure(
        f: Array, ball: Ball, anchor: float, pivot: float, rate: float, shift: float, scale: float
    ) -> tuple[float, float, float, float, float]:
        base, weight, offset, least, most, c = ball
        excess, divergence, m0, m1, m2 = 0.0, 0.0, 0.0, 0.0, 0.0
        for i in range(f.size):
            h = f[i] - anchor
            x = place(h, offset[i], pivot, rate, shift)
            a, b = least[i], most[i]
            moved, part, m = move(weight[i], base[i], offset[i], c, smaller(larger(x, a), b))
            excess += moved
            divergence += part
            m = m if x >= a and x <= b and a < b else 0.0
            g = h * scale
            m0 += m
            m1 += m * g
            m2 += m * g * g
        return excess, divergence, m0, m1, m2

    return measure


measure_kl, measure_quadratic = measure_by(move_kl), measure_by(move_quadratic)


@kernel
def measure(
    mode: int, f: Array, ball: Ball, anchor: float, pivot: float, rate: float, shift: float, scale: float
) -> tuple[float, ...]:
    """Σ(p - p₀), G, and between the bounds Σm, Σm·g, Σm·g²: m = dp/dx, and g is measured from the anchor."""
    if mode == KL:
        return measure_kl(f, ball, anchor, pivot, rate, shift, scale)
    return measure_quadratic(f, ball, anchor, pivot, rate, shift, scale)


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
    mode: int, f: Array, ball: Ball, anchor: float, pivot: float, rate: float, low: float, high: float
) -> int:
    """The entry of which p changes most from one shift to the other; -1 if none does by much."""
    _, weight, offset, least, most, c = ball
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
def newton_shift(mode: int, shift: float, part: float) -> float:
    """Newton's next shift, if the excess is `part` of its slope; NaN if there is none."""
    change: float = part if mode == QUADRATIC else (-np.log1p(-part) if part < 1.0 else np.nan)
    return shift + change


@kernel
def balance(
    mode: int, f: Array, ball: Ball, anchor: float, pivot: float, rate: float, shift: float, low: float,
    high: float, scale: float, tolerance: float, nearness: float,
) -> tuple[float, float, float, float, float, float, float, float, int]:  # fmt: skip
    """Anchor, pivot and shift that make Σp = Σp₀ at this θ, what `measure` finds there, and the passes.

    Newton's method, for KL on eˢʰⁱᶠᵗ, in which Σp is linear between kinks, within a bracket of the shift
    from `low` to `high`. Between two neighbouring numbers an entry may still go from one bound to the other;
    then x is measured from that entry's, where there are numbers enough.
    """
    before, passes, turned, exact = np.inf, 0, -1, exactness(f.size)
    low, high = low - 4e-16 * abs(low), high + 4e-16 * abs(high)  # they are rounded
    shift = min(max(shift, low), high)
    while True:
        passes += 1
        excess, divergence, m0, m1, m2 = measure(mode, f, ball, anchor, pivot, rate, shift, scale)
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
        step = newton_shift(mode, shift, part)
        if not (step > low and step < high) or passes > HALVINGS:
            step = middle(low, high)
        if step in (shift, low, high):
            if abs(excess) <= 100.0 * exact and f.size >= MANY:
                break
            i = jumping(mode, f, ball, anchor, pivot, rate, low, high)
            if i < 0 or i == turned:
                break
            own, ahead = ball.offset[i], rate * (f[i] - anchor)
            by = ahead - (own - pivot)
            off = 1e-15 * (abs(ahead) + abs(own - pivot) + abs(low) + abs(high))
            step, low, high = shift - by, low - by - off, high - by + off
            turned, anchor, pivot = i, f[i], own
        shift = step
    return anchor, pivot, shift, excess, divergence, m0, m1, m2, passes


@kernel
def within(
    x: float, between: float, base: float, least: float, most: float, lower: float, upper: float
) -> float:
    """An entry of p, exactly at its bounds where x is beyond theirs."""
    p: float = smaller(larger(between, lower), upper)
    p = upper if x >= most else p
    p = lower if x <= least else p
    return base if least == most else p


@kernel
def at_kl(q: float, base: float, offset: float, c: float, x: float, d: float) -> float:
    """p of an entry between its bounds, where x is d."""
    near = smaller(larger(d, -1.0), 1.0)
    far = times_exp(q, d + (offset - c))
    return base + base * (near + exp_minus_line(near)) if near == d else far


@kernel
def at_quadratic(s: float, base: float, offset: float, c: float, x: float, d: float) -> float:
    """Likewise."""
    return base + s * x


def fill_by(at: Callable[..., float]) -> Callable[..., None]:
    """`fill` of a mode."""

    @kernel
    @owned_by(__name__, "fill")
    def fill(
        f: Array, ball: Ball, lower: Array, width: Array, anchor: float, pivot: float, rate: float,
        shift: float, p: Array,
    ) -> None:  # fmt: skip
        base, weight, offset, least, most, c = ball
        for i in range(f.size):
            x = place(f[i] - anchor, offset[i], pivot, rate, shift)
            between = at(weight[i], base[i], offset[i], c, x, smaller(larger(x, least[i]), most[i]))
            p[i] = within(x, between, base[i], least[i], most[i], lower[i], lower[i] + width[i])

    return fill


fill_kl, fill_quadratic = fill_by(at_kl), fill_by(at_quadratic)


@kernel
def fill(
    mode: int, f: Array, ball: Ball, lower: Array, width: Array, anchor: float, pivot: float, rate: float,
    shift: float, p: Array,
) -> None:  # fmt: skip
    """Write p."""
    if mode == KL:
        fill_kl(f, ball, lower, width, anchor, pivot, rate, shift, p)
    else:
        fill_quadratic(f, ball, lower, width, anchor, pivot, rate, shift, p)


@summing
def moved(base: Array, s: Array, offset: Array, p: Array) -> tuple[float, float]:
    """G and Σ(p - p₀) of p as written, for a square: rounding counts where s is small."""
    divergence, excess = 0.0, 0.0
    for i in range(p.size):
        d = p[i] - base[i]
        excess += d
        divergence += d * (d / s[i] + 2.0 * offset[i]) if d != 0.0 else 0.0
    return divergence, excess


@kernel
def pull_in(ball: Ball, lower: Array, p: Array, room: float) -> tuple[float, float, float]:
    """Let the sum of p, rather than its divergence, take the rounding of p's entries.

    Returns G and Σ(p - p₀) as `moved` has them, and by how much Σp became less.

    Where one entry has a tiny s and is far from q, the last digit of the others makes a difference of 1e-8 in
    the divergence; a little less of that one entry takes it back.
    """
    base, s, offset, _, _, c = ball
    divergence, excess = moved(base, s, offset, p)
    less = 0.0
    for _ in range(PULLS):  # Newton's method: D is a square
        over, steepest, at = divergence - room - 2.0 * c * excess, 0.0, -1
        if over <= 1e-13:
            break
        for i in range(p.size):
            slope = 2.0 * ((p[i] - base[i]) / s[i] + offset[i] - c) if p[i] > lower[i] else 0.0
            if slope > steepest:
                steepest, at = slope, i
        if at < 0 or over > 1e-11 * steepest:
            break
        pulled = larger(p[at] - over / steepest, lower[at])
        less += p[at] - pulled
        p[at] = pulled
        divergence, excess = moved(base, s, offset, p)
    return divergence, excess, less


@entry("out")
@kernel
def nearest_rows(mode: int, center: Matrix, weight: Matrix, least: Matrix, most: Matrix, out: Vector) -> None:
    """c of every row."""
    nothing = np.zeros(center.shape[1])
    for b in range(center.shape[0]):
        q, low, high = center[b], np.inf, -np.inf
        for i in range(q.size):
            low, high = min(low, -most[b, i]), max(high, -least[b, i])
        ball = Ball(q, weight[b], nothing, least[b], most[b], 0.0)
        _, _, shift, _, _, _, _, _, _ = balance(
            mode, nothing, ball, 0.0, 0.0, 0.0, 0.0, low, high, 1.0, exactness(q.size), 0.0
        )
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
