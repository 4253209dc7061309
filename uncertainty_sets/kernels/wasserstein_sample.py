"""A sample of a long line, whose answer tells where to start the search on all of it."""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels.jit import kernel

PIECES, PART = 16, 50  # a sample is so many pieces of the line, one part in so many of it
MERGED = 32  # or so many neighbours as one


@kernel
def sample(f: Array, x: Array, q: Array, radius: float) -> tuple[Array, Array, Array]:
    """Losses, positions and masses of a shorter line on which a rate costs about the same.

    If mass travels much less than the length of a piece, pieces of the line; otherwise all of it, with the
    mass of neighbours at the largest loss among them.
    """
    n = f.size
    part = n // (PIECES * PART)
    near = radius <= 0.02 * part * (x[-1] - x[0]) / n
    size = PIECES * part if near else n // MERGED
    F, X_, Q = np.empty(size), np.empty(size), np.empty(size)
    if near:
        for k in range(PIECES):
            here, there = k * (n // PIECES), k * part
            for i in range(part):
                F[there + i], X_[there + i], Q[there + i] = f[here + i], x[here + i], q[here + i]
    else:
        for k in range(size):
            best, mass = k * MERGED, 0.0
            for i in range(k * MERGED, (k + 1) * MERGED):
                best = i if f[i] > f[best] else best
                mass += q[i]
            F[k], X_[k], Q[k] = f[best], x[best], mass
    total = Q.sum()
    if total > 0.0:
        for k in range(size):
            Q[k] /= total
    return F, X_, Q
