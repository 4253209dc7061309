"""Step sizes and regularisation: the defaults that converge untuned, and the paper's own rules.

Theorem 1's step sizes cannot be met: Setting 2 has c₁⁰ = 1/ρ₁, and then ρ₁ < 2/(L + 2c₁⁰) says ρ₁L < 0. So
the defaults here are measured rules, in the units of the problem: every one scales with the losses.
"""

from __future__ import annotations

from math import cbrt, sqrt

import numpy as np

from uncertainty_sets.arrays import Array

START = 0.25  # of the largest stable ρ₁
SHRINK = 0.8  # at each plane that comes back after it was dropped: λ overshoots
LEAST = 0.02
RIDGE = 0.02  # of ‖BBᵀ‖, added to BBᵀ


def penalty(reference: Array, curvatures: Array) -> float:
    """κ₁ = ½·mean_j(q_jL_j): half of a mean worker's curvature in Σ_j q_jf_j.

    A larger κ₁ slows every w_j, a smaller one lets the w_j drift apart.

    >>> penalty(np.array([0.5, 0.5]), np.array([2.0, 4.0]))
    0.75
    """
    value = 0.5 * float(np.mean(reference * curvatures))
    return value if value > 0 else 0.5 / max(1, reference.size)


def plane_stiffness(
    table: Array, gradient_sq: Array, weights: Array, curvatures: Array, penalty_: float, intervals: Array
) -> Array:
    """How P·f responds to λ: BBᵀ, (|A|, |A|).

    B = (P - mean plane)·diag√(r_j‖g_j‖²/(s_jL_j + κ₁)). A change Δλ moves w_j by about Δs_j·g_j/(s_jL_j + κ₁)
    before j's loss is seen again, and so Pf by -BBᵀΔλ; Σλ = 1 takes the mean plane out. r_j is how much
    rarer than average j is seen. table is (N, |A|). Costs O(N|A|²).
    """
    scale = np.sqrt(intervals * gradient_sq / (weights * curvatures + penalty_))
    B = (table - table.mean(axis=1, keepdims=True)) * scale[:, None]
    stiffness: Array = B.T @ B
    return stiffness


def setting_2(step: float, iteration: int, floor: float) -> float:
    """cᵗ = max(1/(ρ(t+1)^⅙), c̲), Setting 2.

    >>> setting_2(0.5, iteration=63, floor=0.0)
    1.0
    """
    return max(1.0 / (step * cbrt(sqrt(iteration + 1))), floor)
