"""KL with a joint budget per state: Σ_a KL(p_a‖q_a) <= κ, as by_state.py says.

The bound has c_a(θ) = log Σ q·exp(θ·f).

Each mode has a file, and so a library, of its own, from which LLVM leaves out what is for the other mode. A
library of both took 6 to 20 % longer to answer.
"""

from __future__ import annotations

from uncertainty_sets.kernels.by_state import KL
from uncertainty_sets.kernels.by_state_evaluate import evaluate_by
from uncertainty_sets.kernels.by_state_improve import improve_by
from uncertainty_sets.kernels.jit import entry

improve = entry("tilts", "policy", "P", "out")(improve_by(KL, __name__))
evaluate = entry("P", "out")(evaluate_by(KL, __name__))
