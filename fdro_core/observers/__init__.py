"""Observers: functions of the run and each report or notice; a returned string ends the run.

`stopping` has rules that end a run, `files` what is written, `progress` the bar, `mlflow_` a tracker.
`protocol.observer` says what an observer may read.
"""

from fdro_core.observers.files import Checkpoint, HistoryFile, read_history
from fdro_core.observers.mlflow_ import MLflow
from fdro_core.observers.progress import Progress, ProgressBar
from fdro_core.observers.stopping import StopAfter, StopAtLoss, StopWhenStationary

__all__ = [
    "Checkpoint",
    "HistoryFile",
    "MLflow",
    "Progress",
    "ProgressBar",
    "StopAfter",
    "StopAtLoss",
    "StopWhenStationary",
    "read_history",
]
