"""Weighted L1: moving a unit of mass from i to j costs w_i + w_j, and `radius` pays for all moves.

At a price λ every source's mass goes to the one target with the largest f - λw, if that is worth it:

    φ(λ) = λ·radius + Σ q·max(f, M - λw),    M = max(f - λw)

is convex; tangent.py finds its minimum. At a price of spread/(2·min w) nothing moves. What moves at the upper
end of the bracket also moves in between, what stays at its lower end stays, and a target that is worth less
at the lower end than the best one at the upper end is never the best: from PRUNED_FROM entries on,
evaluations leave these out. Losses are measured from their maximum `top`.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Indices, Matrix, Vector
from uncertainty_sets.kernels.jit import entry, kernel, strict, summing
from uncertainty_sets.kernels.layout import COLUMNS, DUAL, OK, OUT_OF_RANGE, STATUS
from uncertainty_sets.kernels.scan import finish, larger, longest_row, losses_of, put, scan, smaller
from uncertainty_sets.kernels.tangent import (
    GAIN,
    MASS,
    MEMORY,
    X,
    aim,
    mixture,
    next_point,
    reset,
    set_end,
    settle_bracket,
    update_bracket,
)

EVALUATIONS = 200
PRUNED_FROM = 200  # entries; below, passes over all of them cost less than moving them about
SLOWEST, FASTEST = 1e-290, 1e290  # prices that keep all products in range
ROUNDED = 2.0**-52  # how well an entry of p is known, relative to it: it is a sum of two terms

# Columns of an end of the bracket, after those of tangent.py (x = λ, gain = Σ p·(f-top), mass = what is spent
# beyond the radius): the weight of its target, and M - top, which is -∞ at an end at which nothing moves.
WEIGHT, BEST = 3, 4
END = 5

# Rows of `kept`: losses and weights of the targets; losses, weights and masses of the sources.
TARGETS, TARGET_WEIGHTS, SOURCES, SOURCE_WEIGHTS, MASSES = range(5)


@strict
def worth(f: float, w: float, top: float, rate: float) -> float:
    """What a target is worth before the source's own cost, always rounded alike: it decides ties."""
    return (f - top) - rate * w


@strict
def moves(f: float, w: float, top: float, rate: float, best: float) -> bool:
    """Whether it pays for a source to move."""
    return best - rate * w > f - top


@summing
def overview(f: Array, w: Array, q: Array, top: float) -> tuple[float, float, float, float, float]:
    """Σ q·(f - top), min w, the least weight of a largest loss, and mass and Σ q·w of all other entries."""
    mean, least, lightest, mass, cost = 0.0, w[0], np.inf, 0.0, 0.0
    for i in range(f.size):
        x, y = q[i], w[i]
        mean += x * (f[i] - top)
        least = smaller(least, y)
        other = f[i] < top
        lightest = smaller(lightest, np.inf if other else y)
        x = x if other else 0.0
        mass += x
        cost += x * y
    return mean, least, lightest, mass, cost


@summing
def best_target(f: Array, w: Array, count: int, top: float, rate: float) -> float:
    """M - top: what the best target is worth."""
    best = -np.inf
    for i in range(count):
        best = larger(best, worth(f[i], w[i], top, rate))
    return best


@summing
def lightest_target(f: Array, w: Array, count: int, top: float, rate: float, best: float) -> float:
    """The least weight of the best targets."""
    lightest = np.inf
    for i in range(count):
        y = w[i]
        lightest = smaller(lightest, y if worth(f[i], y, top, rate) == best else np.inf)
    return lightest


@summing
def sums(
    f: Array, w: Array, q: Array, count: int, top: float, rate: float, best: float
) -> tuple[float, float, float]:
    """Of the sources that move: mass and Σ q·w; of those that stay: Σ q·(f - top)."""
    mass, cost, stay = 0.0, 0.0, 0.0
    for i in range(count):
        x, y = q[i], w[i]
        gone = x if moves(f[i], y, top, rate, best) else 0.0
        mass += gone
        cost += gone * y
        stay += (x - gone) * (f[i] - top)
    return mass, cost, stay


@kernel
def prune(
    targets: Array, target_weights: Array, count: int, sources: Array, source_weights: Array, masses: Array,
    size: int, top: float, ends: Array, settled: Array, kept: Array,
) -> tuple[int, int]:  # fmt: skip
    """Keep the targets and sources whose part between both ends is open; return how many.

    `settled` gets mass and Σ q·w of the sources that move at both ends, Σ q·(f - top) of those that stay.
    The inputs may be rows of `kept` themselves.
    """
    low, best_low, high, best_high = ends[0, X], ends[0, BEST], ends[1, X], ends[1, BEST]
    left = 0
    for i in range(count):
        a, y = targets[i], target_weights[i]
        kept[TARGETS, left], kept[TARGET_WEIGHTS, left] = a, y
        left += worth(a, y, top, low) >= best_high
    open_ = 0
    mass, cost, stay = 0.0, 0.0, 0.0
    for i in range(size):
        a, y, x = sources[i], source_weights[i], masses[i]
        kept[SOURCES, open_], kept[SOURCE_WEIGHTS, open_], kept[MASSES, open_] = a, y, x
        goes = moves(a, y, top, high, best_high)
        stays = not moves(a, y, top, low, best_low)
        gone = x if goes else 0.0
        mass += gone
        cost += gone * y
        stay += x * (a - top) if stays else 0.0
        open_ += not (goes | stays)
    settled[0] += mass
    settled[1] += cost
    settled[2] += stay
    return left, open_


@kernel
def search(
    f: Array, w: Array, q: Array, radius: float, top: float, spread: float, start: float, ends: Array,
    memory: Array, settled: Array, kept: Array,
) -> int:  # fmt: skip
    """Close in on the minimum from the ends of the bracket; return the number of evaluations.

    `start` is the first price to try, or NaN.
    """
    targets, target_weights, count = f, w, f.size
    sources, source_weights, masses, size = f, w, q, f.size
    settled[0], settled[1], settled[2] = 0.0, 0.0, 0.0
    trial, kink, evaluations = ends[3], 10.0 * spread / float(f.size) ** 2, 1
    rate, over = next_point(ends, memory, 0.0, kink, radius)
    if start > 0.0 and start < ends[1, X]:
        rate = start
    while not over and evaluations < EVALUATIONS:
        # 1. What moves at this price, and where to.
        best = best_target(targets, target_weights, count, top, rate)
        weight = lightest_target(targets, target_weights, count, top, rate, best)
        mass, cost, stay = sums(sources, source_weights, masses, size, top, rate, best)
        mass, cost, stay = mass + settled[0], cost + settled[1], stay + settled[2]
        evaluations += 1
        trial[X], trial[WEIGHT], trial[BEST] = rate, weight, best
        trial[GAIN] = stay + mass * (best + rate * weight)
        trial[MASS] = cost + mass * weight - radius
        # 2. It becomes an end of the bracket, or both if it costs exactly the radius.
        update_bracket(trial, ends, memory)
        if trial[MASS] == 0.0:
            set_end(ends, 1, trial)
            break
        rate, over = next_point(ends, memory, aim(spread, f.size), kink, radius)
        # 3. Leave out what is decided.
        if size > PRUNED_FROM and not over:
            count, size = prune(
                targets, target_weights, count, sources, source_weights, masses, size, top, ends, settled,
                kept,
            )  # fmt: skip
            targets, target_weights = kept[TARGETS], kept[TARGET_WEIGHTS]
            sources, source_weights, masses = kept[SOURCES], kept[SOURCE_WEIGHTS], kept[MASSES]
    return evaluations


@kernel
def target_of(f: Array, w: Array, top: float, end: Array) -> int:
    """The place of an end's target; any place if nothing moves there."""
    for i in range(f.size):
        if w[i] == end[WEIGHT] and worth(f[i], w[i], top, end[X]) == end[BEST]:
            return i
    return 0


@summing
def fill(f: Array, w: Array, q: Array, top: float, ends: Array, mix: float, p: Array) -> tuple[float, float]:
    """Write what is left of q in the mixture of both ends; return the mass that moves at each."""
    low, best_low, high, best_high = ends[0, X], ends[0, BEST], ends[1, X], ends[1, BEST]
    first, second = 0.0, 0.0
    for i in range(f.size):
        x = q[i]
        early = moves(f[i], w[i], top, low, best_low)
        late = moves(f[i], w[i], top, high, best_high)
        # Exactly q if it stays at both ends: a large weight would turn rounding into a cost.
        mixed = x * (1.0 - mix) if early else x
        p[i] = (0.0 if early else x * mix) if late else mixed
        first += x if early else 0.0
        second += x if late else 0.0
    return first, second


@summing
def totals(
    f: Array, w: Array, q: Array, top: float, rate: float, best: float, p: Array
) -> tuple[float, float, float, float]:
    """Σ p·(f - top), the bound without λ·radius, Σp, and Σ w·|p - q| beyond the rounding of p."""
    value, bound, total, spent = 0.0, 0.0, 0.0, 0.0
    for i in range(f.size):
        g, x = f[i] - top, p[i]
        total += x
        value += x * g
        bound += q[i] * larger(g, best - rate * w[i])
        spent += w[i] * larger(abs(x - q[i]) - ROUNDED * x, 0.0)
    return value, bound, total, spent


@kernel
def write(
    f: Array, w: Array, q: Array, radius: float, top: float, ends: Array, p: Array
) -> tuple[float, float, float]:
    """Write p from both ends; return its value, the bound of the price in ends[2], the violation."""
    mix, rate = mixture(ends), ends[2, X]
    first, second = fill(f, w, q, top, ends, mix, p)
    i, j = target_of(f, w, top, ends[0]), target_of(f, w, top, ends[1])
    first, second = mix * first, (1.0 - mix) * second
    if i == j:
        p[i] += first + second
    else:
        p[i] += first
        p[j] += second
    best = best_target(f, w, f.size, top, rate)
    value, bound, total, spent = totals(f, w, q, top, rate, best, p)
    violation = max(abs(total - 1.0), (spent - radius) / max(1.0, radius))
    return value, bound + rate * radius, violation


@kernel
def solve(
    f: Array, w: Array, q: Array, radius: float, warm: float, p: Array, out: Array, ends: Array,
    memory: Array, settled: Array, kept: Array,
) -> None:  # fmt: skip
    """Solve one row; `warm`: first price to try, or NaN; ends, memory, settled and kept are work space."""
    # 1. Read the losses; those that are not finite or must be scaled first go back to the caller.
    least, top, status = scan(f)
    if status != OK:
        out[STATUS] = status
        return
    spread, trial, evaluations = top - least, ends[3], 1
    mean, lightest, weight, mass, cost = overview(f, w, q, top)
    still = spread / (2.0 * lightest)
    if spread > 0.0 and not (still > SLOWEST and still < FASTEST):
        out[STATUS] = OUT_OF_RANGE
        return
    # 2. Moves at no price: the answer if the radius pays for all of them.
    reset(memory)
    trial[X], trial[GAIN], trial[WEIGHT], trial[BEST] = 0.0, 0.0, weight, 0.0
    trial[MASS] = cost + mass * weight - radius
    if trial[MASS] <= 0.0:
        settle_bracket(trial, ends, memory)
    else:
        # 3. The price at which nothing moves: the answer if nothing may be spent. Otherwise search.
        update_bracket(trial, ends, memory)
        trial[X], trial[GAIN], trial[MASS], trial[BEST] = still, mean, -radius, -np.inf
        if radius == 0.0:
            settle_bracket(trial, ends, memory)
        else:
            update_bracket(trial, ends, memory)
            evaluations = search(f, w, q, radius, top, spread, warm, ends, memory, settled, kept)
    # 4. Write p and judge it.
    value, bound, violation = write(f, w, q, radius, top, ends, p)
    finish(out, top, value, bound, violation, evaluations, spread)
    out[DUAL] = ends[2, X]


@entry("P", "out")
@kernel
def rows(
    F: Matrix, center: Matrix, weights: Matrix, radius: Vector, warm: Matrix, P: Matrix, out: Matrix
) -> None:
    """Solve every row of F; parameters with one row serve all rows."""
    n = F.shape[1]
    ends, memory, settled = np.empty((4, END)), np.empty(MEMORY), np.empty(3)
    kept = np.empty((5, n if n > PRUNED_FROM else 1))
    many, started = center.shape[0] > 1, warm.shape[0] > 1
    for b in range(F.shape[0]):
        r = b if many else 0
        q, w, start = center[r], weights[r], warm[b if started else 0, 0]
        solve(F[b], w, q, radius[r], start, P[b], out[b], ends, memory, settled, kept)


@entry("P", "out")
@kernel
def ragged(
    values: Vector, indices: Indices, offsets: Vector, scale: float, unit: float, indptr: Indices, first: int,
    after: int, center: Vector, weights: Vector, radius: Vector, warm: Matrix, P: Vector, out: Matrix,
) -> None:  # fmt: skip
    """Solve the rows from `first` to `after`, each with its own entries (scan.py)."""
    most = longest_row(indptr, first, after)
    scratch, one = np.empty(most), np.full(COLUMNS, np.nan)
    ends, memory, settled = np.empty((4, END)), np.empty(MEMORY), np.empty(3)
    kept = np.empty((5, most if most > PRUNED_FROM else 1))
    equal = np.full(most, weights[0])  # one weight for all entries
    single, many, started = weights.size == 1, radius.size > 1, warm.shape[1] > 1
    for b in range(first, after):
        i, j = indptr[b], indptr[b + 1]
        f = losses_of(values, indices, offsets, scale, unit, i, j, scratch)
        w = equal[: j - i] if single else weights[i:j]
        limit, start = radius[b if many else 0], warm[0, b if started else 0]
        solve(f, w, center[i:j], limit, start, P[i:j], one, ends, memory, settled, kept)
        put(one, out, b)
