"""h and λ over the planes."""

from __future__ import annotations

import numpy as np

from fdro_core.federation.kernels import simplex_threshold
from uncertainty_sets.arrays import Matrix, Vector
from uncertainty_sets.kernels.jit import entry, kernel
from uncertainty_sets.kernels.scan import largest

MOVES = 20  # of mass between two planes in one update of λ


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
