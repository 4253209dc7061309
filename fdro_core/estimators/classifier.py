"""The scikit-learn classifier: fits by `central`, or by ASPIRE-EASE with one worker per group."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fdro_core.estimators.estimator import RobustEstimator, index_groups
from fdro_core.estimators.grouped import GroupedSoftmax
from fdro_core.estimators.scikit import (
    ClassifierMixin,
    accuracy_score,
    check_classification_targets,
    check_is_fitted,
    validate_data,
)
from fdro_core.problems.softmax import SoftmaxRegression
from uncertainty_sets.arrays import Array

__all__ = ["RobustClassifier", "worst_group_accuracy"]


class RobustClassifier(ClassifierMixin, RobustEstimator):  # type: ignore[misc]  # scikit-learn has no types
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
        weights_: the groups' weights that trained the model, the distribution of the saddle point; the
            worst case at the solution need not be unique, and `worst_case_.p` is one of them.
        objective_: the worst expected loss with the ridge.
        gap_: a proven bound on how far `objective_` is above the minimum; infinite for l2 = 0, and with
            "aspire-ease" if the driver has no such proof (`Result.gap`).
        n_iter_: passes over the data, or master iterations.
    """

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
        group = self._index(groups, len(labels))
        classes = len(self.classes_)
        problem = GroupedSoftmax(X, labels, group, classes, float(self.l2))

        def worker(X: Array, y: NDArray[Any]) -> SoftmaxRegression:
            return SoftmaxRegression(X, y, classes, self.l2, intercept=True)

        w = self._solve(problem, float(self.l2), worker)
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


def worst_group_accuracy(y_true: ArrayLike, y_pred: ArrayLike, *, groups: ArrayLike) -> float:
    """The lowest accuracy among the groups: a metric for `make_scorer(…).set_score_request(groups=True)`.

    >>> worst_group_accuracy([0, 1, 0, 1], [0, 1, 1, 1], groups=["a", "a", "b", "b"])
    0.5
    """
    true, predicted = np.asarray(y_true), np.asarray(y_pred)
    names, group = index_groups(groups, true.size)
    return min(float(accuracy_score(true[group == g], predicted[group == g])) for g in range(len(names)))
