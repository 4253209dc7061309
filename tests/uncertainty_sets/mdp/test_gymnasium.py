"""Models from Gymnasium's tables: the real environments, and dictionaries of the same form."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.uncertainty_sets.mdp.nominal import dense, greedy, value_iteration
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.mdp.gymnasium_ import from_gymnasium

ROOT = Path(__file__).resolve().parents[3]

Table = dict[int, dict[int, list[tuple[float, int, float, bool]]]]

SPLIT: Table = {
    0: {0: [(0.5, 1, 10.0, True), (0.25, 2, -10.0, True), (0.25, 0, 1.0, False)], 4: [(1.0, 3, 0.0, True)]},
    1: {0: [(1.0, 0, 1.0, False)]},
    2: {0: [(1.0, 2, -1.0, False)]},
    3: {0: [(1.0, 3, 0.0, True)], 1: [(0.5, 3, 0.0, True), (0.5, 3, 0.0, False)]},
}
"""State 1 goes on, state 2 returns to itself with a cost, state 3 is an end already."""


def by_the_book(table: Table, discount: float, sweeps: int = 3000) -> np.ndarray:
    """Value iteration on the dictionary itself: no value after an outcome that terminates."""
    values = np.zeros(len(table))
    for _ in range(sweeps):
        before, values = (
            values,
            np.array(
                [
                    max(
                        sum(p * (r + (0.0 if end else discount * values[t])) for p, t, r, end in outcomes)
                        for outcomes in table[s].values()
                    )
                    for s in range(len(table))
                ]
            ),
        )
        if np.array_equal(before, values):
            break
    return values


def newest(name: str) -> Any:
    """The newest version of an environment in the installed release."""
    gymnasium = pytest.importorskip("gymnasium")
    versions = [each for each in gymnasium.registry if each.rpartition("-v")[0] == name]
    return gymnasium.make(max(versions, key=lambda each: int(each.rpartition("-v")[2])))


@pytest.mark.parametrize(
    ("name", "states", "ends"), [("FrozenLake", 16, 0), ("CliffWalking", 48, 1), ("Taxi", 500, 4)]
)
def test_environments(name: str, states: int, ends: int) -> None:
    environment = newest(name)
    model = from_gymnasium(environment, discount=0.95)
    assert (model.states, model.discount) == (states + ends, 0.95)
    assert model.actions_each == environment.action_space.n
    expected = by_the_book(environment.unwrapped.P, 0.95)
    values, _ = value_iteration(model)
    np.testing.assert_allclose(values[:states], expected, rtol=1e-10, atol=1e-12)
    assert not values[states:].any()
    environment.close()


def test_cliff_walking_takes_the_shortest_way() -> None:
    """One up, eleven right, one down: thirteen steps of -1."""
    model = from_gymnasium(newest("CliffWalking"), discount=0.999999)
    values, _ = value_iteration(model, discount=1.0, sweeps=200)
    assert values[36] == -13.0


def test_frozen_lake_in_words_and_as_a_dictionary() -> None:
    environment = newest("FrozenLake")
    by_name = from_gymnasium("FrozenLake-v1", 0.99)
    by_table = from_gymnasium(environment.unwrapped.P, 0.99)
    np.testing.assert_array_equal(by_name.probabilities, by_table.probabilities)
    values, by_row = value_iteration(by_name, sweeps=3000)
    assert values[0] == pytest.approx(0.5420, abs=5e-5)
    assert greedy(by_name, by_row)[0] == 0
    # the corner: left and up both stay, so that outcomes with the same next state were added up
    np.testing.assert_allclose(dense(by_name).transitions[0, [0, 4]], [2 / 3, 1 / 3])


def test_environments_without_a_table() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    message = "CartPole-v1 has no table of transitions: .* give them to MDP.from_table"
    with gymnasium.make("CartPole-v1") as environment, pytest.raises(InvalidParameter, match=message):
        from_gymnasium(environment, 0.9)
    with pytest.raises(InvalidParameter, match=message):
        from_gymnasium("CartPole-v1", 0.9)


def test_ends_stay_apart() -> None:
    model = from_gymnasium(SPLIT, 0.5)
    # states 4 and 5 are the ends of 1 and 2; state 3 is one itself
    assert model.states == 6
    plain = dense(model)
    np.testing.assert_array_equal(plain.transitions[0], [0.25, 0, 0, 0, 0.5, 0.25])
    np.testing.assert_array_equal(plain.transitions[1], [0, 0, 0, 1, 0, 0])
    assert model.actions.tolist() == [0, 4, 0, 0, 0, 1, 0, 4, 0, 4]
    assert model.entry_rewards is not None
    assert model.entry_rewards[:3].tolist() == [1.0, 10.0, -10.0]
    values, _ = value_iteration(model)
    np.testing.assert_allclose(values[:4], by_the_book(SPLIT, 0.5), rtol=1e-12)
    assert values[1] == pytest.approx(1 + 0.5 * values[0])
    assert not values[3:].any()


def test_a_state_can_be_entered_with_and_without_an_end() -> None:
    table: Table = {
        0: {0: [(0.5, 1, 0.0, True), (0.5, 1, 0.0, False)]},
        1: {0: [(1.0, 1, 2.0, False)]},
    }
    model = from_gymnasium(table, 0.5)
    np.testing.assert_array_equal(dense(model).transitions[0], [0, 0.5, 0.5])
    np.testing.assert_allclose(value_iteration(model)[0], [1.0, 4.0, 0.0])


def test_an_end_that_could_be_left_is_not_one() -> None:
    """An outcome of probability 0 is a successor to which a set can move mass."""
    table: Table = {0: {0: [(1.0, 1, 3.0, True)]}, 1: {0: [(1.0, 1, 0.0, True), (0.0, 0, 0.0, False)]}}
    assert from_gymnasium(table, 0.5).states == 3


def test_numbers_of_numpy() -> None:
    table = {
        np.int64(s): {np.int64(0): [(np.float64(1), np.int64(0), np.int32(s), np.bool_(False))]}
        for s in (1, 0)
    }
    assert from_gymnasium(table, 0.9).entries == 2


class WithoutTable:
    """An environment that is not Gymnasium's."""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (WithoutTable(), "WithoutTable has no table of transitions"),
        (None, "NoneType has no table of transitions"),
        ({}, r"the states of P must be the numbers 0, …, S - 1, got \[\]"),
        ({1: {0: [(1.0, 1, 0, True)]}}, r"the states of P must be the numbers 0, …, S - 1, got \[1\]"),
        ({"a": {}}, r"got \['a'\]"),
        ({0: {}}, r"P\[0\] must be a dictionary from actions to outcomes, got {}"),
        ({0: [[(1.0, 0, 0, False)]]}, r"P\[0\] must be a dictionary from actions to outcomes"),
        ({0: {"left": [(1.0, 0, 0, False)]}}, r"the actions of P\[0\] must be whole numbers, got 'left'"),
        ({0: {0: []}}, r"P\[0\]\[0\] must be a list of \(probability, .*, found \[\]"),
        ({0: {0: 1.0}}, r"P\[0\]\[0\] must be a list of .*, found 1\.0"),
        ({0: {0: [(1.0, 0, 0.0)]}}, r"P\[0\]\[0\] must be a list of .*, found \(1\.0, 0, 0\.0\)"),
        ({0: {0: [(1.0, 0, "much", False)]}}, r"P\[0\]\[0\] must be a list of .*, found .*'much'"),
        ({0: {0: [1.0]}}, r"P\[0\]\[0\] must be a list of .*, found 1\.0"),
        ({0: {0: [(1.0, 1, 0.0, True)]}}, r"P\[0\]\[0\] leads to state 1, which is not one of 0, …, 0"),
        ({0: {0: [(1.0, 0.5, 0.0, True)]}}, r"P\[0\]\[0\] leads to state 0\.5, which is not one of"),
        ({0: {0: [(0.5, 0, 0.0, False)]}}, "the probabilities of state 0, action 0 sum to 0.5, not to 1"),
    ],
)
def test_what_is_wrong_with_a_table_is_told(given: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        from_gymnasium(given, 0.9)


def test_a_table_needs_no_gymnasium_and_a_name_does(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from uncertainty_sets.errors import BackendMissing\n"
        "from uncertainty_sets.mdp.gymnasium_ import from_gymnasium\n"
        "print(from_gymnasium({0: {0: [(1.0, 0, 0.0, True)]}}, 0.9))\n"
        "try:\n    from_gymnasium('FrozenLake-v1', 0.9)\n"
        "except BackendMissing as error:\n    print(error)\n"
    )
    command = [sys.executable, str(ROOT / "tests" / "missing.py"), "gymnasium", str(program)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout == (
        "MDP(1 states, 1 state-actions, 1 successors, discount=0.9)\n"
        'from_gymnasium("FrozenLake-v1") needs gymnasium: pip install "fdro[mdp]"\n'
    )
