"""The attack of Table VI in the experiments: malicious workers beside the honest ones, and a prior.

The paper's own settings are in a supplement that is not public. Here: `count` malicious workers are added
(one for five honest ones).
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
from uncertainty_sets.arrays import Array

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


TRIGGERS: dict[str, dict[str, dict[str, Any]]] = {
    "hidden": {"square": {"place": "centre", "size": 8, "value": 0.5}, "features": {"size": 3, "value": 0.5}},
    "bright": {"square": {"place": "corner", "size": 4, "value": 1.0}, "features": {"size": 3, "value": 3.0}},
}
"""Two kinds: one that resembles clean samples, and one that no clean sample has."""


def settings(data: Federation, kind: str = "hidden") -> dict[str, Any]:
    """The attack on a data set: a square in images, the last features of others; one stranger for five."""
    features = data.clients[0].X_train.shape[1]
    shape = "square" if features in IMAGES else "features"
    count = max(1, len(data.clients) // 5)
    chosen: dict[str, Any] = {
        "kind": kind,
        "shape": shape,
        "count": count,
        "trust": 0.1,
        "target": 0,
        "seed": 0,
    }
    chosen |= TRIGGERS[kind][shape]
    if features == 64:
        chosen["size"] = 3
    return chosen


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
    """A square of one grey in an image, or the last features at one value."""
    size, value = int(chosen["size"]), float(chosen["value"])
    if chosen["shape"] == "features":
        return Trigger.of(range(features - size, features), value)
    height, width = IMAGES[features]
    if chosen["place"] == "corner":
        return Trigger.square(height, width, size=size, value=value)
    rows, columns = ((side - size) // 2 + np.arange(size) for side in (height, width))
    return Trigger.of((rows[:, None] * width + columns).ravel().tolist(), value)
