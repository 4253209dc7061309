"""The value of a Markov chain with rewards and a discount: v = r + γPv, by sweeps in place (Gauss-Seidel)."""

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
    """Write the expected reward of each state under a policy and transitions."""
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


@entry("v", "change")
@kernel
def sweeps(
    state_rows: Indices,
    indptr: Indices,
    indices: Indices,
    policy: Vector,
    p: Vector,
    rewards: Vector,
    discount: float,
    most: int,
    tolerance: float,
    v: Vector,
    change: Vector,
) -> None:
    """Sweep until no value changes by more than the tolerance, or `most` times; `change` is the last one.

    A state's return to itself is solved for rather than iterated, so absorbing states are exact at once.
    """
    for _ in range(most):
        largest = 0.0
        for s in range(v.size):
            total, stay = rewards[s], 0.0
            for b in range(state_rows[s], state_rows[s + 1]):
                if policy[b] > 0.0:
                    part = 0.0
                    for k in range(indptr[b], indptr[b + 1]):
                        if indices[k] == s:
                            stay += policy[b] * p[k]
                        else:
                            part += p[k] * v[indices[k]]
                    total += discount * policy[b] * part
            new = total / (1.0 - discount * stay)
            largest = max(largest, abs(new - v[s]))
            v[s] = new
        change[0] = largest
        if largest <= tolerance:
            break
