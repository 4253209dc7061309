"""Local steps: what the master sends along with z, and what a worker does with it.

A worker takes local steps from z on its own loss, corrected for what the others want,

    y ← y - a∘(∇f_j(y) - v_j + d) - θ(y - z),    d = Σ_i s_iv_i,

v_i the last gradient of worker i, a = step·D⁻¹: as the control variates of SCAFFOLD. At a stationary point
∇f_j(z) = v_j and d = 0, so y stays at z: local steps change the path, not its end. A message carries a and
b = a∘(d - v_j), so a worker needs no memory.

Full batches: step = 1/((1 + μ)c_j), θ = μ/(1 + μ). Mini-batches: step = η/√E, θ = 0, and no parameter moves
by more than κ·η/√E in a step: in D a reply is about 1 long if it is like the others, and a worker of little
weight may be far longer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, sqrt
from typing import Any, ClassVar

import numpy as np

from fdro_core.aspire.planes import Planes
from fdro_core.protocol.saved import Form, Kept, numbers
from uncertainty_sets.arrays import Array

CHUNK = 64  # workers at a time when planes are summed anew
DAMPING = 0.5  # μ, full batches: pull back to z, of c_j; without it many steps overshoot where workers differ
RETURN = DAMPING / (1.0 + DAMPING)  # θ
SHORTER = 0.25  # a step after one that was undone, full batches
ROUNDING = 1e-14  # of the losses
CLIP = 2.0  # κ, mini-batches

Evaluator = Callable[[Array, int], tuple[float, Array]]
"""From a point and the number of the local step to loss and gradient."""


def long_step(step: float, steps: int) -> float:
    """η√E, the step of z after E local steps: their noise adds up to as much."""
    return sqrt(steps) * step


def look_ahead(evaluate: Evaluator, z: Array, scale: Array, shift: Array, steps: int) -> Any:
    """Take steps - 1 local steps; the last point, its loss and gradient, and the gradient at z.

    Costs `steps` gradients. The steps minimise φ(y) = f_j(y) + (d - v_j)ᵀy + ½μc‖y - z‖²_D. One after which φ
    is higher is undone, and those that follow are a quarter as long: c may be too small, far from z above
    all.
    """
    loss, gradient = evaluate(z, 0)
    y, gradient = z, gradient.copy()
    first, length, value = gradient, 1.0, loss
    for step in range(1, steps):
        ahead = y - length * (scale * gradient + shift + RETURN * (y - z))
        new_loss, slope = evaluate(ahead, step)
        away = ahead - z
        new_value = new_loss + float(((shift + 0.5 * RETURN * away) / scale) @ away)
        if new_value <= value + ROUNDING * (abs(value) + abs(new_loss) + abs(loss)):
            y, loss, gradient, value = ahead, new_loss, slope.copy(), new_value
        else:
            length *= SHORTER
    return y, loss, gradient, first


def mean_gradient(
    evaluate: Evaluator, z: Array, scale: Array, shift: Array, steps: int, reach: float
) -> tuple[float, Array]:
    """The mean loss and the mean gradient of as many local steps, each on a batch of its own.

    No parameter moves by more than `reach` in a step.
    """
    y, total, losses = z, np.zeros_like(z), 0.0
    for step in range(steps):
        loss, gradient = evaluate(y, step)
        losses += loss
        total += gradient
        y = y - np.clip(scale * gradient + shift, -reach, reach)
    return losses / steps, total / steps


class Controls(Kept):
    """The gradients v_j at the points that were sent, and Σ_j p_ljv_j of every plane.

    Full batches need them beside the models: a model's gradient belongs to the end of the local steps, and
    with it as v_j the differences between workers would not decay.
    """

    saved: ClassVar[Form] = {"gradients": numbers("N p"), "slopes": numbers("planes p", most=inf)}

    def __init__(self, planes: Planes, gradients: Array) -> None:
        self.planes = planes
        self.gradients = gradients.copy()
        self.recentre()

    def learn(self, j: int, gradient: Array) -> None:
        """Replace v_j. Costs O(|A|p)."""
        self.slopes += np.outer(self.planes.table[j, : self.planes.size], gradient - self.gradients[j])
        self.gradients[j] = gradient

    def correction(self, j: int) -> Array:
        """d - v_j."""
        correction: Array = self.planes.multipliers @ self.slopes - self.gradients[j]
        return correction

    def recentre(self) -> None:
        """Sum the planes anew. Costs O(|A|Np)."""
        table = self.planes.table[:, : self.planes.size]
        self.slopes = np.zeros((self.planes.size, self.gradients.shape[1]))
        for begin in range(0, len(self.gradients), CHUNK):
            rows = slice(begin, begin + CHUNK)
            self.slopes += table[rows].T @ self.gradients[rows]

    @classmethod
    def restored(cls, planes: Planes, state: Mapping[str, Any]) -> Controls:
        """The controls of a snapshot."""
        controls = cls.__new__(cls)
        controls.planes = planes
        controls.take(state)
        return controls
