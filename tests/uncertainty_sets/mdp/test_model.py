"""The model of a Markov decision process: what it stores, what it merges and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.mdp import MDP

sparse = pytest.importorskip("scipy.sparse")

P = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.0, 1.0], [0.5, 0.5]]])
R = np.array([[1.0, 0.0], [0.0, 0.5]])
ROWS = sparse.csr_array(P.reshape(4, 2))
TABLE = [(0, 0, 0, 0.5, 1.0), (0, 0, 1, 0.5, 0.0), (0, 7, 1, 1.0, 2.0), (1, 2, 1, 1.0, 0.0)]


def from_table(*lines: tuple[float, ...], discount: float = 0.9) -> MDP:
    return MDP.from_table(*zip(*lines, strict=True), discount=discount)


# what it stores -------------------------------------------------------------------------------------------


def test_dense_transitions() -> None:
    model = MDP(P, R, 0.9)
    assert (model.states, model.rows, model.entries, model.actions_each) == (2, 4, 8, 2)
    assert model.state_rows.tolist() == [0, 2, 4]
    assert model.actions.tolist() == [0, 1, 0, 1]
    assert model.indptr.tolist() == [0, 2, 4, 6, 8]
    assert model.indices.tolist() == [0, 1] * 4  # zeros are successors too
    np.testing.assert_array_equal(model.probabilities, P.ravel())
    np.testing.assert_array_equal(model.row_rewards, R.ravel())
    assert model.entry_rewards is None
    assert repr(model) == "MDP(2 states, 4 state-actions, 8 successors, discount=0.9)"


def test_sparse_transitions() -> None:
    model = MDP(ROWS, R, 0.9)
    assert (model.entries, model.actions_each) == (7, 2)
    assert model.indptr.tolist() == [0, 2, 4, 5, 7]
    assert model.indices.tolist() == [0, 1, 0, 1, 1, 0, 1]
    assert model.indices.dtype == model.indptr.dtype == np.int64
    np.testing.assert_array_equal(model.probabilities, ROWS.data)


def test_sparse_transitions_with_ragged_actions() -> None:
    model = MDP(ROWS, [1.0, 2.0, 3.0, 4.0], 0.9, actions_per_state=[1, 3])
    assert model.state_rows.tolist() == [0, 1, 4]
    assert model.actions.tolist() == [0, 0, 1, 2]
    assert model.actions_each is None
    assert model.repeat_by_state(np.array([5, 6])).tolist() == [5, 6, 6, 6]
    assert [model.name_row(row) for row in range(4)] == [
        "state 0, action 0",
        "state 1, action 0",
        "state 1, action 1",
        "state 1, action 2",
    ]
    with pytest.raises(
        InvalidParameter, match=r"states have different numbers of actions, .* use state_rows"
    ):
        model.per_state(model.row_rewards)


@pytest.mark.parametrize(
    "rewards",
    [
        np.arange(8.0).reshape(2, 2, 2),
        np.arange(8.0),
    ],
    ids=["cube", "flat"],
)
def test_rewards_by_successor(rewards: Any) -> None:
    model = MDP(P, rewards, 0.9)
    assert model.entry_rewards is not None
    assert model.entry_rewards.tolist() == [*range(8)]
    assert not model.row_rewards.any()


def test_sparse_rewards() -> None:
    rewards = ROWS.copy()
    rewards.data = np.arange(7.0)
    model = MDP(ROWS, rewards, 0.9)
    assert model.entry_rewards is not None
    assert model.entry_rewards.tolist() == [*range(7)]


def test_rewards_by_row_as_a_vector() -> None:
    model = MDP(P, R.ravel(), 0.9)
    np.testing.assert_array_equal(model.per_state(model.row_rewards), R)


def test_what_is_given_is_copied() -> None:
    transitions, rows, rewards = P.copy(), ROWS.copy(), R.copy()
    first, second = MDP(transitions, rewards, 0.9), MDP(rows, rewards, 0.9)
    transitions[:], rows.data[:], rewards[:] = 7.0, 7.0, 7.0
    rows.indices[:] = 0
    np.testing.assert_array_equal(first.probabilities, P.ravel())
    np.testing.assert_array_equal(second.probabilities, ROWS.data)
    np.testing.assert_array_equal(second.indices, ROWS.indices)
    np.testing.assert_array_equal(first.row_rewards, R.ravel())


def test_sums_that_are_a_little_off_are_divided_away() -> None:
    model = MDP(P * (1.0 + 5e-10), R, 0.9)
    np.testing.assert_allclose(model.probabilities, P.ravel(), rtol=0, atol=1e-15)


def test_one_state() -> None:
    model = MDP([[[1.0]]], [[3.0]], 0.0)
    assert (model.states, model.rows, model.entries) == (1, 1, 1)


# tables ---------------------------------------------------------------------------------------------------


def test_a_table() -> None:
    model = from_table(*TABLE)
    assert model.state_rows.tolist() == [0, 2, 3]
    assert model.actions.tolist() == [0, 7, 2]  # the table's own numbers
    assert model.indptr.tolist() == [0, 2, 3, 4]
    assert model.indices.tolist() == [0, 1, 1, 1]
    assert model.probabilities.tolist() == [0.5, 0.5, 1.0, 1.0]
    assert model.entry_rewards is not None
    assert model.entry_rewards.tolist() == [1.0, 0.0, 2.0, 0.0]
    assert model.name_row(1) == "state 0, action 7"


@given(st.permutations(TABLE))
@settings(max_examples=20)
def test_lines_may_come_in_any_order(lines: list[tuple[float, ...]]) -> None:
    model, sorted_one = from_table(*lines), from_table(*TABLE)
    for name in ("state_rows", "actions", "indptr", "indices", "probabilities", "entry_rewards"):
        np.testing.assert_array_equal(getattr(model, name), getattr(sorted_one, name))


def test_lines_with_the_same_next_state_are_added_up() -> None:
    model = from_table((0, 0, 0, 0.25, 1.0), (0, 0, 1, 0.25, 9.0), (0, 0, 0, 0.5, 4.0), (1, 0, 1, 1.0, 0.0))
    assert model.indices.tolist() == [0, 1, 1]
    assert model.probabilities.tolist() == [0.75, 0.25, 1.0]
    assert model.entry_rewards is not None
    np.testing.assert_allclose(model.entry_rewards, [(0.25 * 1 + 0.5 * 4) / 0.75, 9.0, 0.0])


def test_successors_of_probability_zero_stay() -> None:
    model = from_table(
        (0, 0, 0, 1.0, 1.0),
        (0, 0, 1, 0.0, 3.0),
        (0, 0, 1, 0.0, 5.0),
        (1, 0, 1, 1.0, 0.0),
        (1, 0, 0, 0.0, 7.0),
    )
    assert model.indices.tolist() == [0, 1, 0, 1]
    assert model.probabilities.tolist() == [1.0, 0.0, 0.0, 1.0]
    assert model.entry_rewards is not None
    assert model.entry_rewards.tolist() == [1.0, 4.0, 7.0, 0.0]


@given(st.floats(0, 1), st.floats(-1e300, 1e300))
def test_a_line_that_is_alone_keeps_its_bits(probability: float, reward: float) -> None:
    model = from_table((0, 0, 0, probability, reward), (0, 0, 1, 1 - probability, -reward), (1, 0, 1, 1, 0))
    assert model.entry_rewards is not None
    assert model.entry_rewards.tolist() == [reward, -reward, 0.0]
    assert model.probabilities[0] == probability


# what it refuses ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("discount", [1, 1.5, -0.1, float("nan"), float("inf")])
def test_discounts_that_are_refused(discount: float) -> None:
    message = rf"discount must be at least 0 and below 1, got {discount}; .* use 0\.999 or so"
    with pytest.raises(InvalidParameter, match=message) as caught:
        MDP(P, R, discount)
    assert caught.value.parameter == "discount"
    with pytest.raises(InvalidParameter, match=message):
        from_table(*TABLE, discount=discount)


def changed(array: Any, place: tuple[int, ...], value: float) -> Any:
    array = np.array(array)
    array[place] = value
    return array


@pytest.mark.parametrize(
    ("transitions", "message"),
    [
        (P[0], r"must be an array \(states, actions, states\), or a SciPy CSR matrix .*; got shape \(2, 2\)"),
        (P[:, :, :1], r"got shape \(2, 2, 1\)"),
        (np.ones((0, 0, 0)), r"got shape \(0, 0, 0\)"),
        ("P", "transitions must"),
        (None, "transitions must be real numbers, got None"),
        (
            changed(P, (1, 0, 1), 0.5),
            r"of state 1, action 0 sum to 0\.5, not to 1 \(1 of 4 rows are off\)",
        ),
        (P + 0.5, r"between 0 and 1, got 1\.4 for next state 0 of state 0, action 0"),
        (
            changed(changed(P, (0, 1, 0), -0.2), (0, 1, 1), 1.2),
            r"probabilities must be between 0 and 1, got -0\.2 for next state 0 of state 0, action 1",
        ),
        (changed(P, (1, 1, 1), np.nan), r"between 0 and 1, got nan for next state 1 of state 1, action 1"),
        (changed(P, (1, 1, 1), np.inf), r"between 0 and 1, got inf for next state 1 of state 1, action 1"),
        (ROWS.tocsc(), r"must be in CSR format, got csc; give transitions\.tocsr\(\)"),
        (ROWS[:3], "transitions have 3 rows for 2 states, .* give actions_per_state"),
        (
            sparse.csr_array(changed(P.reshape(4, 2), (3, 0), 0)),
            "of state 1, action 1 sum to 0.5, not to 1",
        ),
        (
            sparse.csr_array(P.reshape(4, 2) * [[1], [1], [0], [1]]),
            "state 1, action 0 has no successor; every action needs at least one",
        ),
    ],
)
def test_transitions_that_are_refused(transitions: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        MDP(transitions, R, 0.9)


def test_an_action_without_successors_is_refused() -> None:
    rows = sparse.csr_array(([1.0, 1.0, 1.0], [0, 1, 1], [0, 1, 2, 2, 3]), shape=(4, 2))
    with pytest.raises(InvalidParameter, match="state 1, action 0 has no successor; every action needs"):
        MDP(rows, R, 0.9)


def test_a_successor_that_is_no_state_is_refused() -> None:
    rows = ROWS.copy()
    rows.indices[3] = 2
    with pytest.raises(
        InvalidParameter, match="next state 2 of state 0, action 1 is not one of the 2 states"
    ):
        MDP(rows, R, 0.9)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([4, 0], r"state 1 has no action \(1 of 2 have none\): .* returns to itself with reward 0"),
        ([1, 2], r"for each of the 2 states and sum to the 4 rows .*; got 2 numbers with the sum 3"),
        ([1, 1, 2], "got 3 numbers with the sum 4"),
        ([5, -1], "got 2 numbers with the sum 4"),
        ([2.0, 2.0], r"actions_per_state must be a vector of integers, got shape \(2,\) of type float64"),
        (4, r"actions_per_state must be a vector of integers, got shape \(\) of type int64"),
    ],
)
def test_counts_of_actions_that_are_refused(counts: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        MDP(ROWS, [0.0] * 4, 0.9, actions_per_state=counts)


def test_counts_of_actions_are_for_sparse_transitions() -> None:
    with pytest.raises(InvalidParameter, match="actions_per_state is for sparse transitions"):
        MDP(P, R, 0.9, actions_per_state=[2, 2])


@pytest.mark.parametrize(
    ("transitions", "rewards", "message"),
    [
        (P, [1.0, 2.0], r"per state-action, \(2, 2\), or per successor, \(2, 2, 2\); got shape \(2,\)"),
        (P, np.zeros((2, 2, 3)), r"got shape \(2, 2, 3\)"),
        (P, 1.0, r"got shape \(\)"),
        (ROWS, np.zeros((2, 2, 2)), r"got shape \(2, 2, 2\)"),  # seven successors are stored, not eight
        (P, changed(R, (1, 0), np.nan), "rewards must be finite, got nan for state 1, action 0"),
        (
            P,
            changed(np.zeros((2, 2, 2)), (0, 1, 1), np.inf),
            "rewards must be finite, got inf for next state 1 of state 0, action 1",
        ),
        (
            ROWS,
            sparse.csr_array(np.ones((4, 2))),
            "sparse rewards must have the same entries .* the 7 entries",
        ),
        (P, ROWS, "sparse rewards must have the same entries as sparse transitions"),
        (P, None, "rewards must be real numbers, got None"),
        (P, "many", "rewards must"),
    ],
)
def test_rewards_that_are_refused(transitions: Any, rewards: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        MDP(transitions, rewards, 0.9)


def test_rewards_of_ragged_actions_that_are_refused() -> None:
    with pytest.raises(InvalidParameter, match=r"\(4,\), or per successor, \(7,\); got shape \(2, 2\)"):
        MDP(ROWS, R, 0.9, actions_per_state=[1, 3])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([], [], [], [], []), r"states must be a vector of integers, got shape \(0,\) of type float64"),
        ((np.zeros((5, 0), int)), "must be equally long and not empty, got {'states': 0"),
        (
            ([0], [0, 1], [0], [1.0], [0.0]),
            r"must be equally long and not empty, got {'states': 1, 'actions': 2",
        ),
        (([0], [0], [0], [[1.0]], [0.0]), "must be equally long and not empty"),
        (
            ([0.0], [0], [0], [1.0], [0.0]),
            r"states must be a vector of integers, got shape \(1,\) of type float",
        ),
        (
            ([0], [[0]], [0], [1.0], [0.0]),
            r"actions must be a vector of integers, got shape \(1, 1\) of type",
        ),
        (
            ([0], [0], ["0"], [1.0], [0.0]),
            "next_states must be a vector of integers, got shape .* of type <U1",
        ),
        (([-1], [0], [0], [1.0], [0.0]), "states are numbered from 0, got -1"),
        (([0], [0], [-3], [1.0], [0.0]), "states are numbered from 0, got -3"),
        (
            ([0], [0], [1], [1.0], [0.0]),
            "no line begins in state 1: every state from 0 to 1 .* needs the line 1, 0, 1, 1, 0",
        ),
        (([9], [0], [9], [1.0], [0.0]), "no line begins in state 0, 1, …: every state from 0 to 9"),
        (
            ([9, 0, 0, 0, 0, 0, 0], [0, *range(6)], [9] * 7, [1.0] * 7, [0.0] * 7),
            "no line begins in state 1, 2, 3, 4, 5, …: every state from 0 to 9",
        ),
        (
            ([0, 0], [0, 0], [0, 0], [1.5, -0.5], [0, 0]),
            "between 0 and 1, got 1.5 for next state 0 of state 0",
        ),
        (([0, 0], [4, 4], [0, 0], [-0.5, 1.0], [0, 0]), "got -0.5 for next state 0 of state 0, action 4"),
        (([0], [0], [0], [float("nan")], [0.0]), "between 0 and 1, got nan for next state 0"),
        (([0], [3], [0], [0.5], [0.0]), r"of state 0, action 3 sum to 0\.5, not to 1"),
        (([0], [3], [0], [1.0], [float("inf")]), "rewards must be finite, got inf for .*state 0, action 3"),
    ],
)
def test_tables_that_are_refused(columns: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        MDP.from_table(*columns, discount=0.9)


def test_a_single_large_number_asks_for_no_memory() -> None:
    with pytest.raises(
        InvalidParameter, match=r"no line begins in state 1, 2, …: every state from 0 to 9{15} "
    ):
        from_table((0, 0, 0, 1.0, 0.0), (10**15 - 1, 0, 0, 1.0, 0.0))
