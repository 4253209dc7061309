"""What an expert writes in NumPy: the value of the oracle at a point of the set, for every such set."""

from __future__ import annotations

import numpy as np
import pytest

from bench.complexity import by_hand, peers
from bench.complexity.variants import found
from bench.measuring import cases
from tests import tolerances

VARIANTS = [each for each in found()[0] if each.name in by_hand.EXPERTS]


def same(uncertainty_set, losses):
    p = by_hand.EXPERTS[uncertainty_set.name](uncertainty_set)(losses)
    spread = np.ptp(losses)
    best = uncertainty_set.worst_case(losses).value
    assert p @ losses == pytest.approx(best, rel=0, abs=tolerances.SAME_VALUE * spread)
    if getattr(uncertainty_set, "cost", None) is None:  # with a matrix, membership needs POT, slow to import
        assert uncertainty_set.violation(p) <= tolerances.VIOLATION
    else:
        assert min(p.min(), 0.0) == 0.0
        assert p.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda each: each.title)
@pytest.mark.parametrize("size", [2, 3, 10, 60])
def test_an_expert_gets_the_oracles_value(variant, size):
    rng = np.random.default_rng(size)
    for turn in range(8):
        losses = rng.normal(size=size)
        if turn % 4 == 3:
            losses = np.round(losses)
            losses[0] = losses.max() + 1.0
        same(variant.make(size, rng), losses)


@pytest.mark.parametrize("level", cases.LEVELS)
@pytest.mark.parametrize(
    "case", [case for case in cases.ALL if case.label != cases.MATRIX.label], ids=lambda case: case.label
)
def test_an_expert_gets_the_oracles_value_for_sets_of_all_sizes(case, level):
    rng = np.random.default_rng(7)
    for size in (5, 40):
        uncertainty_set = case.make(cases.center(size, rng), level, rng)
        if uncertainty_set.name not in by_hand.EXPERTS:
            pytest.skip("no NumPy code for this set")
        for _ in range(4):
            same(uncertainty_set, rng.normal(size=size))


def test_every_set_of_the_paper_has_an_expert():
    assert {"box", "ellipsoid", "polyhedron", "kl", "wasserstein-1", "cd-norm", "cvar"} <= set(
        by_hand.EXPERTS
    )
    (peer,) = (each for each in peers.PEERS if each.title == peers.NUMPY)
    assert set(peer.names) == set(by_hand.EXPERTS)
