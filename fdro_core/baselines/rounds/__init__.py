"""Synchronous rounds: what the baselines share. A method's own file holds its update and nothing else."""

from fdro_core.baselines.rounds.algorithm import Rounds
from fdro_core.baselines.rounds.controls import follow_controls, mean_control
from fdro_core.baselines.rounds.state import Job, RoundState, average, project

__all__ = ["Job", "RoundState", "Rounds", "average", "follow_controls", "mean_control", "project"]
