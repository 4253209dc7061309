"""Splits that are the same every time, and cutting a federation by labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.datasets.federation import Client, Labels
from fdro_core.errors import InvalidData
from uncertainty_sets.arrays import Array

Rows = NDArray[np.int64]


def stratified(y: NDArray[Any], test_share: float, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Rows for training and for test, each label in the same proportion, both in their old order.

    A label with one sample stays in training; one with more has at least one in each.

    >>> train, test = stratified(np.array([0, 0, 0, 0, 1, 1]), 0.5, np.random.default_rng(0))
    >>> len(train), len(test), sorted([*train, *test]) == list(range(6))
    (3, 3, True)
    """
    if not 0 < test_share < 1:
        raise InvalidData(f"test_share must be in (0, 1), got {test_share}")
    chosen = np.zeros(len(y), dtype=bool)
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        many = min(max(round(test_share * rows.size), 1), rows.size - 1)
        chosen[rng.permutation(rows)[:many]] = True
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)


def one_class_clients(
    train: tuple[Array, Labels], test: tuple[Array, Labels], chosen: Sequence[int], labels: Sequence[str]
) -> tuple[Client, ...]:
    """A client for each chosen label, with that label alone, renumbered 0, 1, … in the order chosen."""
    if len(set(chosen)) != len(chosen) or not chosen or not set(chosen) <= set(range(len(labels))):
        raise InvalidData(f"labels must be different numbers in 0..{len(labels) - 1}, got {tuple(chosen)}")
    clients = []
    for number, label in enumerate(chosen):
        (X_train, own_train), (X_test, own_test) = (
            (X[y == label], np.full(int(np.sum(y == label)), number, dtype=np.int64))
            for X, y in (train, test)
        )
        clients.append(Client(labels[label], X_train, own_train, X_test, own_test))
    return tuple(clients)
