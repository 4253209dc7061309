"""Derivatives of all groups' losses at one point: gradients, the groups' Jacobian, and the Hessian."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from uncertainty_sets.arrays import Array

if TYPE_CHECKING:
    from fdro_core.estimators.groups import Grouped

ROWS = 2_000  # samples that stand for all others in a Hessian, at least
PER_DIMENSION = 80  # and for each of its rows: fewer cost Newton's method iterations
BLOCK = 1024  # samples that are multiplied at a time, from the cache


class Point:
    """A model's derivatives at one w; a call gives p ↦ Σ_g p_g ∇f_g(w).

    Args:
        model: whose.
        slopes: of each sample's loss in its scores, (samples, outputs).
        bends: of each sample's loss in its one score, the second derivative.
        gradients: the groups', (groups, outputs, features + 1), if they were made with the losses.
    """

    def __init__(self, model: Grouped, slopes: Array, bends: Array, gradients: Array | None) -> None:
        self.model, self.slopes, self.bends, self._gradients = model, slopes, bends, gradients

    def __call__(self, p: Array) -> Array:
        """Σ_g p_g ∇f_g(w)."""
        if self._gradients is not None:
            return np.ravel(np.tensordot(p, self._gradients, 1).T)
        return self._pull(self._by_sample(p))

    def _by_sample(self, p: Array) -> Array:
        """Every sample's weight, from the groups'."""
        return p if self.model.alone else p[self.model.group] * self.model.share

    def _pull(self, weight: Array) -> Array:
        weighted = self.slopes * weight[:, None]
        return np.concatenate([np.ravel(self.model.X.T @ weighted), weighted.sum(axis=0)])

    def jacobian(self) -> Array:
        """Every group's gradient, (dimension, groups)."""
        if self._gradients is None:
            from scipy.sparse import csr_array

            model, outputs = self.model, self.slopes.shape[1]
            samples = np.arange(model.group.size + 1)
            found = []
            for c in range(outputs):
                part = self.slopes[:, c] * model.share
                spread = csr_array((part, model.group, samples), shape=(samples.size - 1, model.sizes.size))
                by_group = spread.T @ model.X
                dense = by_group.toarray() if model.sparse else by_group
                found.append(np.column_stack([dense, np.asarray(spread.sum(axis=0)).ravel()]))
            self._gradients = np.stack(found, axis=1)
        return np.ascontiguousarray(self._gradients.transpose(2, 1, 0)).reshape(self.model.dimension, -1)

    def hessian(self, p: Array, S: Array | None = None, g: Array | None = None) -> Array:
        """Σ_g p_g ∇²f_g(w), and for a diagonal S >= 0 also J(S - S1 1ᵀS/1ᵀS1 - S g gᵀS/gᵀS g)Jᵀ.

        The second part is what the move of the worst case with the losses adds; p >= 0. Of many samples those
        that matter most stand for all: drawn at even steps along the sum of their weights, which needs no
        random numbers, with an error of about 1/√rows.
        """
        model = self.model
        rows = hessian_rows(model)
        weight = self._by_sample(p)
        if model.outputs > 1:
            found = self._softmax(weight, rows)
            if S is not None:
                found += self._spread(S, g, rows)
            return found
        weight = weight * self.bends
        if S is None:
            return gram(model.X, weight, rows)
        if not model.alone:
            return gram(model.X, weight, rows) + self._spread(S, g, rows)
        # One choice of samples for both parts: the second is then a covariance, and so >= 0.
        slopes = self.slopes[:, 0]
        both = weight + S * slopes**2
        chosen, counts = sample(both, rows)
        times = np.divide(counts, both[chosen], out=np.zeros(chosen.size), where=both[chosen] > 0.0)
        X = model.X[chosen]
        found = gram(X, counts, chosen.size)
        for ray, size in _rays(times * S[chosen], None if g is None else g[chosen]):
            along = ray * slopes[chosen]
            moved = np.append(X.T @ along, along.sum())
            found -= np.outer(moved, moved) / size
        return found

    def _spread(self, S: Array, g: Array | None, rows: int) -> Array:
        """J(S - …)Jᵀ by gradients, of all groups or of samples that stand for all."""
        model = self.model
        if model.alone:
            size = S * (self.slopes**2).sum(axis=1)
            chosen, counts = sample(size, rows)
            S = S[chosen] * np.divide(
                counts, size[chosen], out=np.zeros(chosen.size), where=size[chosen] > 0.0
            )
            g = None if g is None else g[chosen]
            X = model.X[chosen]
            ones = np.column_stack([X.toarray() if model.sparse else X, np.ones(chosen.size)])
            J = np.einsum("ij,ic->jci", ones, self.slopes[chosen]).reshape(model.dimension, -1)
        else:
            J = self.jacobian()
        scaled = J * np.sqrt(S)
        found: Array = scaled @ scaled.T
        for ray, size in _rays(S, g):
            moved = J @ ray
            found -= np.outer(moved, moved) / size
        return found

    def _softmax(self, weight: Array, rows: int) -> Array:
        """Σ weight·(diag π - ππᵀ) ⊗ xxᵀ; its blocks of a class add up to 0."""
        model, classes = self.model, self.model.outputs
        chosen, weight = sample(weight, rows)
        pi = self.slopes[chosen]
        pi[np.arange(chosen.size), model.y[chosen].astype(np.intp)] += 1.0
        X, size = model.X[chosen], model.dimension // classes
        found = np.zeros((size, classes, size, classes))
        for a in range(classes):
            for b in range(a):
                block = gram(X, weight * pi[:, a] * pi[:, b], chosen.size)
                found[:, a, :, b] -= block
                found[:, b, :, a] -= block
                found[:, a, :, a] += block
                found[:, b, :, b] += block
        return found.reshape(model.dimension, model.dimension)


def hessian_rows(model: Grouped) -> int:
    """How many samples stand for all others."""
    return max(ROWS, int(PER_DIMENSION * model.dimension // model.outputs))


def _rays(S: Array, g: Array | None) -> Iterator[tuple[Array, float]]:
    """S1 and S g with what they are divided by, g centred: nothing of S is along 1 and g then."""
    total = float(S.sum())
    if total > 0.0:
        yield S, total
        if g is not None:
            g = g - float(S @ g) / total
            size = float(S @ g**2)
            if size > 1e-13 * float(S @ np.abs(g)) * float(np.abs(g).max(initial=0.0)):
                yield S * g, size


def sample(weight: Array, rows: int) -> tuple[Any, Array]:
    """About `rows` places in proportion to their weights, and what each then counts; or all.

    >>> sample(np.array([1.0, 0.0, 2.0, 1.0]), 2)
    (array([0, 2]), array([2., 2.]))
    """
    if weight.size <= rows:
        return np.arange(weight.size), weight
    along = np.cumsum(weight)
    step = along[-1] / rows
    chosen = np.searchsorted(along, (np.arange(rows) + 0.5) * step)
    return np.minimum(chosen, weight.size - 1), np.full(rows, step)


def gram(X: Any, weight: Array, rows: int) -> Array:
    """[X 1]ᵀ diag(weight) [X 1], from about `rows` samples; weights are >= 0."""
    size = X.shape[1] + 1
    found = np.zeros((size, size))
    chosen, weight = sample(weight, rows)
    root = np.sqrt(weight)
    whole = chosen.size == X.shape[0]
    for first in range(0, chosen.size, BLOCK):
        part = slice(first, first + BLOCK)
        taken = X[part] if whole else X[chosen[part]]
        dense = taken.toarray() if hasattr(taken, "toarray") else taken
        scaled = np.empty((len(dense), size))
        np.multiply(dense, root[part, None], out=scaled[:, :-1])
        scaled[:, -1] = root[part]
        found += scaled.T @ scaled
    return found
