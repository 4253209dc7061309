"""J x of a tilt family in two passes: how p moves with the losses, or the pull on the losses (face.py).

With S = b/η on the free entries, d = f - Σbf/Σb, x̃ = x - Σbx/Σb and c = Σ b·d·x̃ / Σ b·d²,

    J x = b/η·(x̃ - c·d),      dη = c·η,

since g is d/η there up to a constant. So nothing but the losses, b and x is read: no logarithm.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Matrix, Vector
from uncertainty_sets.kernels.jit import entry, kernel, summing

FAR = 1e300
LOST = 1e-26  # of Σ b·f², below which Σ b·d² is rounding: all free entries have one loss
CANCELS = 0.01  # of Σ b·(f - pᵀf)²: below, the sums about pᵀf lose digits


@summing
def sums(f: Array, b: Array, x: Array, near: float) -> tuple[float, float, float, float, float]:
    """Σ b, Σ b·e, Σ b·e², Σ b·x and Σ b·e·x with e = f - near."""
    mass, first, square, pull, both = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(f.size):
        e = f[i] - near
        weighted = b[i] * x[i]
        mass += b[i]
        first += b[i] * e
        square += b[i] * e * e
        pull += weighted
        both += weighted * e
    return mass, first, square, pull, both


@summing
def moments(f: Array, b: Array, x: Array, middle: float, mean: float) -> tuple[float, float]:
    """Σ b·d² and Σ b·d·x̃, where the sums above would cancel."""
    square, both = 0.0, 0.0
    for i in range(f.size):
        d = f[i] - middle
        square += b[i] * d * d
        both += b[i] * d * (x[i] - mean)
    return square, both


@kernel
def fill(
    f: Array, b: Array, x: Array, middle: float, mean: float, c: float, eta: float, p: Array, value: float,
    out: Array,
) -> None:  # fmt: skip
    """J x + value·p."""
    scale = 1.0 / eta
    if value == 0.0:
        for i in range(f.size):
            out[i] = b[i] * scale * ((x[i] - mean) - c * (f[i] - middle))
        return
    for i in range(f.size):
        out[i] = b[i] * scale * ((x[i] - mean) - c * (f[i] - middle)) + value * p[i]


@kernel
def apply(
    f: Array, b: Array, x: Array, near: float, eta: float, p: Array, value: float, out: Array, numbers: Array
) -> None:  # fmt: skip
    """Write J x + value·p of one row, and c, Σbf/Σb and Σbx/Σb; `near` is about Σbf/Σb, such as pᵀf."""
    numbers[0] = numbers[1] = numbers[2] = 0.0
    if not (eta > 0.0 and eta < FAR):
        for i in range(f.size):
            out[i] = value * p[i]
        return
    mass, first, square, pull, both = sums(f, b, x, near)
    if not mass > 0.0:
        for i in range(f.size):
            out[i] = value * p[i]
        return
    shift, mean = first / mass, pull / mass
    middle, size = near + shift, square
    square, both = square - first * shift, both - first * mean
    if not square > CANCELS * size:
        square, both = moments(f, b, x, middle, mean)
    c = both / square if square > LOST * mass * middle * middle + LOST * size else 0.0
    fill(f, b, x, middle, mean, c, eta, p, value, out)
    numbers[0], numbers[1], numbers[2] = c, middle, mean


@entry("out", "numbers")
@kernel
def rows(
    F: Matrix, B: Matrix, X: Matrix, near: Vector, eta: Vector, P: Matrix, value: Vector, out: Matrix,
    numbers: Matrix,
) -> None:  # fmt: skip
    """The same for every row; all arrays have as many rows, `near`, `eta` and `value` a number for each."""
    for r in range(F.shape[0]):
        apply(F[r], B[r], X[r], near[r], eta[r], P[r], value[r], out[r], numbers[r])


@kernel
def slope(t: float, k: float) -> float:
    """(1 - t^k)/k, how D grows with an entry of the centre."""
    if k == 1.0:
        return 1.0 - t
    if k == 2.0:
        return 0.5 * (1.0 - t * t)
    found: float = -np.log(t) if k == 0.0 else (1.0 - t**k) / k
    return found


@summing
def center_pull(
    f: Array, p: Array, q: Array, x: Array, k: float, numbers: Array, lift: float, out: Array
) -> float:
    """Write t·r - lift·(1 - t^k)/k with r = x̃ - c·d; return its mean under q."""
    c, middle, mean = numbers[0], numbers[1], numbers[2]
    total = 0.0
    for i in range(f.size):
        t = p[i] / q[i]
        pull = t * ((x[i] - mean) - c * (f[i] - middle)) - lift * slope(t, k)
        out[i] = pull
        total += q[i] * pull
    return total


@entry("out")
@kernel
def center_rows(
    F: Matrix, P: Matrix, center: Matrix, X: Matrix, k: float, numbers: Matrix, lift: Vector, out: Matrix
) -> None:
    """The pull on the centre of every row, by the numbers that `rows` wrote; `lift` is η·(c + v).

    Everywhere p and q are positive.
    """
    for r in range(F.shape[0]):
        q = center[r if center.shape[0] > 1 else 0]
        mean = center_pull(F[r], P[r], q, X[r], k, numbers[r], lift[r], out[r])
        for i in range(q.size):
            out[r, i] -= mean


@kernel
def bend(p: Array, q: Array, k: float, b: Array) -> None:
    """b = η·S of a power divergence: q·t^(2-k) where p and q are positive, and 0 elsewhere."""
    if k == 2.0:
        for i in range(p.size):
            b[i] = q[i] * (p[i] > 0.0)
    elif k == 0.0:
        for i in range(p.size):
            b[i] = p[i] * (p[i] / q[i]) if q[i] > 0.0 else 0.0
    elif k == 0.5:
        for i in range(p.size):
            b[i] = p[i] * np.sqrt(p[i] / q[i]) if q[i] > 0.0 else 0.0
    else:
        for i in range(p.size):
            b[i] = q[i] * (p[i] / q[i]) ** (2.0 - k) if q[i] > 0.0 and p[i] > 0.0 else 0.0


@entry("B")
@kernel
def bends(P: Matrix, center: Matrix, k: float, B: Matrix) -> None:
    """The same for every row; a centre with one row serves all."""
    for r in range(P.shape[0]):
        bend(P[r], center[r if center.shape[0] > 1 else 0], k, B[r])
