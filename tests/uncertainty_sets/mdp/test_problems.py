"""The generators give the problems of their publications, whose published solutions they have."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import combinations, product

import numpy as np
import pytest

from tests.uncertainty_sets.mdp.nominal import dense, greedy, value_iteration
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.mdp import MDP, problems

RIGHT = 1

EXAMPLES: dict[str, Callable[..., MDP]] = {
    "inventory": lambda **given: problems.inventory(30, 6, demand=2.5, **given),
    "machine_replacement": problems.machine_replacement,
    "river_swim": problems.river_swim,
    "gridworld": problems.gridworld,
    "forest": lambda **given: problems.forest(7, **given),
    "garnet": lambda **given: problems.garnet(40, 3, 5, 0, **given),
}


def test_every_generator_has_an_example() -> None:
    functions = inspect.getmembers(problems, inspect.isfunction)
    public = {
        name for name, each in functions if not name.startswith("_") and each.__module__ == problems.__name__
    }
    assert public == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_rows_are_distributions_over_possible_successors(name: str) -> None:
    model = EXAMPLES[name](discount=0.25)
    assert model.discount == 0.25
    assert model.probabilities.min() > 0.0
    np.testing.assert_allclose(dense(model).transitions.sum(axis=1), 1.0, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", EXAMPLES)
def test_discount_is_checked(name: str) -> None:
    with pytest.raises(InvalidParameter, match="discount must be at least 0 and below 1, got 1"):
        EXAMPLES[name](discount=1)


# inventory ------------------------------------------------------------------------------------------------


def test_inventory_is_putermans_example() -> None:
    """Puterman 1994: the rewards of section 3.2 and the values of section 4.6.1, over three periods."""
    model = problems.inventory(4, demand=[0.25, 0.5, 0.25])
    assert np.diff(model.state_rows).tolist() == [4, 3, 2, 1]
    by_level = [[1, 0, 0, 0], [0.75, 0.25, 0, 0], [0.25, 0.5, 0.25, 0], [0, 0.25, 0.5, 0.25]]
    plain = dense(model)
    for row in range(model.rows):
        np.testing.assert_array_equal(plain.transitions[row], by_level[plain.state[row] + model.actions[row]])
    np.testing.assert_array_equal(plain.rewards, [0, -1, -2, -5, 5, 0, -3, 6, -1, 5])
    values, by_row = value_iteration(model, discount=1.0, sweeps=3)
    np.testing.assert_array_equal(values, np.array([67, 129, 194, 227]) / 16)
    assert greedy(model, by_row) == [3, 0, 0, 0]


def test_inventory_demand_is_poisson() -> None:
    scipy_stats = pytest.importorskip("scipy.stats")
    model = problems.inventory(60, 5, demand=7.5)
    plain, law = dense(model), scipy_stats.poisson(7.5)
    for row in range(model.rows):
        level = int(plain.state[row] + model.actions[row])
        following = np.arange(1, level + 1)
        np.testing.assert_allclose(plain.transitions[row, 1 : level + 1], law.pmf(level - following), 1e-12)
        np.testing.assert_allclose(plain.transitions[row, 0], law.sf(level - 1), 1e-12)
        assert not plain.transitions[row, level + 1 :].any()


def test_inventory_orders_up_to_one_level_from_all_stocks_below_another() -> None:
    """Scarf 1960: with a cost per order, the best policy is an (s, S) policy."""
    model = problems.inventory(40, demand=6.0, discount=0.95)
    _, by_row = value_iteration(model, sweeps=2000)
    orders = np.array(greedy(model, by_row))
    ordering = np.flatnonzero(orders)
    assert 3 < ordering.size < 10
    assert ordering.tolist() == list(range(ordering.size))
    assert np.unique(ordering + orders[ordering]).size == 1


def test_inventory_parameters() -> None:
    model = problems.inventory(
        7, 3, demand=[0, 1], lot=2, price=100, unit_cost=10, order_cost=1000, holding_cost=0.5
    )
    assert np.diff(model.state_rows).tolist() == [3, 3, 3, 2, 2, 1, 1]
    plain = dense(model)
    # two units in stock, two lots of two units ordered, one unit sold
    row = model.state_rows[2] + 2
    assert plain.transitions[row].argmax() == 5
    assert plain.rewards[row] == 100 * 1 - 10 * 4 - 1000 - 0.5 * 6
    # nothing in stock and nothing ordered
    assert (plain.transitions[0, 0], plain.rewards[0]) == (1.0, 0.0)


def test_inventory_with_more_demand_than_stock() -> None:
    model = problems.inventory(5, demand=1e6)
    np.testing.assert_array_equal(model.indices, 0)
    assert problems.inventory(3).entries == problems.inventory(3, demand=0.5).entries


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"states": 1}, "states must be a whole number and at least 2, got 1"),
        ({"states": 4.0}, r"states must be a whole number and at least 2, got 4\.0"),
        ({"actions": 0}, "actions must be a whole number and at least 1, got 0"),
        ({"lot": 0}, "lot must be a whole number and at least 1, got 0"),
        ({"demand": 0}, r"the mean demand must be positive and below 1e9, got 0\.0"),
        ({"demand": float("nan")}, "the mean demand must be positive and below 1e9, got nan"),
        ({"demand": [0.5, 0.6]}, r"probabilities of 0, 1, 2, … units, which sum to 1; got \[0.5 0.6\]"),
        ({"demand": [1.5, -0.5]}, r"sum to 1; got \[ 1.5 -0.5\]"),
        ({"demand": []}, r"sum to 1; got \[\]"),
        ({"demand": [[1.0]]}, r"sum to 1; got \[\[1.\]\]"),
        ({"price": float("inf")}, "price must be finite, got inf"),
    ],
)
def test_inventory_refuses(given: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        problems.inventory(**given)


# machine replacement --------------------------------------------------------------------------------------


def test_machine_replacement_is_the_published_graph() -> None:
    plain = dense(problems.machine_replacement())
    wait, repair = plain.transitions[0::2], plain.transitions[1::2]
    expected = np.zeros((2, 10, 10))
    for i in range(7):
        expected[0, i, [i, i + 1]] = 0.2, 0.8
        expected[1, i, [i + 1, 8, 9]] = 0.3, 0.6, 0.1
    expected[0, 7, 7] = 1.0
    expected[1, 7, [7, 8, 9]] = 0.3, 0.6, 0.1
    expected[0, 8, [0, 8]] = 0.8, 0.2
    expected[1, 8, 8] = 1.0
    expected[0, 9, 9] = 1.0
    expected[1, 9, [8, 9]] = 0.6, 0.4
    np.testing.assert_allclose([wait, repair], expected, rtol=0, atol=1e-15)
    np.testing.assert_allclose(plain.rewards[0::2], [0] * 7 + [-20, -2, -10], rtol=1e-15)
    np.testing.assert_allclose(plain.rewards[1::2], [0] * 7 + [-20, -2, -10], rtol=1e-15)


@pytest.mark.parametrize("states", [10, 25])
def test_machine_is_repaired_from_some_condition_on(states: int) -> None:
    model = problems.machine_replacement(states)
    _, by_row = value_iteration(model, sweeps=1000)
    *conditions, in_repair, in_long_repair = greedy(model, by_row)
    assert conditions == sorted(conditions)
    assert conditions[-1] == 1
    assert (in_repair, in_long_repair) == (0, 1)


def test_machine_replacement_parameters() -> None:
    model = problems.machine_replacement(5, wear=1.0, failure_cost=7, repair_cost=8, long_repair_cost=9)
    plain = dense(model)
    np.testing.assert_allclose(plain.rewards[::2], [0, 0, -7, -8, -9])
    np.testing.assert_array_equal(plain.transitions[0], [0, 1, 0, 0, 0])
    with pytest.raises(InvalidParameter, match=r"wear must be a probability between 0 and 1, got 1\.5"):
        problems.machine_replacement(wear=1.5)
    with pytest.raises(InvalidParameter, match="states must be a whole number and at least 4, got 3"):
        problems.machine_replacement(3)


# river swim -----------------------------------------------------------------------------------------------


def test_river_swim_is_the_published_graph() -> None:
    plain = dense(problems.river_swim())
    left, right = plain.transitions[0::2], plain.transitions[1::2]
    np.testing.assert_array_equal(left, np.eye(6)[[0, 0, 1, 2, 3, 4]])
    expected = [
        [0.7, 0.3, 0, 0, 0, 0],
        [0.1, 0.6, 0.3, 0, 0, 0],
        [0, 0.1, 0.6, 0.3, 0, 0],
        [0, 0, 0.1, 0.6, 0.3, 0],
        [0, 0, 0, 0.1, 0.6, 0.3],
        [0, 0, 0, 0, 0.7, 0.3],
    ]
    np.testing.assert_allclose(right, expected, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(plain.rewards[0::2], [5, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(plain.rewards[1::2], [0, 0, 0, 0, 0, 3000])


@pytest.mark.parametrize(("discount", "first"), [(0.95, RIGHT), (0.99, RIGHT), (0.1, 0)])
def test_a_patient_swimmer_goes_right(discount: float, first: int) -> None:
    """Strehl and Littman 2008: the best policy always goes right; with a small discount 5 now is better."""
    model = problems.river_swim(discount=discount)
    values, by_row = value_iteration(model)
    assert greedy(model, by_row)[0] == first
    if first == RIGHT:
        assert greedy(model, by_row) == [RIGHT] * 6
        plain = dense(model)
        exact = np.linalg.solve(np.eye(6) - discount * plain.transitions[1::2], plain.rewards[1::2])
        np.testing.assert_allclose(values, exact, rtol=1e-10)


def test_river_swim_parameters() -> None:
    model = problems.river_swim(4, small_reward=1, large_reward=10)
    np.testing.assert_allclose(dense(model).rewards, [1, 0, 0, 0, 0, 0, 0, 3])
    with pytest.raises(InvalidParameter, match="states must be a whole number and at least 3, got 2"):
        problems.river_swim(2)


# gridworld ------------------------------------------------------------------------------------------------


def test_gridworld_has_the_utilities_of_russell_and_norvig() -> None:
    """Figure 17.3: with no discount, since the walk ends; and the policy of figure 17.2."""
    model = problems.gridworld()
    values, by_row = value_iteration(model, discount=1.0)
    published = [0.812, 0.868, 0.918, 1, 0.762, 0.660, -1, 0.705, 0.655, 0.611, 0.388]
    np.testing.assert_allclose(values[:-1], published, rtol=0, atol=5.01e-4)
    assert values[-1] == 0.0
    up, right, left = 0, 1, 3
    best = greedy(model, by_row)
    assert [best[s] for s in (0, 1, 2, 4, 5, 7, 8, 9, 10)] == [
        right,
        right,
        right,
        up,
        up,
        up,
        left,
        left,
        left,
    ]


def test_gridworld_steps_by_hand() -> None:
    """Above the wall of the grid, up stays with 0.8 and slips to each side with 0.1."""
    model = problems.gridworld()
    plain = dense(model)
    cell = {(0, 0): 0, (0, 1): 1, (0, 2): 2, (1, 2): 5, (1, 3): 6, (2, 2): 9}
    expected = np.zeros((4, 12))
    expected[0, [cell[0, 1], cell[0, 0], cell[0, 2]]] = 0.8, 0.1, 0.1
    expected[1, [cell[0, 2], cell[0, 1]]] = 0.8, 0.2
    expected[2, [cell[0, 1], cell[0, 0], cell[0, 2]]] = 0.8, 0.1, 0.1  # the wall is below
    expected[3, [cell[0, 0], cell[0, 1]]] = 0.8, 0.2
    np.testing.assert_allclose(plain.transitions[4:8], expected, rtol=0, atol=1e-15)
    expected = np.zeros((4, 12))
    expected[0, [cell[0, 2], cell[1, 3], cell[1, 2]]] = 0.8, 0.1, 0.1
    expected[1, [cell[1, 3], cell[0, 2], cell[2, 2]]] = 0.8, 0.1, 0.1
    expected[2, [cell[2, 2], cell[1, 3], cell[1, 2]]] = 0.8, 0.1, 0.1
    expected[3, [cell[1, 2], cell[0, 2], cell[2, 2]]] = 0.8, 0.1, 0.1
    np.testing.assert_allclose(plain.transitions[20:24], expected, rtol=0, atol=1e-15)
    np.testing.assert_allclose(model.per_state(plain.rewards)[[0, 3, 6, 11], 2], [-0.04, 1, -1, 0])


def test_gridworld_without_slip_or_ends() -> None:
    model = problems.gridworld("..\n..", slip=0.0, step_reward=2.0)
    assert (model.states, model.entries) == (4, 16)
    np.testing.assert_array_equal(model.per_state(model.indices)[0], [0, 1, 2, 0])
    np.testing.assert_allclose(value_iteration(model)[0], 2 / (1 - 0.99))


def test_gridworld_with_ends_of_its_own() -> None:
    model = problems.gridworld(["G.H"], slip=0.0, step_reward=-1.0, ends={"G": 10, "H": -5}, discount=0.5)
    np.testing.assert_allclose(value_iteration(model)[0], [10, 4, -5, 0])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"layout": []}, r"layout must be equally long strings, one for each row of the grid; got \[\]"),
        ({"layout": [""]}, "layout must be equally long strings"),
        ({"layout": ["..", "."]}, "layout must be equally long strings"),
        ({"layout": ["..", ".S"]}, r'layout has "S" in row 1, column 1; cells are .* \(\+, -\)'),
        ({"layout": ["##"]}, "layout has walls only"),
        ({"slip": -0.1}, r"slip must be a probability between 0 and 1, got -0\.1"),
    ],
)
def test_gridworld_refuses(given: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        problems.gridworld(**given)


# forest ---------------------------------------------------------------------------------------------------


def test_forest_has_the_published_solution() -> None:
    """The values that MDPtoolbox's documentation gives for policy iteration with its default forest."""
    model = problems.forest(discount=0.9)
    values, by_row = value_iteration(model)
    np.testing.assert_allclose(values, [26.244, 29.484, 33.484], rtol=1e-12)
    assert greedy(model, by_row) == [0, 0, 0]


def test_forest_is_cut_when_it_is_neither_young_nor_nearly_old() -> None:
    """The best of all 64 policies: wait at age 0, where cutting earns nothing; cut; wait near the oldest."""
    model = problems.forest(6, fire=0.6)
    values, by_row = value_iteration(model)
    plain = dense(model)
    best = np.full(6, -np.inf)
    for policy in product((0, 1), repeat=6):
        rows = 2 * np.arange(6) + policy
        exact = np.linalg.solve(np.eye(6) - 0.9 * plain.transitions[rows], plain.rewards[rows])
        best = np.maximum(best, exact)
    np.testing.assert_allclose(values, best, rtol=1e-12)
    assert greedy(model, by_row) == [0, 1, 1, 1, 0, 0]


def test_forest_parameters() -> None:
    plain = dense(problems.forest(4, fire=0.3, wait_reward=7, cut_reward=8))
    np.testing.assert_allclose(plain.rewards, [0, 0, 0, 1, 0, 1, 7, 8])
    np.testing.assert_allclose(plain.transitions[4:], [[0.3, 0, 0, 0.7], [1, 0, 0, 0]] * 2)
    assert problems.forest(fire=0.0).entries == 6
    with pytest.raises(InvalidParameter, match="fire must be a probability between 0 and 1, got nan"):
        problems.forest(fire=float("nan"))
    with pytest.raises(InvalidParameter, match="states must be a whole number and at least 2, got True"):
        problems.forest(True)


# garnet ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("states", "branching"), [(500, 1), (500, 10), (500, 124), (8, 7), (8, 8), (1, 1)])
def test_garnet_successors_are_different(states: int, branching: int) -> None:
    model = problems.garnet(states, 3, branching, seed=1)
    assert model.actions_each == 3
    assert (np.diff(model.indptr) == branching).all()  # equal ones would have been added up
    rewards = model.entry_rewards if model.entry_rewards is not None else model.row_rewards
    assert rewards.min() >= 0.0
    assert rewards.max() <= 1.0


def test_garnet_repeats_with_its_seed() -> None:
    first, again, other = (problems.garnet(50, 2, 4, seed) for seed in (3, np.random.default_rng(3), 4))
    np.testing.assert_array_equal(first.indices, again.indices)
    np.testing.assert_array_equal(first.probabilities, again.probabilities)
    assert not np.array_equal(first.indices, other.indices)


@pytest.mark.parametrize(("states", "branching"), [(9, 2), (6, 3)])
def test_garnet_subsets_are_equally_likely(states: int, branching: int) -> None:
    """Counts of all subsets within five standard deviations, for either way to draw them."""
    rows = 36_000
    chosen = np.sort(problems._subsets(np.random.default_rng(5), rows, states, branching), axis=1)
    subsets = list(combinations(range(states), branching))
    counts = [(chosen == subset).all(axis=1).sum() for subset in subsets]
    assert sum(counts) == rows
    share = 1 / len(subsets)
    deviation = np.sqrt(rows * share * (1 - share))
    assert np.abs(np.array(counts) - rows * share).max() < 5 * deviation


def test_garnet_probabilities_are_pieces_of_the_interval() -> None:
    """Uniform cuts give the flat Dirichlet distribution: pieces of mean 1/b and variance (b-1)/(b²(b+1))."""
    b = 4
    pieces = problems.garnet(5000, 2, b, seed=2).probabilities.reshape(-1, b)
    np.testing.assert_allclose(pieces.mean(axis=0), 1 / b, rtol=0, atol=0.01)
    np.testing.assert_allclose(pieces.var(axis=0), (b - 1) / (b * b * (b + 1)), rtol=0.05)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((0, 1, 1), "states must be a whole number and at least 1, got 0"),
        ((2, 0, 1), "actions must be a whole number and at least 1, got 0"),
        ((2, 1, 0), "branching must be a whole number and at least 1, got 0"),
        ((2, 1, 3), "branching must be at most the number of states, 2, got 3"),
    ],
)
def test_garnet_refuses(given: tuple[int, int, int], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        problems.garnet(*given)
