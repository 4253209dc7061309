"""CD-norm with many entries: search among the few that are undecided near the minimum.

A window is a range of ν and of the knapsack's threshold π. An entry whose s·|f - ν| lies above all thresholds
of the window at both ends of its range, and whose loss lies outside it, is taken whole at every point of the
window; one that lies below all of them at both ends is never taken (s·|f - ν| is convex in ν). Both kinds
are summed once and left out: at a point of the window, an evaluation of the others is exact. If the
search leaves the window, that is seen, and a wider one is tried.

The window comes from four small samples, each solved alone: where their answers lie, and how far apart.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels.cd_norm_search import (
    BLOCK,
    HIGH,
    LOW,
    PARTIAL,
    PI,
    PI_HIGH,
    PI_LOW,
    TAKEN,
    TAKEN_GAIN,
    TAKEN_MASS,
    WINDOW,
    Places,
    below_top,
    height,
    search,
)
from uncertainty_sets.kernels.jit import kernel, summing
from uncertainty_sets.kernels.scan import larger, smaller
from uncertainty_sets.kernels.tangent import LOWEST, X

SAMPLES = 4
MARGIN = 0.75  # of the range of the samples' answers, to either side: about five standard errors in all
WIDER = 8.0  # times, if the window did not hold the minimum
WINDOWS = 4  # tried before all entries are searched
USEFUL = 0.5  # of the entries; a window that leaves more undecided does not help

Counts = NDArray[np.int64]


@summing
def weighted_sums(f: Array, s: Array, top: float) -> tuple[float, float]:
    """Σ s·(f - top) and Σ s, with spreads above 1 counted as 1: no entry moves by more."""
    total, weight = 0.0, 0.0
    for i in range(f.size):
        x = smaller(s[i], 1.0)
        total += x * (f[i] - top)
        weight += x
    return total, weight


@summing
def total_height(f: Array, s: Array, top: float, n: float) -> float:
    """Σ s·|f - ν|, with spreads above 1 counted as 1."""
    total = 0.0
    for i in range(f.size):
        total += smaller(s[i], 1.0) * abs(f[i] - top - n)
    return total


@kernel
def draw_samples(
    f: Array, s: Array, rise: Array, cap: Array, top: float, n: float, by_height: float, by_spread: float,
    by_number: float, samples: Array, counts: Counts,
) -> None:  # fmt: skip
    """Draw SAMPLES samples; an entry's chance is by_height·s·|f - ν| + by_spread·s + by_number.

    Few entries with large spreads or far losses may carry the answer: they get into all samples. The
    weights of the others are divided by their chance, so that all sums are right on average.
    """
    # One entry at random (xorshift) of each stretch in which the chances of a sample sum to 1/SAMPLES.
    state = np.uint64(88172645463325252)
    passed, place, drawn = 0.0, 0.5, 0
    counts[:] = 0
    for i in range(f.size):
        x = smaller(s[i], 1.0)
        chance = x * (by_height * abs(f[i] - top - n) + by_spread) + by_number
        if chance * SAMPLES >= 1.0:
            for k in range(SAMPLES):
                c = counts[k]
                samples[k, 0, c], samples[k, 1, c] = f[i], s[i]
                samples[k, 2, c], samples[k, 3, c] = rise[i], cap[i]
                counts[k] += 1
            continue
        passed += chance * SAMPLES
        if passed > place:
            state ^= state << np.uint64(13)
            state ^= state >> np.uint64(7)
            state ^= state << np.uint64(17)
            k, drawn = drawn % SAMPLES, drawn + 1
            place = drawn + (state >> np.uint64(11)) * 2.0**-53
            c = counts[k]
            samples[k, 0, c], samples[k, 1, c] = f[i], s[i]
            samples[k, 2, c], samples[k, 3, c] = rise[i] / chance, cap[i] / chance
            counts[k] += 1


@kernel
def sampled_window(
    f: Array, s: Array, rise: Array, cap: Array, budget: float, top: float, spread: float, start: float,
    whole: Array, places: Places, work: Array, sample: Array, ends: Array, memory: Array, window: Array,
) -> tuple[float, float]:  # fmt: skip
    """Solve the samples; the window holds their answers with a margin. Returns ν - top and π of the last."""
    # 1. Draw them; a third of the chances goes by heights, by spreads and by numbers each.
    total, weight = weighted_sums(f, s, top)
    n = start if np.isfinite(start) else total / weight
    heights = total_height(f, s, top, n)
    size = int(f.size ** (2.0 / 3.0))
    samples, counts = np.empty((SAMPLES, 4, SAMPLES * (size + 1))), np.empty(SAMPLES, np.int64)
    share = size / 3.0
    by_height = share / heights if heights > 0.0 else 0.0
    draw_samples(f, s, rise, cap, top, n, by_height, share / weight, share / f.size, samples, counts)
    # 2. Solve them, each from the answer of the one before; the first one twice, since its own start may be
    #    so far off that the tolerance, a part of the gain there, is too large.
    reach, pi, tol = 0.03 * spread, np.nan, 1e-3 * heights
    for turn in range(SAMPLES + 1):
        k = max(0, turn - 1)
        c = counts[k]
        fs, ss, rs, cs = samples[k, 0, :c], samples[k, 1, :c], samples[k, 2, :c], samples[k, 3, :c]
        kink = 10.0 * spread / c**2
        search(
            fs, ss, rs, cs, budget, top, n, reach, pi, tol, kink, whole, places, work, sample, ends, memory
        )
        found, pi = ends[2, X], ends[2, PI]
        tol = 1e-6 * memory[LOWEST]
        reach = max(abs(found - n), 1e-9 * spread) if turn > 1 else 1e-3 * spread
        n = found
        if turn == 1:
            window[LOW], window[HIGH], window[PI_LOW], window[PI_HIGH] = n, n, pi, pi
        elif turn > 1:
            window[LOW], window[HIGH] = min(window[LOW], n), max(window[HIGH], n)
            window[PI_LOW], window[PI_HIGH] = min(window[PI_LOW], pi), max(window[PI_HIGH], pi)
    # 3. A margin to either side.
    widen_losses(window, MARGIN, spread)
    widen_thresholds(window, MARGIN, MARGIN)
    return n, pi


@kernel
def widen_losses(window: Array, margin: float, spread: float) -> None:
    """Make the range of n wider by `margin` times its length to either side, within the losses."""
    far = margin * (window[HIGH] - window[LOW] + 1e-9 * spread)
    window[LOW] = max(-spread, window[LOW] - far)
    window[HIGH] = min(0.0, window[HIGH] + far)


@kernel
def widen_thresholds(window: Array, margin_low: float, margin_high: float) -> None:
    """Make the range of π wider by these multiples of its length."""
    far = window[PI_HIGH] - window[PI_LOW] + 1e-9 * window[PI_HIGH]
    window[PI_LOW] -= margin_low * far
    window[PI_HIGH] += margin_high * far


@summing
def decide_block(
    f: Array, s: Array, rise: Array, cap: Array, top: float, n0: float, n1: float, least: float, most: float,
    first: int, after: int, undecided: Array,
) -> tuple[float, float, float]:  # fmt: skip
    """Sums of the entries that are taken at all n in [n0, n1] and thresholds in [least, most].

    `undecided` becomes 1.0 for each entry that is neither taken nor left at all of them, else 0.0.
    """
    taken, gain, mass = 0.0, 0.0, 0.0
    for i in range(first, after):
        g = below_top(f[i], top)
        a, b = height(g, n0, s[i]), height(g, n1, s[i])
        up, down = rise[i], cap[i]
        weight = up if g > n1 else down
        sure = (smaller(a, b) > most) & ((g > n1) | (g < n0))
        weight = weight if sure else 0.0
        move = s[i] * weight
        move = move if g > n1 else -move
        taken += weight
        mass += move
        gain += move * g
        undecided[i - first] = 0.0 if sure | (larger(a, b) < least) else 1.0
    return taken, gain, mass


@kernel
def decide(
    f: Array, s: Array, rise: Array, cap: Array, top: float, window: Array, places: Places, stride: int
) -> int:
    """Sum what is taken everywhere in the window into it; return how many are undecided, and their places.

    One block of each `stride` blocks is read: with 1 all of them, with more it only tells what to expect.
    """
    state = np.empty(BLOCK)
    n0, n1, least, most = window[LOW], window[HIGH], window[PI_LOW], window[PI_HIGH]
    taken, gain, mass, kept = 0.0, 0.0, 0.0, 0
    for first in range(0, f.size, BLOCK * stride):
        after = min(f.size, first + BLOCK)
        weight, product, move = decide_block(f, s, rise, cap, top, n0, n1, least, most, first, after, state)
        taken += weight
        gain += product
        mass += move
        for i in range(first, after):
            places[kept] = i
            kept += state[i - first] > 0.0
    window[TAKEN], window[TAKEN_GAIN], window[TAKEN_MASS], window[PARTIAL] = taken, gain, mass, 1.0
    return kept


@kernel
def gathered(
    f: Array, s: Array, rise: Array, cap: Array, places: Places
) -> tuple[Array, Array, Array, Array]:
    """The entries at some places."""
    part = np.empty((4, places.size))
    for k in range(places.size):
        i = places[k]
        part[0, k], part[1, k], part[2, k], part[3, k] = f[i], s[i], rise[i], cap[i]
    return part[0], part[1], part[2], part[3]


@kernel
def search_windows(
    f: Array, s: Array, rise: Array, cap: Array, budget: float, top: float, spread: float, start: float,
    tol: float, kink: float, whole: Array, places: Places, work: Array, sample: Array, ends: Array,
    memory: Array,
) -> int:  # fmt: skip
    """`search` in a window around the minimum, or among all entries if it is not found there.

    `start` is where the samples' searches begin, or NaN.
    """
    window = np.empty(WINDOW)
    n, pi = sampled_window(
        f, s, rise, cap, budget, top, spread, start, whole, places, work, sample, ends, memory, window
    )
    evaluations = 0
    for _ in range(WINDOWS):
        # 1. Leave out what is decided, unless that is little.
        reach = 0.1 * (window[HIGH] - window[LOW])
        stride = 1 + f.size // (16 * BLOCK)
        if decide(f, s, rise, cap, top, window, places, stride) * stride > USEFUL * f.size:
            break
        kept = decide(f, s, rise, cap, top, window, places, 1)
        # 2. Search among the others, if what is taken leaves them a budget.
        above, below = window[TAKEN] > budget, False
        if not above:
            fk, sk, rk, ck = gathered(f, s, rise, cap, places[:kept])
            used, found = search(
                fk, sk, rk, ck, budget, top, n, reach, pi, tol, kink, window, places, work, sample, ends,
                memory,
            )  # fmt: skip
            evaluations += used
            if found:
                return evaluations
            above, below = ends[3, PI] > window[PI_HIGH], ends[3, PI] < window[PI_LOW]
        # 3. The window did not hold the minimum: make it wider on the side that was left.
        if above or below:
            widen_thresholds(window, WIDER * below, WIDER * above)
        else:
            widen_losses(window, WIDER, spread)
    reach = max(reach, 1e-9 * spread)
    more, _ = search(
        f, s, rise, cap, budget, top, n, reach, pi, tol, kink, whole, places, work, sample, ends, memory
    )
    return evaluations + more
