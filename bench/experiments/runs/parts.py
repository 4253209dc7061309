"""A federation cut for one run: what is trained on, what is held out of training, what is for test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.experiments.runs.models import Model, segments
from uncertainty_sets.arrays import Array

Labels = NDArray[np.int64]

HELD_OUT = 0.2
BLOCK = 16


@dataclass(frozen=True, eq=False)
class Part:
    """One worker's data in a run, as (X, y)."""

    train: tuple[Array, Labels]
    held: tuple[Array, Labels]
    test: tuple[Array, Labels]


def cut(clients: Sequence[Any], seed: int, share: float = HELD_OUT) -> list[Part]:
    """Hold a share of every client's training data out: of each label, in blocks of 16 neighbouring samples.

    Samples of a time series that lie side by side are nearly the same, so single samples held out would
    say nothing new. Which blocks are taken depends on the seed; the test data is the client's own. A client
    with so few samples that no label has enough blocks has one block held out, whatever its labels.
    """
    parts = []
    for number, client in enumerate(clients):
        n = len(client.y_train)
        rng = np.random.default_rng([seed, number])
        held = np.zeros(n, dtype=bool)
        for label in np.unique(client.y_train):
            rows = np.flatnonzero(client.y_train == label)
            blocks = np.array_split(rows, min(rows.size, max(2, rows.size // BLOCK)))
            for place in rng.permutation(len(blocks))[: round(share * len(blocks))]:
                held[blocks[place]] = True
        if share > 0 and (held.all() or not held.any()):  # few samples, and of no label enough for blocks
            held[:] = False
            first, count = rng.integers(n), max(1, round(share * n))
            held[(first + np.arange(count)) % n] = n > 1
        X, y = client.X_train, client.y_train
        parts.append(Part((X[~held], y[~held]), (X[held], y[held]), (client.X_test, client.y_test)))
    return parts


@dataclass(frozen=True, eq=False)
class Scores:
    """How a model does, worker by worker: mean cross-entropy and share of samples classified right."""

    train_loss: Array
    held_loss: Array
    held_accuracy: Array
    test_accuracy: Array


def worst_fifth(accuracies: Array) -> float:
    """Return the mean over the fifth of the workers that is worst, rounded up to whole workers.

    With hundreds of workers of some twenty test samples each, the very worst one is mostly chance.

    >>> worst_fifth(np.array([0.9, 0.5, 0.8, 0.7, 0.9, 0.9]))  # two of six
    0.6
    """
    count = -(-accuracies.size // 5)
    return float(np.partition(accuracies, count - 1)[:count].mean())


class Evaluator:
    """Scores of a model on all workers' parts. Costs one pass over all data."""

    def __init__(self, parts: Sequence[Part], model: Model) -> None:
        self.model = model
        self.stacks = {}
        for name in ("train", "held", "test"):
            pieces = [getattr(part, name) for part in parts]
            starts = segments([y for _, y in pieces])
            X, y = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
            self.stacks[name] = (X, y, starts, np.diff([*starts, len(y)]))

    def __call__(self, w: Array) -> Scores:
        """Losses and accuracies at w."""
        train, _ = self.of("train", w)
        held, right = self.of("held", w)
        return Scores(train, held, right, self.of("test", w)[1])

    def shares(self, name: str) -> Array:
        """Return every worker's share of the samples of "train", "held" or "test"."""
        counts = self.stacks[name][3]
        shares: Array = counts / counts.sum()
        return shares

    def of(self, name: str, w: Array) -> tuple[Array, Array]:
        """Return mean losses and accuracies by worker on "train", "held" or "test"."""
        X, y, starts, counts = self.stacks[name]
        scores = self.model.scores(w, X)
        top = scores.max(axis=1)
        own = scores[np.arange(len(y)), y]
        losses = np.log(np.exp(scores - top[:, None]).sum(axis=1)) + top - own
        right = np.argmax(scores, axis=1) == y
        return np.add.reduceat(losses, starts) / counts, np.add.reduceat(right, starts) / counts
