"""Wasserstein balls on a line: drop what cannot change any more between two rates, and pass mass on to p.

What a target is worth to an entry falls linearly with the rate, so that the best worth is convex in it: an
entry with the same target at both ends of a bracket has it in between, too. An entry whose target changes
moves its mass at most as far as at the low end, and only to some entries:

| power | a target of an entry at a rate in between |
|---|---|
| 1 | keeps its own mass at the high end |
| 2 | is on the envelope of parabolas at the high end: a higher rate only adds entries to it |
| other | may be any entry in reach |
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels.jit import kernel, strict, summing
from uncertainty_sets.kernels.wasserstein_envelope import ONE, ZERO, Places, length, signed, unsigned

DROPPED, TARGET, SOURCE = np.uint8(0), np.uint8(1), np.uint8(2)

Marks = NDArray[np.uint8]


@summing
def changing(low: Places, high: Places) -> int:
    """How many entries have different targets at both ends."""
    count = 0
    for j in range(low.size):
        count += low[j] != high[j]
    return count


@kernel
def sources(low: Places, high: Places, count: int) -> Places:
    """The entries with different targets at both ends, of which there are `count`."""
    found = np.empty(count, np.uint32)
    k = ZERO
    for j in range(unsigned(low.size)):
        if low[j] != high[j]:
            found[k] = j
            k += ONE
    return found


@kernel
def able(high: Places, power: float, hull: Places) -> Marks:
    """TARGET for entries that may be a target between both ends; `hull` is the envelope at the high end."""
    found = np.empty(high.size, np.uint8)
    if power == 1.0:
        for j in range(unsigned(high.size)):
            found[j] = TARGET if high[j] == j else DROPPED
        return found
    found[:] = DROPPED if power == 2.0 else TARGET
    for k in range(hull.size):
        found[hull[k]] = TARGET
    return found


@kernel
def mark(x: Array, low: Places, high: Places, changed: Places, targets: Marks, marks: Marks) -> int:
    """Mark the entries whose target changes (SOURCE) and those that may become one (TARGET); count both."""
    n = unsigned(x.size)
    marks[:] = DROPPED
    # 1. The entries in reach after and before a source; what an earlier source reached is not visited again.
    done, count = ZERO, unsigned(changed.size)
    for k in range(count):
        j = unsigned(changed[k])
        reach = x[j] + abs(x[low[j]] - x[j])
        done = max(done, j)
        while done < n and x[done] <= reach:
            marks[done] = targets[done]
            done += ONE
    done = n
    for k in range(count):
        j = unsigned(changed[count - ONE - k])
        reach = x[j] - abs(x[low[j]] - x[j])
        done = min(done, j + ONE)
        while done > ZERO and x[done - ONE] >= reach:
            done -= ONE
            marks[done] = targets[done]
    # 2. The sources; their targets at both ends in any case: rounding may have put them out of reach.
    for k in range(count):
        j = changed[k]
        marks[low[j]], marks[high[j]] = TARGET, TARGET
    for k in range(count):
        marks[changed[k]] = SOURCE
    kept = 0
    for j in range(n):
        kept += marks[j] != DROPPED
    return kept


@summing
def weigh(
    f: Array, x: Array, q: Array, top: float, power: float, goal: Places, changed: Places
) -> tuple[float, float]:
    """Σ q·(f_target - top) and Σ q·distance^power over the given entries."""
    gain, cost = 0.0, 0.0
    for k in range(changed.size):
        j = changed[k]
        target = goal[j]
        gain += q[j] * (f[target] - top)
        cost += q[j] * length(abs(x[target] - x[j]), power)
    return gain, cost


@kernel
def keep(
    f: Array, x: Array, q: Array, index: Places, low: Places, high: Places, marks: Marks, places: Places,
    kept: int,
) -> tuple[Array, Array, Array, Places, Places, Places]:  # fmt: skip
    """The marked entries' losses, positions, masses (0 for mere targets), indices and targets at both ends.

    `index` says where the entries stand in the row, and is empty for all of it; `places` is overwritten.
    """
    F, X, Q = np.empty(kept), np.empty(kept), np.empty(kept)
    which = np.empty(kept, np.uint32)
    k = ZERO
    for j in range(unsigned(f.size)):
        if marks[j] != DROPPED:
            F[k], X[k], Q[k] = f[j], x[j], q[j] if marks[j] == SOURCE else 0.0
            which[k], places[j] = j, k
            k += ONE
    first, second = np.empty(kept, np.uint32), np.empty(kept, np.uint32)
    for k in range(unsigned(kept)):
        j = unsigned(which[k])
        source = marks[j] == SOURCE
        first[k], second[k] = places[low[j]] if source else k, places[high[j]] if source else k
        which[k] = index[j] if index.size else j
    return F, X, Q, which, first, second


@kernel
def renumber(hull: Places, marks: Marks, places: Places) -> int:
    """Leave those entries of the envelope that are kept, under their new numbers; return how many."""
    count: int = ZERO
    for k in range(unsigned(hull.size)):
        if marks[hull[k]] != DROPPED:
            hull[count] = places[hull[k]]
            count += ONE
    kept: int = signed(count)
    return kept


@strict
def deposit(q: Array, goal: Places, other: Places, weight: float, index: Places, p: Array) -> None:
    """Add the masses of the entries with goal = other to their targets in p, `weight` times.

    The sources of one target stand side by side; their mass is summed together with its rounding error,
    since an error in p counts once per unit of distance.
    """
    target, mass, error = goal[0], 0.0, 0.0
    for j in range(unsigned(q.size)):
        if goal[j] != target:
            p[index[target] if index.size else target] += weight * (mass + error)
            target, mass, error = goal[j], 0.0, 0.0
        term = q[j] if goal[j] == other[j] else 0.0
        total = mass + term
        rounded = total - mass
        error += (mass - (total - rounded)) + (term - rounded)
        mass = total
    p[index[target] if index.size else target] += weight * (mass + error)
