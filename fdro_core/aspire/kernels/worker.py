"""The worker's step."""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Vector
from uncertainty_sets.kernels.jit import entry, summing


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
