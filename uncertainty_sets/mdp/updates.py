"""What a method of solution asks of an ambiguity: the Bellman update of all states, with bounds on each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from uncertainty_sets.arrays import Array


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
