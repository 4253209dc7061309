"""Tables of persons: numbers and kinds to columns, one client per group of persons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.datasets.federation import Client, Federation, Labels, standardised
from bench.datasets.splits import stratified
from uncertainty_sets.arrays import Array


def federation(
    name: str,
    table: Mapping[str, NDArray[Any]],
    numbers: Sequence[str],
    kinds: Sequence[str],
    y: Labels,
    group: NDArray[Any],
    labels: tuple[str, ...],
    test_share: float,
    seed: int,
    about: str,
) -> Federation:
    """Return a federation with one client per group, sorted, each split by label.

    Args:
        name: of the data set.
        table: the columns by name, as text.
        numbers: the columns that are numbers.
        kinds: the columns that become one 0/1 column per value.
        y: labels 0, 1, …
        group: each row's group.
        labels: their names.
        test_share: of every group's rows, by label.
        seed: of the split.
        about: what the data set is.
    """
    X = columns(table, numbers, kinds)
    clients = []
    for number, each in enumerate(np.unique(group)):
        rows = np.flatnonzero(group == each)
        train, test = (
            rows[part] for part in stratified(y[rows], test_share, np.random.default_rng([seed, number]))
        )
        clients.append(Client(str(each), X[train], y[train], X[test], y[test]))
    return Federation(name, standardised(clients), len(labels), labels, about=about)


def columns(table: Mapping[str, NDArray[Any]], numbers: Sequence[str], kinds: Sequence[str]) -> Array:
    """The features: numbers as they are, then a 0/1 column for each value of a kind, sorted.

    >>> table = {"age": np.array(["30", "50"]), "sex": np.array(["f", "m"])}
    >>> columns(table, ["age"], ["sex"])
    array([[30.,  1.,  0.],
           [50.,  0.,  1.]])
    """
    parts = [table[name].astype(np.float64) for name in numbers]
    for name in kinds:
        parts += [(table[name] == value).astype(np.float64) for value in np.unique(table[name])]
    return np.stack(parts, axis=1)
