"""The scikit-learn classifier: fits by `central`, or by the federated driver with one worker per group."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fdro_core.errors import EstimatorWarning, InvalidSetting
from fdro_core.estimators import central
from fdro_core.estimators.estimator import (
    ClassifierMixin,
    RobustEstimator,
    accuracy_score,
    check_classification_targets,
    check_is_fitted,
    compute_sample_weight,
    validate_data,
)
from fdro_core.estimators.groups import GroupedSoftmax, index_groups
from fdro_core.problems.softmax import SoftmaxRegression
from fdro_core.result import wilson
from uncertainty_sets import KL
from uncertainty_sets.arrays import Array

__all__ = ["RobustClassifier", "worst_group_accuracy"]

FLAT = 0.1  # deviation of the log-odds over the samples below which a model is nearly constant
LOST = 0.1  # training accuracy that ordinary training has above a nearly constant model's, for a warning


@dataclass(repr=False, eq=False)
class RobustClassifier(ClassifierMixin, RobustEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Softmax regression for the worst distribution over groups of samples.

    Minimises max over p in P of Σ_g p_g f_g(w) + l2/2·‖w‖², where f_g is the mean cross-entropy of group g
    and P an uncertainty set around the prior q, by default the KL ball of radius 0.3. The set may be given by
    name, with its parameters by the arguments below. Parameters not given fit any number of groups:

    - `radius` is 0.3 for KL; for other sets that have one it is 0.1, for Wasserstein up to 1;
    - `spread` (CD-norm) is q: a weight may double or vanish; `budget` is half the number of groups;
    - `shape` (ellipsoid) is q: the χ² ball;
    - `lower`, `upper` (box) are q/2 and 2q; `tail` (CVaR) is 0.5;
    - a polyhedron needs `set_parameters={"D": …, "c": …}`.

    A radius or budget of 0 is ordinary softmax regression. radius="cv" takes the size whose worst group has
    the best accuracy in five-fold cross-validation, 0 among them.

    Args:
        uncertainty_set: a name from `available_sets()`, a subclass of `UncertaintySet`, or a set with as
            many entries as there are groups, in sorted order of the groups. None: KL, or CD-norm if budget
            or spread is given.
        budget, spread, radius: the set's parameters of that name; radius may be "cv".
        set_parameters: any of the set's parameters by name.
        prior: the centre q. "samples": a group's share of the samples; "uniform"; one number per group in
            sorted order; or a mapping from group to number. Numbers are divided by their sum.
        class_weight: "balanced", or a mapping from label to weight: multiplies the samples' weights.
        l2: the ridge, on bias and weights.
        tolerance: of the objective, relative to max(1, objective); see `gap_`.
        steps: the most passes over the data ("central"; None: 2,000), or master iterations ("aspire-models";
            None: the driver's own rule).
        solver: "central" sees all data at once: L-BFGS and the method of multipliers, to a proven gap.
            "aspire-models" runs the federated driver, one worker per group, on a virtual clock.
        seed: of the driver's delays and starting point; "central" uses no random numbers.

    Attributes:
        classes_: the labels, sorted.
        coef_, intercept_: as scikit-learn's `LogisticRegression` has them.
        groups_: the groups, sorted; without groups the indices of the samples.
        group_sizes_: the samples of each.
        worst_group_: the one with the largest loss.
        prior_: q.
        uncertainty_set_: the set.
        group_losses_: f_g at the solution.
        group_accuracies_: the accuracy of each group in training.
        worst_case_: the set's answer at those losses, with its proof.
        weights_: the groups' weights that trained the model, the distribution of the saddle point; the
            worst case at the solution need not be unique, and `worst_case_.p` is one of them.
        objective_: the worst expected loss with the ridge.
        gap_: a proven bound on how far `objective_` is above the minimum; infinite for l2 = 0, and with
            "aspire-models" if the driver has no such proof (`Result.gap`).
        n_iter_: passes over the data, or master iterations.
        cross_validation_: with radius="cv", the `radii` tried and every group's held-out accuracy (`scores`).

    At the small site the second feature has the opposite effect. The mean serves the large one:

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 2))
    >>> site = np.repeat(["large", "small"], [800, 200])
    >>> y = np.where(X[:, 0] + np.where(site == "large", 1, -1) * X[:, 1] > 0, "yes", "no")
    >>> RobustClassifier(radius=0.0).fit(X, y, groups=site).group_accuracies_.round(2)
    array([0.91, 0.65])
    >>> RobustClassifier().fit(X, y, groups=site).group_accuracies_.round(2)
    array([0.78, 0.79])
    """

    _: KW_ONLY
    class_weight: Any = None

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> RobustClassifier:
        """Train on X (samples, features), dense or sparse, labels y and the samples' groups.

        Without groups every sample is its own group, and the set says which samples may count more. Weights
        of samples count within their group, and in the prior "samples".
        """
        self._check_settings()
        X, y = validate_data(self, X, y, dtype=np.float64, accept_sparse="csr", order="C")
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(
                f"RobustClassifier needs samples of at least 2 classes, got one class: {self.classes_[0]!r}"
            )
        weight = self._weights(sample_weight, X)
        if self.class_weight is not None:
            by_class = compute_sample_weight(self.class_weight, y)
            bad = np.flatnonzero(~((by_class > 0.0) & (by_class < np.inf)))
            if bad.size:
                raise InvalidSetting(
                    f"class_weight must be a finite number > 0 for each class, got {by_class[bad[0]]:g} for "
                    f"class {y[bad[0]]!r}; leave out the samples of a class that should not count"
                )
            weight = by_class if weight is None else weight * by_class
        X, y, group, weight = self._arrange(X, y, groups, weight)
        labels = np.searchsorted(self.classes_, y)
        classes = len(self.classes_)
        problem = GroupedSoftmax(X, labels, group, classes, float(self.l2), weight)

        def worker(X: Array, y: NDArray[Any]) -> SoftmaxRegression:
            return SoftmaxRegression(X, y, classes, self.l2, intercept=True)

        w = self._solve(problem, float(self.l2), worker)
        scores = problem.scores(w)
        right = scores.argmax(axis=1) == labels
        self.group_accuracies_ = problem.means(right.astype(np.float64))
        self._warn_if_flat(problem, scores, float(right.mean()))
        matrix = problem.columns(w).T
        if len(self.classes_) == 2:
            matrix = matrix[1:] - matrix[:1]
        self.coef_, self.intercept_ = matrix[:, :-1].copy(), matrix[:, -1].copy()
        return self

    def _warn_if_flat(self, problem: GroupedSoftmax, scores: Array, accuracy: float) -> None:
        """Warn if the model is nearly constant and ordinary training on the same data is not."""
        if float((scores - scores[:, :1]).std(axis=0).max()) > FLAT:
            return
        plain = central.minimise(problem, KL(self.prior_, 0.0), float(self.l2), 1e-2, 200)
        usual = float((problem.scores(plain.w).argmax(axis=1) == problem.labels).mean())
        if usual > accuracy + LOST:
            warnings.warn(
                "the model predicts nearly the same for all samples: the worst case puts its weight on "
                f"{'samples' if problem.sizes.max() == 1 else 'groups'} that no model of this kind fits, as "
                f"those with wrong labels; accuracy in training is {accuracy:.0%}, and {usual:.0%} with "
                "radius or budget 0; choose a smaller set, or groups",
                EstimatorWarning,
                stacklevel=3,
            )

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

    def _goodness(self, y: NDArray[Any], predicted: NDArray[Any]) -> Array:
        right: Array = (y == predicted).astype(np.float64)
        return right

    def _score_name(self) -> str:
        return "accuracy"

    def _shown(self, goodness: Array) -> Array:
        return goodness

    def _training_columns(self) -> dict[str, list[Any]]:
        return {"training accuracy": self.group_accuracies_.tolist()}

    def _test_columns(self, goodness: list[Array]) -> dict[str, list[Any]]:
        columns = super()._test_columns(goodness)
        low, high = wilson(columns["accuracy"], columns["new samples"])
        columns["95 % interval"] = list(zip(low.tolist(), high.tolist(), strict=True))
        return columns


def worst_group_accuracy(y_true: ArrayLike, y_pred: ArrayLike, *, groups: ArrayLike) -> float:
    """The lowest accuracy among the groups: a metric for `make_scorer(…).set_score_request(groups=True)`.

    >>> worst_group_accuracy([0, 1, 0, 1], [0, 1, 1, 1], groups=["a", "a", "b", "b"])
    0.5
    """
    true, predicted = np.asarray(y_true), np.asarray(y_pred)
    names, group = index_groups(groups, true.size)
    return min(float(accuracy_score(true[group == g], predicted[group == g])) for g in range(len(names)))
