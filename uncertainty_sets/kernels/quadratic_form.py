"""A dense positive definite matrix: to solve with a block of it, and yᵀQy and dᵀQ⁻¹d for any condition.

Blocks are factored by Cholesky and solved for three right-hand sides at once, by rows, so that every inner
loop runs over contiguous memory; LAPACK's general solver takes twice as long for the blocks that oracles
have, some hundred entries at most, and its call alone as long as a block of ten.

Products with Q are summed with their rounding errors, as in twice the precision. With z ≈ Q⁻¹d from the
factor and the remainder r = d - Qz, dᵀQ⁻¹d = zᵀd + zᵀr + rᵀQ⁻¹r without any approximation; z is refined until
the last term, the only one that needs the factor, no longer matters.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.arrays import Array, Matrix, Vector
from uncertainty_sets.kernels.jit import entry, kernel, strict, summing

SPLIT = 2.0**27 + 1.0
REFINEMENTS = 10
PULLS = 4
HARMLESS = 1e4  # the condition up to which plain sums keep the eleven digits that are promised


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


@strict
def add_products(start: float, x: Array, y: Array, sign: float) -> float:
    """start + sign·xᵀy, rounded about once."""
    total, lost = start, 0.0
    for i in range(x.size):
        a, b = sign * x[i], y[i]
        product = a * b
        c, e = SPLIT * a, SPLIT * b
        high_a, high_b = c - (c - a), e - (e - b)
        low_a, low_b = a - high_a, b - high_b
        error = ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b
        after = total + product
        part = after - total
        lost += ((total - (after - part)) + (product - part)) + error
        total = after
    return total + lost


@kernel
def forward(root: Array, d: Array, y: Array) -> None:
    """y = root⁻¹d, for a lower triangular root."""
    for i in range(d.size):
        y[i] = (d[i] - dot(root[i, :i], y)) / root[i, i]


@kernel
def backward(root: Array, y: Array) -> None:
    """y becomes root⁻ᵀy."""
    for i in range(y.size - 1, -1, -1):
        y[i] /= root[i, i]
        for j in range(i):
            y[j] -= root[i, j] * y[i]


@entry()
@kernel
def distance(Q: Matrix, root: Matrix, condition: float, d: Vector) -> float:
    """dᵀQ⁻¹d, with Q = root·rootᵀ up to rounding; `condition` is that of Q."""
    # 1. By the factor alone, if Q is well conditioned.
    z = np.empty(d.size)
    forward(root, d, z)
    if condition <= HARMLESS:
        return dot(z, z)
    # 2. Otherwise refine z ≈ Q⁻¹d until the remainder's own term no longer matters.
    r, y = np.empty(d.size), np.empty(d.size)
    backward(root, z)
    total = 0.0
    for _ in range(REFINEMENTS):
        for i in range(d.size):
            r[i] = add_products(d[i], Q[i], z, -1.0)
        forward(root, r, y)
        last = dot(y, y)
        total = add_products(dot(z, r) + last, z, d, 1.0)
        if last <= 1e-14 * total:
            break
        backward(root, y)
        z += y
    return total


@entry()
@kernel
def quadratic(Q: Matrix, condition: float, y: Vector) -> float:
    """yᵀQy, at least 0."""
    image = np.empty(y.size)
    if condition <= HARMLESS:
        for i in range(y.size):
            image[i] = dot(Q[i], y)
        return max(0.0, dot(image, y))
    for i in range(y.size):
        image[i] = add_products(0.0, Q[i], y, 1.0)
    return max(0.0, add_products(0.0, image, y, 1.0))


@strict
def add_exactly(a: float, b: float) -> tuple[float, float]:
    """The sum, and what rounding took from it."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@kernel
def quadratic_of_sum(Q: Array, condition: float, y: Array, low: Array) -> float:
    """(y + low)ᵀQ(y + low), for a `low` that is the rounding of y: it counts where an ulp of y does."""
    if condition <= HARMLESS:
        return quadratic(Q, condition, y)
    image = np.empty(y.size)
    for i in range(y.size):
        image[i] = add_products(dot(Q[i], low), Q[i], y, 1.0)
    return max(0.0, add_products(dot(low, image), image, y, 1.0))


@entry("p")
@kernel
def pull_back(p: Vector, q: Vector, Q: Matrix, root: Matrix, condition: float, radius: float) -> float:
    """The distance of p from q; a p beyond the radius is first moved straight towards q, up to the radius.

    Σp and p >= 0 stay as they are: an inexact answer becomes a feasible one, with a larger gap. If an ulp of
    p is worth more than the excess that is allowed, it is moved again, to as far within as it was beyond.
    """
    size, aim = distance(Q, root, condition, p - q), radius
    for _ in range(PULLS):
        if not size > radius + 1e-12 * max(1.0, radius):
            break
        step = np.sqrt(max(0.0, aim) / size)
        for i in range(p.size):
            p[i] = q[i] + step * (p[i] - q[i])
        size = distance(Q, root, condition, p - q)
        aim -= 2.0 * max(0.0, size - radius)
    return size
