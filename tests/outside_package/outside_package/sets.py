"""Two sets: one by its constraints alone, one with a closed form."""

from __future__ import annotations

import numpy as np

from uncertainty_sets import UncertaintySet, WorstCase


class Descending(UncertaintySet):
    """The distributions that never increase: p_1 >= p_2 >= ... >= p_N."""

    name = "descending"
    summary = "Distributions that never increase"
    formula = "p_1 >= p_2 >= … >= p_N"

    def constraints(self, p):
        return [p[:-1] >= p[1:]] if p.size > 1 else []


class Half(UncertaintySet):
    """No entry above 2/N, so that the worst case is the mean of the larger half of the losses."""

    formula = "p <= 2/N"
    complexity = "O(N log N)"

    def constraints(self, p):
        return [p <= 2 / p.size]

    def _closed_form(self, losses, warm_start):
        if losses.ndim == 2:
            return None
        half, odd = divmod(losses.size, 2)
        order = np.argsort(-losses)
        p = np.zeros(losses.size)
        p[order[:half]] = 2.0 / losses.size
        p[order[half]] = 1.0 / losses.size if odd else 0.0
        # The bound holds for any nu: pᵀf <= nu + (2/N)·Σ max(f - nu, 0).
        nu = losses[order[half if odd else half - 1]]
        bound = nu + 2.0 / losses.size * np.maximum(losses - nu, 0.0).sum()
        value = float(p @ losses)
        return WorstCase(
            p=p,
            value=value,
            upper_bound=float(bound),
            gap=float(bound) - value,
            violation=self.violation(p),
            dual={"nu": nu},
            backend="closed-form",
            iterations=1,
        )
