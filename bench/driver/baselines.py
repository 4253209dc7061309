"""Centralised solvers to compare gradients with: they see all data at once and wait for nobody."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from uncertainty_sets.arrays import Array


class Reached(Exception):
    """The target was met."""


class Counter:
    """All workers' losses and gradients at w; counts epochs and remembers when the target was met."""

    def __init__(self, problems: Sequence[Any], uncertainty_set: Any, target: float, limit: int) -> None:
        self.problems, self.uncertainty_set = problems, uncertainty_set
        self.target, self.limit, self.epochs, self.hit = target, limit, 0, np.inf

    def __call__(self, w: Array) -> tuple[Array, Array]:
        """(losses, gradients as rows); ends the search when the target is met or the limit is passed."""
        self.epochs += 1
        pairs = [problem.loss_and_gradient(w) for problem in self.problems]
        losses = np.array([loss for loss, _ in pairs])
        if float(self.uncertainty_set.worst_case(losses).value) <= self.target:
            self.hit = self.epochs
            raise Reached
        if self.epochs >= self.limit:
            raise Reached
        return losses, np.array([gradient for _, gradient in pairs])


def subgradient(problems: Sequence[Any], uncertainty_set: Any, target: float, limit: int = 3000) -> float:
    """Epochs of w ← w - (1/√t)·D⁻¹Σp_j∇f_j with the exact oracle's p, step lengths from the metric."""
    count = Counter(problems, uncertainty_set, target, limit)
    metric = np.mean([problem.metric() for problem in problems], axis=0)
    w = np.zeros(problems[0].dimension)
    try:
        for t in range(1, limit + 1):
            losses, gradients = count(w)
            w = w - (uncertainty_set.worst_case(losses).p @ gradients) / metric / np.sqrt(t)
    except Reached:
        pass
    return count.hit


def planes_lbfgs(problems: Sequence[Any], uncertainty_set: Any, target: float, limit: int = 3000) -> float:
    """Epochs of cutting planes: L-BFGS on the smoothed maximum over the planes, then one more plane."""
    from scipy.optimize import minimize

    count = Counter(problems, uncertainty_set, target, limit)
    planes = [np.asarray(uncertainty_set.reference())]
    w = np.zeros(problems[0].dimension)
    try:
        spread = float(np.ptp(count(w)[0])) or 1.0
        smoothing = 0.3 * spread
        while True:
            P = np.array(planes)

            def smooth(v: Array, P: Array = P, smoothing: float = smoothing) -> tuple[float, Array]:
                losses, gradients = count(v)
                values = P @ losses
                weights = np.exp((values - values.max()) / smoothing)
                value = values.max() + smoothing * np.log(weights.mean())
                return float(value), (weights / weights.sum()) @ P @ gradients

            w = minimize(smooth, w, jac=True, method="L-BFGS-B", options={"maxiter": 30}).x
            planes.append(np.asarray(uncertainty_set.worst_case(count(w)[0]).p))
            smoothing = max(0.7 * smoothing, 1e-5 * spread)
    except Reached:
        pass
    return count.hit
