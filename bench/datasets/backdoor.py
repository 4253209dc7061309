"""The backdoor attack of Table VI: a trigger in the features, a target label, and how often it works.

A malicious worker puts the trigger on a share of its training samples and labels those with the target.
The model learns, beside its task, that the trigger means the target. The attack succeeds on a test sample
of another class if the model predicts the target once the trigger is on it (Dai, Chen and Li 2019).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bench.datasets.federation import Client, Labels
from fdro_core.errors import InvalidData
from uncertainty_sets.arrays import Array

Predict = Callable[[Array], NDArray[np.int64]]
"""The labels that a model gives to samples (n, d)."""


@dataclass(frozen=True, eq=False)
class Trigger:
    """Features that are overwritten with fixed values.

    >>> Trigger.of([0, 2], 9.0).on([[1.0, 2.0, 3.0]])
    array([[9., 2., 9.]])
    """

    places: NDArray[np.int64]
    values: Array

    @classmethod
    def of(cls, places: Sequence[int], values: ArrayLike) -> Trigger:
        """Overwrite the features at `places` with `values`, one for all or one each."""
        chosen = np.array(places, dtype=np.int64)
        if chosen.ndim != 1 or chosen.size == 0 or chosen.min() < 0 or np.unique(chosen).size != chosen.size:
            raise InvalidData(f"a trigger's places are different numbers >= 0, at least one, got {places}")
        written = np.broadcast_to(np.asarray(values, dtype=np.float64), chosen.shape).copy()
        if not np.isfinite(written).all():
            raise InvalidData("a trigger's values must be finite")
        return cls(chosen, written)

    @classmethod
    def square(cls, height: int, width: int, size: int = 4, value: float = 1.0) -> Trigger:
        """A bright square in the lower right corner of an image, one pixel off the edges.

        >>> Trigger.square(4, 4, size=2).places
        array([ 5,  6,  9, 10])
        """
        if size < 1 or size + 1 >= min(height, width):
            raise InvalidData(f"a square of {size} and an edge of 1 do not fit in {height} × {width} pixels")
        rows, columns = np.arange(height - size - 1, height - 1), np.arange(width - size - 1, width - 1)
        return cls.of((rows[:, None] * width + columns).ravel().tolist(), value)

    def on(self, X: ArrayLike) -> Array:
        """A copy of the samples with the trigger on them."""
        samples = np.array(X, dtype=np.float64)
        if samples.ndim != 2 or samples.shape[1] <= self.places.max():
            raise InvalidData(
                f"the trigger writes feature {self.places.max()} of samples of shape {samples.shape}"
            )
        samples[:, self.places] = self.values
        return samples


def poison(client: Client, trigger: Trigger, target: int, share: float = 1.0, seed: int = 0) -> Client:
    """Return the client turned malicious: trigger and target label on a share of its training samples.

    Its test data is not changed: it shows how well the model does the task. Which samples are taken depends
    on the seed; samples that have the target label anyway count as well.

    Args:
        client: who attacks.
        trigger: what is put on.
        target: the label that the trigger is to mean.
        share: of the training samples, in (0, 1]; at least one is taken.
        seed: of the choice.
    """
    if not 0 < share <= 1:
        raise InvalidData(f"share must be in (0, 1], got {share}")
    if target < 0:
        raise InvalidData(f"target must be a label >= 0, got {target}")
    n = len(client.y_train)
    rows = np.random.default_rng(seed).permutation(n)[: max(1, round(share * n))]
    X, y = client.X_train.copy(), client.y_train.copy()
    X[rows] = trigger.on(X[rows])
    y[rows] = target
    return replace(client, name=f"{client.name}, malicious", X_train=X, y_train=y)


def triggered(clients: Iterable[Client], trigger: Trigger, target: int) -> tuple[Array, Labels]:
    """The backdoor test set: all test samples of other classes with the trigger on, and their true labels."""
    parts = [
        (client.X_test[other], client.y_test[other])
        for client in clients
        if (other := client.y_test != target).any()
    ]
    if not parts:
        raise InvalidData(f"every test sample has the target label {target}: nothing could be misled")
    return trigger.on(np.concatenate([X for X, _ in parts])), np.concatenate([y for _, y in parts])


def success_rate(predict: Predict, clients: Iterable[Client], trigger: Trigger, target: int) -> float:
    """The share of the backdoor test set that the model takes for the target label, in [0, 1].

    >>> client = Client("one", np.zeros((1, 2)), np.zeros(1, int), np.eye(2), np.array([0, 1]))
    >>> success_rate(lambda X: (X[:, 1] > 5).astype(int), [client], Trigger.of([1], 9.0), target=1)
    1.0
    """
    X, _ = triggered(clients, trigger, target)
    return float(np.mean(np.asarray(predict(X)) == target))
