"""The hot passes of ASPIRE-EASE in numba: arrays are changed in place, nothing is validated.

The diagonal metric D scales every step: a step size a means a/D_i in coordinate i, the penalty κ₁ means
κ₁D_i and the dual step ρ₂ means ρ₂D_i. D = 1 gives exactly the paper's updates. φ is kept divided by D
(u = φ/D). A worker needs z and φ_j only as y_j = φ_j/D + κ₁z, so the master sends that one vector. Both save
arrays in passes that are bound by memory.
"""

from __future__ import annotations

import numpy as np

from fdro_core.master.kernels import enter, norm_sq, simplex_threshold
from uncertainty_sets.arrays import Matrix, Vector
from uncertainty_sets.kernels.jit import entry, kernel, summing
from uncertainty_sets.kernels.scan import largest

MOVES = 20  # of mass between two planes in one update of λ


# -- the worker's step ---------------------------------------------------------------------------------------


@entry("out")
@summing
def worker_step(
    w: Vector,
    pull: Vector,
    gradient: Vector,
    inverse: Vector,
    out: Vector,
    weight: float,
    penalty: float,
    step: float,
    bound: float,
) -> None:
    """out ← Π(w - a/D·(s_j∇f_j - φ_j + κ₁D(w - z))) with y_j = φ_j/D + κ₁z, here `pull`.

    Eq. (11), with -φ_j where Eq. (12) prints -w_j.
    """
    keep, along = 1.0 - step * penalty, step * weight
    for i in range(w.size):
        out[i] = keep * w[i] - along * gradient[i] * inverse[i] + step * pull[i]
    if bound < np.inf:
        for i in range(w.size):
            out[i] = min(max(out[i], -bound), bound)


# -- z, φ_j and their running sum ----------------------------------------------------------------------------


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
    """φ_j ← Π(φ_j + ρ₂D(z - w_j - c₂φ_j/D)), Eq. (16) with a single ∇; the sum and y_j after it."""
    ratio = 1.0 / penalty
    for i in range(w.size):
        # 1. The dual step, kept in its box.
        old = u[i]
        new = old + dual_step * (z[i] - w[i] - damping * old)
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


# -- h and λ over the planes ---------------------------------------------------------------------------------


@entry("multipliers", "previous")
@kernel
def advance_planes(
    plane_losses: Vector,
    multipliers: Vector,
    previous: Vector,
    value: float,
    step: float,
    damping: float,
    value_step: float,
    value_low: float,
    value_high: float,
    bound: float,
) -> float:
    """Update λ in place and return the new h; `previous` becomes the old λ.

    value_step > 0: h ← Π_H(h - η_h(1 - Σλ)), then λ_l ← Π_Λ(λ_l + ρ₁((Pf)_l - h - c₁λ_l)), Eq. (14), (15).
    value_step = 0: the same λ with the h that makes Σλ = 1, kept in H.
    """
    # 1. λ before its projection. Losses are measured from the largest: far from zero they would cost digits.
    size = multipliers.size
    target = np.empty(size)
    base = largest(plane_losses)
    total = 0.0
    for i in range(size):
        previous[i] = multipliers[i]
        total += multipliers[i]
        target[i] = multipliers[i] + step * (plane_losses[i] - base - damping * multipliers[i])
    # 2. h by a gradient step, or so that Σλ = 1; kept in H.
    if value_step > 0.0:
        value = value - value_step * (1.0 - total)
    else:
        value = base + simplex_threshold(target) / step
    value = min(max(value, value_low), value_high)
    # 3. λ for that h, projected onto Λ.
    for i in range(size):
        multipliers[i] = min(max(target[i] - step * (value - base), 0.0), bound)
    return value


@entry("multipliers", "previous")
@kernel
def climb_planes(
    plane_losses: Vector, multipliers: Vector, previous: Vector, stiffness: Matrix, step: float
) -> float:
    """λ ← argmax over the simplex of (Pf)ᵀλ - (λ - λᵗ)ᵀK(λ - λᵗ)/(2·step), nearly; h is its multiplier.

    By pair moves: mass goes from the plane with λ > 0 that gains least to the plane that gains most, up
    to the maximum of the model along that move. O(|A|) per move, no sort.
    """
    # 1. Each plane's gain. Losses are measured from the largest: far from zero they would cost digits.
    size = multipliers.size
    gain = np.empty(size)
    base = largest(plane_losses)
    for i in range(size):
        previous[i] = multipliers[i]
        gain[i] = plane_losses[i] - base
    for _ in range(MOVES):
        # 2. The pair that gains most.
        up, down = 0, -1
        for i in range(size):
            if gain[i] > gain[up]:
                up = i
            if multipliers[i] > 0.0 and (down < 0 or gain[i] < gain[down]):
                down = i
        bend = stiffness[up, up] + stiffness[down, down] - 2.0 * stiffness[up, down]
        if down == up or bend <= 0.0:
            break
        # 3. Move mass; a rest of rounding size goes along, since planes are dropped by λ = 0.
        amount = step * (gain[up] - gain[down]) / bend
        if amount >= (1.0 - 1e-12) * multipliers[down]:
            amount = multipliers[down]
            multipliers[down] = 0.0
        else:
            multipliers[down] -= amount
        if amount == 0.0:
            break
        # 4. The gains after the move.
        multipliers[up] += amount
        for i in range(size):
            gain[i] -= amount / step * (stiffness[i, up] - stiffness[i, down])
    # 5. h, the mean gain under λ.
    value = 0.0
    total = 0.0
    for i in range(size):
        total += multipliers[i]
        value += multipliers[i] * gain[i]
    mean: float = base + value / total
    return mean


@entry()
@kernel
def weight_of(row: Vector, multipliers: Vector) -> float:
    """s_j = Σ_l λ_l p_{l,j}; row is worker j's entry in every plane."""
    total = 0.0
    for i in range(multipliers.size):
        total += multipliers[i] * row[i]
    return total


@entry("plane_losses")
@kernel
def move_loss(row: Vector, plane_losses: Vector, change: float) -> None:
    """Update Pf after one worker's loss changed: Pf += P[:, j]·Δf_j."""
    for i in range(plane_losses.size):
        plane_losses[i] += row[i] * change


@entry("losses", "plane_losses", "multipliers", "previous")
@kernel
def respond_to_one(
    table: Matrix,
    losses: Vector,
    plane_losses: Vector,
    multipliers: Vector,
    previous: Vector,
    stiffness: Matrix,
    j: int,
    loss: float,
    step: float,
) -> tuple[float, float]:
    """Store f_j, then `move_loss`, `climb_planes` and `weight_of` for one active worker; return h and s_j."""
    row = table[j]
    move_loss(row, plane_losses, loss - losses[j])
    losses[j] = loss
    value = climb_planes(plane_losses, multipliers, previous, stiffness, step)
    return value, weight_of(row, multipliers)
