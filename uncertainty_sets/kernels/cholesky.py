"""Solve with a block of a symmetric positive definite matrix, for three right-hand sides at once.

By rows, so that every inner loop runs over contiguous memory; LAPACK's general solver takes twice as long for
the blocks that oracles have, some hundred entries at most, and its call alone as long as a block of ten.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels.jit import kernel, summing


@summing
def dot(x: Array, y: Array) -> float:
    """xᵀy over the length of x."""
    total = 0.0
    for j in range(x.size):
        total += x[j] * y[j]
    return total


@summing
def three_dots(x: Array, Y: Array) -> tuple[float, float, float]:
    """xᵀ times each of the three rows of Y, over the length of x."""
    first, second, third = 0.0, 0.0, 0.0
    for j in range(x.size):
        first += x[j] * Y[0, j]
        second += x[j] * Y[1, j]
        third += x[j] * Y[2, j]
    return first, second, third


@kernel
def factor(matrix: Array, places: NDArray[np.int64], L: Array) -> bool:
    """Write the Cholesky factor of the block of those rows and columns into L; whether it has one."""
    for i in range(places.size):
        row, given = L[i], matrix[places[i]]
        for j in range(i):
            row[j] = (given[places[j]] - dot(row[:j], L[j])) / L[j, j]
        pivot = given[places[i]] - dot(row[:i], row)
        if not pivot > 0.0:
            return False
        row[i] = np.sqrt(pivot)
    return True


@kernel
def substitute(L: Array, count: int, R: Array) -> None:
    """The first `count` columns of R, three right-hand sides in rows, become the solutions."""
    for i in range(count):
        first, second, third = three_dots(L[i, :i], R)
        R[0, i] = (R[0, i] - first) / L[i, i]
        R[1, i] = (R[1, i] - second) / L[i, i]
        R[2, i] = (R[2, i] - third) / L[i, i]
    for i in range(count - 1, -1, -1):
        a, b, c = R[0, i] / L[i, i], R[1, i] / L[i, i], R[2, i] / L[i, i]
        R[0, i], R[1, i], R[2, i] = a, b, c
        for j in range(i):
            R[0, j] -= L[i, j] * a
            R[1, j] -= L[i, j] * b
            R[2, j] -= L[i, j] * c
