"""CD-norm: p = q + s·u with -cap <= u <= rise, Σ|u| <= budget, Σ s·u = 0; cap = min(1, q/s) holds p >= 0, and
rise = min(1, (1-q)/s) says p <= 1, which is implied but keeps sums of size 1 if spreads are larger.

Equal spreads take two selections, budget/2 up and budget/2 down, or a box if they meet; any others a search
for the multiplier ν of Σ s·u = 0 (cd_norm_search.py). Both leave in `ends` what p is made of, and `write`
does the rest. Losses are measured from their maximum `top`, and n = ν - top.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Indices, Matrix, Vector
from uncertainty_sets.kernels.cd_norm_search import (
    BLOCK,
    END,
    HIGH,
    LOW,
    PARTIAL,
    PI,
    PI_HIGH,
    PI_LOW,
    SHARE,
    TAKEN,
    TAKEN_GAIN,
    TAKEN_MASS,
    WINDOW,
    Places,
    below_top,
    middle,
    moved,
    search,
)
from uncertainty_sets.kernels.cd_norm_window import search_windows
from uncertainty_sets.kernels.jit import entry, kernel, summing
from uncertainty_sets.kernels.layout import COLUMNS, DUAL, OK, STATUS
from uncertainty_sets.kernels.scan import finish, larger, longest_row, losses_of, put, scan
from uncertainty_sets.kernels.selection import FEW, SAMPLE, share_of, threshold
from uncertainty_sets.kernels.tangent import MEMORY, X, aim, mixture

PRUNED_FROM = 20_000  # entries; above, a sample tells which ones matter


@kernel
def equal_ends(
    f: Array, s: Array, rise: Array, cap: Array, budget: float, top: float, work: Array, sample: Array,
    ends: Array,
) -> bool:  # fmt: skip
    """Spend budget/2 up on the largest losses and budget/2 down on the smallest; False if they meet.

    The two thresholds are those of one knapsack with ν in the middle between them and π/s half their
    distance. ends[0] and ends[1] receive threshold and share, upper and lower; ends[2] ν and π.
    """
    # 1. Both selections; downwards is upwards of -f.
    v, keys, weights = work[0, : f.size], work[2], work[3]
    most, half = 0.0, 0.5 * budget
    for i in range(f.size):
        v[i] = -f[i]
        most = max(most, s[i])
    up, above_up, at_up = threshold(f, rise, half, keys, weights, sample)
    down, above_down, at_down = threshold(v, cap, half, keys, weights, sample)
    down = -down
    # 2. The budget does not bind if one side cannot spend its half, or if the sides meet.
    if min(above_up + at_up, above_down + at_down) < half or up <= down:
        return False
    # 3. Thresholds, shares and multipliers.
    ends[0, 0], ends[0, 1] = up, share_of(half - above_up, at_up)
    ends[1, 0], ends[1, 1] = down, share_of(half - above_down, at_down)
    ends[2, X] = 0.5 * (up - top) + 0.5 * (down - top)
    ends[2, PI] = most * (0.5 * (up - down))
    return True


@summing
def fill_equal(f: Array, q: Array, s: Array, rise: Array, cap: Array, ends: Array, p: Array) -> None:
    """Write p from the two thresholds: whole above `up` and below `down`, a share of what lies on them."""
    up, share_up = ends[0, 0], ends[0, 1]
    down, share_down = ends[1, 0], ends[1, 1]
    for i in range(f.size):
        part_up = 1.0 if f[i] > up else (share_up if f[i] == up else 0.0)
        part_down = 1.0 if f[i] < down else (share_down if f[i] == down else 0.0)
        u = rise[i] * part_up - cap[i] * part_down
        p[i] = larger(0.0, q[i] + s[i] * u)


@kernel
def box_ends(
    f: Array, s: Array, rise: Array, cap: Array, top: float, work: Array, sample: Array, ends: Array
) -> None:
    """Solve the box q - s·cap <= p <= q + s·rise, which is the set if the budget does not bind.

    Entries at the threshold take what the others leave, all in one direction: that spends the least budget.
    """
    # 1. The box's threshold.
    width, rest = work[1], 0.0
    for i in range(f.size):
        width[i] = s[i] * rise[i] + s[i] * cap[i]
        rest += s[i] * cap[i]
    t, _, _ = threshold(f, width[: f.size], rest, work[2], work[3], sample)
    # 2. What the entries off the threshold leave, and the room of those on it.
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


@summing
def fill_mixture(
    f: Array, q: Array, s: Array, rise: Array, cap: Array, top: float, ends: Array, p: Array
) -> None:
    """Write p, the mixture of both ends' knapsacks in which Σ s·u = 0."""
    mix = mixture(ends)
    n0, pi0, share0 = ends[0, X], ends[0, PI], ends[0, SHARE]
    n1, pi1, share1 = ends[1, X], ends[1, PI], ends[1, SHARE]
    for i in range(f.size):
        g = below_top(f[i], top)
        first = moved(g, s[i], rise[i], cap[i], n0, pi0, share0)
        second = moved(g, s[i], rise[i], cap[i], n1, pi1, share1)
        p[i] = larger(0.0, q[i] + s[i] * (mix * first + (1.0 - mix) * second))


@summing
def totals(
    f: Array, q: Array, s: Array, rise: Array, cap: Array, top: float, n: float, pi: float, p: Array
) -> tuple[float, float, float, float, float]:
    """Σ p·(f - top), the bound without budget·π, Σp, the budget spent, and how far p is beyond a spread."""
    value, bound, total, spent, beyond = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(f.size):
        g, x = below_top(f[i], top), p[i]
        total += x
        value += x * g
        far = abs(x - q[i]) - 1.2e-16 * x  # p - q is known to half an ulp only
        spent += larger(far, 0.0) / s[i] if s[i] > 0.0 else 0.0
        beyond = larger(beyond, far - s[i])
        e = s[i] * (g - n)
        bound += q[i] * g + larger(0.0, larger(rise[i] * (e - pi), cap[i] * (-e - pi)))
    return value, bound, total, spent, beyond


@kernel
def write(
    f: Array, q: Array, s: Array, rise: Array, cap: Array, budget: float, equal: bool, top: float,
    ends: Array, p: Array,
) -> tuple[float, float, float]:  # fmt: skip
    """Write p from `ends`; return its value, the bound of the multipliers in ends[2], the violation.

    A loop that stores p and sums at once would add in another order if p lies just behind f in memory.
    """
    n, pi = ends[2, X], ends[2, PI]
    value, bound, total, spent, beyond = 0.0, 0.0, 0.0, 0.0, 0.0
    for first in range(0, f.size, BLOCK):
        part = slice(first, first + BLOCK)
        g, x, q1, s1, up, down = f[part], p[part], q[part], s[part], rise[part], cap[part]
        if equal:
            fill_equal(g, q1, s1, up, down, ends, x)
        else:
            fill_mixture(g, q1, s1, up, down, top, ends, x)
        sums = totals(g, q1, s1, up, down, top, n, pi, x)
        value += sums[0]
        bound += sums[1]
        total += sums[2]
        spent += sums[3]
        beyond = max(beyond, sums[4])
    violation = max(abs(total - 1.0), beyond, (spent - budget) / max(1.0, budget))
    return value, bound + budget * pi, violation


@kernel
def solve(
    f: Array, q: Array, s: Array, rise: Array, cap: Array, budget: float, equal: float, nu: float,
    first_pi: float, p: Array, out: Array, pruned_from: int, whole: Array, places: Places, work: Array,
    draw: Array, ends: Array, memory: Array,
) -> None:  # fmt: skip
    """Solve one row; `equal` is 1 if all spreads are equal, else 0; `nu`, `first_pi`: a start, or NaN."""
    # 1. Read the losses; those that are not finite or must be scaled first go back to the caller.
    least, top, status = scan(f)
    if status != OK:
        out[STATUS] = status
        return
    spread = top - least
    selected = equal == 1.0 and spread > 0.0
    if selected:
        # 2a. Equal spreads: budget/2 up and budget/2 down, or the box if the budget does not bind.
        evaluations = 2
        if not equal_ends(f, s, rise, cap, budget, top, work, draw, ends):
            evaluations = 3
            box_ends(f, s, rise, cap, top, work, draw, ends)
    else:
        # 2b. Any spreads: search for ν, among many entries in a window that leaves most of them out.
        whole[LOW], whole[HIGH], whole[PI_LOW], whole[PI_HIGH] = -spread, 0.0, -np.inf, np.inf
        whole[TAKEN], whole[TAKEN_GAIN], whole[TAKEN_MASS], whole[PARTIAL] = 0.0, 0.0, 0.0, 0.0
        tol, kink = aim(spread, f.size), 10.0 * spread / f.size**2
        n, reach, pi = nu - top, 1e-3 * spread, first_pi
        if f.size >= pruned_from and spread > 0.0:
            evaluations = search_windows(
                f, s, rise, cap, budget, top, spread, n, tol, kink, whole, places, work, draw, ends, memory
            )
        else:
            if not np.isfinite(nu):
                n, reach, pi = middle(f, s, top), 0.3 * spread / np.sqrt(f.size), np.nan
            evaluations, _ = search(
                f, s, rise, cap, budget, top, n, reach, pi, tol, kink, whole, places, work, draw, ends, memory
            )
    # 3. Write p and judge it; ν is rounded as it will be returned, so that the bound is that of `dual`.
    ends[2, X] = (top + ends[2, X]) - top
    value, bound, violation = write(f, q, s, rise, cap, budget, selected, top, ends, p)
    finish(out, top, value, bound, violation, evaluations, spread)
    out[DUAL], out[DUAL + 1] = top + ends[2, X], ends[2, PI]


@entry("P", "out")
@kernel
def rows(
    F: Matrix, center: Matrix, spread: Matrix, rise: Matrix, cap: Matrix, budget: Vector, equal: Vector,
    warm: Matrix, P: Matrix, out: Matrix,
) -> None:  # fmt: skip
    """Solve every row of F; parameters with one row serve all rows."""
    work = np.empty((4, F.shape[1]))
    draw = np.empty((2, SAMPLE if F.shape[1] > FEW else 1))
    ends, memory, whole = np.empty((4, END)), np.empty(MEMORY), np.empty(WINDOW)
    places = np.empty(F.shape[1] + 1, np.int32)
    many, started = center.shape[0] > 1, warm.shape[0] > 1
    for b in range(F.shape[0]):
        r = b if many else 0
        q, s, up, down = center[r], spread[r], rise[r], cap[r]
        w = b if started else 0
        nu, pi = warm[w, 0], warm[w, 1]
        solve(
            F[b], q, s, up, down, budget[r], equal[r], nu, pi, P[b], out[b], PRUNED_FROM, whole, places, work,
            draw, ends, memory,
        )  # fmt: skip


@kernel
def limits(q: Array, given: Array, s: Array, rise: Array, cap: Array) -> float:
    """Write the spreads of a row (one for all, or one each), rise and cap; return 1 if all are equal, else 0.

    They are computed and not stored, since reading them from memory for millions of rows takes as long.
    """
    largest = 0.0
    for i in range(q.size):
        s[i] = given[i if given.size > 1 else 0]
        largest = larger(largest, s[i])
    unequal = 0
    for i in range(q.size):
        free = s[i] > 0.0
        rise[i] = min(max((1.0 - q[i]) / s[i], 0.0), 1.0) if free else 0.0
        cap[i] = min(1.0, q[i] / s[i]) if free else 0.0
        unequal += free and s[i] != largest
    return 1.0 if unequal == 0 else 0.0


@entry("P", "out")
@kernel
def ragged(
    values: Vector, indices: Indices, offsets: Vector, scale: float, unit: float, indptr: Indices, first: int,
    after: int, center: Vector, spread: Vector, budget: Vector, warm: Matrix, P: Vector, out: Matrix,
) -> None:  # fmt: skip
    """Solve the rows from `first` to `after`, each with its own entries (scan.py)."""
    most = longest_row(indptr, first, after)
    scratch, one = np.empty(most), np.full(COLUMNS, np.nan)
    spreads, rises, caps = np.empty(most), np.empty(most), np.empty(most)
    work = np.empty((4, most))
    draw = np.empty((2, SAMPLE if most > FEW else 1))
    ends, memory, whole = np.empty((4, END)), np.empty(MEMORY), np.empty(WINDOW)
    places = np.empty(most + 1, np.int32)
    many, started = budget.size > 1, warm.shape[1] > 1
    for b in range(first, after):
        i, j = indptr[b], indptr[b + 1]
        f = losses_of(values, indices, offsets, scale, unit, i, j, scratch)
        q, s, up, down = center[i:j], spreads[: j - i], rises[: j - i], caps[: j - i]
        equal = limits(q, spread[i:j] if spread.size > 1 else spread, s, up, down)
        w = b if started else 0
        nu, pi, limit, p = warm[0, w], warm[1, w], budget[b if many else 0], P[i:j]
        solve(
            f, q, s, up, down, limit, equal, nu, pi, p, one, PRUNED_FROM, whole, places, work, draw, ends,
            memory,
        )  # fmt: skip
        put(one, out, b)
