"""Models from the environments of Gymnasium that have a table of transitions, such as FrozenLake."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from uncertainty_sets.errors import BackendMissing, InvalidParameter
from uncertainty_sets.mdp.model import MDP


def from_gymnasium(environment: Any, discount: float) -> MDP:
    """Build a model from the table of an environment's transitions.

    The table is the dictionary `environment.unwrapped.P`::

        {state: {action: [(probability, next_state, reward, terminated), …]}}

    Nothing is earned after a transition that terminates. If its next state t returns to itself with reward 0
    under all actions, as FrozenLake's holes and goal do, the table says so already. Otherwise the transition
    leads to a new state that does: the states of the environment keep their numbers, and for each such t one
    more is appended, in the order of t. Ends stay apart from each other, so that nature can choose between
    them. Outcomes with the same next state are added up, with the mean of their rewards.

    >>> stay, stop = (0.5, 0, -1.0, False), (0.5, 1, 10.0, True)
    >>> model = from_gymnasium({0: {0: [stay, stop]}, 1: {0: [(1.0, 0, -1.0, False)]}}, discount=0.9)
    >>> model
    MDP(3 states, 3 state-actions, 4 successors, discount=0.9)
    >>> model.indices
    array([0, 2, 0, 2])

    Args:
        environment: an environment, the dictionary itself, or a name, such as "FrozenLake-v1", which needs
            ``pip install "fdro[mdp]"``.
        discount: at least 0 and below 1.
    """
    table = _table_of(environment)
    lines = list(_lines(table))
    absorbing = _absorbing(table, lines)
    ends = sorted({t for _, _, t, _, _, terminated in lines if terminated and t not in absorbing})
    number = {t: len(table) + k for k, t in enumerate(ends)}
    actions = sorted(table[0])
    columns = [(s, a, number.get(t, t) if terminated else t, p, r) for s, a, t, p, r, terminated in lines]
    columns += [(end, a, end, 1.0, 0.0) for end in number.values() for a in actions]
    state, action, following, probability, reward = (np.array(each) for each in zip(*columns, strict=True))
    return MDP.from_table(state, action, following, probability, reward, discount)


Line = tuple[int, int, int, float, float, bool]
"""State, action, next state, probability, reward, terminated."""


def _table_of(environment: Any) -> Mapping[int, Mapping[int, Any]]:
    """The dictionary P, with its states checked."""
    if isinstance(environment, str):
        name = environment
        environment = _make(name)
    else:
        name = _name_of(environment)
    table = environment
    if not isinstance(table, Mapping):
        table = getattr(getattr(environment, "unwrapped", environment), "P", None)
    if not isinstance(table, Mapping):
        raise InvalidParameter(
            f"{name} has no table of transitions: environments such as FrozenLake-v1, CliffWalking-v1 and "
            "Taxi have one, `unwrapped.P`; for others, estimate transitions from simulated steps and give "
            "them to MDP.from_table",
            parameter="environment",
            value=environment,
        )
    if set(table) != set(range(len(table))) or not table:
        raise InvalidParameter(
            f"the states of P must be the numbers 0, …, S - 1, got {list(table)[:10]}",
            parameter="environment",
            value=environment,
        )
    return table


def _make(name: str) -> Any:
    try:
        import gymnasium
    except ImportError as error:
        raise BackendMissing(f'from_gymnasium("{name}") needs gymnasium: pip install "fdro[mdp]"') from error
    environment = gymnasium.make(name)
    environment.close()  # its table stays
    return environment


def _name_of(environment: Any) -> str:
    """What to call an environment in messages."""
    spec = getattr(environment, "spec", None)
    return getattr(spec, "id", None) or type(getattr(environment, "unwrapped", environment)).__name__


def _lines(table: Mapping[int, Mapping[int, Any]]) -> Iterator[Line]:
    """All outcomes of all state-actions."""
    for state in range(len(table)):
        if not isinstance(table[state], Mapping) or not table[state]:
            raise InvalidParameter(
                f"P[{state}] must be a dictionary from actions to outcomes, got {table[state]!r}",
                parameter="environment",
            )
        for action, outcomes in table[state].items():
            if not isinstance(action, int | np.integer):
                raise InvalidParameter(
                    f"the actions of P[{state}] must be whole numbers, got {action!r}",
                    parameter="environment",
                )
            if not isinstance(outcomes, Sequence) or not outcomes:
                raise _refuse_outcome(state, action, outcomes)
            for outcome in outcomes:
                yield _line(state, int(action), outcome, len(table))


def _line(state: int, action: int, outcome: Any, states: int) -> Line:
    """One outcome, checked."""
    try:
        probability, following, reward, terminated = outcome
        line = (state, action, int(following), float(probability), float(reward), bool(terminated))
    except (TypeError, ValueError) as error:
        raise _refuse_outcome(state, action, outcome) from error
    if line[2] != following or not 0 <= line[2] < states:
        raise InvalidParameter(
            f"P[{state}][{action}] leads to state {following!r}, which is not one of 0, …, {states - 1}",
            parameter="environment",
        )
    return line


def _refuse_outcome(state: int, action: int, found: Any) -> InvalidParameter:
    return InvalidParameter(
        f"P[{state}][{action}] must be a list of (probability, next_state, reward, terminated), found "
        f"{found!r}",
        parameter="environment",
    )


def _absorbing(table: Mapping[int, Any], lines: list[Line]) -> set[int]:
    """The states that return to themselves with reward 0, under all actions."""
    return set(table) - {s for s, _, t, _, r, _ in lines if t != s or r != 0.0}
