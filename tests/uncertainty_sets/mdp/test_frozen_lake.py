"""The frozen lake: bad states that nature can reach from almost everywhere, and policies that nearly tie."""

from __future__ import annotations

import numpy as np
import pytest

from uncertainty_sets import KL
from uncertainty_sets.mdp import RobustMDP, from_gymnasium

LAKE = ("SFFF", "FHFH", "FFFH", "HFFG")
STEPS = ((0, -1), (1, 0), (0, 1), (-1, 0))


def lake(success):
    """Gymnasium's table of the 4×4 lake: a step slides to each side with probability (1 - success)/2."""

    def outcome(state, direction, probability):
        row, column = (min(max(a + b, 0), 3) for a, b in zip(divmod(state, 4), STEPS[direction], strict=True))
        cell = LAKE[row][column]
        return probability, 4 * row + column, float(cell == "G"), cell in "HG"

    aside = (1.0 - success) / 2.0
    return {
        s: {
            a: [(1.0, s, 0.0, True)]
            if LAKE[s // 4][s % 4] in "HG"
            else [outcome(s, (a + turn) % 4, q) for turn, q in ((-1, aside), (0, success), (1, aside))]
            for a in range(4)
        }
        for s in range(16)
    }


@pytest.mark.parametrize("radius", [0.05, 0.1, 0.2, 0.4, 0.8])
@pytest.mark.parametrize("success", [1 / 3, 0.8])
def test_policy_iteration_converges_in_few_sweeps(success, radius):
    problem = RobustMDP.of(from_gymnasium(lake(success), 0.99), KL, radius=radius)
    found, reference = problem.solve(), problem.solve("value")
    assert found.converged
    assert found.sweeps < 30
    assert (found.lower <= reference.upper).all()
    assert (reference.lower <= found.upper).all()


def test_the_lake_without_ambiguity():
    """0.5420 is the known value of the start in the slippery lake, discount 0.99."""
    value = RobustMDP.of(from_gymnasium(lake(1 / 3), 0.99), KL, radius=0.0).solve().value
    assert value[0] == pytest.approx(0.54203, abs=1e-5)
    assert np.argmax(value) == 14
