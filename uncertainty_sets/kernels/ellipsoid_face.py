"""Ellipsoid with a dense shape Q: the best p on one face, the entries where p is 0.

The linear algebra of ellipsoid_dense.py. If Q is badly conditioned, the answer is refined: Qy is summed as in
twice the precision, and Newton's method removes what y, ν and τ leave of the equations. d is then Qy/τ, which
needs no inverse.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels.cholesky import dot, factor, substitute, three_dots
from uncertainty_sets.kernels.jit import kernel
from uncertainty_sets.kernels.quadratic_form import HARMLESS, add_exactly, add_products

FAILED, BOUNDED, UNBOUNDED = range(3)
REFINEMENTS = 6  # of each answer; each leaves a share of what is wrong, of about ulp times condition
SHARP = 1e7  # the condition from which Y itself is refined
SETTLED = 1e-12  # what is wrong relative to τ; the refinement that sees this is the last


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
def undo(
    left: Array,
    Q: Array,
    inverse: Array,
    zero: NDArray[np.bool_],
    change: Array,
    image: Array,
    R: Array,
    L: Array,
    places: NDArray[np.int64],
) -> None:
    """Write the change of y, 0 off Z, whose image Q·change is -left on Z, and that image.

    With the factor that `stationary` has left in L; R is work space.
    """
    size, count = zero.size, 0
    for i in range(size):
        count += zero[i]
        change[i] = 0.0
        image[i] = -left[i] if zero[i] else 0.0
    Z, free = places[:count], places[count:]
    R[:] = 0.0
    if Z.size <= free.size:
        for i in range(Z.size):
            R[0, i] = -left[Z[i]]
        substitute(L, Z.size, R)
        for i in range(Z.size):
            change[Z[i]] = R[0, i]
        for j in free:
            image[j] = dot(Q[j], change)
        return
    # Again, until y is 0 off Z to rounding: Q⁻¹ as computed is not as symmetric as its factor takes it to be.
    for _ in range(3):
        for i in range(free.size):
            R[0, i] = -dot(inverse[free[i]], image)
        substitute(L, free.size, R)
        for i in range(free.size):
            image[free[i]] += R[0, i]
    for j in Z:
        change[j] = dot(inverse[j], image)


@kernel
def sharpen(
    q: Array,
    Q: Array,
    inverse: Array,
    zero: NDArray[np.bool_],
    work: Array,
    Y: Array,
    D: Array,
    R: Array,
    L: Array,
    places: NDArray[np.int64],
) -> None:
    """Remove from each row of Y what its image leaves of 0, 0 and -q on Z, and write the image into D."""
    image, left, change, effect = work[0], work[1], work[2], work[3]
    for k in range(3):
        for _ in range(2):
            for i in range(q.size):
                image[i] = add_products(0.0, Q[i], Y[k], 1.0)
                left[i] = image[i] + (q[i] if k == 2 else 0.0)
            undo(left, Q, inverse, zero, change, effect, R, L, places)
            for i in range(q.size):
                Y[k, i] += change[i]
                D[k, i] = image[i] + effect[i]


@kernel
def refine(
    g: Array,
    q: Array,
    Q: Array,
    inverse: Array,
    radius: float,
    zero: NDArray[np.bool_],
    y: Array,
    n: float,
    tau: float,
    n2: float,
    work: Array,
    Y: Array,
    D: Array,
    R: Array,
    L: Array,
    places: NDArray[np.int64],
) -> tuple[float, float]:
    """Correct y, n and τ by Newton's method on residuals in twice the precision; work[0] becomes Qy.

    Rows 1 and 2 of Y and D are what n alone changes, and what τ changes while 1ᵀd = 0. y is kept as y + low,
    in twice the precision too, since an ulp of it may be worth more than all of d.
    """
    size, s1, lost = g.size, D[1].sum(), 0.0
    image, left, change, effect, low = work[0], work[1], work[2], work[3], work[4]
    low[:] = 0.0
    for _ in range(REFINEMENTS):
        # 1. What y leaves of Qy = -τq on Z, of 1ᵀQy = 0 and of yᵀQy = radius·τ².
        for i in range(size):
            if not zero[i]:
                y[i], low[i] = add_exactly(g[i], -n)
                low[i] -= lost
        off, total = 0.0, 0.0
        for i in range(size):
            image[i] = add_products(dot(Q[i], low), Q[i], y, 1.0)
            left[i] = image[i] + tau * q[i] if zero[i] else 0.0
            total += image[i]
            off = max(off, abs(left[i]))
        # 2. Remove it: on Z by y there, in the sum by n, in the square by τ.
        undo(left, Q, inverse, zero, change, effect, R, L, places)
        dn = -(total + effect.sum()) / s1
        for i in range(size):
            change[i] += dn * Y[1, i]
            effect[i] += dn * D[1, i]
        square = add_products(-radius * tau * tau, y, image, 1.0) + dot(low, image)
        square += 2.0 * dot(y, effect) + dot(change, effect)
        dt = -0.5 * square / (dot(y, D[2]) - radius * tau)
        for i in range(size):
            image[i] += effect[i] + dt * D[2, i]
            y[i], rest = add_exactly(y[i], change[i] + dt * Y[2, i])
            low[i] += rest
        n, rest = add_exactly(n, dn + n2 * dt)
        lost += rest
        off = max(off, abs(total), radius * abs(dt))
        tau += dt
        if not off > SETTLED * abs(tau):
            break
    return n, tau


@kernel
def best_on_face(
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
) -> tuple[int, float, float]:
    """The best p with p = 0 just at the entries in `zero`, and its y: (what was found, n = ν - top, τ).

    BOUNDED: y, n and τ are the least bound without regard to the signs of p and μ. UNBOUNDED: no such p is
    within the radius, and the bound falls for ever as y grows along Y[2], and n by the number returned.
    """
    # 1. y and d as functions of n and τ; 1ᵀd = 0 gives n as a function of τ.
    if not stationary(g, q, Q, inverse, zero, Y, D, R, L, places):
        return FAILED, 0.0, 0.0
    if condition > SHARP:
        sharpen(q, Q, inverse, zero, work, Y, D, R, L, places)
    s0, s1, s2 = D[0].sum(), D[1].sum(), D[2].sum()
    if s1 == 0.0:
        return FAILED, 0.0, 0.0
    n0, n2 = -s0 / s1, -s2 / s1
    # From here on row 0 is what is fixed, of y and of τd, and row 2 what grows with τ.
    for i in range(g.size):
        Y[0, i] += n0 * Y[1, i]
        Y[2, i] += n2 * Y[1, i]
        D[0, i] += n0 * D[1, i]
        D[2, i] += n2 * D[1, i]
    # 2. yᵀQy = radius·τ² is then a quadratic in τ.
    a, b, c = dot(Y[2], D[2]) - radius, dot(Y[0], D[2]), dot(Y[0], D[0])
    if a >= 0.0:
        return UNBOUNDED, n2, 0.0
    root = b * b - a * c
    if not (c > 0.0 and root > 0.0):
        return FAILED, 0.0, 0.0
    tau = (-b - np.sqrt(root)) / a
    n = n0 + tau * n2
    # 3. p and y, refined if Q is badly conditioned.
    for i in range(g.size):
        y[i] = Y[0, i] + tau * Y[2, i]
        p[i] = 0.0 if zero[i] else q[i] + D[0, i] / tau + D[2, i]
    if condition > HARMLESS:
        n, tau = refine(g, q, Q, inverse, radius, zero, y, n, tau, n2, work, Y, D, R, L, places)
        if not tau > 0.0:
            return FAILED, 0.0, 0.0
        for i in range(g.size):
            p[i] = 0.0 if zero[i] else q[i] + work[0, i] / tau
    return BOUNDED, n, tau
