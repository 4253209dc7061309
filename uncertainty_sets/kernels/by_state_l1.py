"""Total variation with a joint budget per state: Σ_a ½‖p_a-q_a‖₁ <= κ, as by_state.py says.

In a row, mass moves from the smallest losses to the largest, so that d_a(T) is piecewise linear and convex in
T, with the slope 1/(top - f) of the entry that moves last. Rows stay sorted between calls: insertion repairs
the last order, which hardly changes. Newton's method on Σ_a d_a(T) = κ comes from above after its first step
and ends on the right piece, mostly after two steps. Its tangents are the bounds, in which
c_a(θ) = Σ q·max(θ·f, θ·top - 1).
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Indices, Matrix, Vector
from uncertainty_sets.kernels.by_state import (
    EPS,
    FACTS,
    FLAT,
    HEIGHT,
    MEAN,
    OFFSET,
    ROUNDING,
    SPREAD,
    THETA,
    TOP,
    VARIANCE,
    X,
    gather,
    most_entries,
    most_rows,
    settle_range,
)
from uncertainty_sets.kernels.jit import entry, kernel, summing
from uncertainty_sets.kernels.layout import COLUMNS, DUAL, GAP, NOT_FINITE, OK, OUT_OF_RANGE, STATUS
from uncertainty_sets.kernels.scan import LARGEST, MOST, SMALLEST, Integers, finish, larger, put
from uncertainty_sets.kernels.selection import FEW, SAMPLE, share_of, sort_pairs, threshold

STEPS = 60
BELOW = VARIANCE  # a column that is free here: how many entries lie below the top


@kernel
def insert(x: float, e: int, k: int, z: Array, order: Integers) -> int:
    """Put the loss x of entry e into the k that are sorted; return how many moved."""
    j = k - 1
    while j >= 0 and z[j] > x:
        z[j + 1], order[j + 1] = z[j], order[j]
        j -= 1
    z[j + 1], order[j + 1] = x, e
    return k - 1 - j


@kernel
def sort_row(
    values: Array, places: Integers, extra: Array, factor: float, unit: float, order: Integers, z: Array,
    keys: Array, names: Array,
) -> None:  # fmt: skip
    """Write a row's losses upwards into z, from an order that is nearly right.

    The loss of entry e is factor·values[places[e]] + unit·extra[e]; empty `places` means e, empty `extra` 0.
    """
    n, moves, most, k = z.size, 0, 16 * z.size, 0
    if places.size == 0 and extra.size > 0:
        while k < n and moves <= most:
            e = order[k]
            moves += insert(factor * values[e] + unit * extra[e], e, k, z, order)
            k += 1
    else:
        while k < n and moves <= most:
            e = order[k]
            moves += insert(loss_of(values, places, extra, factor, unit, e), e, k, z, order)
            k += 1
    if k == n:
        return
    for e in range(n):
        keys[e], names[e] = -loss_of(values, places, extra, factor, unit, e), e
    sort_pairs(keys, names, n)
    for k in range(n):
        z[k], order[k] = -keys[k], int(names[k])


@kernel
def loss_of(values: Array, places: Integers, extra: Array, factor: float, unit: float, e: int) -> float:
    """The loss of one entry, as `sort_row` says."""
    x: float = factor * values[places[e] if places.size > 0 else e]
    if extra.size > 0:
        x += unit * extra[e]
    return x


@kernel
def accumulate(q: Array, order: Integers, z: Array, cost: Array, mass: Array) -> int:
    """Write the sums of q·(top - f) and of q in the order of z; return how many are below the top."""
    n = z.size
    top, spent, moved, below = z[n - 1], 0.0, 0.0, n
    for k in range(n):
        x = q[order[k]]
        spent += x * (top - z[k])
        moved += x
        cost[k], mass[k] = spent, moved
    while below > 0 and z[below - 1] == top:
        below -= 1
    return below


@kernel
def read(
    values: Array, indices: Integers, offsets: Array, row_offsets: Array, sizes: Array, scale: float,
    unit: float, indptr: Integers, start: int, stop: int, center: Array, order: Integers, work: Array,
    table: Array, size: Array,
) -> None:  # fmt: skip
    """Sort the rows start, …, stop - 1: losses, costs and masses in work[0], work[1] and work[2]."""
    base, factor = indptr[start], unit * scale
    for b in range(start, stop):
        a, i, j = b - start, indptr[b], indptr[b + 1]
        z, cost, mass = (
            work[0, i - base : j - base],
            work[1, i - base : j - base],
            work[2, i - base : j - base],
        )
        places = indices[i:j] if indices.size > 0 else indices
        extra = offsets[i:j] if offsets.size > 0 else offsets
        sort_row(values, places, extra, factor, unit, order[i:j], z, cost, mass)
        below = accumulate(center[i:j], order[i:j], z, cost, mass)
        least, top = z[0], z[z.size - 1]
        table[a, TOP], table[a, SPREAD], table[a, OFFSET] = top, top - least, unit * row_offsets[b]
        table[a, BELOW] = below
        table[a, MEAN] = -cost[z.size - 1] / (top - least) if below > 0 else 0.0
        size[a] = 2.0 * (unit * sizes[b]) + max(abs(least), abs(top))


@kernel
def move(
    indptr: Integers, start: int, count: int, work: Array, table: Array, t: float
) -> tuple[float, float]:
    """(Σ d, Σ θ) at T; write the mass that each row moves into X, its slope into THETA.

    The sum is that of the tangents, which is the same unless T is above a row's top.
    """
    base, spent, slopes = indptr[start], 0.0, 0.0
    for a in range(count):
        i, below = indptr[start + a] - base, int(table[a, BELOW])
        need = t - (table[a, HEIGHT] + table[a, SPREAD] * table[a, MEAN])
        if not need > 0.0 or below == 0 or table[a, MEAN] == 0.0:
            table[a, X], table[a, THETA] = 0.0, 0.0
            continue
        # The first entry at which the cost of moving reaches the need.
        low, high = 0, below - 1
        while low < high:
            middle = (low + high) // 2
            if work[1, i + middle] >= need:
                high = middle
            else:
                low = middle + 1
        height = table[a, TOP] - work[0, i + low]
        before = work[1, i + low - 1] if low > 0 else 0.0
        moved = work[2, i + low - 1] if low > 0 else 0.0
        moved += (need - before) / height
        table[a, X], table[a, THETA] = moved, 1.0 / height
        spent += moved
        slopes += 1.0 / height
    return spent, slopes


@kernel
def keep_budget(table: Array, count: int, excess: float) -> None:
    """Take back what the rounding of T has spent above the budget, from the rows that lose least by it."""
    for _ in range(count):
        if not excess > 0.0:
            return
        chosen, steepest = 0, 0.0
        for a in range(count):
            if table[a, X] > 0.0 and table[a, THETA] > steepest:
                chosen, steepest = a, table[a, THETA]
        taken = min(excess, table[chosen, X])
        table[chosen, X] -= taken
        excess -= taken


@kernel
def write_row(
    q: Array, i: int, n: int, order: Integers, work: Array, at: int, top: float, below: int, moved: float,
    P: Array,
) -> tuple[float, float]:  # fmt: skip
    """Move mass from the smallest losses of a row to its largest one; (what the mean gains, the mass).

    An empty P is not written.
    """
    k, gained, left, wanted = 0, 0.0, moved, P.size > 0
    if wanted:
        for e in range(i, i + n):
            P[e] = q[e]
    while k < below and left > 0.0:
        e = i + order[i + k]
        taken = min(left, q[e])
        if wanted:
            P[e] = q[e] - taken
        gained += taken * (top - work[0, at + k])
        left -= taken
        k += 1
    if wanted:
        P[i + order[i + n - 1]] += moved - left
    return gained, moved - left


@kernel
def solve(
    q: Array, indptr: Integers, start: int, stop: int, order: Integers, work: Array, table: Array,
    size: Array, budget: float, policy: Array, P: Array, one: Array,
) -> None:  # fmt: skip
    """Improve one state whose rows are read; one[DUAL] is T of a similar state or NaN, and is replaced."""
    count, base = stop - start, indptr[start]
    status, low, width, spread, scale = settle_range(table, count, size)
    t = one[DUAL]
    one[STATUS], one[ROUNDING] = status, 4.0 * EPS * scale + FLAT * width
    if status != OK:
        one[GAP] = spread
        return
    # 1. No budget, or nothing to gain.
    bound, steps, saturated = width, 1, False
    idle = budget == 0.0 or width <= 8.0 * EPS * spread
    if idle:
        for a in range(count):
            table[a, X], table[a, THETA] = 0.0, 0.0
    # 2. Newton's method: from above it keeps to its side, and each T is the tangent's bound. A budget that
    # takes every row to the least top, the largest T of all, is found there.
    else:
        t = t if t > 0.0 and t < width else 0.5 * width
        for turn in range(STEPS):
            spent, slopes = move(indptr, start, count, work, table, t)
            steps += 1
            saturated = t == width and spent <= budget
            if saturated:
                bound = width
                break
            bound = t + (budget - spent) / slopes
            after = min(max(bound, EPS * width), width)  # at 0 no row would move
            if abs(spent - budget) <= 4.0 * EPS * budget or (turn > 0 and not after < t and t < width):
                break
            t = after
        keep_budget(table, count, spent - budget)
    # 3. Write p, which moves no more than the budget, and the policy.
    value, weight, chosen, least, spent = np.inf, 0.0, 0, np.inf, 0.0
    for a in range(count):
        i, n = indptr[start + a], indptr[start + a + 1] - indptr[start + a]
        mean = table[a, HEIGHT] + table[a, SPREAD] * table[a, MEAN]
        gained, moved = write_row(
            q, i, n, order, work, i - base, table[a, TOP], int(table[a, BELOW]), table[a, X], P
        )
        value = min(value, mean + gained)
        spent += moved
        weight += table[a, THETA]
        at = mean if budget == 0.0 else table[a, HEIGHT]
        if at < least:
            least, chosen = at, a
    for a in range(count):
        policy[a] = 0.0 if idle or saturated else table[a, THETA] / weight
    if idle or saturated:
        policy[chosen] = 1.0
    if budget == 0.0:
        bound = value
    # 4. Judge them.
    violation = (spent - budget) / max(1.0, budget)
    finish(one, low, value, bound, max(violation, 0.0), steps * count, spread)
    one[DUAL] = np.nan if idle else value


@entry("order", "policy", "P", "out")
@kernel
def improve(
    values: Vector, indices: Indices, offsets: Vector, row_offsets: Vector, sizes: Vector, scale: float,
    unit: float,
    state_rows: Indices, indptr: Indices, first: int, after: int, center: Vector, budget: Vector,
    order: Indices, policy: Vector, P: Vector, out: Matrix,
) -> None:  # fmt: skip
    """Improve the states first, …, after - 1; `order` has the places in each row, and out[DUAL] a start."""
    entries, count = most_entries(state_rows, indptr, first, after), most_rows(state_rows, first, after)
    work, table, size = np.empty((3, entries)), np.empty((count, FACTS)), np.empty(count)
    one = np.empty(COLUMNS)
    for s in range(first, after):
        start, stop = state_rows[s], state_rows[s + 1]
        read(
            values, indices, offsets, row_offsets, sizes, scale, unit, indptr, start, stop, center, order,
            work, table, size,
        )  # fmt: skip
        one[DUAL] = out[DUAL, s]
        solve(center, indptr, start, stop, order, work, table, size, budget[s], policy[start:stop], P, one)
        put(one, out, s)


@summing
def gains(f: Array, top: float, weight: float, q: Array, gain: Array) -> float:
    """Write what a unit of mass gains that moves from each entry to the top; return Σ q·gain."""
    total = 0.0
    for i in range(f.size):
        x = weight * (top - f[i])
        gain[i] = x
        total += q[i] * x
    return total


@summing
def beyond(gain: Array, q: Array, t: float) -> tuple[float, float]:
    """Σ q·(gain - t)₊, and the mass of the entries that gain anything."""
    total, mass = 0.0, 0.0
    for i in range(gain.size):
        total += q[i] * larger(gain[i] - t, 0.0)
        mass += q[i] if gain[i] > 0.0 else 0.0
    return total, mass


@kernel
def shift(f: Array, q: Array, gain: Array, top: float, t: float, share: float, p: Array) -> tuple[
    float, float
]:  # fmt: skip
    """Move the entries above t, and a share of those at t, to the top; (the gain, the mass)."""
    moved, gained, place = 0.0, 0.0, 0
    for i in range(f.size):
        part = 1.0 if gain[i] > t else (share if gain[i] == t else 0.0)
        taken = part * q[i] if gain[i] > 0.0 else 0.0
        p[i] = q[i] - taken
        moved += taken
        gained += taken * gain[i]
        if f[i] == top:
            place = i
    p[place] += moved
    return gained, moved


@entry("P", "out")
@kernel
def evaluate(
    values: Vector, indices: Indices, offsets: Vector, row_offsets: Vector, sizes: Vector, scale: float,
    unit: float,
    state_rows: Indices, indptr: Indices, first: int, after: int, center: Vector, budget: Vector,
    policy: Vector, P: Vector, out: Matrix,
) -> None:  # fmt: skip
    """Evaluate a policy: mass moves where π_a·(top - f) is largest, by one selection per state."""
    entries, count = most_entries(state_rows, indptr, first, after), most_rows(state_rows, first, after)
    work, tops, one = np.empty((4, entries)), np.empty(count), np.empty(COLUMNS)
    sample = np.empty((2, SAMPLE if entries > FEW else 1))
    for s in range(first, after):
        start, stop = state_rows[s], state_rows[s + 1]
        base = indptr[start]
        n = indptr[stop] - base
        gain, q = work[1][:n], center[base : base + n]
        # 1. The losses, and what each entry gains.
        reference, spread, size, nominal, status = 0.0, 0.0, 0.0, 0.0, OK
        for b in range(start, stop):
            i, j = indptr[b], indptr[b + 1]
            f, weight, offset = work[0][i - base : j - base], policy[b], unit * row_offsets[b]
            least, top = gather(values, indices, offsets, scale, unit, i, f)
            part = 2.0 * (unit * sizes[b]) + max(abs(least), abs(top))
            if weight > 0.0 and not (abs(offset + top) <= MOST and top - least <= MOST):
                status = OUT_OF_RANGE if part <= MOST else NOT_FINITE
            tops[b - start] = top
            reference += weight * (offset + top)
            spread += weight * (top - least)
            size += weight * part
            nominal -= gains(f, top, weight, q[i - base : j - base], gain[i - base : j - base])
        if status == OK and (spread > LARGEST or (spread < SMALLEST and spread > 0.0)):
            status = OUT_OF_RANGE
        one[STATUS], one[ROUNDING], one[GAP] = status, 4.0 * EPS * size, spread
        if status == OK:
            # 2. The threshold at which the budget is used up, and the bound that it proves.
            _, mass = beyond(gain, q, 0.0)
            t, share, bound = 0.0, 1.0, 0.0
            if mass > budget[s]:
                t, above, at = threshold(gain, q, budget[s], work[2][:n], work[3][:n], sample)
                share = share_of(budget[s] - above, at)
                rest, _ = beyond(gain, q, t)
                bound = nominal + budget[s] * t + rest
            # 3. Write p, and judge it.
            value, spent = nominal, 0.0
            for b in range(start, stop):
                i, j = indptr[b], indptr[b + 1]
                part = slice(i - base, j - base)
                gained, moved = shift(work[0][part], q[part], gain[part], tops[b - start], t, share, P[i:j])
                value += gained
                spent += moved
            violation = max((spent - budget[s]) / max(1.0, budget[s]), 0.0)
            finish(one, reference, value, bound, violation, 2 * (stop - start), spread)
        one[DUAL] = np.nan
        put(one, out, s)
