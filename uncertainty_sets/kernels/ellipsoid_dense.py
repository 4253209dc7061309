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

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels.jit import kernel
from uncertainty_sets.kernels.layout import DUAL, OK, STATUS
from uncertainty_sets.kernels.quadratic_form import distance, pull_back, quadratic
from uncertainty_sets.kernels.scan import finish, scan

ROUNDS = 30


@kernel
def pick(matrix: Array, rows: NDArray[np.intp]) -> Array:
    """The square block of those rows and columns."""
    block = np.empty((rows.size, rows.size))
    for i in range(rows.size):
        for j in range(rows.size):
            block[i, j] = matrix[rows[i], rows[j]]
    return block


@kernel
def stationary(g: Array, q: Array, Q: Array, inverse: Array, zero: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Y and D = QY with y = Y·(1, n, τ) and τd = D·(1, n, τ), if p = 0 exactly at the entries in `zero`."""
    size = g.size
    Z, free = np.flatnonzero(zero), np.flatnonzero(~zero)
    Y, D = np.zeros((size, 3)), np.zeros((size, 3))
    if Z.size <= free.size:
        # Few zeros: y is known off Z, solve Q_ZZ for y on Z.
        for j in free:
            Y[j, 0], Y[j, 1] = g[j], -1.0
        if Z.size > 0:
            right = np.dot(Q, Y)[Z]
            right[:, 2] = q[Z]
            solved = np.linalg.solve(pick(Q, Z), right)
            for i, place in enumerate(Z):
                for k in range(3):
                    Y[place, k] = -solved[i, k]
        D = np.dot(Q, Y)
        for j in Z:
            D[j, 0], D[j, 1], D[j, 2] = 0.0, 0.0, -q[j]
    else:
        # Many zeros: d is known on Z, solve (Q⁻¹) off Z for d there.
        for j in Z:
            D[j, 2] = -q[j]
        right = -np.dot(inverse, D)[free]
        right[:, 0] = g[free]
        right[:, 1] = -1.0
        solved = np.linalg.solve(pick(inverse, free), right)
        for i, place in enumerate(free):
            for k in range(3):
                D[place, k] = solved[i, k]
        Y = np.dot(inverse, D)
        for j in free:
            Y[j, 0], Y[j, 1], Y[j, 2] = g[j], -1.0, 0.0
    return Y, D


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
) -> tuple[float, int]:
    """Find Z (marked in `zero`), y and p; return n = ν - top and the rounds, negative if it did not settle.

    g is f - top; with `one`, a round moves the single worst entry into or out of Z.
    """
    size = g.size
    for k in range(1, rounds + 1):
        # 1. y and d as functions of n and τ; 1ᵀd = 0 gives n as a function of τ.
        Y, D = stationary(g, q, Q, inverse, zero)
        s0, s1, s2 = D[:, 0].sum(), D[:, 1].sum(), D[:, 2].sum()
        if s1 == 0.0:
            return 0.0, -k
        n0, n2 = -s0 / s1, -s2 / s1
        fixed, growing = Y[:, 0] + n0 * Y[:, 1], Y[:, 2] + n2 * Y[:, 1]
        image0, image2 = D[:, 0] + n0 * D[:, 1], D[:, 2] + n2 * D[:, 1]
        # 2. yᵀQy = radius·τ² is then a quadratic in τ.
        a, b, c = np.dot(growing, image2) - radius, np.dot(fixed, image2), np.dot(fixed, image0)
        root = b * b - a * c
        if not (a < 0.0 and c > 0.0 and root > 0.0):
            return 0.0, -k
        tau = (-b - np.sqrt(root)) / a
        n = n0 + tau * n2
        # 3. p and y; entries with p < 0 join Z, those with μ < 0 leave it.
        changed, worst, which = 0, 0.0, 0
        for i in range(size):
            y[i] = fixed[i] + tau * growing[i]
            p[i] = 0.0 if zero[i] else q[i] + image0[i] / tau + image2[i]
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
def nearest_on_face(g: Array, q: Array, Q: Array, inverse: Array, zero: NDArray[np.bool_], p: Array) -> None:
    """Write into p the distribution on the largest losses alone that is nearest to q.

    Exact if no further entry has to be 0; otherwise a point of that face, which may be a little farther.
    """
    for i in range(g.size):
        zero[i] = g[i] < 0.0
    for _ in range(g.size):
        _, D = stationary(g, q, Q, inverse, zero)
        n = -D[:, 2].sum() / D[:, 1].sum()
        least = 0.0
        for i in range(g.size):
            p[i] = 0.0 if zero[i] else q[i] + n * D[i, 1] + D[i, 2]
            least = min(least, p[i])
        if least == 0.0:
            break
        for i in range(g.size):
            zero[i] = zero[i] or p[i] < 0.0


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
        p[:] = q
        mu[:] = 0.0
        value = np.dot(p, g)
        finish(out, top, value, value, abs(p.sum() - 1.0), 1, spread)
        out[DUAL] = top
        return
    zero = mu > 0.0
    nearest_on_face(g, q, Q, inverse, zero, p)
    reach = distance(Q, root, condition, p - q)
    if reach <= radius and p.min() >= 0.0:
        mu[:] = -g
        finish(out, top, 0.0, 0.0, abs(p.sum() - 1.0), 1, spread)
        out[DUAL] = top
        return
    # 3. Settle the active set, all at once from the given start, or one entry at a time from none.
    zero[:] = mu > 0.0
    n, rounds = settle(g, q, Q, inverse, radius, zero, y, p, ROUNDS, False)
    if rounds < 0:
        zero[:] = False
        n, rounds = settle(g, q, Q, inverse, radius, zero, y, p, 2 * size + 10, True)
    if rounds < 0:
        # Not settled: the centre and the bound of the largest loss, whose gap breaks the promise.
        p[:] = q
        y[:] = 0.0
        n, zero[:] = 0.0, True
    # 4. Multipliers and certificate; ν is rounded as it will be returned: the bound is that of `dual`.
    n = (top + n) - top
    for i in range(size):
        p[i] = max(0.0, p[i])
        mu[i] = max(0.0, y[i] - (g[i] - n)) if zero[i] else 0.0
        y[i] = g[i] - n + mu[i]
    bound = n + np.dot(q, y) + np.sqrt(radius * quadratic(Q, condition, y))
    excess = (pull_back(p, q, Q, root, condition, radius) - radius) / max(1.0, radius)
    finish(out, top, np.dot(p, g), bound, max(abs(p.sum() - 1.0), excess), abs(rounds), spread)
    out[DUAL] = top + n


@kernel
def rows(
    F: Array,
    center: Array,
    shape: Array,
    root: Array,
    inverse: Array,
    condition: Array,
    radius: Array,
    mu: Array,
    warm: Array,
    P: Array,
    out: Array,
) -> None:
    """Solve every row of F; parameters with one row serve all rows, mu has one for each."""
    many = center.shape[0] > 1
    for b in range(F.shape[0]):
        r = b if many else 0
        solve(F[b], center[r], shape[0], root[0], inverse[0], condition[0], radius[r], mu[b], P[b], out[b])
