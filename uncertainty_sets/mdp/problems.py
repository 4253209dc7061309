"""Standard Markov decision processes, built from their published definitions.

>>> from uncertainty_sets.mdp import problems
>>> problems.forest()
MDP(3 states, 6 state-actions, 9 successors, discount=0.9)

Rewards are maximised; costs are negative rewards. Successors of probability 0 are left out, so a set around
a row moves mass only between the successors that the problem has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.mdp.model import MDP
from uncertainty_sets.parameters import SUM_TOLERANCE, as_floats

FOUR_BY_THREE = ("...+", ".#.-", "....")
"""The grid of Russell and Norvig: one wall, an end that is good and one that is bad."""

ENDS: Mapping[str, float] = MappingProxyType({"+": 1.0, "-": -1.0})
"""The rewards of its two ends."""

DIRECTIONS = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Row and column that up, right, down and left add, in the order of the actions."""


def inventory(
    states: int = 50,
    actions: int | None = None,
    *,
    demand: float | ArrayLike | None = None,
    lot: int = 1,
    price: float = 8.0,
    unit_cost: float = 2.0,
    order_cost: float = 4.0,
    holding_cost: float = 1.0,
    discount: float = 0.95,
) -> MDP:
    """Stock control with lost sales (Puterman 1994, section 3.2), by default with Poisson demand.

    State s is the stock, at most states - 1. Action a orders a lots, which arrive at once, so the stock is
    x = s + lot·a; orders that do not fit are not offered, so states have different numbers of actions. Demand
    D beyond the stock is lost: the next state is t = max(x - D, 0), and what was sold is x - t::

        P(t | x) = P(D = x - t) for t > 0,  P(D >= x) for t = 0
        reward = price·(x - t) - unit_cost·lot·a - order_cost·[a > 0] - holding_cost·x

    The default costs are those of Puterman's example, which is `inventory(4, demand=[0.25, 0.5, 0.25])`:

    >>> model = inventory(4, demand=[0.25, 0.5, 0.25], discount=0.9)
    >>> model
    MDP(4 states, 10 state-actions, 26 successors, discount=0.9)
    >>> import numpy as np
    >>> np.add.reduceat(model.probabilities * model.entry_rewards, model.indptr[:-1])
    array([ 0., -1., -2., -5.,  5.,  0., -3.,  6., -1.,  5.])

    Args:
        states: the number of stock levels.
        actions: how many orders there are at most in a state, the empty one included; None: all that fit.
        demand: the mean of a Poisson distribution, or the probabilities of 0, 1, 2, … units; None: a mean of
            a quarter of the largest stock.
        lot: the number of units in a lot.
        price: of a unit sold.
        unit_cost: of a unit ordered.
        order_cost: of each order that is not empty.
        holding_cost: of each unit in stock after the order arrived.
        discount: at least 0 and below 1.
    """
    most = _whole("states", states, 2) - 1
    orders = most // _whole("lot", lot, 1) + 1
    if actions is not None:
        orders = min(orders, _whole("actions", actions, 1))
    _check_finite(price=price, unit_cost=unit_cost, order_cost=order_cost, holding_cost=holding_cost)
    stock, order = (each.ravel() for each in np.indices((most + 1, orders)))
    fits = stock + lot * order <= most
    stock, order = stock[fits], order[fits]
    level = stock + lot * order
    each = np.repeat(np.arange(level.size), level + 1)
    following = np.arange(each.size) - np.repeat(np.cumsum(level + 1) - level - 1, level + 1)
    exactly, at_least = _demand(most / 4 if demand is None else demand, most)
    sold = level[each] - following
    cost = unit_cost * lot * order + order_cost * (order > 0) + holding_cost * level
    move = (
        stock[each],
        order[each],
        following,
        np.where(following > 0, exactly[sold], at_least[sold]),
        price * sold - cost[each],
    )
    return _build([move], discount)


def machine_replacement(
    states: int = 10,
    *,
    wear: float = 0.8,
    failure_cost: float = 20.0,
    repair_cost: float = 2.0,
    long_repair_cost: float = 10.0,
    discount: float = 0.8,
) -> MDP:
    """A machine that wears out, and two kinds of repair (Delage and Mannor 2010, Wiesemann et al. 2013).

    States 0, …, n - 1 (n = states - 2) are the machine's condition, from new to failed; the last two are a
    repair, R, and a long repair, L. Action 0 does nothing, action 1 repairs::

                    do nothing                         repair
        i < n - 1   i + 1: wear, i: 1 - wear           R: 0.6, L: 0.1, i + 1: 0.3
        n - 1       itself                             R: 0.6, L: 0.1, itself: 0.3
        R           0: 0.8, itself: 0.2                itself
        L           itself                             R: 0.6, itself: 0.4

    A period costs failure_cost in state n - 1, repair_cost in R, long_repair_cost in L and nothing otherwise.

    >>> machine_replacement()
    MDP(10 states, 20 state-actions, 45 successors, discount=0.8)

    Args:
        states: the number of states, at least 4.
        wear: the probability that the condition worsens in a period without repair.
        failure_cost: of a period with the failed machine.
        repair_cost: of a period in repair.
        long_repair_cost: of a period in long repair.
        discount: at least 0 and below 1.
    """
    repair, long_repair = _whole("states", states, 4) - 2, states - 1
    _check_probability("wear", wear)
    condition = np.arange(repair)
    worse = np.minimum(condition + 1, repair - 1)
    reward = np.zeros(states)
    reward[[repair - 1, repair, long_repair]] = -failure_cost, -repair_cost, -long_repair_cost
    lost = reward[condition]
    moves = [
        (condition, 0, worse, wear, lost),
        (condition, 0, condition, 1.0 - wear, lost),
        (condition, 1, repair, 0.6, lost),
        (condition, 1, long_repair, 0.1, lost),
        (condition, 1, worse, 0.3, lost),
        (repair, 0, [0, repair], [0.8, 0.2], reward[repair]),
        (repair, 1, repair, 1.0, reward[repair]),
        (long_repair, 0, long_repair, 1.0, reward[long_repair]),
        (long_repair, 1, [repair, long_repair], [0.6, 0.4], reward[long_repair]),
    ]
    return _build(moves, discount)


def river_swim(
    states: int = 6, *, small_reward: float = 5.0, large_reward: float = 10_000.0, discount: float = 0.95
) -> MDP:
    """A swimmer against the current of a river (Strehl and Littman 2008).

    Action 0 swims left with the current and always succeeds. Action 1 swims right::

        leftmost state    right: 0.3, stays: 0.7
        in between        right: 0.3, stays: 0.6, left: 0.1
        rightmost state   stays: 0.3, left: 0.7

    Staying in the leftmost state with action 0 earns small_reward, staying in the rightmost one with action 1
    earns large_reward, everything else nothing.

    >>> river_swim()
    MDP(6 states, 12 state-actions, 22 successors, discount=0.95)

    Args:
        states: the length of the river, at least 3.
        small_reward: of staying at the left end.
        large_reward: of staying at the right end.
        discount: at least 0 and below 1.
    """
    last = _whole("states", states, 3) - 1
    between = np.arange(1, last)
    moves = [
        (0, 0, 0, 1.0, small_reward),
        (np.arange(1, states), 0, np.arange(last), 1.0, 0.0),
        (0, 1, [0, 1], [0.7, 0.3], 0.0),
        (between, 1, between - 1, 0.1, 0.0),
        (between, 1, between, 0.6, 0.0),
        (between, 1, between + 1, 0.3, 0.0),
        (last, 1, [last - 1, last], [0.7, 0.3], [0.0, large_reward]),
    ]
    return _build(moves, discount)


def gridworld(
    layout: Sequence[str] = FOUR_BY_THREE,
    *,
    slip: float = 0.2,
    step_reward: float = -0.04,
    ends: Mapping[str, float] = ENDS,
    discount: float = 0.99,
) -> MDP:
    """A walk on a grid that slips; by default the 4×3 world of Russell and Norvig (1995, section 17.1).

    Actions 0 to 3 go up, right, down and left. A step goes where it should with probability 1 - slip and to
    each of the two sides with slip/2; a step into a wall or out of the grid stays. Every period earns
    step_reward, in a cell that ends the walk that cell's own reward, after which nothing is earned.

    States are the cells that are no walls, row by row from the top left. If some cells end the walk there is
    one more state, the last one, which follows them and returns to itself with reward 0. All states have four
    actions, so `model.per_state` gives tables.

    >>> gridworld()
    MDP(12 states, 48 state-actions, 108 successors, discount=0.99)

    Args:
        layout: a string for each row of the grid: "." is a free cell, "#" a wall, and the characters in
            `ends` are cells that end the walk.
        slip: the probability that a step goes sideways.
        step_reward: of each period in a free cell.
        ends: the reward of each kind of cell that ends the walk.
        discount: at least 0 and below 1.
    """
    cells = _cells(layout, ends)
    _check_probability("slip", slip)
    number = np.full((cells.shape[0] + 2, cells.shape[1] + 2), -1)  # with a wall around it
    row, column = np.nonzero(cells != "#")
    number[row + 1, column + 1] = here = np.arange(row.size)
    kinds = cells[row, column]
    free = np.flatnonzero(kinds == ".")
    moves: list[tuple[Any, ...]] = []
    for action in range(4):
        for turn, probability in ((0, 1.0 - slip), (1, slip / 2.0), (3, slip / 2.0)):
            down, right = DIRECTIONS[(action + turn) % 4]
            target = number[row + 1 + down, column + 1 + right]
            target = np.where(target < 0, here, target)[free]
            moves.append((free, action, target, probability, step_reward))
    stop = np.flatnonzero(kinds != ".")
    if stop.size:
        reward = np.array([float(ends[kind]) for kind in kinds[stop]])
        for action in range(4):
            moves.append((stop, action, here.size, 1.0, reward))
            moves.append((here.size, action, here.size, 1.0, 0.0))
    return _build(moves, discount)


def forest(
    states: int = 3,
    *,
    fire: float = 0.1,
    wait_reward: float = 4.0,
    cut_reward: float = 2.0,
    discount: float = 0.9,
) -> MDP:
    """Forest management: let the trees grow or cut them (Chadès et al. 2014, MDPtoolbox).

    State s is the age of the forest, the last one all older ages. Action 0 waits: the forest burns down to
    state 0 with probability `fire`, otherwise it becomes one older. Action 1 cuts, which leads to state 0.
    Waiting earns wait_reward in the oldest state and 0 in the others; cutting earns 0 in state 0, cut_reward
    in the oldest one and 1 in between.

    >>> forest(4, fire=0.05)
    MDP(4 states, 8 state-actions, 12 successors, discount=0.9)

    Args:
        states: the number of ages, at least 2.
        fire: the probability of a fire in a period of waiting.
        wait_reward: of waiting in the oldest state.
        cut_reward: of cutting in the oldest state.
        discount: at least 0 and below 1.
    """
    age = np.arange(_whole("states", states, 2))
    _check_probability("fire", fire)
    waited = np.where(age == states - 1, wait_reward, 0.0)
    cut = np.where(age == states - 1, cut_reward, np.where(age == 0, 0.0, 1.0))
    moves = [
        (age, 0, 0, fire, waited),
        (age, 0, np.minimum(age + 1, states - 1), 1.0 - fire, waited),
        (age, 1, 0, 1.0, cut),
    ]
    return _build(moves, discount)


def garnet(
    states: int,
    actions: int,
    branching: int,
    seed: int | np.random.Generator | None = None,
    *,
    discount: float = 0.95,
) -> MDP:
    """A random problem: Generic Average Reward Non-stationary Environment Testbed (Archibald et al. 1995).

    Every state-action has `branching` different successors, all subsets equally likely; their probabilities
    are the lengths of the pieces into which branching - 1 uniform points cut the interval [0, 1]. Rewards are
    uniform on [0, 1], one for each state-action. Transitions are stationary.

    >>> garnet(100, 4, 5, seed=0)
    MDP(100 states, 400 state-actions, 2000 successors, discount=0.95)

    Args:
        states: the number of states.
        actions: the number of actions in each state.
        branching: the number of successors of each state-action, at most `states`.
        seed: of the random numbers, or a generator.
        discount: at least 0 and below 1.
    """
    rows = _whole("states", states, 1) * _whole("actions", actions, 1)
    if _whole("branching", branching, 1) > states:
        raise InvalidParameter(
            f"branching must be at most the number of states, {states}, got {branching}",
            parameter="branching",
            value=branching,
        )
    rng = np.random.default_rng(seed)
    successors = _subsets(rng, rows, states, branching)
    cuts = np.sort(rng.random((rows, branching - 1)), axis=1)
    lengths = np.diff(cuts, axis=1, prepend=0.0, append=1.0)
    del cuts
    row = np.repeat(np.arange(rows), branching)
    return MDP.from_table(
        row // actions,
        row % actions,
        successors.ravel(),
        lengths.ravel(),
        rng.random(rows)[row],
        discount,
    )


def _subsets(rng: np.random.Generator, rows: int, states: int, size: int) -> NDArray[np.int64]:
    """Subsets of range(states), (rows, size); all equally likely."""
    if 4 * size >= states:
        return rng.permuted(np.tile(np.arange(states), (rows, 1)), axis=1)[:, :size]
    chosen = np.empty((rows, size), np.int64)
    for k, top in enumerate(range(states - size, states)):  # Floyd 1987: no table of all states is needed
        chosen[:, k] = rng.integers(0, top + 1, rows)
        taken = (chosen[:, :k] == chosen[:, k : k + 1]).any(axis=1)
        chosen[taken, k] = top
    return chosen


def _build(moves: Iterable[tuple[Any, ...]], discount: float) -> MDP:
    """A model from moves (state, action, next state, probability, reward), whose arrays are broadcast."""
    columns = [np.concatenate(each) for each in zip(*map(_lines, moves), strict=True)]
    possible = columns[3] != 0.0
    state, action, following, probability, reward = (each[possible] for each in columns)
    return MDP.from_table(state, action, following, probability, reward, discount)


def _lines(move: tuple[Any, ...]) -> list[NDArray[Any]]:
    """The columns of one move, equally long."""
    return [np.atleast_1d(each) for each in np.broadcast_arrays(*move)]


def _demand(demand: float | ArrayLike, most: int) -> tuple[Array, Array]:
    """P(D = d) and P(D >= d) for d = 0, …, most; a number is the mean of a Poisson distribution."""
    given = as_floats("demand", demand, InvalidParameter)
    exactly = _poisson(float(given), most) if given.ndim == 0 else given
    total = exactly.sum()
    if exactly.ndim != 1 or not exactly.size or not (exactly >= 0.0).all() or abs(total - 1) > SUM_TOLERANCE:
        raise InvalidParameter(
            "demand must be the mean of a Poisson distribution, or a vector with the probabilities of 0, 1, "
            f"2, … units, which sum to 1; got {given}",
            parameter="demand",
            value=demand,
        )
    exactly = np.append(exactly / total, np.zeros(max(0, most + 1 - exactly.size)))
    at_least = np.cumsum(exactly[::-1])[::-1]
    return exactly[: most + 1], at_least[: most + 1]


def _poisson(mean: float, most: int) -> Array:
    """Probabilities of 0, 1, …, far enough beyond `most` and the mean that the rest is nothing."""
    if not 0.0 < mean < 1e9:
        raise InvalidParameter(
            f"the mean demand must be positive and below 1e9, got {mean}", parameter="demand", value=mean
        )
    count = np.arange(1, max(most, int(mean + 40.0 * np.sqrt(mean))) + 50)
    logarithm = np.append(0.0, np.cumsum(np.log(mean / count)))
    weight = np.exp(logarithm - logarithm.max())
    return np.asarray(weight / weight.sum())


def _cells(layout: Sequence[str], ends: Mapping[str, float]) -> NDArray[np.str_]:
    """The characters of a grid, (rows, columns)."""
    if isinstance(layout, str):
        layout = layout.split()
    if not layout or not layout[0] or len({len(row) for row in layout}) > 1:
        raise InvalidParameter(
            f"layout must be equally long strings, one for each row of the grid; got {layout!r}",
            parameter="layout",
            value=layout,
        )
    cells = np.array([list(row) for row in layout])
    unknown = ~np.isin(cells, [".", "#", *ends])
    if unknown.any():
        row, column = np.argwhere(unknown)[0]
        raise InvalidParameter(
            f'layout has "{cells[row, column]}" in row {row}, column {column}; cells are "." (free), "#" '
            f"(wall) and the keys of `ends` ({', '.join(ends) or 'none'})",
            parameter="layout",
            value=layout,
        )
    if (cells == "#").all():
        raise InvalidParameter("layout has walls only", parameter="layout", value=layout)
    return cells


def _whole(name: str, value: int, least: int) -> int:
    """A whole number that is large enough."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InvalidParameter(
            f"{name} must be a whole number and at least {least}, got {value!r}", parameter=name, value=value
        )
    return int(value)


def _check_probability(name: str, value: float) -> None:
    """Raise for a number that is not in [0, 1]."""
    if not 0.0 <= value <= 1.0:
        raise InvalidParameter(
            f"{name} must be a probability between 0 and 1, got {value!r}", parameter=name, value=value
        )


def _check_finite(**given: float) -> None:
    """Raise for prices and costs that are infinite or NaN."""
    for name, value in given.items():
        if not np.isfinite(value):
            raise InvalidParameter(f"{name} must be finite, got {value!r}", parameter=name, value=value)
