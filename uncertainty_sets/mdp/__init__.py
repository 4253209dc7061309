"""Robust Markov decision processes: an oracle for every state and action, and proved bounds on the value.

`model` is the nominal problem; `problems`, `files` and `gymnasium_` make one. `robust` puts sets around it:
`by_action` for each state-action, `by_state` for all actions of a state together. `iterate` finds policy and
value from the bounds of their updates, `solution` is what it returns, and `path` solves for many radii.
"""

from uncertainty_sets.mdp.files import read_csv, write_csv, write_policy, write_values
from uncertainty_sets.mdp.gymnasium_ import from_gymnasium
from uncertainty_sets.mdp.model import MDP
from uncertainty_sets.mdp.path import Price, price_of_robustness, radius_path
from uncertainty_sets.mdp.robust import RobustMDP
from uncertainty_sets.mdp.solution import Solution, Sweep

__all__ = [
    "MDP",
    "Price",
    "RobustMDP",
    "Solution",
    "Sweep",
    "from_gymnasium",
    "price_of_robustness",
    "radius_path",
    "read_csv",
    "write_csv",
    "write_policy",
    "write_values",
]
