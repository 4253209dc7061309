"""Sets with one defect each, made from a set that has none.

None has a name, so that the registry and the suites over it do not see them.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets import UncertaintySet, WorstCase


class Tail(UncertaintySet):
    """{p : p <= most}, an equal limit for all: sound, with a closed form of its own.

    The largest losses get `most` each until the mass is spent. For any ν the maximum is at most
    ν + most·Σ max(f - ν, 0), and ν the loss at which the mass ran out makes that exact.
    """

    def __init__(self, size, most=0.4):
        self.size, self.most = size, most

    @classmethod
    def example(cls, size, rng=None):
        return cls(size, min(1.0, 2.0 / size))

    def constraints(self, p):
        return [p <= self.most]

    def _residual(self, p):
        return float(max((p - self.most).max(), 0.0))

    def _closed_form(self, losses, warm_start):
        if losses.ndim == 2:
            rows = [self.answer(row) for row in losses]
            fields = ("p", "value", "upper_bound", "gap", "violation")
            dual = {"nu": np.array([row.dual["nu"] for row in rows])}
            columns = (np.array([getattr(row, name) for row in rows]) for name in fields)
            return WorstCase(*columns, dual, "closed-form", np.ones(len(rows), dtype=int))
        return self.answer(losses)

    def answer(self, f):
        """One row."""
        order = np.argsort(-f, kind="stable")
        p = np.zeros(f.size)
        full = min(int(1.0 / self.most), f.size)
        p[order[:full]] = self.most
        if full < f.size:
            p[order[full]] = 1.0 - full * self.most
        nu = f[order[min(full, f.size - 1)]]
        value = nu + float(p @ (f - nu))
        bound = nu + self.most * float(np.maximum(f - nu, 0.0).sum())
        return WorstCase(p, value, bound, bound - value, self.violation(p), {"nu": nu}, "closed-form", 1)


def claims(**changes):
    """Tail, but every answer's fields are changed: name -> function of (field, answer, losses)."""

    class Claiming(Tail):
        def _closed_form(self, losses, warm_start):
            answer = super()._closed_form(losses, warm_start)
            for name, change in changes.items():
                setattr(answer, name, change(getattr(answer, name), answer, losses))
            return answer

    return Claiming


def always(value):
    """A change to a fixed value."""
    return lambda field, answer, losses: value


ONES = claims(p=lambda p, answer, losses: np.ones_like(p))
HIGH = claims(value=lambda value, answer, losses: value + 100.0)
