"""Ellipsoid with a dense shape Q: a primal-dual active set.

Stationarity is d = p - q = Qy/τ with y = f - ν + μ, where μ >= 0 belongs to p >= 0. Given the set Z of
entries with p = 0, y is f - ν off Z and d is -q on Z; the rest follows from one linear system, in Q_ZZ for
y_Z or in (Q⁻¹) off Z for d, whichever is smaller. Everything is affine in ν and τ, for which 1ᵀd = 0 and
yᵀQy = radius·τ² leave a quadratic. Entries with p < 0 join Z, those with μ < 0 leave it: all at once, and
if that does not settle, one at a time. A round costs min(|Z|, N-|Z|)³ + O(N²).

If Q is badly conditioned, each round's answer is refined (ellipsoid_face.py). If that does not settle,
distance and bound, computed as in twice the precision, show it, and the caller turns to a conic solver.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.arrays import Array, Cube, Matrix, Vector
from uncertainty_sets.kernels.cholesky import dot
from uncertainty_sets.kernels.ellipsoid_face import BOUNDED, FAILED, UNBOUNDED, best_on_face, stationary
from uncertainty_sets.kernels.jit import entry, kernel
from uncertainty_sets.kernels.layout import DUAL, OK, STATUS
from uncertainty_sets.kernels.quadratic_form import add_exactly, distance, pull_back, quadratic_of_sum
from uncertainty_sets.kernels.scan import copy, finish, scan, smallest

ROUNDS = 30
LARGE = 10.0  # losses of this size over their spread: their ulp is more than that of f - ν
ROUNDING = 1e-15  # p and μ below 0 by less, μ relative to y, have the right sign: both are 0 there


@kernel
def settle(
    g: Array,
    q: Array,
    Q: Array,
    inverse: Array,
    condition: float,
    radius: float,
    zero: NDArray[np.bool_],
    y: Array,
    p: Array,
    work: Array,
    Y: Array,
    D: Array,
    R: Array,
    L: Array,
    places: NDArray[np.int64],
) -> tuple[float, int]:
    """Find Z (marked in `zero`), y and p by moving all entries of the wrong sign at once.

    Returns n = ν - top and the rounds, negative if it did not settle.
    """
    for k in range(1, ROUNDS + 1):
        found, n, _ = best_on_face(g, q, Q, inverse, condition, radius, zero, y, p, work, Y, D, R, L, places)
        if found != BOUNDED:
            return 0.0, -k
        changed = 0
        for i in range(g.size):
            wrong = (g[i] - n) - y[i] - ROUNDING * abs(y[i]) if zero[i] else -p[i] - ROUNDING
            if wrong > 0.0:
                zero[i] = not zero[i]
                changed += 1
        if changed == 0:
            return n, k
    return 0.0, -ROUNDS


@kernel
def descend(
    g: Array,
    q: Array,
    Q: Array,
    inverse: Array,
    condition: float,
    radius: float,
    zero: NDArray[np.bool_],
    y: Array,
    p: Array,
    work: Array,
    Y: Array,
    D: Array,
    R: Array,
    L: Array,
    places: NDArray[np.int64],
) -> tuple[float, int]:
    """As `settle`, from Z = ∅ and with a bound that falls in each round, so that no Z comes twice.

    As Lawson and Hanson for least squares: towards the best of a face until some μ is 0, which leaves Z; at
    the best, the entry with p < 0 that is worth most joins Z.
    """
    size, n, joined = g.size, 0.0, -1
    mu, most = np.zeros(size), 4 * size + 20
    zero[:] = False
    for k in range(1, most + 1):
        found, best, tau = best_on_face(
            g, q, Q, inverse, condition, radius, zero, y, p, work, Y, D, R, L, places
        )
        if found == FAILED:
            return 0.0, -k
        # 1. How far μ may go towards y - (g - n) there, or along the ray.
        step, blocking = (1.0 if found == BOUNDED else np.inf), -1
        for i in range(size):
            if not zero[i]:
                continue
            work[1, i] = y[i] - (g[i] - best) - mu[i] if found == BOUNDED else Y[2, i] + best
            # The entry that has just joined grows; rounding alone may say otherwise, and would never end.
            if work[1, i] < 0.0 and i != joined and mu[i] < -step * work[1, i]:
                step, blocking = -mu[i] / work[1, i], i
        if found == UNBOUNDED and blocking < 0:
            return 0.0, -k
        for i in range(size):
            mu[i] = max(0.0, mu[i] + step * work[1, i]) if zero[i] else 0.0
        if blocking >= 0:
            zero[blocking], mu[blocking] = False, 0.0
            continue
        # 2. At the best of the face: the entry whose p < 0 costs most joins.
        n, joined, worst = best, -1, 0.0
        for i in range(size):
            wrong = 0.0 if zero[i] or p[i] >= -ROUNDING else -p[i] * tau / Q[i, i]
            if wrong > worst:
                worst, joined = wrong, i
        if joined < 0:
            return n, k
        zero[joined] = True
    return 0.0, -most


@kernel
def nearest_on_face(
    g: Array,
    q: Array,
    Q: Array,
    inverse: Array,
    zero: NDArray[np.bool_],
    p: Array,
    Y: Array,
    D: Array,
    R: Array,
    L: Array,
    places: NDArray[np.int64],
) -> bool:
    """Write into p the distribution on the largest losses alone that is nearest to q; whether there is one.

    Exact if no further entry has to be 0; otherwise a point of that face, which may be a little farther.
    """
    for i in range(g.size):
        zero[i] = g[i] < 0.0
    for _ in range(g.size):
        if not stationary(g, q, Q, inverse, zero, Y, D, R, L, places):
            return False
        n = -D[2].sum() / D[1].sum()
        least = 0.0
        for i in range(g.size):
            p[i] = 0.0 if zero[i] else q[i] + n * D[1, i] + D[2, i]
            least = min(least, p[i])
        if least == 0.0:
            break
        for i in range(g.size):
            zero[i] = zero[i] or p[i] < 0.0
    return True


@kernel
def normalise(p: Array) -> None:
    """p >= 0 with sum 1 to rounding: a sum that misses 1 by 1e-10 shows where losses are far from 0."""
    total = 0.0
    for i in range(p.size):
        p[i] = max(0.0, p[i])
        total += p[i]
    for i in range(p.size):
        p[i] /= total


@kernel
def solve(
    f: Array,
    q: Array,
    Q: Array,
    root: Array,
    inverse: Array,
    condition: float,
    radius: float,
    mu: Array,
    p: Array,
    out: Array,
    Y: Array,
    D: Array,
    R: Array,
    L: Array,
    places: NDArray[np.int64],
) -> None:
    """Solve one row; those of the largest mu start at 0; mu receives the multipliers of p >= 0."""
    # 1. Read the losses.
    least, top, status = scan(f)
    if status != OK:
        out[STATUS] = status
        return
    size, spread = f.size, top - least
    g = f - top
    y = np.empty(size)
    # 2. Answers that need no active set: the centre, or the largest losses alone if they are within reach.
    if spread == 0.0 or radius == 0.0:
        copy(q, p)
        mu[:] = 0.0
        value = dot(p, g)
        finish(out, top, value, value, abs(p.sum() - 1.0), 1, spread)
        out[DUAL] = top
        return
    start = smallest(mu)
    zero = mu > start
    found = nearest_on_face(g, q, Q, inverse, zero, p, Y, D, R, L, places) and smallest(p) >= 0.0
    if found:
        normalise(p)
    if found and distance(Q, root, condition, p - q) <= radius:
        for i in range(size):
            mu[i] = -g[i]
        finish(out, top, 0.0, 0.0, abs(p.sum() - 1.0), 1, spread)
        out[DUAL] = top
        return
    # 3. The active set: all at once from the given start, or one entry at a time from none.
    for i in range(size):
        zero[i] = mu[i] > start
    work = np.empty((5, size))
    n, rounds = settle(g, q, Q, inverse, condition, radius, zero, y, p, work, Y, D, R, L, places)
    if rounds < 0:
        n, rounds = descend(g, q, Q, inverse, condition, radius, zero, y, p, work, Y, D, R, L, places)
    if rounds < 0:
        # Not settled: the centre and the bound of the largest loss, whose gap breaks the promise.
        copy(q, p)
        y[:] = 0.0
        n, zero[:] = 0.0, True
    # 4. Multipliers and certificate; ν is rounded as it will be returned: the bound is that of `dual`.
    # If losses are large, ν is rounded up: what that takes from f - ν, μ gives back, to more digits.
    normalise(p)
    given = (top + n) - top
    if abs(top) <= LARGE * spread:
        n = given
    elif given < n:
        given = (top + (given + 4.5e-16 * max(abs(top), spread))) - top
    for i in range(size):
        mu[i] = (given - n) + (max(0.0, y[i] - (g[i] - n)) if zero[i] else 0.0)
    n, low = given, work[0]
    for i in range(size):
        difference, low[i] = add_exactly(f[i], -(top + n))
        y[i], rest = add_exactly(difference, mu[i])
        low[i] += rest
    bound = n + dot(q, y) + np.sqrt(radius * quadratic_of_sum(Q, condition, y, low))
    excess = (pull_back(p, q, Q, root, condition, radius) - radius) / max(1.0, radius)
    finish(out, top, dot(p, g), bound, max(abs(p.sum() - 1.0), excess), abs(rounds), spread)
    out[DUAL] = top + n


@entry("mu", "P", "out")
@kernel
def rows(
    F: Matrix,
    center: Matrix,
    shape: Cube,
    root: Cube,
    inverse: Cube,
    condition: Vector,
    radius: Vector,
    mu: Matrix,
    warm: Matrix,
    P: Matrix,
    out: Matrix,
) -> None:
    """Solve every row of F; parameters with one row serve all rows, mu has one for each."""
    size, many, shapes = F.shape[1], center.shape[0] > 1, shape.shape[0] > 1
    Y, D, R = np.empty((3, size)), np.empty((3, size)), np.empty((3, size // 2 + 1))
    L, places = np.empty((size // 2 + 1, size // 2 + 1)), np.empty(size, np.int64)
    for b in range(F.shape[0]):
        r, s = b if many else 0, b if shapes else 0
        Q, low, inner, worst = shape[s], root[s], inverse[s], condition[s]
        solve(F[b], center[r], Q, low, inner, worst, radius[r], mu[b], P[b], out[b], Y, D, R, L, places)
