"""Markov chains that a policy and nature's transitions make: expected rewards, and v - γPv."""

from __future__ import annotations

from uncertainty_sets.arrays import Indices, Vector
from uncertainty_sets.kernels.jit import entry, kernel


@entry("rewards")
@kernel
def expected_rewards(
    state_rows: Indices,
    indptr: Indices,
    policy: Vector,
    p: Vector,
    row_rewards: Vector,
    entry_rewards: Vector,
    rewards: Vector,
) -> None:
    """Write the expected reward of each state; `entry_rewards` is empty if there are none."""
    for s in range(rewards.size):
        total = 0.0
        for b in range(state_rows[s], state_rows[s + 1]):
            if policy[b] > 0.0:
                mean = row_rewards[b]
                if entry_rewards.size > 0:
                    for k in range(indptr[b], indptr[b + 1]):
                        mean += p[k] * entry_rewards[k]
                total += policy[b] * mean
        rewards[s] = total


@entry("out")
@kernel
def discounted_rest(
    state_rows: Indices, indptr: Indices, indices: Indices, policy: Vector, p: Vector, discount: float,
    v: Vector, out: Vector,
) -> None:  # fmt: skip
    """Write v - γPv, with P the mean of the rows of each state under the policy."""
    for s in range(v.size):
        total = 0.0
        for b in range(state_rows[s], state_rows[s + 1]):
            if policy[b] > 0.0:
                part = 0.0
                for k in range(indptr[b], indptr[b + 1]):
                    part += p[k] * v[indices[k]]
                total += policy[b] * part
        out[s] = v[s] - discount * total
