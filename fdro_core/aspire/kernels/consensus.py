"""z, φ_j and their running sum."""

from __future__ import annotations

import numpy as np

from fdro_core.federation.kernels import enter, norm_sq
from uncertainty_sets.arrays import Vector
from uncertainty_sets.kernels.jit import entry, summing


@entry("total")
@summing
def absorb(w_old: Vector, w_new: Vector, total: Vector) -> None:
    """Add one worker's move to Σ_j(w_j - φ_j/(κ₁D)), here `total`."""
    for i in range(w_old.size):
        total[i] += w_new[i] - w_old[i]


@entry("total")
@summing
def shift(total: Vector, w: Vector, u: Vector, penalty: float, sign: float) -> None:
    """Total += sign·(w_j - φ_j/(κ₁D)): add a worker to the sum or take it out."""
    ratio = 1.0 / penalty
    for i in range(total.size):
        total[i] += sign * (w[i] - u[i] * ratio)


@entry("z")
@summing
def consensus(total: Vector, z: Vector, live: float, penalty: float, step: float, bound: float) -> None:
    """z ← Π(z - a/D·(Σφ_j + κ₁D(nz - Σw_j))); step = 0 stands for a = 1/(nκ₁), the exact minimiser."""
    # 1. The exact minimiser, or one gradient step.
    if step == 0.0:
        scale = 1.0 / live
        for i in range(z.size):
            z[i] = total[i] * scale
    else:
        for i in range(z.size):
            z[i] -= step * penalty * (live * z[i] - total[i])
    # 2. Project onto the box.
    if bound < np.inf:
        for i in range(z.size):
            z[i] = min(max(z[i], -bound), bound)


@entry("u", "total", "pull")
@summing
def dual(
    w: Vector,
    u: Vector,
    total: Vector,
    inverse: Vector,
    z: Vector,
    pull: Vector,
    penalty: float,
    dual_step: float,
    damping: float,
    dual_bound: float,
) -> None:
    """φ_j ← Π(φ_j + ρ₂D(z - w_j - c₂φ_j)), Eq. (16) with a single ∇; the sum and y_j after it."""
    ratio = 1.0 / penalty
    for i in range(w.size):
        # 1. The dual step, kept in its box.
        old = u[i]
        new = old + dual_step * (z[i] - w[i] - damping * old / inverse[i])
        if dual_bound < np.inf:
            new = min(max(new, -dual_bound * inverse[i]), dual_bound * inverse[i])
        # 2. What depends on φ_j: the sum over workers, and the vector to send.
        u[i] = new
        total[i] -= (new - old) * ratio
        pull[i] = new + penalty * z[i]


@entry("u", "total", "z", "pull", "book")
@summing
def advance_one(
    w_new: Vector,
    w_old: Vector,
    u: Vector,
    total: Vector,
    z: Vector,
    pull: Vector,
    live: int,
    penalty: float,
    dual_step: float,
    limit_sq: float,
    book: Vector,
) -> bool:
    """`absorb`, `consensus`, `dual` and `enter` for one active worker, exact z and no boxes, in one pass.

    False, with nothing changed, if ‖w_new‖² is not within `limit_sq`, for instance NaN.
    """
    # 1. Refuse a reply that is too large or not finite.
    size = norm_sq(w_new)
    if not size <= limit_sq:
        return False
    pulled = 0.0
    scale, ratio = 1.0 / live, dual_step / penalty
    for i in range(w_new.size):
        # 2. The sum with the worker's move, and z as its mean.
        new = w_new[i]
        moved = total[i] + (new - w_old[i])
        middle = moved * scale
        z[i] = middle
        # 3. The dual step, and the sum after it.
        gap = middle - new
        total[i] = moved - ratio * gap
        own = u[i] + dual_step * gap
        u[i] = own
        # 4. The vector to send, and its square.
        next_pull = own + penalty * middle
        pull[i] = next_pull
        pulled += next_pull * next_pull
    # 5. Enter the reply's size for the next check.
    enter(book, size, pulled / (penalty * penalty))
    return True
