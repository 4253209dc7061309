"""The first and the last step of every kernel: read the losses, write the answer and judge it."""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels.jit import comparing, kernel, summing
from uncertainty_sets.kernels.layout import (
    BOUND,
    FEASIBLE,
    GAP,
    ITERATIONS,
    NOT_FINITE,
    NOT_SOLVED,
    OK,
    OUT_OF_RANGE,
    PROMISE,
    STATUS,
    ULPS,
    VALUE,
    VIOLATION,
)

MOST = np.finfo(np.float64).max

# Spreads outside these are scaled by a power of two first, so that no product over- or underflows.
SMALLEST, LARGEST = 1e-150, 1e150


@comparing
def smaller(a: float, b: float) -> float:
    """min, free to ignore NaN: the form that becomes one vector instruction."""
    return a if a < b else b


@comparing
def larger(a: float, b: float) -> float:
    """max, free to ignore NaN: the form that becomes one vector instruction."""
    return a if a > b else b


@comparing
def largest(f: Array) -> float:
    """max f, without what f.max() needs of numba's runtime: kernels compiled ahead of time have none."""
    most: float = f[0]
    for i in range(f.size):
        most = larger(most, f[i])
    return most


@comparing
def smallest(f: Array) -> float:
    """min f, likewise."""
    least: float = f[0]
    for i in range(f.size):
        least = smaller(least, f[i])
    return least


@kernel
def copy(source: Array, target: Array) -> None:
    """target[:] = source, which would compare the sizes and raise if they differ."""
    for i in range(source.size):
        target[i] = source[i]


@summing
def scan(f: Array) -> tuple[float, float, int]:
    """(min f, max f, status) in one pass.

    Entries are counted, not summed: Σ 0·f would be computed as 0·Σf, which overflows before its terms do.
    """
    least, most, finite = f[0], f[0], 0
    for i in range(f.size):
        least = smaller(least, f[i])
        most = larger(most, f[i])
        finite += abs(f[i]) <= MOST
    if finite < f.size:
        return least, most, NOT_FINITE
    spread = most - least
    if spread > LARGEST or (spread < SMALLEST and spread > 0.0):
        return least, most, OUT_OF_RANGE
    return least, most, OK


@kernel
def finish(
    out: Array,
    reference: float,
    value: float,
    bound: float,
    violation: float,
    iterations: int,
    spread: float,
) -> None:
    """Write an answer whose value and bound are measured from `reference`, and judge it by its certificate.

    It is NOT_SOLVED if it breaks the promise: a gap beyond PROMISE, a negative one beyond rounding, a
    violation beyond FEASIBLE, or a NaN in any of them.
    """
    gap = bound - value
    rounding = ULPS * (abs(reference) + spread)
    proved = violation <= FEASIBLE and gap <= max(PROMISE * spread, rounding)
    proved = proved and gap >= -(FEASIBLE * spread + rounding)
    out[VALUE] = reference + value
    out[BOUND] = reference + bound
    out[GAP] = gap
    out[VIOLATION] = violation
    out[ITERATIONS] = iterations
    out[STATUS] = OK if proved else NOT_SOLVED
