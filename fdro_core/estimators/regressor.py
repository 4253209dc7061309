"""The scikit-learn regressor: fits by `central`, or by the federated driver with one worker per group."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.errors import InvalidSetting
from fdro_core.estimators import central
from fdro_core.estimators.estimator import RobustEstimator
from fdro_core.estimators.groups import GroupedRegression
from fdro_core.estimators.held_out import Measured
from fdro_core.estimators.labels import take_columns, warn_of_order
from fdro_core.estimators.pooling import Task
from fdro_core.estimators.settings import RegressorMixin, r2_score, threadpool_limits
from fdro_core.problems.linear import HuberRegression, LeastSquares, absolute, huber, squared
from uncertainty_sets.arrays import Array

__all__ = ["RobustRegressor"]

LOSSES = ("squared", "absolute", "huber")
QUANTILE = 1.96  # of the normal distribution, for 95 % intervals of means


class RobustRegressor(RegressorMixin, RobustEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Linear regression for the worst distribution over groups of samples.

    Minimises max over p in P of Σ_g p_g f_g(w, b) + l2/2·(‖w‖² + (b - m)²), where f_g is the mean loss of
    group g, P an uncertainty set around the prior q, and m the prior's mean target: adding a constant to y
    adds it to the predictions and changes nothing else. The loss of a residual r is

    - "squared": ½r²;
    - "absolute": |r|;
    - "huber": ½r² up to |r| = epsilon, and epsilon·(|r| - epsilon/2) beyond.

    The set, its parameters and their defaults are those of `RobustClassifier`. A radius or budget of 0 is
    ordinary regression with a ridge; radius="cv" takes the size whose worst group has the lowest mean loss in
    five-fold cross-validation.

    Args:
        uncertainty_set: a name from `available_sets()`, a subclass of `UncertaintySet`, or a set with as
            many entries as there are groups, in sorted order of the groups. None: KL, or CD-norm if budget
            or spread is given.
        loss: "squared", "absolute" or "huber".
        epsilon: the residual at which Huber's loss becomes linear, in units of y.
        radius: the set's size, or "cv".
        interactions, pooling: coefficients by group, as `RobustClassifier` has them.
        prior: the centre q, as `RobustClassifier` has it.
        l2: the ridge. With the squared loss, and with Huber's if epsilon changes with y, it does not depend
            on the units of y; with the absolute loss, y in units 10 times smaller needs an l2 10 times
            smaller for the same model.
        tolerance: of the objective, relative to max(u, objective), where u is the variance of y under the
            prior, or its standard deviation for the absolute loss; see `gap_`.
        steps: the most passes over the data ("central"; None: 2,000), or master iterations ("aspire-models";
            None: the driver's own rule).
        solver: "central" sees all data at once, to a proven gap; the kinks of the absolute loss are smoothed
            from below, more finely until the gap to the absolute loss itself is proved. "aspire-models" runs
            the federated driver, one worker per group, on a virtual clock; it takes no absolute loss.
        warm_start: whether fit begins at the last coefficients ("central"; not with the absolute loss).
        verbose: 1 prints a line of progress for each second of training ("central"), 2 for each pass.
        seed: of the folds, and of the driver's delays and starting point.
        **parameters: the set's parameters, by name.

    Attributes:
        coef_, intercept_: as scikit-learn's `Ridge` has them; the shared ones.
        group_coef_, group_intercept_: with interactions, those of each group, its own part included.
        offset_: m.
        groups_: the groups, sorted; without groups the indices of the samples.
        group_sizes_: the samples of each.
        worst_group_: the one with the largest loss.
        prior_: q.
        uncertainty_set_: the set.
        group_losses_: f_g at the solution.
        group_errors_: the root mean squared error of each group in training.
        worst_case_: the set's answer at those losses, with its proof.
        weights_: the groups' weights that trained the model, the distribution of the saddle point; the
            worst case at the solution need not be unique, and `worst_case_.p` is one of them.
        objective_: the worst expected loss with the ridge.
        gap_: a proven bound on how far `objective_` is above the minimum; infinite for l2 = 0, and with
            "aspire-models" if the driver has no such proof (`Result.gap`).
        n_iter_: passes over the data, or master iterations.
        cross_validation_: with radius="cv", the `radii` tried and minus every group's held-out loss.

    All other attributes are those of `RobustClassifier`.

    Two groups whose targets differ by 2. The mean serves the large one; half of the weight on each, which
    the box allows, puts the prediction in the middle:

    >>> X, y, site = np.zeros((8, 1)), np.array([0.0] * 6 + [2.0] * 2), np.array(["a"] * 6 + ["b"] * 2)
    >>> RobustRegressor(budget=0.0).fit(X, y, groups=site).predict([[0.0]]).round(2)
    array([0.5])
    >>> model = RobustRegressor("box", lower=[0.0, 0.0], upper=[1.0, 1.0]).fit(X, y, groups=site)
    >>> model.predict([[0.0]]).round(2), model.weights_.round(2)
    (array([1.]), array([0.5, 0.5]))
    """

    lower_is_better = True

    def __init__(  # noqa: PLR0913  # the settings, each by its name
        self,
        uncertainty_set: Any = None,
        *,
        loss: str = "squared",
        epsilon: float = 1.35,
        radius: float | str | None = None,
        interactions: str | None = None,
        pooling: float | str = "cv",
        prior: Any = "samples",
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
        self.loss, self.epsilon = loss, epsilon

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> RobustRegressor:
        """Train on X (samples, features), dense or sparse, targets y and the samples' groups.

        `groups` is as `RobustClassifier.fit` takes it. Without groups every sample is its own group, and the
        set says which samples may count more. Weights of samples count within their group, and in the prior
        "samples".
        """
        self._check_settings()
        warn_of_order(X, 2, y=y, groups=groups)
        X, groups, self.group_columns_ = take_columns(X, groups)
        X, y = self._validated(X, y, order="C", y_numeric=True)
        y = y.astype(np.float64)
        X, y, group, weight = self._arrange(X, y, groups, self._weights(sample_weight, X))
        with threadpool_limits(1, "blas"):  # in small products more threads only wait
            task, model = self._train(X, y, group, weight, self._worker)
        self.offset_ = task.offset
        missed = model.scores(X, group)[:, 0] - y
        self.group_errors_ = np.sqrt(task.problem.means(missed**2))
        self.coef_, self.intercept_ = model.shared[:-1, 0].copy(), float(model.shared[-1, 0])
        self.group_coef_: Any = None
        self.group_intercept_: Any = None
        if self.interactions is not None:
            own = model.by_group(len(self.groups_))[:, :, 0]
            self.group_coef_, self.group_intercept_ = own[:, :-1].copy(), own[:, -1].copy()
        return self

    def predict(self, X: Any, groups: Any = None) -> Array:
        """The predicted target of each sample.

        With interactions the groups' own coefficients are used, and the shared ones for a group that was
        not in training.
        """
        X, place = self._read(X, groups)
        predictions: Array = np.asarray(X @ self.coef_) + self.intercept_
        for g in np.unique(place[place >= 0]):
            rows = np.flatnonzero(place == g)
            predictions[rows] = np.asarray(X[rows] @ self.group_coef_[g]) + self.group_intercept_[g]
        return predictions

    def score(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> float:
        """R² over all samples."""
        return float(r2_score(y, self.predict(X, groups), sample_weight=sample_weight))

    def _task(
        self,
        X: Any,
        y: NDArray[Any],
        group: NDArray[np.intp],
        weight: Array | None,
        prior: Array,
        pooling: float,
    ) -> Task:
        """Solved for targets of deviation 1, so that tolerances and smoothing mean the same in all units."""
        offset, scale = _offset_and_scale(y, group, weight, prior)
        is_absolute = self.loss == "absolute"
        l2, unit = (self.l2 * scale, scale) if is_absolute else (float(self.l2), scale**2)
        targets, epsilon = (y - offset) / scale, self.epsilon / scale

        def make(columns: Any) -> GroupedRegression:
            return GroupedRegression(columns, targets, group, self.loss, l2, weight, epsilon)

        minimise = central.minimise_absolute if is_absolute else central.minimise
        return Task(X, group, prior.size, pooling, make, l2, minimise, unit, offset, scale)

    def _worker(self, task: Task, X: Array, y: NDArray[Any]) -> LeastSquares | HuberRegression:
        if self.loss == "squared":
            return LeastSquares(X, y, task.l2)
        return HuberRegression(X, y, self.epsilon / task.scale, task.l2)

    def _measure(self, task: Task, scores: Array, y: NDArray[Any]) -> tuple[Array, Array]:
        missed = scores[:, 0] - y
        return self._loss(float(self.epsilon))(missed)[0], missed**2

    def _constant(self, y: NDArray[Any], share: Array, tested: NDArray[Any]) -> tuple[Array, Array]:
        constant = float(share @ y)
        if self.loss == "absolute":
            order = np.argsort(y)
            constant = float(y[order][np.searchsorted(np.cumsum(share[order]), 0.5).clip(0, y.size - 1)])
        missed = constant - tested
        return self._loss(float(self.epsilon))(missed)[0], missed**2

    def _row(self, mean: Array, square: Array, count: Array) -> tuple[Array, Array, Array]:
        """The root of the mean squared error, and the roots of a normal interval for that mean."""
        half = QUANTILE * np.sqrt(np.maximum(square - mean**2, 0.0) / np.maximum(count, 1))
        return np.sqrt(mean), np.sqrt(np.maximum(mean - half, 0.0)), np.sqrt(mean + half)

    def _goodness(self, found: Measured) -> Array:
        return -found.loss

    def _check_settings(self) -> None:
        super()._check_settings()
        epsilon: Any = self.epsilon  # users may pass any type
        if self.loss not in LOSSES:
            raise InvalidSetting(f"loss must be one of {', '.join(map(repr, LOSSES))}, got {self.loss!r}")
        if not (isinstance(epsilon, Real) and 0.0 < float(epsilon) < np.inf):
            raise InvalidSetting(f"epsilon must be a number > 0, got {self.epsilon!r}")
        if self.loss == "absolute" and self.solver == "aspire-models":
            raise InvalidSetting(
                "solver='aspire-models' needs a smooth loss and loss='absolute' has kinks; use "
                "solver='central', or loss='huber' with a small epsilon"
            )

    def _loss(self, epsilon: float) -> Callable[[Array], tuple[Array, Array]]:
        """The loss of residuals and its derivative."""
        known: dict[str, Callable[[Array], tuple[Array, Array]]] = {
            "squared": squared,
            "absolute": absolute,
            "huber": partial(huber, epsilon=epsilon),
        }
        return known[self.loss]

    def _training_columns(self) -> dict[str, list[Any]]:
        return {"training RMSE": self.group_errors_.tolist()}

    def _held_out_column(self, goodness: Array) -> dict[str, list[Any]]:
        return {"cross-validated mean loss": (-goodness).tolist()}

    def _test_columns(
        self, y: NDArray[Any], predicted: NDArray[Any], rows: list[NDArray[np.intp]]
    ) -> tuple[Array, dict[str, list[Any]]]:
        missed = np.asarray(predicted - y, dtype=np.float64)
        loss, square = self._loss(float(self.epsilon))(missed)[0], missed**2
        means, squares = (
            np.array([each[of].mean() if of.size else np.nan for of in rows]) for each in (loss, square)
        )
        return -means, {"mean loss": means.tolist(), "RMSE": np.sqrt(squares).tolist()}


def _offset_and_scale(
    y: Array, group: NDArray[np.intp], weight: Array | None, prior: Array
) -> tuple[float, float]:
    """The mean of the targets under the prior, and their standard deviation, 1 for a constant."""
    weight = np.ones(y.size) if weight is None else weight
    share = weight * (prior / np.bincount(group, weights=weight))[group]
    offset = float(share @ y)
    scale = float(np.sqrt(share @ (y - offset) ** 2))
    if not np.isfinite(scale):
        raise ValueError("the squares of the targets y overflow; divide y by a constant")
    return offset, scale if scale > 1e-12 * max(abs(offset), np.finfo(float).tiny) else 1.0
