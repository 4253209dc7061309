"""The problem that is solved in the test bed: generated data, and a gradient that takes a while.

Softmax regression with 60 samples of 12 features around the worker's own centre. On such data a gradient
takes no time, so it sleeps: a run must last long enough for a partition to fall in its middle, and the
machine's few cores are needed by the nodes. All else is as in any other run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from fdro_core import SoftmaxRegression
from uncertainty_sets import KL


class Unhurried(SoftmaxRegression):
    """Softmax regression whose gradient takes `seconds` longer."""

    seconds = 0.0

    def loss_and_gradient(self, *arguments: Any) -> tuple[float, Any]:
        """Return the gradient, after a while."""
        time.sleep(self.seconds)
        return super().loss_and_gradient(*arguments)


def make_problem(node_config: Mapping[str, Any], seconds: float = 0.0) -> Unhurried:
    """Make the problem of worker `node_config["worker"]`."""
    rng = np.random.default_rng([3, int(node_config["worker"])])
    X = rng.normal(size=(60, 12)) + 0.7 * rng.normal(size=12)
    y = np.argmax(X[:, :4] + rng.gumbel(size=(60, 4)), axis=1)
    problem = Unhurried(X, y, 4, l2=1e-2, intercept=False)
    problem.seconds = seconds
    return problem


def around_equal_weights(workers: int) -> KL:
    """The uncertainty set."""
    return KL(np.full(workers, 1 / workers), 0.1)
