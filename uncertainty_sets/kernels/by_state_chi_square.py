"""χ² with a joint budget per state: Σ_a Σ (p_a-q_a)²/q_a <= κ, as by_state.py says.

The bound has c_a(θ) = θ·τ + 1 + θ²/4·Σ q·(f-τ)₊², for any τ; the least has (θ/2)·Σ q·(f-τ)₊ = 1.
"""

from __future__ import annotations

from uncertainty_sets.kernels.by_state import CHI_SQUARE
from uncertainty_sets.kernels.by_state_evaluate import evaluate_by
from uncertainty_sets.kernels.by_state_improve import improve_by
from uncertainty_sets.kernels.jit import entry

improve = entry("tilts", "policy", "P", "out")(improve_by(CHI_SQUARE, __name__))
evaluate = entry("P", "out")(evaluate_by(CHI_SQUARE, __name__))
