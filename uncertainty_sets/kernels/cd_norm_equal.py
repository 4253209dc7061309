"""CD-norm with equal spreads: two selections, budget/2 up and budget/2 down, or a box if they meet."""

from __future__ import annotations

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels.cd_norm_search import PI
from uncertainty_sets.kernels.jit import kernel, summing
from uncertainty_sets.kernels.scan import larger
from uncertainty_sets.kernels.selection import share_of, threshold
from uncertainty_sets.kernels.tangent import X


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
