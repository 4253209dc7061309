"""Ellipsoid with a dense shape Q: a primal-dual active set.

Stationarity is d = p - q = Qy/τ with y = f - ν + μ, where μ >= 0 belongs to p >= 0. Given the set Z of
entries with p = 0, y is f - ν off Z and d is -q on Z; the rest follows from one linear system, in Q_ZZ for
y_Z or in (Q⁻¹) off Z for d, whichever is smaller. Everything is affine in ν and τ, for which 1ᵀd = 0 and
yᵀQy = radius·τ² leave a quadratic. Entries with p < 0 join Z, those with μ < 0 leave it: all at once, and
if that does not settle, one at a time. A round costs min(|Z|, N-|Z|)³ + O(N²).

If Q is badly conditioned, each round's answer is refined: Qy is summed as in twice the precision, and
Newton's method removes what y, ν and τ leave of the equations; d is then Qy/τ, which needs no inverse. If
that does not settle, distance and bound, computed likewise, show it: the caller turns to a conic solver.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.arrays import Array, Cube, Matrix, Vector
from uncertainty_sets.kernels.jit import entry, kernel
from uncertainty_sets.kernels.layout import DUAL, OK, STATUS
from uncertainty_sets.kernels.quadratic_form import (
    HARMLESS,
    add_exactly,
    add_products,
    distance,
    dot,
    factor,
    pull_back,
    quadratic_of_sum,
    substitute,
    three_dots,
)
from uncertainty_sets.kernels.scan import copy, finish, scan, smallest

ROUNDS = 30
LARGE = 10.0  # losses of this size over their spread: their ulp is more than that of f - ν
ROUNDING = 1e-15  # p and μ below 0 by less, μ relative to y, have the right sign: both are 0 there

FAILED, BOUNDED, UNBOUNDED = range(3)
REFINEMENTS = 6  # of each answer; each leaves a share of what is wrong, of about ulp times condition
SHARP = 1e7  # the condition from which Y itself is refined
SETTLED = 1e-12  # what is wrong relative to τ; the refinement that sees this is the last

Marks = NDArray[np.bool_]


class Problem(NamedTuple):
    """A row: g = f - max f, the centre, Q, Q⁻¹, the condition of Q, and the radius."""

    g: Array
    q: Array
    Q: Array
    inverse: Array
    condition: float
    radius: float


class Room(NamedTuple):
    """Work space: five vectors; Y and D of `stationary`; a block's right-hand sides, factor and order."""

    work: Array
    Y: Array
    D: Array
    R: Array
    L: Array
    places: NDArray[np.int64]


@kernel
def stationary(problem: Problem, zero: Marks, room: Room) -> bool:
    """Write Y and D = YQ with y = (1, n, τ)·Y and τd = (1, n, τ)·D, if p = 0 just at the entries in `zero`.

    R, L and places are work space. Returns whether the block to solve with is positive definite as computed.
    """
    g, q, Q, inverse = problem.g, problem.q, problem.Q, problem.inverse
    Y, D, R, L, places = room.Y, room.D, room.R, room.L, room.places
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
def undo(problem: Problem, left: Array, zero: Marks, change: Array, image: Array, room: Room) -> None:
    """Write the change of y, 0 off Z, whose image Q·change is -left on Z, and that image.

    With the factor that `stationary` has left in L; R is work space.
    """
    Q, inverse, R, L, places = problem.Q, problem.inverse, room.R, room.L, room.places
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
def sharpen(problem: Problem, zero: Marks, room: Room) -> None:
    """Remove from each row of Y what its image leaves of 0, 0 and -q on Z, and write the image into D."""
    q, Q, work, Y, D = problem.q, problem.Q, room.work, room.Y, room.D
    image, left, change, effect = work[0], work[1], work[2], work[3]
    for k in range(3):
        for _ in range(2):
            for i in range(q.size):
                image[i] = add_products(0.0, Q[i], Y[k], 1.0)
                left[i] = image[i] + (q[i] if k == 2 else 0.0)
            undo(problem, left, zero, change, effect, room)
            for i in range(q.size):
                Y[k, i] += change[i]
                D[k, i] = image[i] + effect[i]


@kernel
def refine(
    problem: Problem, zero: Marks, y: Array, n: float, tau: float, n2: float, room: Room
) -> tuple[float, float]:
    """Correct y, n and τ by Newton's method on residuals in twice the precision; work[0] becomes Qy.

    Rows 1 and 2 of Y and D are what n alone changes, and what τ changes while 1ᵀd = 0. y is kept as y + low,
    in twice the precision too, since an ulp of it may be worth more than all of d.
    """
    g, q, Q, radius = problem.g, problem.q, problem.Q, problem.radius
    work, Y, D = room.work, room.Y, room.D
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
        undo(problem, left, zero, change, effect, room)
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
def best_on_face(problem: Problem, zero: Marks, y: Array, p: Array, room: Room) -> tuple[int, float, float]:
    """The best p with p = 0 just at the entries in `zero`, and its y: (what was found, n = ν - top, τ).

    BOUNDED: y, n and τ are the least bound without regard to the signs of p and μ. UNBOUNDED: no such p is
    within the radius, and the bound falls for ever as y grows along Y[2], and n by the number returned.
    """
    g, q, condition, radius = problem.g, problem.q, problem.condition, problem.radius
    work, Y, D = room.work, room.Y, room.D
    # 1. y and d as functions of n and τ; 1ᵀd = 0 gives n as a function of τ.
    if not stationary(problem, zero, room):
        return FAILED, 0.0, 0.0
    if condition > SHARP:
        sharpen(problem, zero, room)
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
        n, tau = refine(problem, zero, y, n, tau, n2, room)
        if not tau > 0.0:
            return FAILED, 0.0, 0.0
        for i in range(g.size):
            p[i] = 0.0 if zero[i] else q[i] + work[0, i] / tau
    return BOUNDED, n, tau


@kernel
def settle(problem: Problem, zero: Marks, y: Array, p: Array, room: Room) -> tuple[float, int]:
    """Find Z (marked in `zero`), y and p by moving all entries of the wrong sign at once.

    Returns n = ν - top and the rounds, negative if it did not settle.
    """
    g = problem.g
    for k in range(1, ROUNDS + 1):
        found, n, _ = best_on_face(problem, zero, y, p, room)
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
def descend(problem: Problem, zero: Marks, y: Array, p: Array, room: Room) -> tuple[float, int]:
    """As `settle`, from Z = ∅ and with a bound that falls in each round, so that no Z comes twice.

    As Lawson and Hanson for least squares: towards the best of a face until some μ is 0, which leaves Z; at
    the best, the entry with p < 0 that is worth most joins Z.
    """
    g, Q, work, Y = problem.g, problem.Q, room.work, room.Y
    size, n, joined = g.size, 0.0, -1
    mu, most = np.zeros(size), 4 * size + 20
    zero[:] = False
    for k in range(1, most + 1):
        found, best, tau = best_on_face(problem, zero, y, p, room)
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
def nearest_on_face(problem: Problem, zero: Marks, p: Array, room: Room) -> bool:
    """Write into p the distribution on the largest losses alone that is nearest to q; whether there is one.

    Exact if no further entry has to be 0; otherwise a point of that face, which may be a little farther.
    """
    g, q, D = problem.g, problem.q, room.D
    for i in range(g.size):
        zero[i] = g[i] < 0.0
    for _ in range(g.size):
        if not stationary(problem, zero, room):
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
    f: Array, q: Array, Q: Array, root: Array, inverse: Array, condition: float, radius: float, mu: Array,
    p: Array, out: Array, room: Room,
) -> None:  # fmt: skip
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
    start, problem = smallest(mu), Problem(g, q, Q, inverse, condition, radius)
    zero = mu > start
    found = nearest_on_face(problem, zero, p, room) and smallest(p) >= 0.0
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
    work = room.work
    n, rounds = settle(problem, zero, y, p, room)
    if rounds < 0:
        n, rounds = descend(problem, zero, y, p, room)
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
    F: Matrix, center: Matrix, shape: Cube, root: Cube, inverse: Cube, condition: Vector, radius: Vector,
    mu: Matrix, warm: Matrix, P: Matrix, out: Matrix,
) -> None:  # fmt: skip
    """Solve every row of F; parameters with one row serve all rows, mu has one for each."""
    size, many, shapes = F.shape[1], center.shape[0] > 1, shape.shape[0] > 1
    half = size // 2 + 1
    room = Room(
        np.empty((5, size)), np.empty((3, size)), np.empty((3, size)), np.empty((3, half)),
        np.empty((half, half)), np.empty(size, np.int64),
    )  # fmt: skip
    for b in range(F.shape[0]):
        r, s = b if many else 0, b if shapes else 0
        Q, low, inner, worst = shape[s], root[s], inverse[s], condition[s]
        solve(F[b], center[r], Q, low, inner, worst, radius[r], mu[b], P[b], out[b], room)
