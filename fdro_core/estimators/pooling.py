"""One training problem of an estimator, with shared coefficients or partly pooled ones.

With pooling s > 0 the coefficients of group g are w + v_g, and the ridge is l2/2·(‖w‖² + Σ_g ‖v_g‖²/s²).
With u_g = v_g/s that is the ordinary robust problem on the columns [X, s·1{g}·[X, 1]], so solver and proved
gap stay as they are. s = 0 is one shared model; as s grows, the groups' models have less in common.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.estimators import central
from fdro_core.estimators.groups import Grouped
from uncertainty_sets.arrays import Array


def expand(X: Any, group: NDArray[np.intp], groups: int, pooling: float) -> Any:
    """[X, s·1{group}·[X, 1]] in CSR form; X itself for pooling 0.

    >>> expand(np.array([[2.0], [3.0]]), np.array([0, 1]), 2, 0.5).toarray()
    array([[2. , 1. , 0.5, 0. , 0. ],
           [3. , 0. , 0. , 1.5, 0.5]])
    """
    if pooling == 0.0:
        return X
    from scipy import sparse

    shared = sparse.csr_matrix(X)
    one = sparse.hstack([shared, np.ones((shared.shape[0], 1))], format="csr")
    columns = one.indices + np.repeat(group * one.shape[1], np.diff(one.indptr))
    shape = (one.shape[0], groups * one.shape[1])
    own = sparse.csr_matrix((pooling * one.data, columns, one.indptr), shape=shape)
    return sparse.hstack([shared, own], format="csr")


@dataclass(frozen=True)
class Coefficients:
    """A linear model: `shared` (features + 1, outputs), the bias last, and what each group adds to it.

    Attributes:
        shared: w.
        own: v_g, (groups, features + 1, outputs); None for one shared model.
    """

    shared: Array
    own: Array | None = None

    def scores(self, X: Any, group: NDArray[np.intp]) -> Array:
        """(samples, outputs); a group of -1 has the shared coefficients."""
        found: Array = np.asarray(X @ self.shared[:-1]) + self.shared[-1]
        if self.own is not None:
            for g in np.unique(group[group >= 0]):
                rows = np.flatnonzero(group == g)
                found[rows] += np.asarray(X[rows] @ self.own[g, :-1]) + self.own[g, -1]
        return found

    def by_group(self, groups: int) -> Array:
        """Every group's coefficients, the shared part included: (groups, features + 1, outputs)."""
        found: Array = np.repeat(self.shared[None], groups, axis=0)
        return found if self.own is None else found + self.own

    def scaled(self, factor: float, offset: float = 0.0) -> Coefficients:
        """All coefficients times `factor`, then `offset` added to the shared bias."""
        shared = factor * self.shared
        shared[-1] += offset
        return Coefficients(shared, None if self.own is None else factor * self.own)


class Task:
    """What a fit minimises, in the units of its solver.

    Args:
        X: (samples, features).
        group: 0..groups-1 for each sample.
        groups: how many there are.
        pooling: s.
        make: the problem on columns that take the place of X.
        l2: its ridge.
        minimise: one of `central`'s.
        unit: what a loss of 1 is in the user's units.
        offset, scale: a score of t is offset + scale·t in the user's units.
    """

    def __init__(
        self,
        X: Any,
        group: NDArray[np.intp],
        groups: int,
        pooling: float,
        make: Callable[[Any], Grouped],
        l2: float,
        minimise: Callable[..., central.Optimum] = central.minimise,
        unit: float = 1.0,
        offset: float = 0.0,
        scale: float = 1.0,
    ) -> None:
        self.features, self.groups, self.pooling = X.shape[1], groups, float(pooling)
        self.problem = make(expand(X, group, groups, self.pooling))
        self.l2, self.unit, self.offset, self.scale = l2, unit, offset, scale
        self._minimise = minimise

    @property
    def shape(self) -> tuple[int, int]:
        """Of the shared coefficients: features + 1, scores."""
        return self.features + 1, self.problem.columns(np.zeros(self.problem.dimension)).shape[1]

    def minimise(
        self,
        oracle: Any,
        tolerance: float,
        budget: int,
        start: Coefficients | None = None,
        report: central.Report | None = None,
    ) -> central.Optimum:
        """The optimum, from the user's coefficients `start` if the solver takes a start."""
        given: dict[str, Any] = {"report": report}
        if start is not None and self._minimise is central.minimise:
            given["start"] = self._encode(start)
        return self._minimise(self.problem, oracle, self.l2, tolerance, budget, **given)

    def decode(self, w: Array) -> Coefficients:
        """The user's coefficients."""
        matrix = self.problem.columns(w)
        shared = np.vstack([matrix[: self.features], matrix[-1:]])
        own = None
        if self.pooling:
            shape = self.groups, self.features + 1, matrix.shape[1]
            own = self.pooling * matrix[self.features : -1].reshape(shape)
        return Coefficients(shared, own).scaled(self.scale, self.offset)

    def _encode(self, given: Coefficients) -> Array:
        """The parameters of the user's coefficients; what groups add is lost for pooling 0."""
        shared = given.scaled(1.0 / self.scale, -self.offset / self.scale)
        parts = [shared.shared[:-1]]
        if self.pooling:
            shape = self.groups, *shared.shared.shape
            own = np.zeros(shape) if shared.own is None else shared.own / self.pooling
            parts.append(own.reshape(-1, shape[-1]))
        return self.problem.from_columns(np.concatenate([*parts, shared.shared[-1:]]).ravel())
