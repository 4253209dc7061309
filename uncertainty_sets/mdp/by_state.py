"""s-rectangular ambiguity: the actions of a state share one budget."""

from __future__ import annotations

from numpy.typing import ArrayLike

from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.mdp.model import MDP
from uncertainty_sets.mdp.updates import Update


class ByState:
    """The Bellman operator with one budget for all actions of a state."""

    def __init__(self, model: MDP, kind: type, budget: ArrayLike, *, optimistic: bool = False) -> None:
        raise InvalidParameter('rectangular="s" is not available yet')

    def improve(self, values: Array) -> Update:
        """Update with the best policy for these values."""
        raise NotImplementedError

    def evaluate(self, policy: Array, values: Array) -> Update:
        """Update with a given policy."""
        raise NotImplementedError
