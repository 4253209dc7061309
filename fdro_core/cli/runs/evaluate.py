"""An observer that tests the model on the held-out samples, about a hundred times per run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from fdro_core.cli.runs.workers import Workers
    from fdro_core.protocol.observer import RunView

TESTS = 100


class Evaluate:
    """Add `test_loss` and `test_accuracy` (lists, one number per worker) to some reports.

    It must be the first observer, so that the history file and checkpoints have them. A test costs one pass
    over the held-out samples.

    Args:
        workers: whose held-out samples to use.
        tests: the number of tests per run, about.
    """

    def __init__(self, workers: Workers, tests: int = TESTS) -> None:
        self.workers = workers
        self.tests = tests
        self._tested: int | None = None  # the iteration of the last test

    def __call__(self, run: RunView, entry: dict[str, Any]) -> None:
        """Test the model if the next test is due."""
        if entry["event"] != "report":
            return
        iteration, last = entry["iteration"], run.master.last
        if self._tested is not None and (iteration - self._tested) * self.tests < last:
            return
        self._tested = iteration
        losses, accuracies = self.workers.test(run.master.z)
        for name, values in (("test_loss", losses), ("test_accuracy", accuracies)):
            if np.isfinite(values).any():
                entry[name] = [float(value) if np.isfinite(value) else None for value in values]
