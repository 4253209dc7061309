"""Observers: functions of the run and each report or notice, which may end the run by returning why."""

from fdro_core.observers.checkpoint import Checkpoint
from fdro_core.observers.history import HistoryFile, read_history
from fdro_core.observers.progress import Progress
from fdro_core.observers.stopping import StopAfter, StopAtLoss, StopWhenStationary

__all__ = [
    "Checkpoint",
    "HistoryFile",
    "Progress",
    "StopAfter",
    "StopAtLoss",
    "StopWhenStationary",
    "read_history",
]
