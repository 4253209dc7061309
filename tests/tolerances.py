"""Every tolerance of the test-suite, each with the reason for its size.

`gap` and `value` are in the units of the losses and scale with their spread, because the oracles do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

# The promise of every closed form, relative to max(f) - min(f): the searches stop at 1e-13, and the
# sums over up to 10⁶ entries that follow lose three or four digits of that in the worst case.
GAP = 1e-9

# Losses of size 10⁷ times their spread leave fewer digits than GAP asks for: the answer is then right
# to a few units in the last place of the largest loss.
ULPS = 8

# The promise for p: the residual of each constraint, scaled by max(1, |right-hand side|). Entries of p
# are at most 1, so this leaves six digits over rounding for sums over a million of them.
VIOLATION = 1e-10

# The same for answers by interior points, which stop at 1e-11 on scaled data and may be content with 1e-8.
CONIC_VIOLATION = 1e-8

# Two closed-form answers to one question (batch and loop, warm and cold, thread and thread) differ by
# the two gaps; a distribution is compared only where it is unique, and moves more than its value does.
SAME_VALUE = 2 * GAP
SAME_DISTRIBUTION = 1e-6

# A certificate rechecked in NumPy repeats the same formula with sums in another order.
CERTIFICATE = 1e-9

# Reference models, relative to the spread of the losses. LPs are solved by simplex to a vertex, with
# feasibility and optimality tolerances of 1e-7 each. Interior points stop at 1e-8 on scaled data, and
# exponential cones are the hardest of them.
REFERENCE_LP = 1e-6
REFERENCE_CONIC = 1e-5
REFERENCE_EXPONENTIAL = 1e-4

# SCS is a first-order method with tolerances of its own: good for a third opinion, not for digits.
REFERENCE_FIRST_ORDER = 1e-3

# What Clarabel and HiGHS reach through our own certificate, relative to the spread: Clarabel is asked for
# 1e-11 and may stop at 1e-8 (exponential cones do), and moving its multipliers into the cone costs a few
# times what they were off by.
CONIC_GAP = 1e-7

# Derivatives: a pull and a move multiply the same numbers in another order, and a central difference with a
# step of 1e-6 has the square of the step and the gap of the answers, over the step. Where the one-sided
# differences are further apart than KINK, p bends or jumps within the step.
ADJOINT = 1e-12
SMOOTH = 1e-13  # against 50 digits, relative to the move
DIFFERENCES = 1e-5
KINK = 1e-3

# Numbers worked out by hand are given to four decimals.
HAND = 5e-5

# A simulated frequency may leave its probability by this many standard deviations of the binomial law:
# 1 in 10⁵ by chance for one new seed, never for the seeds in the tests, and far less than a wrong formula.
SIGMAS = 4.5


def spread(losses: ArrayLike) -> float:
    """The unit of all loss tolerances: max(f) - min(f)."""
    return float(np.ptp(np.asarray(losses, dtype=np.float64)))


def ulps(losses: ArrayLike) -> float:
    """A few units in the last place of the largest loss."""
    return ULPS * float(np.spacing(np.abs(np.asarray(losses, dtype=np.float64)).max()))


def gap(losses: ArrayLike) -> float:
    """The largest gap that a closed form may report: max(1e-9 of the spread, a few ulp of max|f|)."""
    return max(GAP * spread(losses), ulps(losses))


def value(losses: ArrayLike, relative: float) -> float:
    """How far two values may differ: `relative` of the spread, and never less than rounding allows."""
    return max(relative * spread(losses), ulps(losses))


def frequency(probability: float, repetitions: int) -> float:
    """How far a simulated frequency may stray from its probability."""
    return SIGMAS * float(np.sqrt(probability * (1.0 - probability) / repetitions))
