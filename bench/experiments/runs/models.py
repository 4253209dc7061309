"""The two models of the paper: softmax regression, and the multilayer perceptron of Wang et al. 2017.

The perceptron is there twice. "dense" is `DenseNetwork`; "mlp" is the same network through PyTorch, kept
because records are found by their model's name: first weights and masks of dropout differ between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fdro_core import DenseNetwork, SoftmaxRegression
from fdro_core.protocol.problem import Problem
from uncertainty_sets.arrays import Array


class Model(Protocol):
    """What a run needs of a model."""

    def problem(self, X: Array, y: NDArray[np.int64]) -> Problem:
        """A worker's training problem."""
        ...

    def scores(self, w: Array, X: Array) -> Array:
        """Return one number per class for every sample; the largest is the prediction."""
        ...


@dataclass(frozen=True)
class Softmax:
    """Softmax regression with a bias."""

    classes: int
    l2: float = 0.0

    def problem(self, X: Array, y: NDArray[np.int64]) -> Problem:
        """A worker's training problem."""
        return SoftmaxRegression(X, y, self.classes, l2=self.l2, intercept=True)

    def scores(self, w: Array, X: Array) -> Array:
        """XᵀW and the bias."""
        W = w.reshape(-1, self.classes)
        scores: Array = X @ W[:-1] + W[-1]
        return scores


@dataclass(frozen=True)
class Perceptron:
    """Dense layers with ReLU and dropout, in 32 bits.

    Attributes:
        features, classes: of the data.
        seed: of the first weights.
        hidden: widths of the layers.
        dropout: before each layer and after the last hidden one.
    """

    features: int
    classes: int
    seed: int
    hidden: tuple[int, ...] = (500, 500, 500)
    dropout: tuple[float, ...] = (0.1, 0.2, 0.2, 0.3)
    l2: float = 0.0

    def problem(self, X: Array, y: NDArray[np.int64]) -> Problem:
        """A worker's training problem."""
        return self._network(X, y)

    def _network(self, X: Array, y: NDArray[np.int64]) -> DenseNetwork:
        return DenseNetwork(
            X, y, self.classes, hidden=self.hidden, dropout=self.dropout, l2=self.l2, seed=self.seed
        )

    @cached_property
    def _reader(self) -> DenseNetwork:
        return self._network(np.zeros((1, self.features)), np.zeros(1, dtype=np.int64))

    def scores(self, w: Array, X: Array) -> Array:
        """The network's outputs, without dropout."""
        return self._reader.predict(w, X)


class TorchPerceptron(Perceptron):
    """The same through PyTorch."""

    @cached_property
    def module(self) -> Any:
        """The network with its first weights."""
        import torch

        layers: list[Any] = []
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            widths = (self.features, *self.hidden, self.classes)
            for place, (before, after) in enumerate(pairwise(widths)):
                layers += [torch.nn.Dropout(self.dropout[place]), torch.nn.Linear(before, after)]
                if place < len(self.hidden):
                    layers.append(torch.nn.ReLU())
            return torch.nn.Sequential(*layers)

    def problem(self, X: Array, y: NDArray[np.int64]) -> Problem:
        """A worker's training problem."""
        from fdro_core.problems.torch import TorchProblem

        return TorchProblem(self.module, X, y, l2=self.l2)

    @cached_property
    def _reader(self) -> Any:
        return self.problem(np.zeros((1, self.features)), np.zeros(1, dtype=np.int64))


NETWORKS = {"dense": Perceptron, "mlp": TorchPerceptron}
"""The networks by the name of their kind."""

WIDTH = 500  # of the paper's layers


def make(name: str, features: int, classes: int, seed: int, l2: float = 0.0) -> Model:
    """The model of that name: "softmax", "dense" (the paper's perceptron), "dense-32" (layers of 32)."""
    if name == "softmax":
        return Softmax(classes, l2)
    kind, _, width = name.partition("-")
    if kind in NETWORKS and (not width or width.isdecimal()):
        hidden = (int(width or WIDTH),) * 3
        return NETWORKS[kind](features, classes, seed, hidden=hidden, l2=l2)
    known = ", ".join(f"{kind}, {kind}-WIDTH" for kind in NETWORKS)
    raise SystemExit(f"no model is called {name!r}; there are: softmax, {known}")


def labels(scores: Array) -> NDArray[np.int64]:
    """The class with the largest score of every sample."""
    found: NDArray[np.int64] = np.argmax(scores, axis=1)
    return found


def segments(parts: Sequence[Any]) -> NDArray[np.int64]:
    """Where each part begins when they are stacked."""
    return np.cumsum([0, *(len(part) for part in parts[:-1])])
