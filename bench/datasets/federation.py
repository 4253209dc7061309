"""A data set as the experiments see it: clients, each with its own training and test data, and how it is cut.

Splits are the same every time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.errors import InvalidData
from fdro_core.problems.samples import mean_and_scale
from uncertainty_sets.arrays import Array

Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Client:
    """One worker's data.

    Attributes:
        name: who or what it is, "participant 3".
        X_train: (n, d), float64, scaled as the loader says.
        y_train: (n,), int64, 0..classes-1.
        X_test: (m, d).
        y_test: (m,).
    """

    name: str
    X_train: Array = field(repr=False)
    y_train: Labels = field(repr=False)
    X_test: Array = field(repr=False)
    y_test: Labels = field(repr=False)


@dataclass(frozen=True, eq=False)
class Federation:
    """A data set cut into clients.

    Attributes:
        name: as `load` knows it.
        clients: one per worker, in a fixed order.
        classes: how many labels there are.
        labels: their names, by label.
        about: source, licence, features, split, and what differs from the original.
    """

    name: str
    clients: tuple[Client, ...] = field(repr=False)
    classes: int
    labels: tuple[str, ...] = field(repr=False)
    about: str = field(repr=False)

    def __post_init__(self) -> None:
        if not self.clients:
            raise InvalidData(f"{self.name}: there are no clients")
        if len(self.labels) != self.classes:
            raise InvalidData(f"{self.name}: {self.classes} classes and {len(self.labels)} names of labels")
        features = self.clients[0].X_train.shape[1]
        for client in self.clients:
            for X, y in ((client.X_train, client.y_train), (client.X_test, client.y_test)):
                if X.shape != (len(y), features) or len(y) == 0:
                    raise InvalidData(
                        f"{self.name}, {client.name}: X is {X.shape} and y {y.shape}; "
                        f"(n, {features}) and (n,) are needed, n at least 1"
                    )
                if not np.isfinite(X).all():
                    raise InvalidData(f"{self.name}, {client.name}: X holds NaN or infinity")
                if y.min() < 0 or y.max() >= self.classes:
                    raise InvalidData(f"{self.name}, {client.name}: labels outside 0..{self.classes - 1}")

    @property
    def features(self) -> int:
        """How many features a sample has, d."""
        return int(self.clients[0].X_train.shape[1])

    def summary(self) -> str:
        """One line: clients, samples, features, classes."""
        train = sum(len(client.y_train) for client in self.clients)
        test = sum(len(client.y_test) for client in self.clients)
        return (
            f"{self.name}: {len(self.clients)} clients, {train:,} training and {test:,} test samples, "
            f"{self.features} features, {self.classes} classes"
        )


def standardised(clients: list[Client]) -> tuple[Client, ...]:
    """Standardise every feature with the mean and deviation of all clients' training data together.

    A federation can do that without moving data: the mean and deviation need three sums per client.
    A feature that never changes in training is set to 0.
    """
    mean, deviation = mean_and_scale([client.X_train for client in clients], constant=np.inf)
    return tuple(
        replace(
            client,
            X_train=(client.X_train - mean) / deviation,
            X_test=(client.X_test - mean) / deviation,
        )
        for client in clients
    )


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


def split_clients(parts: Iterable[tuple[str, Array, Labels]], test_share: float, seed: int) -> list[Client]:
    """A client for each (name, X, y), split by label; the split of one depends on the seed and its place."""
    clients = []
    for number, (name, X, y) in enumerate(parts):
        train, test = stratified(y, test_share, np.random.default_rng([seed, number]))
        clients.append(Client(name, X[train], y[train], X[test], y[test]))
    return clients


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
    parts = ((str(each), X[group == each], y[group == each]) for each in np.unique(group))
    clients = split_clients(parts, test_share, seed)
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
