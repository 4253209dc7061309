"""The gap of the estimators' solver is proved, even where the oracle's answers are not exact."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from fdro_core.estimators import central
from uncertainty_sets import KL, TotalVariation

L2 = 0.1


class Bowls:
    """f_g(w) = ½‖w - a_g‖²."""

    def __init__(self, centers):
        self.centers, self.dimension = centers, centers.shape[1]

    def evaluate(self, w):
        away = w - self.centers
        return 0.5 * (away**2).sum(axis=1), lambda p: p @ away

    def metric(self):
        return np.ones(self.dimension)


def loose(subject, share):
    """The set with answers that are short of the maximum by a share, as a solver's are by its tolerance."""

    class Loose(type(subject)):
        def worst_case(self, losses, **given):
            answer = copy.copy(super().worst_case(losses, **given))
            answer.p = (1.0 - share) * answer.p + share * self.center
            answer.value = float(answer.p @ losses)
            answer.gap = answer.upper_bound - answer.value
            return answer

    twin = copy.copy(subject)
    twin.__class__ = Loose
    return twin


@pytest.mark.parametrize("share", [0.0, 1e-6, 1e-3])
@pytest.mark.parametrize("make", [TotalVariation, KL])
def test_the_gap_covers_what_the_oracle_lacks(make, share):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        subject, groups = make(rng.dirichlet(np.full(4, 5.0)), 0.2), Bowls(rng.normal(size=(4, 2)))
        exact = central.minimise(groups, subject, L2, 1e-10, 2000)
        least = exact.worst_case.upper_bound + 0.5 * L2 * float(exact.w @ exact.w) - exact.gap
        found = central.minimise(groups, loose(subject, share), L2, 1e-10, 400)
        losses, _ = groups.evaluate(found.w)
        reached = subject.worst_case(losses).value + 0.5 * L2 * float(found.w @ found.w)
        assert found.gap >= 0.0
        assert found.gap >= reached - least - exact.gap - 1e-12
