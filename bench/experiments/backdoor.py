"""The attack of Table VI as the experiments set it: malicious workers beside the honest ones, and a prior.

The paper's own settings are in a supplement that is not public. Here: `count` malicious workers are added.
Each holds training samples drawn from all honest workers, as many as a mean honest worker has, all with the
trigger on and the target's label. The prior gives a malicious worker `trust` times the weight of an honest
one, and no worker's weight may exceed three times its prior (spread = 2q in the CD-norm set).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.datasets import Client, Federation
from bench.datasets.backdoor import Trigger, poison, success_rate

Array = NDArray[np.float64]
Predict = Callable[[Array], NDArray[np.int64]]

REACH = 2.0  # spread over prior
IMAGES = {784: (28, 28), 64: (8, 8)}


@dataclass(frozen=True, eq=False)
class Attack:
    """A federation under attack.

    Attributes:
        clients: the honest ones, then the malicious.
        prior: q.
        spread: of the CD-norm set.
        success: from a model's predictions to the share of triggered test samples taken for the target.
    """

    clients: list[Client]
    prior: Array
    spread: Array
    success: Callable[[Predict], float]


def settings(data: str, **changes: Any) -> dict[str, Any]:
    """The attack on a data set: a weak square for images, three features at 2 deviations for the others."""
    images = data.startswith(("fashion", "mnist", "digits"))
    own = {"trigger": "square" if images else "features", "value": 0.5 if images else 2.0}
    return {"count": 1, "trust": 0.1, "target": 0, "seed": 0} | own | changes


def prepare(data: Federation, chosen: Mapping[str, Any]) -> Attack:
    """Add the malicious workers."""
    honest = list(data.clients)
    trigger = make_trigger(data.features, chosen)
    target, count = int(chosen["target"]), int(chosen["count"])
    rng = np.random.default_rng(chosen["seed"])
    X = np.concatenate([client.X_train for client in honest])
    y = np.concatenate([client.y_train for client in honest])
    each = len(y) // len(honest)
    malicious = []
    for number in range(count):
        rows = rng.permutation(np.flatnonzero(y != target))[:each]
        test = honest[number % len(honest)]
        stranger = Client(f"stranger {number + 1}", X[rows], y[rows], test.X_test, test.y_test)
        malicious.append(poison(stranger, trigger, target))
    prior = np.array([1.0] * len(honest) + [float(chosen["trust"])] * count)
    prior /= prior.sum()
    return Attack(
        [*honest, *malicious],
        prior,
        np.minimum(REACH * prior, 1.0 - prior),
        lambda predict: success_rate(predict, honest, trigger, target),
    )


def make_trigger(features: int, chosen: Mapping[str, Any]) -> Trigger:
    """A square in the corner of an image, or the last three features at a value that they seldom have."""
    if chosen["trigger"] == "square":
        height, width = IMAGES[features]
        return Trigger.square(height, width, size=4 if height > 8 else 2, value=float(chosen["value"]))
    return Trigger.of(range(features - 3, features), float(chosen["value"]))
