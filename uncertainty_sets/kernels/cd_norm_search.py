"""CD-norm with any spreads: the search for the multiplier ν of Σ s·u = 0.

With ν given, what is left is a knapsack: spend the budget on the largest s·|f - ν|, upwards (weight rise) if
f > ν and downwards (weight cap) if f < ν. The dual function

    φ(ν) = qᵀf + top-budget of s·|f - ν|

is convex; tangent.py finds its minimum. Losses are measured from their maximum `top`, and n = ν - top.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels.jit import kernel, strict, summing
from uncertainty_sets.kernels.selection import share_of, threshold
from uncertainty_sets.kernels.tangent import GAIN, MASS, X, next_point, reset, set_end, update_bracket

EVALUATIONS = 200
FUSED_FROM = 4_000  # entries; above, one pass beats three
BLOCK = 1024  # entries that stay in the fastest cache

Places = NDArray[np.int32]

# Columns of an end of the bracket, after those of tangent.py (x = n, gain = Σ s·u·(f-top), mass = Σ s·u): the
# multiplier of the budget, which is the knapsack's threshold, and the share taken at it.
PI, SHARE = 3, 4
END = 5

# A window (cd_norm_window.py): ranges of n and π; the weight, Σ s·u·(f-top) and Σ s·u of the entries left out
# because they are taken at every point of it; and 1 if it is only a part of all possible n and π.
LOW, HIGH, PI_LOW, PI_HIGH, TAKEN, TAKEN_GAIN, TAKEN_MASS, PARTIAL = range(8)
WINDOW = 8


@strict
def below_top(f: float, top: float) -> float:
    """f - top, always rounded alike: it decides ties, so no caller may reorder it."""
    return f - top


@strict
def height(g: float, n: float, s: float) -> float:
    """s·|f - ν|, always rounded alike."""
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
        up, down = rise[i], cap[i]
        x = up if g > n else down
        w[i] = x
        total += x
    return total


@kernel
def moved(g: float, s: float, rise: float, cap: float, n: float, pi: float, share: float) -> float:
    """u of one entry in the knapsack's solution at n."""
    v = height(g, n, s)
    part = 1.0 if v > pi else (share if v == pi else 0.0)
    return part * rise if g > n else (-part * cap if g < n else 0.0)


@summing
def knapsack_totals(
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
    f: Array, s: Array, rise: Array, cap: Array, budget: float, top: float, n: float, v: Array, w: Array,
    keys: Array, weights: Array, sample: Array, end: Array,
) -> None:  # fmt: skip
    """Solve the knapsack at ν = top + n into `end`; v, w, keys, weights and sample are work space."""
    # 1. The knapsack's threshold π; 0 if the budget pays for every entry.
    pi, share = 0.0, 1.0
    if knapsack(f, s, rise, cap, top, n, v, w) > budget:
        pi, above, at = threshold(v, w, budget, keys, weights, sample)
        share = share_of(budget - above, at)
    # 2. What its solution gains and moves: the line that touches φ at ν.
    end[X], end[PI], end[SHARE] = n, pi, share
    end[GAIN], end[MASS] = knapsack_totals(f, s, v, w, top, n, pi, share)


@summing
def sum_block(
    f: Array, s: Array, rise: Array, cap: Array, top: float, n: float, high: float, first: int, after: int,
    v: Array,
) -> tuple[float, float, float]:  # fmt: skip
    """Heights of some entries into v; of those above `high` the weight, Σ s·u and Σ s·u·(f - top)."""
    above, mass, gain = 0.0, 0.0, 0.0
    for i in range(first, after):
        g = below_top(f[i], top)
        h = height(g, n, s[i])
        v[i - first] = h
        # Both are read whatever is chosen: a load behind a condition keeps the loop off the vector units.
        up, down = rise[i], cap[i]
        weight = up if g > n else down
        weight = weight if h > high else 0.0
        move = s[i] * weight
        move = move if g > n else -move
        above += weight
        mass += move
        gain += move * g
    return above, mass, gain


@kernel
def keep_between(v: Array, first: int, after: int, low: float, high: float, places: Places, kept: int) -> int:
    """Append the places of heights between low and high, without a branch; return how many there are now."""
    for i in range(first, after):
        places[kept] = i
        kept += (v[i - first] >= low) & (v[i - first] <= high)
    return kept


@kernel
def evaluate_near(
    f: Array, s: Array, rise: Array, cap: Array, budget: float, top: float, n: float, low: float, high: float,
    work: Array, places: Places, sample: Array, end: Array,
) -> bool:  # fmt: skip
    """`evaluate` in one pass if the knapsack's threshold lies between low and high; False if it does not.

    Entries above `high` are taken whole as they come by; only those in between are left for the selection.
    """
    # 1. One pass: sum what is above `high`, keep the places of what lies between.
    v, w, block = work[0], work[1], np.empty(BLOCK)
    above, mass, gain, kept = 0.0, 0.0, 0.0, 0
    for first in range(0, f.size, BLOCK):
        after = min(f.size, first + BLOCK)
        weight, move, product = sum_block(f, s, rise, cap, top, n, high, first, after, block)
        above += weight
        mass += move
        gain += product
        kept = keep_between(block, first, after, low, high, places, kept)
    # 2. Gather those entries; the guess was wrong if the budget does not run out among them.
    inside = 0.0
    for k in range(kept):
        i = places[k]
        g = below_top(f[i], top)
        v[k], w[k] = height(g, n, s[i]), rise[i] if g > n else cap[i]
        inside += w[k]
    if not (above <= budget and above + inside > budget):
        return False
    # 3. The threshold among them, and their part of the sums.
    pi, more, at = threshold(v[:kept], w[:kept], budget - above, work[2], work[3], sample)
    share = share_of(budget - above - more, at)
    for k in range(kept):
        i = places[k]
        g = below_top(f[i], top)
        move = s[i] * moved(g, s[i], rise[i], cap[i], n, pi, share)
        mass += move
        gain += move * g
    end[X], end[PI], end[SHARE], end[GAIN], end[MASS] = n, pi, share, gain, mass
    return True


@kernel
def search(
    f: Array, s: Array, rise: Array, cap: Array, budget: float, top: float, start: float, reach: float,
    pi: float, tolerance: float, kink: float, window: Array, places: Places, work: Array, sample: Array,
    ends: Array, memory: Array,
) -> tuple[int, bool]:  # fmt: skip
    """Bracket the minimum of φ from `start`, then close in on it, all within a window.

    Returns the number of evaluations, and whether the window holds the minimum and the thresholds of all of
    them; if not, ends[3] is the last one.
    `pi` is a guess at the knapsack's threshold, or NaN; `kink` as in tangent.py.
    """
    # 1. Start inside the window, with no end of the bracket known.
    reset(memory)
    trial = ends[3]
    v, w, keys, weights = work[0, : f.size], work[1, : f.size], work[2], work[3]
    n, step = min(window[HIGH], max(window[LOW], start)), reach
    rest = budget - window[TAKEN]
    low, high, over, evaluations = False, False, False, 0
    while evaluations < EVALUATIONS:
        # 2. Bracket the knapsack's threshold: near the last one, or between those of both ends.
        least, most = 0.9 * pi, 1.1 * pi
        if low and high:
            apart = abs(ends[0, PI] - ends[1, PI])
            least = min(ends[0, PI], ends[1, PI]) - 0.2 * apart - 1e-6 * pi
            most = max(ends[0, PI], ends[1, PI]) + 0.2 * apart + 1e-6 * pi
        # 3. Evaluate: in one pass if the arrays are long and the guess holds, otherwise in three.
        if not (
            f.size >= FUSED_FROM
            and pi > 0.0
            and evaluate_near(f, s, rise, cap, rest, top, n, least, most, work, places, sample, trial)
        ):
            evaluate(f, s, rise, cap, rest, top, n, v, w, keys, weights, sample, trial)
        pi = trial[PI]
        evaluations += 1
        if pi < window[PI_LOW] or pi > window[PI_HIGH]:
            return evaluations, False
        trial[GAIN] += window[TAKEN_GAIN]
        trial[MASS] += window[TAKEN_MASS]
        # 4. Move the bracket's end on that side, and choose the next point.
        update_bracket(trial, ends, memory)
        low, high = low or trial[MASS] >= 0.0, high or trial[MASS] < 0.0
        if low and high:
            n, over = next_point(ends, memory, tolerance, kink, 0.0)
        else:
            # Only one side is known: go further out, four times as far each time, to the window's end.
            n = min(window[HIGH], n + step) if low else max(window[LOW], n - step)
            over = n == trial[X]
            step *= 4.0
        if over or trial[MASS] == 0.0:
            break
    # 5. A point that balances, or the end of the losses, needs no mixture: it is both ends.
    if trial[MASS] == 0.0 or not (low and high):
        set_end(ends, 0, trial)
        set_end(ends, 1, trial)
        return evaluations, trial[MASS] == 0.0 or window[PARTIAL] == 0.0
    return evaluations, True
