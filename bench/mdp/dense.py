"""Dense test problems in which every state can follow every other: the sizes of published comparisons.

`uncertainty_sets.mdp.problems` has the standard problems as they are defined, with few successors; here every
row has all states, so that a sweep's time tells the cost of a row.
"""

from __future__ import annotations

import math

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.mdp import MDP

DISCOUNT = 0.95


def inventory(states: int, actions: int) -> MDP:
    """Stock up to states - 1, orders in steps, Poisson demand of a sixth of the room, lost sales."""
    step, mean = max(1, states // (2 * actions)), states / 6
    stock, order, left = np.ogrid[:states, :actions, :states]
    level = np.minimum(stock + order * step, states - 1)
    demand = np.array([math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(states)])
    at_least = np.append(1.0, 1.0 - np.cumsum(demand))
    sold = np.maximum(level - left, 0)
    P = np.where(left > level, 0.0, np.where(left == 0, at_least[level], demand[sold]))
    R = 4.0 * sold - (level - stock) - 0.1 * left
    return MDP(spread_out(P), np.broadcast_to(R, P.shape), DISCOUNT)


def machine(states: int, actions: int) -> MDP:
    """Wear that grows by a random step; action 0 keeps, the last replaces, those between repair a part."""
    wear, action, after = np.ogrid[:states, :actions, :states]
    repaired = np.maximum(0, wear - action * states // actions)
    base = np.where(action == 0, wear, np.where(action == actions - 1, 0, repaired))
    weight = np.where(after >= base, 0.6 ** np.abs(after - base - 1.0), 0.0) + 1e-12
    P = weight / weight.sum(axis=2, keepdims=True)
    R = 10.0 - 0.02 * wear[..., 0] ** 2 - np.where(action[..., 0] == 0, 0.0, 3.0 + 2.0 * action[..., 0])
    return MDP(spread_out(P), R, DISCOUNT)


def spread_out(P: Array) -> Array:
    """Give every next state some probability."""
    P = P + 1.0 / (10 * P.shape[2])
    return np.asarray(P / P.sum(axis=2, keepdims=True))


def nominal_sweep(model: MDP, v: Array) -> Array:
    """One plain Bellman update, vectorised: what a robust one is compared with."""
    shape = (model.states, -1, model.states)
    P = model.probabilities.reshape(shape)
    expected = P @ (model.discount * v) + model.row_rewards.reshape(shape[:2])
    if model.entry_rewards is not None:
        expected += (P * model.entry_rewards.reshape(shape)).sum(axis=2)
    return np.asarray(expected.max(axis=1))


def after_some_sweeps(model: MDP, sweeps: int = 20) -> Array:
    """Values of a problem under way."""
    v = np.zeros(model.states)
    for _ in range(sweeps):
        v = nominal_sweep(model, v)
    return v
