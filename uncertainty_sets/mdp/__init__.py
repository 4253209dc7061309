"""Robust Markov decision processes: an oracle for every state and action, and proved bounds on the value."""

from uncertainty_sets.mdp.files import read_csv, write_csv, write_policy, write_values
from uncertainty_sets.mdp.gymnasium_ import from_gymnasium
from uncertainty_sets.mdp.model import MDP
from uncertainty_sets.mdp.robust import RobustMDP
from uncertainty_sets.mdp.solution import Solution, Sweep

__all__ = [
    "MDP",
    "RobustMDP",
    "Solution",
    "Sweep",
    "from_gymnasium",
    "read_csv",
    "write_csv",
    "write_policy",
    "write_values",
]
