"""χ² with a joint budget per state: Σ_a Σ (p_a-q_a)²/q_a <= κ, as by_state.py says.

The bound has c_a(θ) = θ·τ + 1 + θ²/4·Σ q·(f-τ)₊², for any τ; the least has (θ/2)·Σ q·(f-τ)₊ = 1.
"""

from __future__ import annotations

from uncertainty_sets.arrays import Indices, Matrix, Vector
from uncertainty_sets.kernels import by_state_evaluate, by_state_improve
from uncertainty_sets.kernels.by_state_tilt import CHI_SQUARE
from uncertainty_sets.kernels.jit import entry, kernel

improve_states, evaluate_states = by_state_improve.states, by_state_evaluate.states


@entry("tilts", "policy", "P", "out")
@kernel
def improve(
    values: Vector, indices: Indices, offsets: Vector, row_offsets: Vector, sizes: Vector, scale: float,
    unit: float,
    state_rows: Indices, indptr: Indices, first: int, after: int, center: Vector, budget: Vector,
    tilts: Vector, policy: Vector, P: Vector, out: Matrix,
) -> None:  # fmt: skip
    """Improve the states first, …, after - 1; out[DUAL] and `tilts` are read as a start, NaN for none."""
    improve_states(
        CHI_SQUARE, values, indices, offsets, row_offsets, sizes, scale, unit, state_rows, indptr, first,
        after, center, budget, tilts, policy, P, out,
    )  # fmt: skip


@entry("P", "out")
@kernel
def evaluate(
    values: Vector, indices: Indices, offsets: Vector, row_offsets: Vector, sizes: Vector, scale: float,
    unit: float,
    state_rows: Indices, indptr: Indices, first: int, after: int, center: Vector, budget: Vector,
    policy: Vector, P: Vector, out: Matrix,
) -> None:  # fmt: skip
    """Evaluate a policy in the states first, …, after - 1; out[DUAL] is read as a start, NaN for none."""
    evaluate_states(
        CHI_SQUARE, values, indices, offsets, row_offsets, sizes, scale, unit, state_rows, indptr, first,
        after, center, budget, policy, P, out,
    )  # fmt: skip
