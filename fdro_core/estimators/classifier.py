"""The scikit-learn classifier: fits by `central`, or by the federated driver with one worker per group."""

from __future__ import annotations

import warnings
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fdro_core.errors import EstimatorWarning, InvalidSetting
from fdro_core.estimators import diagnosis
from fdro_core.estimators.estimator import RobustEstimator
from fdro_core.estimators.groups import GroupedSoftmax
from fdro_core.estimators.held_out import ERRORS, Measured
from fdro_core.estimators.labels import index_groups, take_columns, warn_of_order
from fdro_core.estimators.pooling import Task
from fdro_core.estimators.settings import (
    ClassifierMixin,
    accuracy_score,
    check_classification_targets,
    compute_sample_weight,
    threadpool_limits,
)
from fdro_core.problems.softmax import SoftmaxRegression
from fdro_core.result import wilson
from uncertainty_sets import KL
from uncertainty_sets.arrays import Array

__all__ = ["RobustClassifier", "worst_group_accuracy"]

FLAT = 0.1  # deviation of the log-odds over the samples below which a model is nearly constant
LOST = 0.1  # training accuracy that ordinary training has above a nearly constant model's, for a warning
PAID = 0.01  # training accuracy that ordinary training must have above a robust model's, for a warning
CHANCE = 0.01  # of a warning, over all groups, that the worst one does worse than a constant


class RobustClassifier(ClassifierMixin, RobustEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Softmax regression for the worst distribution over groups of samples.

    Minimises max over p in P of Σ_g p_g f_g(w) + l2/2·‖w‖², where f_g is the mean cross-entropy of group g
    and P an uncertainty set around the prior q, by default the KL ball of radius 0.3. The set may be given by
    name, with its parameters by their names: `RobustClassifier("cvar", tail=0.2)`. Parameters not given fit
    any number of groups, and `summary()` names them:

    - `radius` is 0.3 for KL; for other sets that have one it is 0.1, for Wasserstein up to 1;
    - `spread` (CD-norm) is q: a weight may double or vanish; `budget` is half the number of groups;
    - `shape` (ellipsoid) is q: the χ² ball;
    - `lower`, `upper` (box) are q/2 and 2q; `tail` (CVaR) is 0.5;
    - a polyhedron needs `D` and `c`.

    A radius or budget of 0 is ordinary softmax regression. radius="cv" takes the size whose worst group has
    the best accuracy in five-fold cross-validation, 0 among them.

    interactions="groups" gives each group coefficients w + v_g, with the ridge l2/2·(‖w‖² + Σ_g ‖v_g‖²/s²)
    for the pooling s; `predict(X, groups=...)` then needs the groups.

    A fit with "cv" compares the model on held-out folds with simpler ones and with coefficients by group
    (`summary()`), and warns if a set over groups is not the remedy.

    Args:
        uncertainty_set: a name from `available_sets()`, a subclass of `UncertaintySet`, or a set with as
            many entries as there are groups, in sorted order of the groups. None: KL, or CD-norm if budget
            or spread is given.
        radius: the set's size, or "cv".
        interactions: "groups" for coefficients by group; None for shared ones.
        pooling: s >= 0; 0 is one shared model, and as s grows the groups have less in common. "cv": the one
            with the lowest robust loss on held-out folds, and 0 unless that gains more than chance.
        prior: the centre q. "samples": a group's share of the samples; "uniform"; one number per group in
            sorted order; or a mapping from group to number. Numbers are divided by their sum.
        class_weight: "balanced", or a mapping from label to weight: multiplies the samples' weights.
        l2: the ridge, on bias and weights.
        tolerance: of the objective, relative to max(1, objective); see `gap_`.
        steps: the most passes over the data ("central"; None: 2,000), or master iterations ("aspire-models";
            None: the driver's own rule).
        solver: "central" sees all data at once, to a proven gap; cross-validation uses it always.
            "aspire-models" runs the federated driver, one worker per group, on a virtual clock.
        warm_start: whether fit begins at the coefficients of the last one ("central").
        verbose: 1 prints a line of progress for each second of training ("central"), 2 for each pass.
        seed: of the folds, and of the driver's delays and starting point.
        **parameters: the set's parameters, by name.

    Attributes:
        classes_: the labels, sorted.
        coef_, intercept_: as scikit-learn's `LogisticRegression` has them; the shared ones.
        group_coef_, group_intercept_: with interactions, those of each group, its own part included.
        pooling_: s; 0 without interactions.
        groups_: the groups, sorted; without groups the indices of the samples; tuples for several columns.
        group_columns_: the columns of X that the groups were taken from.
        group_sizes_: the samples of each.
        worst_group_: the one with the largest loss.
        prior_: q.
        uncertainty_set_: the set.
        not_given_: those of its parameters that have their default.
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
        pooling_cross_validation_: with pooling="cv", the `poolings` tried and their held-out losses.
        comparison_: with "cv", the models of `summary()` on held-out folds, and the test of coefficients by
            group (`own`).
        ceiling_: with "cv", the least worst-group loss that any shared model can have.

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

    __metadata_request__predict_proba = {"groups": True}  # noqa: RUF012  # as RobustEstimator has them
    __metadata_request__predict_log_proba = {"groups": True}  # noqa: RUF012
    __metadata_request__decision_function = {"groups": True}  # noqa: RUF012

    def __init__(  # noqa: PLR0913  # the settings, each by its name
        self,
        uncertainty_set: Any = None,
        *,
        radius: float | str | None = None,
        interactions: str | None = None,
        pooling: float | str = "cv",
        prior: Any = "samples",
        class_weight: Any = None,
        l2: float = 1e-3,
        tolerance: float = 1e-4,
        steps: int | None = None,
        solver: str = "central",
        warm_start: bool = False,
        verbose: int = 0,
        seed: int = 0,
        **parameters: Any,
    ) -> None:
        super().__init__(
            uncertainty_set,
            radius=radius,
            interactions=interactions,
            pooling=pooling,
            prior=prior,
            l2=l2,
            tolerance=tolerance,
            steps=steps,
            solver=solver,
            warm_start=warm_start,
            verbose=verbose,
            seed=seed,
            **parameters,
        )
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> RobustClassifier:
        """Train on X (samples, features), dense or sparse, labels y and the samples' groups.

        `groups` has one entry for each sample, or several (tuples, or a table of columns), or names one or
        more columns of X, a pandas or polars table; these columns are then no features. Without groups every
        sample is its own group, and the set says which samples may count more. Weights of samples count
        within their group, and in the prior "samples".
        """
        self._check_settings()
        warn_of_order(X, 2, y=y, groups=groups)
        X, groups, self.group_columns_ = take_columns(X, groups)
        X, y = self._validated(X, y, order="C")
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(
                "RobustClassifier needs samples of at least 2 classes, got one class: "
                f"{self.classes_.tolist()[0]!r}"
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
        with threadpool_limits(1, "blas"):  # in small products more threads only wait
            task, model = self._train(X, labels, group, weight, self._worker)
            right = _label(model.scores(X, group)) == labels
            self.group_accuracies_ = task.problem.means(right.astype(np.float64))
            if self.pooling_ == 0.0:
                self._warn_if_lost(task, model.scores(X, group), right, labels, group)
        self.coef_, self.intercept_ = _as_scikit_learn(model.shared)
        self.group_coef_: Any = None
        self.group_intercept_: Any = None
        if self.interactions is not None:
            own = [_as_scikit_learn(each) for each in model.by_group(len(self.groups_))]
            self.group_coef_, self.group_intercept_ = (np.array(each) for each in zip(*own, strict=True))
        return self

    def _task(
        self,
        X: Any,
        y: NDArray[Any],
        group: NDArray[np.intp],
        weight: Array | None,
        prior: Array,
        pooling: float,
    ) -> Task:
        l2 = float(self.l2)

        def make(columns: Any) -> GroupedSoftmax:
            return GroupedSoftmax(columns, y, group, len(self.classes_), l2, weight)

        return Task(X, group, prior.size, pooling, make, l2)

    def _worker(self, task: Task, X: Array, y: NDArray[Any]) -> SoftmaxRegression:
        return SoftmaxRegression(X, y, len(self.classes_), self.l2, intercept=True)

    def _measure(self, task: Task, scores: Array, y: NDArray[Any]) -> tuple[Array, Array]:
        right = (_label(scores) == y).astype(np.float64)
        from scipy.special import log_softmax

        return -log_softmax(scores, axis=1)[np.arange(y.size), y], right

    def _constant(self, y: NDArray[Any], share: Array, tested: NDArray[Any]) -> tuple[Array, Array]:
        shares = np.bincount(y, weights=share, minlength=len(self.classes_))
        loss = -np.log(np.maximum(shares, 1.0 / (y.size + 1.0)))[tested]
        return loss, (tested == shares.argmax()).astype(np.float64)

    def _row(self, mean: Array, square: Array, count: Array) -> tuple[Array, Array, Array]:
        return mean, *wilson(mean, count)

    def _goodness(self, found: Measured) -> Array:
        return found.score

    def _warn_if_lost(
        self, task: Task, scores: Array, right: NDArray[np.bool_], y: NDArray[Any], group: NDArray[np.intp]
    ) -> None:
        """Warn, by the training data, of a model that a constant would replace.

        Either it is nearly a constant and ordinary training is not; or it is no better than one in its worst
        group, and worse there or ordinary training better overall, by more than chance.
        """
        problem, names = task.problem, self.groups_.tolist()
        flat = float((scores - scores[:, :1]).std(axis=0).max()) <= FLAT
        worst, alone = int(np.argmin(self.group_accuracies_)), problem.sizes.max() == 1
        constant = y == np.bincount(y, weights=problem.weight).argmax()
        _, high = wilson(self.group_accuracies_[worst], problem.sizes[worst])
        share = problem.means(constant.astype(np.float64))[worst]
        if not flat and (
            alone or self.comparison_ is not None or not diagnosis.no_better(0.0, float(high), share)
        ):
            return
        plain = task.decode(task.minimise(KL(self.prior_, 0.0), 1e-2, 200).w)
        usual = _label(plain.scores(problem.X, group)) == y
        before = f"accuracy in training is {right.mean():.1%}, and {usual.mean():.1%} with radius or budget 0"
        if flat:
            if usual.mean() <= right.mean() + LOST:
                return
            who, remedy = ("samples", "") if alone else ("groups", f"; {diagnosis.REMEDY}")
            message = (
                "the model predicts nearly the same for all samples: the worst case puts its weight on "
                f"{who} that no model of this kind fits, as those with wrong labels; {before}; choose a "
                f"smaller set, or groups{remedy}"
            )
        else:
            weight = np.ones(y.size) if problem.weight is None else problem.weight
            gain = usual.astype(np.float64) - right
            pays = gain.mean() > PAID and diagnosis.above_chance(gain, weight, ERRORS)
            chance = NormalDist().inv_cdf(1.0 - CHANCE / len(names))
            worse = diagnosis.above_chance(
                constant.astype(np.float64) - right, weight * (group == worst), chance
            )
            if not (pays or worse):
                return
            message = (
                f"in group {names[worst]!r} the model is {'worse' if worse else 'no better'} than a "
                f"constant: accuracy there is {self.group_accuracies_[worst]:.1%} in training, a constant's "
                f"{share:.1%}; over all samples {before}; {diagnosis.REMEDY}; radius='cv' compares them on "
                "held-out folds"
            )
        warnings.warn(message, EstimatorWarning, stacklevel=3)

    def decision_function(self, X: Any, groups: Any = None) -> Array:
        """Scores, (samples, classes); for two classes the second's score above the first's, (samples,).

        With interactions the groups' own coefficients are used, and the shared ones for a group that was
        not in training.
        """
        X, place = self._read(X, groups)
        scores: Array = np.asarray(X @ self.coef_.T) + self.intercept_
        for g in np.unique(place[place >= 0]):
            rows = np.flatnonzero(place == g)
            scores[rows] = np.asarray(X[rows] @ self.group_coef_[g].T) + self.group_intercept_[g]
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any, groups: Any = None) -> NDArray[Any]:
        """The most probable label of each sample."""
        scores = self.decision_function(X, groups)
        best = (scores > 0.0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[best]
        return labels

    def predict_proba(self, X: Any, groups: Any = None) -> Array:
        """Each label's probability, (samples, classes) in the order of `classes_`."""
        from scipy.special import expit, softmax

        scores = self.decision_function(X, groups)
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        probabilities: Array = softmax(scores, axis=1)
        return probabilities

    def predict_log_proba(self, X: Any, groups: Any = None) -> Array:
        """The logarithm of `predict_proba`, exact even if that is 0 in floating point."""
        from scipy.special import log_expit, log_softmax

        scores = self.decision_function(X, groups)
        if scores.ndim == 1:
            return np.column_stack([log_expit(-scores), log_expit(scores)])
        logs: Array = log_softmax(scores, axis=1)
        return logs

    def score(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> float:
        """The accuracy over all samples."""
        return float(accuracy_score(y, self.predict(X, groups), sample_weight=sample_weight))

    def _training_columns(self) -> dict[str, list[Any]]:
        return {"training accuracy": self.group_accuracies_.tolist()}

    def _held_out_column(self, goodness: Array) -> dict[str, list[Any]]:
        return {"cross-validated accuracy": goodness.tolist()}

    def _test_columns(
        self, y: NDArray[Any], predicted: NDArray[Any], rows: list[NDArray[np.intp]]
    ) -> tuple[Array, dict[str, list[Any]]]:
        unseen = sorted(map(repr, {*y.tolist()} - {*self.classes_.tolist()}))
        if unseen:
            known = ", ".join(map(repr, self.classes_.tolist()[:10]))
            raise ValueError(f"new samples have labels that training did not: {unseen[0]}; it had {known}")
        right = y == predicted
        means = np.array([right[of].mean() if of.size else np.nan for of in rows])
        low, high = wilson(means, [of.size for of in rows])
        interval = list(zip(low.tolist(), high.tolist(), strict=True))
        return means, {"accuracy": means.tolist(), "95 % interval": interval}


def _label(scores: Array) -> NDArray[np.intp]:
    """The most probable class."""
    best: NDArray[np.intp] = scores.argmax(axis=1)
    return best


def _as_scikit_learn(model: Array) -> tuple[Array, Array]:
    """Weights (rows, features) and biases (rows,); one row for two classes."""
    matrix = model.T
    if matrix.shape[0] == 2:
        matrix = matrix[1:] - matrix[:1]
    return matrix[:, :-1].copy(), matrix[:, -1].copy()


def worst_group_accuracy(y_true: ArrayLike, y_pred: ArrayLike, groups: ArrayLike) -> float:
    """The lowest accuracy among the groups: a metric for `make_scorer(…).set_score_request(groups=True)`.

    >>> worst_group_accuracy([0, 1, 0, 1], [0, 1, 1, 1], groups=["a", "a", "b", "b"])
    0.5
    """
    true, predicted = np.asarray(y_true), np.asarray(y_pred)
    names, group = index_groups(groups, true.size)
    return min(float(accuracy_score(true[group == g], predicted[group == g])) for g in range(len(names)))
