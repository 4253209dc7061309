"""The p of a clipped ball (clipped.py) as written: its entries, its sums, and the rounding between them."""

from __future__ import annotations

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels.clipped_balance import KL, place
from uncertainty_sets.kernels.exponential import exp_minus_line, times_exp
from uncertainty_sets.kernels.jit import kernel, summing
from uncertainty_sets.kernels.scan import larger, smaller

PULLS = 60  # of p to the ball, by less than rounding each


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
def fill_kl(
    f: Array,
    base: Array,
    weight: Array,
    offset: Array,
    least: Array,
    most: Array,
    lower: Array,
    width: Array,
    c: float,
    anchor: float,
    pivot: float,
    rate: float,
    shift: float,
    p: Array,
) -> None:
    """Write p."""
    for i in range(f.size):
        x = place(f[i] - anchor, offset[i], pivot, rate, shift)
        d = smaller(larger(x, least[i]), most[i])
        near = smaller(larger(d, -1.0), 1.0)
        far = times_exp(weight[i], d + (offset[i] - c))
        between = base[i] + base[i] * (near + exp_minus_line(near)) if near == d else far
        p[i] = within(x, between, base[i], least[i], most[i], lower[i], lower[i] + width[i])


@kernel
def fill_quadratic(
    f: Array,
    base: Array,
    weight: Array,
    offset: Array,
    least: Array,
    most: Array,
    lower: Array,
    width: Array,
    anchor: float,
    pivot: float,
    rate: float,
    shift: float,
    p: Array,
) -> None:
    """Likewise."""
    for i in range(f.size):
        x = place(f[i] - anchor, offset[i], pivot, rate, shift)
        between = base[i] + weight[i] * x
        p[i] = within(x, between, base[i], least[i], most[i], lower[i], lower[i] + width[i])


@kernel
def fill(
    mode: int,
    f: Array,
    base: Array,
    weight: Array,
    offset: Array,
    least: Array,
    most: Array,
    lower: Array,
    width: Array,
    c: float,
    anchor: float,
    pivot: float,
    rate: float,
    shift: float,
    p: Array,
) -> None:
    """One of the two."""
    if mode == KL:
        fill_kl(f, base, weight, offset, least, most, lower, width, c, anchor, pivot, rate, shift, p)
    else:
        fill_quadratic(f, base, weight, offset, least, most, lower, width, anchor, pivot, rate, shift, p)


@summing
def totals(f: Array, p: Array, top: float) -> tuple[float, float]:
    """Σp·(f - top) and Σp."""
    value, total = 0.0, 0.0
    for i in range(f.size):
        value += p[i] * (f[i] - top)
        total += p[i]
    return value, total


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
def pull_in(
    base: Array, s: Array, offset: Array, lower: Array, p: Array, c: float, room: float
) -> tuple[float, float, float]:
    """Let the sum of p, rather than its divergence, take the rounding of p's entries.

    Returns G and Σ(p - p₀) as `moved` has them, and by how much Σp became less.

    Where one entry has a tiny s and is far from q, the last digit of the others makes a difference of 1e-8 in
    the divergence; a little less of that one entry takes it back.
    """
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
