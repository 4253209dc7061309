"""The search that several oracles share: the minimum of a convex function of one variable.

At a point x an oracle gives the line that touches the function there,

    φ(x) = gain - mass·x        (gain and mass belong to a primal solution; φ'(x) = -mass),

and the minimum lies between an end with mass > 0 and one with mass < 0. The mixture of both ends'
solutions with mass 0 has the value at which their lines meet; φ there is an upper bound, so their
difference is the gap and the search stops on it.

Where the lines meet is the right next point once few kinks are left, but on the way only halves the
bracket. While the gap is large against spread/N², the size of a kink among N losses, and keeps shrinking,
the next point is where the mass, interpolated, is zero (with the Illinois correction, so that both ends
move), which squares the gap every few steps. Measured on normal, tied and random-walk losses: 5 evaluations
at N = 10, 9 to 14 at 1,000, about 10 at 100,000.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels.jit import kernel

# Columns of an end; the rest of its columns are the oracle's own.
X, GAIN, MASS = range(3)
# What the search remembers from step to step.
FIRST_MASS, SECOND_MASS, SIDE, LAST_GAP, LOWEST = range(5)
MEMORY = 5


@kernel
def aim(spread: float, size: int) -> float:
    """The gap at which a search may stop: near the rounding of a sum of so many losses."""
    least: float = spread * min(1e-13, 2e-17 * float(size))
    return least


@kernel
def reset(memory: Array) -> None:
    """Clear the memory before a search."""
    memory[FIRST_MASS], memory[SECOND_MASS], memory[SIDE] = 0.0, 0.0, -1.0
    memory[LAST_GAP], memory[LOWEST] = np.inf, np.inf


@kernel
def set_end(ends: Array, row: int, trial: Array) -> None:
    """Copy a point into a row of ends; by a loop, which is faster than a slice of five numbers."""
    for k in range(trial.size):
        ends[row, k] = trial[k]


@kernel
def update_bracket(trial: Array, ends: Array, memory: Array) -> None:
    """Replace an end by an evaluated point: ends[0] has mass >= 0, ends[1] < 0, ends[2] the lowest φ."""
    height = trial[GAIN] - trial[MASS] * trial[X]
    if height < memory[LOWEST]:
        memory[LOWEST] = height
        set_end(ends, 2, trial)
    side = 0 if trial[MASS] >= 0.0 else 1
    set_end(ends, side, trial)
    memory[FIRST_MASS + side] = trial[MASS]
    if memory[SIDE] == side:
        memory[FIRST_MASS + 1 - side] *= 0.5
    memory[SIDE] = side


@kernel
def settle_bracket(trial: Array, ends: Array, memory: Array) -> None:
    """Make a point that is the minimum both ends and the lowest."""
    memory[LOWEST] = trial[GAIN] - trial[MASS] * trial[X]
    set_end(ends, 0, trial)
    set_end(ends, 1, trial)
    set_end(ends, 2, trial)


@kernel
def next_point(
    ends: Array, memory: Array, tolerance: float, kink: float, allowance: float
) -> tuple[float, bool]:
    """The next point inside the bracket, and whether to stop.

    `kink` is a gap with few kinks left. If x is a price and mass what is spent at that price beyond an
    `allowance` > 0, the interpolation is in logarithms: spending falls like a power of the price. With an
    allowance of 0 it is linear.
    """
    # 1. Where the two lines meet, and the gap there; stop if it is small or the bracket has no inside.
    low, high = ends[0, X], ends[1, X]
    meeting = (ends[0, GAIN] - ends[1, GAIN]) / (ends[0, MASS] - ends[1, MASS])
    gap = memory[LOWEST] - (ends[0, GAIN] - ends[0, MASS] * meeting)
    if gap <= tolerance or not (meeting > low and meeting < high):
        return meeting, True
    # 2. While many kinks are left and the gap shrinks: the point at which the interpolated mass is zero.
    x = meeting
    if gap > kink and gap < 0.5 * memory[LAST_GAP]:
        a, b = memory[FIRST_MASS], memory[SECOND_MASS]
        if allowance > 0.0 and low > 0.0 and b + allowance > 0.0:
            more, less = np.log1p(a / allowance), np.log1p(b / allowance)
            zero = low * (high / low) ** (more / (more - less))
        else:
            zero = low + (high - low) * (a / (a - b))
        if zero > low and zero < high:
            x = zero
    memory[LAST_GAP] = gap
    return x, False


@kernel
def mixture(ends: Array) -> float:
    """The weight of ends[0] in the mixture whose mass is 0."""
    excess = ends[0, MASS] - ends[1, MASS]
    return -ends[1, MASS] / excess if excess > 0.0 else 1.0
