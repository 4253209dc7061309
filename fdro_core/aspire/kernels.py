"""The hot passes of ASPIRE-EASE in numba: arrays are changed in place, nothing is validated.

The diagonal metric D scales every step: a step size a means a/D_i in coordinate i, the penalty κ₁ means
κ₁D_i and the dual step ρ₂ means ρ₂D_i. D = 1 gives exactly the paper's updates. φ is kept divided by D
(u = φ/D). A worker needs z and φ_j only as y_j = φ_j/D + κ₁z, so the master sends that one vector. Both save
arrays in passes that are bound by memory.
"""

from __future__ import annotations

import numpy as np

from fdro_core.federation.kernels import enter, norm_sq, simplex_threshold
from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels.jit import kernel, summing

MOVES = 20  # of mass between two planes in one update of λ


@summing
def worker_step(
    w: Array,
    pull: Array,
    gradient: Array,
    inverse: Array,
    out: Array,
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


@summing
def absorb(w_old: Array, w_new: Array, total: Array) -> None:
    """Add one worker's move to Σ_j(w_j - φ_j/(κ₁D)), here `total`."""
    for i in range(w_old.size):
        total[i] += w_new[i] - w_old[i]


@summing
def shift(total: Array, w: Array, u: Array, penalty: float, sign: float) -> None:
    """Total += sign·(w_j - φ_j/(κ₁D)): add a worker to the sum or take it out."""
    ratio = 1.0 / penalty
    for i in range(total.size):
        total[i] += sign * (w[i] - u[i] * ratio)


@summing
def consensus(total: Array, z: Array, live: float, penalty: float, step: float, bound: float) -> None:
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


@summing
def dual(
    w: Array,
    u: Array,
    total: Array,
    inverse: Array,
    z: Array,
    pull: Array,
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


@summing
def advance_one(
    w_new: Array,
    w_old: Array,
    u: Array,
    total: Array,
    z: Array,
    pull: Array,
    live: int,
    penalty: float,
    dual_step: float,
    limit_sq: float,
    book: Array,
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


@kernel
def advance_planes(
    plane_losses: Array,
    multipliers: Array,
    previous: Array,
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
    base = plane_losses.max()
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


@kernel
def climb_planes(
    plane_losses: Array, multipliers: Array, previous: Array, stiffness: Array, step: float
) -> float:
    """λ ← argmax over the simplex of (Pf)ᵀλ - (λ - λᵗ)ᵀK(λ - λᵗ)/(2·step), nearly; h is its multiplier.

    By pair moves: mass goes from the plane with λ > 0 that gains least to the plane that gains most, up
    to the maximum of the model along that move. O(|A|) per move, no sort.
    """
    # 1. Each plane's gain. Losses are measured from the largest: far from zero they would cost digits.
    size = multipliers.size
    gain = np.empty(size)
    base = plane_losses.max()
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


@kernel
def weight_of(row: Array, multipliers: Array) -> float:
    """s_j = Σ_l λ_l p_{l,j}; row is worker j's entry in every plane."""
    total = 0.0
    for i in range(multipliers.size):
        total += multipliers[i] * row[i]
    return total


@kernel
def move_loss(row: Array, plane_losses: Array, change: float) -> None:
    """Update Pf after one worker's loss changed: Pf += P[:, j]·Δf_j."""
    for i in range(plane_losses.size):
        plane_losses[i] += row[i] * change


@kernel
def respond_to_one(
    table: Array,
    losses: Array,
    plane_losses: Array,
    multipliers: Array,
    previous: Array,
    stiffness: Array,
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
