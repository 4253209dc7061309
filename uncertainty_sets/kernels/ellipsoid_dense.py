"""Ellipsoid with a dense shape Q: a primal-dual active set.

Stationarity is d = p - q = Qy/τ with y = f - ν + μ, where μ >= 0 belongs to p >= 0. Given the set Z of
entries with p = 0, y is f - ν off Z and d is -q on Z; the rest follows from one linear system, in Q_ZZ for
y_Z or in (Q⁻¹) off Z for d, whichever is smaller. Everything is affine in ν and τ, for which 1ᵀd = 0 and
yᵀQy = radius·τ² leave a quadratic. Entries with p < 0 join Z, those with μ < 0 leave it: all at once, and
if that does not settle, one at a time. A round costs min(|Z|, N-|Z|)³ + O(N²). If Q is badly conditioned,
neither may settle, or the answer may be inexact: its distance and bound, computed as in twice the precision,
show that, and the caller turns to a conic solver.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.arrays import Array, Cube, Matrix, Vector
from uncertainty_sets.kernels.cholesky import dot, factor, substitute, three_dots
from uncertainty_sets.kernels.jit import entry, kernel
from uncertainty_sets.kernels.layout import DUAL, OK, STATUS
from uncertainty_sets.kernels.quadratic_form import distance, pull_back, quadratic
from uncertainty_sets.kernels.scan import copy, finish, scan, smallest

ROUNDS = 30


@kernel
def stationary(
    g: Array,
    q: Array,
    Q: Array,
    inverse: Array,
    zero: NDArray[np.bool_],
    Y: Array,
    D: Array,
    R: Array,
    L: Array,
    places: NDArray[np.int64],
) -> bool:
    """Write Y and D = YQ with y = (1, n, τ)·Y and τd = (1, n, τ)·D, if p = 0 just at the entries in `zero`.

    R, L and places are work space. Returns whether the block to solve with is positive definite as computed.
    """
    # 1. Entries at 0 first, then the free ones.
    size, count = g.size, 0
    for i in range(size):
        if zero[i]:
            places[count] = i
            count += 1
    at = count
    for i in range(size):
        if not zero[i]:
            places[at] = i
            at += 1
    Z, free = places[:count], places[count:]
    if Z.size <= free.size:
        # 2. Few zeros: y is known off Z, solve Q_ZZ for y on Z.
        for i in range(size):
            Y[0, i], Y[1, i], Y[2, i] = (0.0, 0.0, 0.0) if zero[i] else (g[i], -1.0, 0.0)
        if not factor(Q, Z, L):
            return False
        for i in range(Z.size):
            R[0, i], R[1, i], _ = three_dots(Q[Z[i]], Y)
            R[2, i] = q[Z[i]]
        substitute(L, Z.size, R)
        for i in range(Z.size):
            j = Z[i]
            Y[0, j], Y[1, j], Y[2, j] = -R[0, i], -R[1, i], -R[2, i]
            D[0, j], D[1, j], D[2, j] = 0.0, 0.0, -q[j]
        for j in free:
            D[0, j], D[1, j], D[2, j] = three_dots(Q[j], Y)
        return True
    # 3. Many zeros: d is known on Z, solve (Q⁻¹) off Z for d there.
    for i in range(size):
        D[0, i], D[1, i], D[2, i] = 0.0, 0.0, -q[i] if zero[i] else 0.0
    if not factor(inverse, free, L):
        return False
    for i in range(free.size):
        R[0, i], R[1, i], R[2, i] = g[free[i]], -1.0, -dot(inverse[free[i]], D[2])
    substitute(L, free.size, R)
    for i in range(free.size):
        j = free[i]
        D[0, j], D[1, j], D[2, j] = R[0, i], R[1, i], R[2, i]
        Y[0, j], Y[1, j], Y[2, j] = g[j], -1.0, 0.0
    for j in Z:
        Y[0, j], Y[1, j], Y[2, j] = three_dots(inverse[j], D)
    return True


@kernel
def settle(
    g: Array,
    q: Array,
    Q: Array,
    inverse: Array,
    radius: float,
    zero: NDArray[np.bool_],
    y: Array,
    p: Array,
    rounds: int,
    one: bool,
    Y: Array,
    D: Array,
    R: Array,
    L: Array,
    places: NDArray[np.int64],
) -> tuple[float, int]:
    """Find Z (marked in `zero`), y and p; return n = ν - top and the rounds, negative if it did not settle.

    g is f - top; with `one`, a round moves the single worst entry into or out of Z.
    """
    size = g.size
    for k in range(1, rounds + 1):
        # 1. y and d as functions of n and τ; 1ᵀd = 0 gives n as a function of τ.
        if not stationary(g, q, Q, inverse, zero, Y, D, R, L, places):
            return 0.0, -k
        s0, s1, s2 = D[0].sum(), D[1].sum(), D[2].sum()
        if s1 == 0.0:
            return 0.0, -k
        n0, n2 = -s0 / s1, -s2 / s1
        # From here on row 0 is what is fixed, of y and of τd, and row 2 what grows with τ.
        for i in range(size):
            Y[0, i] += n0 * Y[1, i]
            Y[2, i] += n2 * Y[1, i]
            D[0, i] += n0 * D[1, i]
            D[2, i] += n2 * D[1, i]
        # 2. yᵀQy = radius·τ² is then a quadratic in τ.
        a, b, c = dot(Y[2], D[2]) - radius, dot(Y[0], D[2]), dot(Y[0], D[0])
        root = b * b - a * c
        if not (a < 0.0 and c > 0.0 and root > 0.0):
            return 0.0, -k
        tau = (-b - np.sqrt(root)) / a
        n = n0 + tau * n2
        # 3. p and y; entries with p < 0 join Z, those with μ < 0 leave it.
        changed, worst, which = 0, 0.0, 0
        for i in range(size):
            y[i] = Y[0, i] + tau * Y[2, i]
            p[i] = 0.0 if zero[i] else q[i] + D[0, i] / tau + D[2, i]
            wrong = (g[i] - n) - y[i] if zero[i] else -p[i] * tau / Q[i, i]
            if wrong > 0.0:
                changed += 1
                if wrong > worst:
                    worst, which = wrong, i
                if not one:
                    zero[i] = not zero[i]
        if changed == 0:
            return n, k
        if one:
            zero[which] = not zero[which]
    return 0.0, -rounds


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
    """Solve one row; entries with mu > 0 start at 0, and mu receives the multipliers of p >= 0."""
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
    zero = mu > 0.0
    found = nearest_on_face(g, q, Q, inverse, zero, p, Y, D, R, L, places)
    if found and distance(Q, root, condition, p - q) <= radius and smallest(p) >= 0.0:
        for i in range(size):
            mu[i] = -g[i]
        finish(out, top, 0.0, 0.0, abs(p.sum() - 1.0), 1, spread)
        out[DUAL] = top
        return
    # 3. Settle the active set, all at once from the given start, or one entry at a time from none.
    for i in range(size):
        zero[i] = mu[i] > 0.0
    n, rounds = settle(g, q, Q, inverse, radius, zero, y, p, ROUNDS, False, Y, D, R, L, places)
    if rounds < 0:
        zero[:] = False
        most = 2 * size + 10
        n, rounds = settle(g, q, Q, inverse, radius, zero, y, p, most, True, Y, D, R, L, places)
    if rounds < 0:
        # Not settled: the centre and the bound of the largest loss, whose gap breaks the promise.
        copy(q, p)
        y[:] = 0.0
        n, zero[:] = 0.0, True
    # 4. Multipliers and certificate; ν is rounded as it will be returned: the bound is that of `dual`.
    n = (top + n) - top
    for i in range(size):
        p[i] = max(0.0, p[i])
        mu[i] = max(0.0, y[i] - (g[i] - n)) if zero[i] else 0.0
        y[i] = g[i] - n + mu[i]
    bound = n + dot(q, y) + np.sqrt(radius * quadratic(Q, condition, y))
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
