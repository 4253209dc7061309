"""The scikit-learn classifier: fits by `central`, or by ASPIRE-EASE with one worker per group."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fdro_core.aspire.algorithm import AspireEase
from fdro_core.errors import InvalidSetting
from fdro_core.estimators import central
from fdro_core.estimators.grouped import GroupedSoftmax
from fdro_core.estimators.named_set import build_set
from fdro_core.problems.softmax import SoftmaxRegression
from fdro_core.solving import solve
from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import BackendMissing

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import accuracy_score
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise BackendMissing(
        'fdro_core.sklearn needs scikit-learn 1.6 or newer: pip install "fdro[sklearn]"'
    ) from error


__all__ = ["RobustClassifier", "worst_group_accuracy"]

SOLVERS = ("central", "aspire-ease")


class RobustClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Softmax regression for the worst distribution over groups of samples.

    Minimises max over p in P of Σ_g p_g f_g(w) + l2/2·‖w‖², where f_g is the mean cross-entropy of group g
    and P an uncertainty set around the prior q. The set may be given by name, with its parameters by the
    arguments below. Parameters not given are taken relative to q, so that they fit any number of groups:

    - `spread` (CD-norm) is q: a weight may double or vanish; `budget` is half the number of groups;
    - `radius` (KL, ellipsoid, Wasserstein-1) is 0.1; `shape` (ellipsoid) is q: the χ² ball;
    - `lower`, `upper` (box) are q/2 and 2q;
    - a polyhedron needs `set_parameters={"D": …, "c": …}`.

    A radius or budget of 0 is ordinary softmax regression.

    Args:
        uncertainty_set: a name from `available_sets()`, a subclass of `UncertaintySet`, or a set with as
            many entries as there are groups, in sorted order of the groups.
        budget, spread, radius: the set's parameters of that name.
        set_parameters: any of the set's parameters by name.
        prior: the centre q. "samples": a group's share of the samples; "uniform"; one number per group in
            sorted order; or a mapping from group to number. Numbers are divided by their sum.
        l2: the ridge, on bias and weights.
        tolerance: of the objective, relative to max(1, objective); see `gap_`.
        steps: the most passes over the data ("central"; None: 2,000), or master iterations ("aspire-ease";
            None: the driver's own rule).
        solver: "central" sees all data at once: L-BFGS and the method of multipliers, to a proven gap.
            "aspire-ease" runs the federated driver, one worker per group, on a virtual clock.
        seed: of the driver's delays and starting point; "central" uses no random numbers.

    Attributes:
        classes_: the labels, sorted.
        coef_, intercept_: as scikit-learn's `LogisticRegression` has them.
        groups_: the groups, sorted; without groups the indices of the samples.
        prior_: q.
        uncertainty_set_: the set.
        group_losses_: f_g at the solution.
        worst_case_: the set's answer at those losses, with its proof.
        objective_: the worst expected loss with the ridge.
        gap_: a proven bound on how far `objective_` is above the minimum; infinite for l2 = 0, and with
            "aspire-ease" if the driver has no such proof (`Result.gap`).
        n_iter_: passes over the data, or master iterations.
    """

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

    def fit(self, X: Any, y: Any, groups: Any = None) -> RobustClassifier:
        """Train on X (samples, features), dense or sparse, labels y and the samples' groups.

        Without groups every sample is its own group, and the set says which samples may count more.
        """
        self._check_settings()
        X, y = validate_data(self, X, y, dtype=np.float64, accept_sparse="csr", order="C")
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"RobustClassifier needs samples of at least 2 classes, got one class: {self.classes_[0]!r}"
            )
        self.groups_, group = _index_groups(groups, len(labels))
        problem = GroupedSoftmax(X, labels, group, len(self.classes_), float(self.l2))
        self.prior_ = self._prior(problem.sizes)
        named = {"budget": self.budget, "spread": self.spread, "radius": self.radius}
        self.uncertainty_set_ = build_set(self.uncertainty_set, self.prior_, named, self.set_parameters)
        w = self._solve_central(problem) if self.solver == "central" else self._solve_driver(problem)
        matrix = w.reshape(-1, len(self.classes_)).T
        if len(self.classes_) == 2:
            matrix = matrix[1:] - matrix[:1]
        self.coef_, self.intercept_ = matrix[:, :-1].copy(), matrix[:, -1].copy()
        return self

    def decision_function(self, X: Any) -> Array:
        """Scores, (samples, classes); for two classes the second's score above the first's, (samples,)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, accept_sparse="csr", reset=False)
        scores: Array = np.asarray(X @ self.coef_.T) + self.intercept_
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of each sample."""
        scores = self.decision_function(X)
        best = (scores > 0.0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[best]
        return labels

    def predict_proba(self, X: Any) -> Array:
        """Each label's probability, (samples, classes) in the order of `classes_`."""
        from scipy.special import expit, softmax

        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        probabilities: Array = softmax(scores, axis=1)
        return probabilities

    def predict_log_proba(self, X: Any) -> Array:
        """The logarithm of `predict_proba`, exact even if that is 0 in floating point."""
        from scipy.special import log_expit, log_softmax

        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([log_expit(-scores), log_expit(scores)])
        logs: Array = log_softmax(scores, axis=1)
        return logs

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

    def _prior(self, sizes: NDArray[np.intp]) -> Array:
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

    def _solve_central(self, problem: GroupedSoftmax) -> Array:
        steps = 2000 if self.steps is None else self.steps
        found = central.minimise(problem, self.uncertainty_set_, float(self.l2), self.tolerance, steps)
        if not found.converged:
            warnings.warn(
                f"RobustClassifier stopped after {found.evaluations} passes with a gap of {found.gap:.2g}; "
                f"the tolerance is {self.tolerance:g}; scale the features (StandardScaler), raise steps "
                "or l2",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.gap_, self.n_iter_ = found.gap, found.evaluations
        self._keep(found.losses, found.worst_case, found.w)
        return found.w

    def _solve_driver(self, problem: GroupedSoftmax) -> Array:
        X = problem.X.toarray() if hasattr(problem.X, "toarray") else problem.X
        workers = [
            SoftmaxRegression(X[rows], problem.y[rows], problem.classes, self.l2, intercept=True)
            for rows in (np.flatnonzero(problem.group == g) for g in range(problem.sizes.size))
        ]
        config = AspireEase(iterations=self.steps, seed=self.seed)
        result = solve(workers, self.uncertainty_set_, algorithm=config)
        losses, _ = problem.evaluate(result.w)
        self.gap_, self.n_iter_ = result.gap, result.iterations
        self._keep(losses, self.uncertainty_set_.worst_case(losses), result.w)
        return result.w

    def _keep(self, losses: Array, worst_case: Any, w: Array) -> None:
        self.group_losses_, self.worst_case_ = losses, worst_case
        self.objective_ = float(worst_case.value) + 0.5 * self.l2 * float(w @ w)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def worst_group_accuracy(y_true: ArrayLike, y_pred: ArrayLike, *, groups: ArrayLike) -> float:
    """The lowest accuracy among the groups: a metric for `make_scorer(…).set_score_request(groups=True)`.

    >>> worst_group_accuracy([0, 1, 0, 1], [0, 1, 1, 1], groups=["a", "a", "b", "b"])
    0.5
    """
    true, predicted = np.asarray(y_true), np.asarray(y_pred)
    names, group = _index_groups(groups, true.size)
    return min(float(accuracy_score(true[group == g], predicted[group == g])) for g in range(len(names)))


def _index_groups(groups: Any, samples: int) -> tuple[NDArray[Any], NDArray[np.intp]]:
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
