"""What the scikit-learn estimators share: settings, groups, prior, set, and the solvers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fdro_core.aspire.algorithm import AspireEase
from fdro_core.errors import InvalidSetting
from fdro_core.estimators import central
from fdro_core.estimators.grouped import Grouped
from fdro_core.estimators.named_set import build_set
from fdro_core.estimators.scikit import BaseEstimator, ConvergenceWarning
from fdro_core.solving import solve
from uncertainty_sets.arrays import Array

SOLVERS = ("central", "aspire-ease")


class RobustEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A linear model for the worst distribution over groups of samples."""

    def __init__(  # noqa: PLR0913 - scikit-learn wants every setting as an argument of its own
        self,
        uncertainty_set: Any = "cd-norm",
        *,
        budget: float | None = None,
        spread: ArrayLike | None = None,
        radius: float | None = None,
        set_parameters: Mapping[str, Any] | None = None,
        prior: Any = "samples",
        l2: float = 1e-3,
        tolerance: float = 1e-4,
        steps: int | None = None,
        solver: str = "central",
        seed: int = 0,
    ) -> None:
        self.uncertainty_set = uncertainty_set
        self.budget = budget
        self.spread = spread
        self.radius = radius
        self.set_parameters = set_parameters
        self.prior = prior
        self.l2 = l2
        self.tolerance = tolerance
        self.steps = steps
        self.solver = solver
        self.seed = seed

    def _check_settings(self) -> None:
        if self.solver not in SOLVERS:
            raise InvalidSetting(
                f"solver must be one of {', '.join(map(repr, SOLVERS))}, got {self.solver!r}"
            )
        l2: Any = self.l2  # users may pass any type
        tolerance: Any = self.tolerance
        steps: Any = self.steps
        if not (isinstance(l2, Real) and 0.0 <= float(l2) < np.inf):
            raise InvalidSetting(f"l2 must be a number >= 0, got {self.l2!r}")
        if not (isinstance(tolerance, Real) and float(tolerance) > 0.0):
            raise InvalidSetting(f"tolerance must be a number > 0, got {self.tolerance!r}")
        if steps is not None and not (isinstance(steps, Integral) and int(steps) >= 1):
            raise InvalidSetting(
                f"steps must be a whole number, at least 1, or None for the default, got {self.steps!r}"
            )

    def _center(self, sizes: NDArray[np.intp]) -> Array:
        """The centre q that `prior` describes."""
        if isinstance(self.prior, str):
            if self.prior not in {"samples", "uniform"}:
                raise InvalidSetting(
                    "prior must be 'samples', 'uniform', a number for each group or a mapping, "
                    f"got {self.prior!r}"
                )
            given = sizes if self.prior == "samples" else np.ones(sizes.size)
        elif isinstance(self.prior, Mapping):
            missing = [group for group in self.groups_.tolist() if group not in self.prior]
            if missing:
                raise InvalidSetting(f"prior has no entry for group {missing[0]!r}")
            given = np.array([self.prior[group] for group in self.groups_.tolist()])
        else:
            given = np.asarray(self.prior)
        q = np.asarray(given, dtype=np.float64)
        if q.shape != sizes.shape or not np.isfinite(q).all() or (q < 0).any() or not q.any():
            raise InvalidSetting(
                f"prior must be {sizes.size} numbers >= 0, one for each group and not all 0, "
                f"got {self.prior!r}"
            )
        normed: Array = q / q.sum()
        return normed

    def _index(self, groups: Any, samples: int) -> NDArray[np.intp]:
        """Set the groups, their prior and the set; return each sample's place among the groups."""
        self.groups_, group = index_groups(groups, samples)
        self.prior_ = self._center(np.bincount(group))
        named = {"budget": self.budget, "spread": self.spread, "radius": self.radius}
        self.uncertainty_set_ = build_set(self.uncertainty_set, self.prior_, named, self.set_parameters)
        return group

    def _solve(
        self,
        problem: Grouped,
        l2: float,
        worker: Callable[[Array, NDArray[Any]], Any],
        unit: float = 1.0,
        minimise: Callable[..., central.Optimum] = central.minimise,
    ) -> Array:
        """Return the solution w, and set what describes it.

        Args:
            problem: all samples.
            l2: its ridge.
            worker: makes a local problem for the driver from a group's samples.
            unit: what a loss of 1 in `problem` is in the user's units.
            minimise: the solver if solver="central".
        """
        if self.solver == "central":
            steps = 2000 if self.steps is None else self.steps
            found = minimise(problem, self.uncertainty_set_, l2, self.tolerance, steps)
            if not found.converged:
                warnings.warn(
                    f"{type(self).__name__} stopped after {found.evaluations} passes with a gap of "
                    f"{unit * found.gap:.2g}; the tolerance is {self.tolerance:g}; scale the features "
                    "(StandardScaler), raise steps or l2",
                    ConvergenceWarning,
                    stacklevel=3,
                )
            w, losses, weights = found.w, found.losses, found.weights
            gap, self.n_iter_ = found.gap, found.evaluations
        else:
            X = problem.X.toarray() if hasattr(problem.X, "toarray") else problem.X
            rows = [np.flatnonzero(problem.group == g) for g in range(problem.sizes.size)]
            workers = [worker(X[of], problem.y[of]) for of in rows]
            config = AspireEase(iterations=self.steps, seed=self.seed)
            result = solve(workers, self.uncertainty_set_, algorithm=config)
            w, weights = result.w, result.weights
            losses, _ = problem.evaluate(w)
            gap, self.n_iter_ = result.gap, result.iterations
        self.weights_, self.gap_ = weights, unit * gap
        self.group_losses_ = unit * losses
        self.worst_case_ = self.uncertainty_set_.worst_case(self.group_losses_)
        self.objective_ = float(self.worst_case_.value) + unit * 0.5 * l2 * float(w @ w)
        return w

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def index_groups(groups: Any, samples: int) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The groups, sorted, and each sample's place among them."""
    if groups is None:
        return np.arange(samples), np.arange(samples)
    labels = np.asarray(groups)
    if labels.shape != (samples,):
        raise ValueError(f"groups must have one entry for each of the {samples} samples, got {labels.shape}")
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError("groups must not hold NaN; give samples without a group one of their own")
    try:
        names, index = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise ValueError(f"groups must be of one type that can be sorted: {error}") from error
    return names, index
