"""An observer that tries the model on the samples kept aside, a hundred times a run or so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from fdro_core.app.runs.task import Task
    from fdro_core.solving import Run

LOOKS = 100


class Evaluate:
    """Add `test_loss` and `test_accuracy` (lists, one number a worker) to some reports.

    It comes first among the observers, so that the history file and checkpoints have them. Costs one pass
    over the test samples a look.

    Args:
        task: the workers' judges.
        looks: about how many in a run.
    """

    def __init__(self, task: Task, looks: int = LOOKS) -> None:
        self.task = task
        self.looks = looks
        self._next = 0.0

    def __call__(self, run: Run, entry: dict[str, Any]) -> None:
        """Look, if it is time."""
        if entry["event"] != "report" or entry["iteration"] < self._next:
            return
        self._next = entry["iteration"] + run.master.last / self.looks
        losses, accuracies = self.task.judge(run.master.z)
        for name, values in (("test_loss", losses), ("test_accuracy", accuracies)):
            if np.isfinite(values).any():
                entry[name] = [float(value) if np.isfinite(value) else None for value in values]
