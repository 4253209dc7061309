"""The value of a policy when nature's transitions are fixed too: the linear system v = r + γPv."""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels import chain
from uncertainty_sets.mdp.model import MDP

DIRECT = 200  # states up to which a dense system is solved directly
MOST = 1000  # iterations for larger ones


def value_of_chain(model: MDP, policy: Array, p: Array, v: Array, accuracy: float) -> Array:
    """The value of the chain; of a large one up to a residual of `accuracy`, starting at v."""
    rewards = np.empty(model.states)
    by_entry = np.empty(0) if model.entry_rewards is None else model.entry_rewards
    chain.expected_rewards(model.state_rows, model.indptr, policy, p, model.row_rewards, by_entry, rewards)
    if model.states <= DIRECT:
        return _solve_dense(model, policy, p, rewards)
    return _solve_by_steps(model, policy, p, rewards, v, accuracy)


def _solve_dense(model: MDP, policy: Array, p: Array, rewards: Array) -> Array:
    lengths = np.diff(model.indptr)
    state = np.repeat(model.repeat_by_state(np.arange(model.states)), lengths)
    weight = np.repeat(policy, lengths) * p
    flat = np.bincount(state * model.states + model.indices, weight, model.states**2)
    matrix = np.eye(model.states) - model.discount * flat.reshape(model.states, model.states)
    return np.asarray(np.linalg.solve(matrix, rewards), float)


def _solve_by_steps(model: MDP, policy: Array, p: Array, rewards: Array, v: Array, accuracy: float) -> Array:
    """BiCGSTAB (van der Vorst 1992); if it breaks down the best v so far: any v will do for the bounds."""

    def apply(x: Array) -> Array:
        out = np.empty_like(x)
        chain.discounted_rest(
            model.state_rows, model.indptr, model.indices, policy, p, model.discount, x, out
        )
        return out

    x, r = v.copy(), rewards - apply(v)
    best, least = x, float(np.abs(r).max())
    shadow, direction = r.copy(), r.copy()
    rho = float(r @ r)
    for _ in range(MOST):
        if least <= accuracy:
            break
        image = apply(direction)
        below = float(shadow @ image)
        if below == 0.0 or rho == 0.0:
            break
        alpha = rho / below
        s = r - alpha * image
        t = apply(s)
        square = float(t @ t)
        omega = float(t @ s) / square if square > 0.0 else 0.0
        x = x + alpha * direction + omega * s
        r = s - omega * t
        size = float(np.abs(r).max())
        if not np.isfinite(size) or omega == 0.0:
            break
        if size < least:
            best, least = x, size
        rho, before = float(shadow @ r), rho
        direction = r + (rho / before) * (alpha / omega) * (direction - omega * image)
    return best
