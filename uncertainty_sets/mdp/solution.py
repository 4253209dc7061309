"""What a method of solution asks of an ambiguity, a Bellman update with bounds, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.mdp.model import MDP
from uncertainty_sets.rows import Integers


@dataclass(eq=False)
class Update:
    """One Bellman update of every state, between two bounds that it proves.

    Attributes:
        lower: (states,); at most (Tv)(s), and what the policy guarantees against every transition in the set.
        upper: (states,); at least (Tv)(s), since the transitions `p` are in the set.
        policy: (rows,); the probability of each state-action; those of a state sum to 1.
        p: (entries,); the worst-case probability of each successor; may be empty if it was not asked for.
        evaluations: the mean number of passes over a row; for information.
    """

    lower: Array
    upper: Array
    policy: Array
    p: Array
    evaluations: float


class Updater(Protocol):
    """The robust (or optimistic) Bellman operator of one problem; keeps warm starts between calls."""

    def improve(self, values: Array, *, transitions: bool = True) -> Update:
        """Update with the best policy for these values, and with nature's transitions if they are needed."""
        ...

    def evaluate(self, policy: Array, values: Array) -> Update:
        """Update with a given policy, (rows,)."""
        ...


@dataclass(frozen=True)
class Sweep:
    """One sweep over all states, for history and progress.

    Attributes:
        number: 1 for the first.
        width: the largest upper - lower over the states after it.
        evaluations: passes over a row, on average.
        seconds: since the start.
    """

    number: int
    width: float
    evaluations: float
    seconds: float


@dataclass(eq=False)
class Solution:
    """A policy, its value, and bounds that the last sweep proves.

    For a robust problem `lower` is what `policy` guarantees in every state, whatever transitions of the set
    nature chooses, and no policy guarantees more than `upper`. For an optimistic problem `upper` is a bound
    that no policy and no transitions of the set exceed, and `policy` with `transitions` reaches `lower`. Both
    allow for rounding; the transitions are in the set up to the oracle's violation, at most 1e-10.

    Attributes:
        value: (states,), the middle of the bounds.
        lower: (states,), at most v*.
        upper: (states,), at least v*.
        policy: (rows,), the probability of each state-action.
        transitions: (entries,), nature's probability of each successor.
        converged: whether upper - lower is at most the tolerance in every state.
        interrupted: whether Ctrl-C ended it; it is the best found until then.
        history: what each sweep achieved.
        model: the nominal model.
    """

    value: Array
    lower: Array
    upper: Array
    policy: Array
    transitions: Array
    converged: bool
    interrupted: bool
    model: MDP = field(repr=False)
    history: list[Sweep] = field(repr=False)

    def __repr__(self) -> str:
        state = "converged" if self.converged else "interrupted" if self.interrupted else "not converged"
        return (
            f"Solution({self.model.states} states, values {self.value.min():.6g} to {self.value.max():.6g}, "
            f"proved within {self.width:.2g}, {self.sweeps} sweeps, {state})"
        )

    @property
    def width(self) -> float:
        """The largest upper - lower."""
        return float(np.max(self.upper - self.lower))

    @property
    def sweeps(self) -> int:
        """How often all states were updated with the oracle."""
        return len(self.history)

    @property
    def actions(self) -> Integers:
        """(states,), the most probable action of each state, by its number."""
        model = self.model
        rows = np.lexsort((-np.arange(model.rows), self.policy, _state_of_rows(model)))
        return model.actions[rows[model.state_rows[1:] - 1]]

    def transition_matrix(self) -> Any:
        """Nature's transitions as a SciPy CSR matrix with a row per state-action."""
        from scipy.sparse import csr_matrix

        model = self.model
        return csr_matrix((self.transitions, model.indices, model.indptr), shape=(model.rows, model.states))


def _state_of_rows(model: MDP) -> Integers:
    return model.repeat_by_state(np.arange(model.states))
