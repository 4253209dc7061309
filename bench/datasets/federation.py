"""A data set as the experiments see it: clients, each with its own training and test data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

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
