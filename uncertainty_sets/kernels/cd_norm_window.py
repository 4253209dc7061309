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
    Indices,
    below_top,
    height,
    search,
)
from uncertainty_sets.kernels.jit import kernel, summing
from uncertainty_sets.kernels.scan import larger, smaller
from uncertainty_sets.kernels.tangent import X

SAMPLES = 4
SAMPLE_SHARE = 128  # a sample has one of so many entries
MARGIN = 0.75  # of the range of the samples' answers, to either side: about five standard errors in all
WIDER = 8.0  # times, if the window did not hold the minimum
WINDOWS = 2  # tried before all entries are searched
USEFUL = 0.5  # of the entries; a window that leaves more undecided does not help

Counts = NDArray[np.int64]


@summing
def weighted_sums(f: Array, s: Array, top: float) -> tuple[float, float, float]:
    """Σ s·(f - top), Σ s and max s, with spreads above 1 counted as 1: no entry moves by more."""
    total, weight, most = 0.0, 0.0, 0.0
    for i in range(f.size):
        x = smaller(s[i], 1.0)
        total += x * (f[i] - top)
        weight += x
        most = larger(most, x)
    return total, weight, most


@summing
def total_height(f: Array, s: Array, top: float, n: float) -> float:
    """Σ s·|f - ν|, with spreads above 1 counted as 1."""
    total = 0.0
    for i in range(f.size):
        total += smaller(s[i], 1.0) * abs(f[i] - top - n)
    return total


@kernel
def draw_samples(
    f: Array,
    s: Array,
    rise: Array,
    cap: Array,
    top: float,
    n: float,
    by_height: float,
    by_spread: float,
    by_number: float,
    samples: Array,
    counts: Counts,
) -> None:
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
    whole: Array,
    window: Array,
) -> None:
    """Solve the samples; the window holds their answers with a margin."""
    # 1. Draw them; a third of the chances goes by heights, by spreads and by numbers each.
    total, weight, most = weighted_sums(f, s, top)
    n = total / weight
    heights = total_height(f, s, top, n)
    size = f.size // SAMPLE_SHARE
    samples, counts = np.empty((SAMPLES, 4, SAMPLES * size + SAMPLES)), np.empty(SAMPLES, np.int64)
    share = size / 3.0
    by_height = share / heights if heights > 0.0 else 0.0
    draw_samples(f, s, rise, cap, top, n, by_height, share / weight, share / f.size, samples, counts)
    # 2. Solve them, each from the answer of the one before.
    tolerance = 1e-6 * spread * min(weight, budget * most)
    reach, pi = 0.03 * spread, np.nan
    for k in range(SAMPLES):
        c = counts[k]
        fs, ss, rs, cs = samples[k, 0, :c], samples[k, 1, :c], samples[k, 2, :c], samples[k, 3, :c]
        search(
            fs,
            ss,
            rs,
            cs,
            budget,
            top,
            n,
            reach,
            pi,
            tolerance,
            spread / c**2,
            whole,
            work,
            sample,
            ends,
            memory,
        )
        found, pi = ends[2, X], ends[2, PI]
        if k == 0:
            window[LOW], window[HIGH], window[PI_LOW], window[PI_HIGH] = found, found, pi, pi
        window[LOW], window[HIGH] = min(window[LOW], found), max(window[HIGH], found)
        window[PI_LOW], window[PI_HIGH] = min(window[PI_LOW], pi), max(window[PI_HIGH], pi)
        reach = 1e-3 * spread if k == 0 else max(abs(found - n), 1e-9 * spread)
        n = found
    # 3. A margin to either side.
    widen(window, MARGIN, whole)


@kernel
def widen(window: Array, margin: float, whole: Array) -> None:
    """Make both ranges wider by `margin` times their length to either side, within those of `whole`."""
    for low in (LOW, PI_LOW):
        far = margin * (window[low + 1] - window[low])
        window[low] = max(whole[low], window[low] - far)
        window[low + 1] = min(whole[low + 1], window[low + 1] + far)


@summing
def decide_block(
    f: Array,
    s: Array,
    rise: Array,
    cap: Array,
    top: float,
    n0: float,
    n1: float,
    least: float,
    most: float,
    first: int,
    after: int,
    undecided: Array,
) -> tuple[float, float, float]:
    """Sums of the entries taken for all n in [n0, n1] and all thresholds in [least, most]; 1.0 if undecided."""
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
def decide(f: Array, s: Array, rise: Array, cap: Array, top: float, window: Array, places: Indices) -> int:
    """Sum what is taken everywhere in the window into it; return how many are undecided, with their places."""
    state = np.empty(BLOCK)
    n0, n1, least, most = window[LOW], window[HIGH], window[PI_LOW], window[PI_HIGH]
    taken, gain, mass, kept = 0.0, 0.0, 0.0, 0
    for first in range(0, f.size, BLOCK):
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
def search_windows(
    f: Array,
    s: Array,
    rise: Array,
    cap: Array,
    budget: float,
    top: float,
    spread: float,
    tolerance: float,
    kink: float,
    whole: Array,
    work: Array,
    sample: Array,
    ends: Array,
    memory: Array,
) -> tuple[int, bool]:
    """`search` in a window around the minimum; evaluations, and whether it was found."""
    window, places = np.empty(WINDOW), np.empty(f.size + 1, np.int32)
    sampled_window(f, s, rise, cap, budget, top, spread, work, sample, ends, memory, whole, window)
    evaluations = 0
    for _ in range(WINDOWS):
        # 1. Leave out what is decided, unless that is little.
        kept = decide(f, s, rise, cap, top, window, places)
        if kept > USEFUL * f.size:
            break
        if window[TAKEN] <= budget:
            # 2. Search among the others.
            part = np.empty((4, kept))
            for k in range(kept):
                i = places[k]
                part[0, k], part[1, k], part[2, k], part[3, k] = f[i], s[i], rise[i], cap[i]
            start = 0.5 * window[LOW] + 0.5 * window[HIGH]
            reach = 0.1 * (window[HIGH] - window[LOW])
            pi = 0.5 * window[PI_LOW] + 0.5 * window[PI_HIGH]
            used, found = search(
                part[0],
                part[1],
                part[2],
                part[3],
                budget,
                top,
                start,
                reach,
                pi,
                tolerance,
                kink,
                window,
                work,
                sample,
                ends,
                memory,
            )
            evaluations += used
            if found:
                return evaluations, True
        # 3. The window did not hold the minimum.
        widen(window, WIDER, whole)
    return evaluations, False
