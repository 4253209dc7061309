"""Plain value iteration with dense arrays, for what tests of models compare with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.mdp import MDP


class Dense(NamedTuple):
    """A model as plain arrays: transitions (rows, states), mean rewards (rows,), state of each row."""

    transitions: Array
    rewards: Array
    state: Array

    def look_ahead(self, values: Array, discount: float) -> Array:
        """The value of each state-action if these values follow."""
        return self.rewards + discount * self.transitions @ values

    def best(self, by_row: Array) -> Array:
        """The largest number of each state."""
        best = np.full(self.transitions.shape[1], -np.inf)
        np.maximum.at(best, self.state, by_row)
        return best


def dense(model: MDP) -> Dense:
    """Copy a model entry by entry."""
    transitions, rewards = np.zeros((model.rows, model.states)), model.row_rewards.copy()
    state = np.empty(model.rows, int)
    for s in range(model.states):
        state[model.state_rows[s] : model.state_rows[s + 1]] = s
    for row in range(model.rows):
        for entry in range(model.indptr[row], model.indptr[row + 1]):
            probability = model.probabilities[entry]
            transitions[row, model.indices[entry]] += probability
            if model.entry_rewards is not None:
                rewards[row] += probability * model.entry_rewards[entry]
    return Dense(transitions, rewards, state)


def value_iteration(model: MDP, discount: float | None = None, sweeps: int = 100_000) -> tuple[Array, Array]:
    """Values of the states and of the state-actions after that many sweeps, or once nothing changes.

    A discount of 1 is allowed: the tests use it for a fixed number of periods, and for walks that end.
    """
    plain, discount = dense(model), model.discount if discount is None else discount
    values = np.zeros(model.states)
    for _ in range(sweeps):
        by_row = plain.look_ahead(values, discount)
        before, values = values, plain.best(by_row)
        if np.array_equal(before, values):
            break
    return values, by_row


def greedy(model: MDP, by_row: Array) -> list[int]:
    """The number of the best action in each state."""
    return [
        int(model.actions[start + by_row[start:stop].argmax()])
        for start, stop in zip(model.state_rows[:-1], model.state_rows[1:], strict=True)
    ]
