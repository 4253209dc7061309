"""CD-norm: p = q + s·u with -cap <= u <= rise, Σ|u| <= budget, Σ s·u = 0; cap = min(1, q/s) holds p >= 0, and
rise = min(1, (1-q)/s) says p <= 1, which is implied but keeps sums of size 1 where spreads are larger.

With a multiplier ν for Σ s·u = 0 what is left is a knapsack: spend the budget on the largest s·|f - ν|,
upwards (weight rise) where f > ν and downwards (weight cap) where f < ν. The dual function

    φ(ν) = qᵀf + top-budget of s·|f - ν|

is convex and its minimum found by tangent.py. With equal spreads it is two selections: budget/2 up,
budget/2 down. Losses are measured from their maximum `top`, and n = ν - top.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.base import Array
from uncertainty_sets.kernels.jit import kernel, strict, summing
from uncertainty_sets.kernels.scan import DUAL, OK, STATUS, finish, larger, scan
from uncertainty_sets.kernels.selection import SAMPLE, share_of, threshold
from uncertainty_sets.kernels.tangent import GAIN, MASS, MEMORY, X, begin, mixture, next_point, put, take

EVALUATIONS = 200
SAMPLED_FROM = 20_000  # entries; above, a sample of 1 % tells where to start

# An end of the bracket, beyond x = n, gain = Σ s·u·(f-top) and mass = Σ s·u: the knapsack's threshold and
# the share taken at it.
PI, SHARE = 3, 4
END = 5


@strict
def below_top(f: float, top: float) -> float:
    """f - top. Its rounding decides ties, so it must be the same wherever it is used: no reordering."""
    return f - top


@strict
def height(g: float, n: float, s: float) -> float:
    """s·|f - ν|, likewise."""
    return s * abs(g - n)


@summing
def middle(f: Array, s: Array, top: float) -> float:
    """The mean loss with the spreads as weights: near the ν that balances Σ s·u."""
    total, weight = 0.0, 0.0
    for i in range(f.size):
        total += s[i] * (f[i] - top)
        weight += s[i]
    return total / weight if weight > 0.0 else 0.0


@summing
def knapsack(f: Array, s: Array, rise: Array, cap: Array, top: float, n: float, v: Array, w: Array) -> float:
    """v = s·|f - ν| and its weight; returns the total weight."""
    total = 0.0
    for i in range(f.size):
        g = below_top(f[i], top)
        v[i] = height(g, n, s[i])
        x = rise[i] if g > n else cap[i]
        w[i] = x
        total += x
    return total


@summing
def totals(
    f: Array, s: Array, v: Array, w: Array, top: float, n: float, pi: float, share: float
) -> tuple[float, float]:
    """Σ s·u·(f - top) and Σ s·u of the knapsack's solution."""
    gain, mass = 0.0, 0.0
    for i in range(f.size):
        g = below_top(f[i], top)
        part = 1.0 if v[i] > pi else (share if v[i] == pi else 0.0)
        sign = 1.0 if g > n else (-1.0 if g < n else 0.0)
        x = s[i] * (part * w[i]) * sign
        gain += x * g
        mass += x
    return gain, mass


@kernel
def evaluate(
    f: Array,
    s: Array,
    rise: Array,
    cap: Array,
    budget: float,
    top: float,
    n: float,
    v: Array,
    w: Array,
    keys: Array,
    weights: Array,
    sample: Array,
    end: Array,
) -> None:
    """The knapsack at ν = top + n, into `end`; v, w, keys, weights and sample are work space."""
    pi, share = 0.0, 1.0
    if knapsack(f, s, rise, cap, top, n, v, w) > budget:
        pi, above, at = threshold(v, w, budget, keys, weights, sample)
        share = share_of(budget - above, at)
    end[X], end[PI], end[SHARE] = n, pi, share
    end[GAIN], end[MASS] = totals(f, s, v, w, top, n, pi, share)


@kernel
def search(
    f: Array,
    s: Array,
    rise: Array,
    cap: Array,
    budget: float,
    top: float,
    spread: float,
    start: float,
    reach: float,
    tolerance: float,
    work: Array,
    sample: Array,
    ends: Array,
    memory: Array,
) -> int:
    """Bracket the minimum of φ from `start`, then close in on it; returns the number of evaluations."""
    begin(memory)
    trial = ends[3]
    v, w, keys, weights = work[0, : f.size], work[1, : f.size], work[2], work[3]
    n, step = min(0.0, max(-spread, start)), reach
    low, high, over, evaluations = False, False, False, 0
    kink = 10.0 * spread / f.size**2
    while evaluations < EVALUATIONS:
        evaluate(f, s, rise, cap, budget, top, n, v, w, keys, weights, sample, trial)
        evaluations += 1
        take(trial, ends, memory)
        low, high = low or trial[MASS] >= 0.0, high or trial[MASS] < 0.0
        if low and high:
            n, over = next_point(ends, memory, tolerance, kink)
        else:
            # One-sided so far: go further out, four times as far each time, to the end of the losses.
            n = min(0.0, n + step) if low else max(-spread, n - step)
            over = n == trial[X]
            step *= 4.0
        if over or trial[MASS] == 0.0:
            break
    if trial[MASS] == 0.0 or not (low and high):
        put(ends, 0, trial)
        put(ends, 1, trial)
    return evaluations


@kernel
def sampled_start(
    f: Array,
    s: Array,
    rise: Array,
    cap: Array,
    budget: float,
    top: float,
    spread: float,
    work: Array,
    sample: Array,
    ends: Array,
    memory: Array,
) -> tuple[float, float]:
    """Where to start and how far to reach: the solution of 1 % of the problem, some ranks of f beside it."""
    size = f.size // 100
    fs, ss, rs, cs = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    state = np.uint64(88172645463325252)
    for i in range(size):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        j = i * 100 + int(state % np.uint64(100))
        fs[i], ss[i], rs[i], cs[i] = f[j], s[j], rise[j], cap[j]
    part, tolerance = budget * size / f.size, 1e-6 * spread * ss.sum()
    search(
        fs, ss, rs, cs, part, top, spread, -0.5 * spread, 0.1 * spread, tolerance, work, sample, ends, memory
    )
    n = ends[2, X]
    # The distance that holds about √size of the sampled losses.
    near = 1e-3 * spread
    for _ in range(20):
        inside = 0
        for i in range(size):
            inside += abs(fs[i] - top - n) < near
        if inside * inside < size:
            near *= 1.5
        elif inside * inside > 16 * size:
            near *= 0.5
        else:
            break
    return n, near


@kernel
def moved(g: float, s: float, rise: float, cap: float, n: float, pi: float, share: float) -> float:
    """u of one entry in the knapsack's solution at n."""
    v = height(g, n, s)
    part = 1.0 if v > pi else (share if v == pi else 0.0)
    return part * rise if g > n else (-part * cap if g < n else 0.0)


@summing
def write(
    f: Array, q: Array, s: Array, rise: Array, cap: Array, budget: float, top: float, ends: Array, p: Array
) -> tuple[float, float, float]:
    """p from the mixture of both ends; its value, the bound at the lowest point, the violation."""
    mix = mixture(ends)
    n0, pi0, share0 = ends[0, X], ends[0, PI], ends[0, SHARE]
    n1, pi1, share1 = ends[1, X], ends[1, PI], ends[1, SHARE]
    n, pi = ends[2, X], ends[2, PI]
    value, bound, total, spent, out = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(f.size):
        g = below_top(f[i], top)
        first = moved(g, s[i], rise[i], cap[i], n0, pi0, share0)
        second = moved(g, s[i], rise[i], cap[i], n1, pi1, share1)
        x = larger(0.0, q[i] + s[i] * (mix * first + (1.0 - mix) * second))
        p[i] = x
        total += x
        value += x * g
        far = abs(x - q[i]) - 1.2e-16 * x  # p - q is known to half an ulp only
        spent += larger(far, 0.0) / s[i] if s[i] > 0.0 else 0.0
        out = larger(out, far - s[i])
        e = s[i] * (g - n)
        bound += q[i] * g + larger(0.0, larger(rise[i] * (e - pi), cap[i] * (-e - pi)))
    violation = max(abs(total - 1.0), out, (spent - budget) / max(1.0, budget))
    return value, bound + budget * pi, violation


@kernel
def equal_ends(
    f: Array,
    s: Array,
    rise: Array,
    cap: Array,
    budget: float,
    top: float,
    work: Array,
    sample: Array,
    ends: Array,
) -> bool:
    """Equal spreads: budget/2 up from the largest losses, budget/2 down from the smallest, if apart.

    They are the thresholds of one knapsack with ν in the middle between them and π/s half their distance.
    ends[0] and ends[1] take threshold and share, upper and lower.
    """
    v, keys, weights = work[0], work[2], work[3]
    most, half = 0.0, 0.5 * budget
    for i in range(f.size):
        v[i] = -f[i]
        most = max(most, s[i])
    up, above_up, at_up = threshold(f, rise, half, keys, weights, sample)
    down, above_down, at_down = threshold(v, cap, half, keys, weights, sample)
    down = -down
    if min(above_up + at_up, above_down + at_down) < half or up <= down:
        return False
    ends[0, 0], ends[0, 1] = up, share_of(half - above_up, at_up)
    ends[1, 0], ends[1, 1] = down, share_of(half - above_down, at_down)
    ends[2, X] = 0.5 * (up - top) + 0.5 * (down - top)
    ends[2, PI] = most * (0.5 * (up - down))
    return True


@summing
def write_equal(
    f: Array, q: Array, s: Array, rise: Array, cap: Array, budget: float, top: float, ends: Array, p: Array
) -> tuple[float, float, float]:
    """The same as `write` for the two thresholds of equal spreads."""
    up, share_up = ends[0, 0], ends[0, 1]
    down, share_down = ends[1, 0], ends[1, 1]
    n, pi = ends[2, X], ends[2, PI]
    value, bound, total, spent, out = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(f.size):
        g = f[i] - top
        u = rise[i] if f[i] > up else (share_up * rise[i] if f[i] == up else 0.0)
        u -= cap[i] if f[i] < down else (share_down * cap[i] if f[i] == down else 0.0)
        x = larger(0.0, q[i] + s[i] * u)
        p[i] = x
        total += x
        value += x * g
        far = abs(x - q[i]) - 1.2e-16 * x
        spent += larger(far, 0.0) / s[i] if s[i] > 0.0 else 0.0
        out = larger(out, far - s[i])
        e = s[i] * (g - n)
        bound += q[i] * g + larger(0.0, larger(rise[i] * (e - pi), cap[i] * (-e - pi)))
    violation = max(abs(total - 1.0), out, (spent - budget) / max(1.0, budget))
    return value, bound + budget * pi, violation


@kernel
def box_ends(
    f: Array, s: Array, rise: Array, cap: Array, top: float, work: Array, sample: Array, ends: Array
) -> None:
    """Where the budget does not bind: the threshold of the box q - s·cap <= p <= q + s·rise.

    Entries at the threshold take what the others leave, all in one direction: the least budget that does it.
    """
    width, rest = work[1], 0.0
    for i in range(f.size):
        width[i] = s[i] * rise[i] + s[i] * cap[i]
        rest += s[i] * cap[i]
    t, _, _ = threshold(f, width[: f.size], rest, work[2], work[3], sample)
    net, room_up, room_down = 0.0, 0.0, 0.0
    for i in range(f.size):
        if f[i] > t:
            net -= s[i] * rise[i]
        elif f[i] < t:
            net += s[i] * cap[i]
        else:
            room_up += s[i] * rise[i]
            room_down += s[i] * cap[i]
    ends[0, 0], ends[0, 1] = t, share_of(net, room_up)
    ends[1, 0], ends[1, 1] = t, share_of(-net, room_down)
    ends[2, X], ends[2, PI] = t - top, 0.0


@kernel
def solve(
    f: Array,
    q: Array,
    s: Array,
    rise: Array,
    cap: Array,
    budget: float,
    equal: float,
    warm: float,
    p: Array,
    out: Array,
    work: Array,
    sample: Array,
    ends: Array,
    memory: Array,
) -> None:
    """One row; `equal` is 1 where all spreads but zeros are the same, `warm` a ν to start from or NaN."""
    least, top, status = scan(f)
    if status != OK:
        out[STATUS] = status
        return
    spread = top - least
    if equal == 1.0 and spread > 0.0:
        evaluations = 2
        if not equal_ends(f, s, rise, cap, budget, top, work, sample, ends):
            evaluations = 3
            box_ends(f, s, rise, cap, top, work, sample, ends)
        ends[2, X] = (top + ends[2, X]) - top  # ν as it will be given, so that the bound is that of `dual`
        value, bound, violation = write_equal(f, q, s, rise, cap, budget, top, ends, p)
    else:
        start, reach = middle(f, s, top), 0.3 * spread / np.sqrt(f.size)
        if np.isfinite(warm):
            start, reach = warm - top, 1e-3 * spread
        elif f.size >= SAMPLED_FROM:
            start, reach = sampled_start(f, s, rise, cap, budget, top, spread, work, sample, ends, memory)
        tolerance = 1e-14 * spread
        evaluations = search(
            f, s, rise, cap, budget, top, spread, start, reach, tolerance, work, sample, ends, memory
        )
        ends[2, X] = (top + ends[2, X]) - top
        value, bound, violation = write(f, q, s, rise, cap, budget, top, ends, p)
    finish(out, top, value, bound, violation, evaluations)
    out[DUAL], out[DUAL + 1] = top + ends[2, X], ends[2, PI]


@kernel
def rows(
    F: Array,
    center: Array,
    spread: Array,
    rise: Array,
    cap: Array,
    budget: Array,
    equal: Array,
    warm: Array,
    P: Array,
    out: Array,
) -> None:
    """Every row of F; parameters with one row serve all."""
    work = np.empty((4, F.shape[1]))
    sample = np.empty((2, SAMPLE if F.shape[1] > 96 else 1))
    ends, memory = np.empty((4, END)), np.empty(MEMORY)
    many, started = center.shape[0] > 1, warm.shape[0] > 1
    for b in range(F.shape[0]):
        r = b if many else 0
        q, s, up, down = center[r], spread[r], rise[r], cap[r]
        start = warm[b if started else 0, 0]
        solve(F[b], q, s, up, down, budget[r], equal[r], start, P[b], out[b], work, sample, ends, memory)
