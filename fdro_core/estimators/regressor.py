"""The scikit-learn regressor: fits by `central`, or by the federated driver with one worker per group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.errors import InvalidSetting
from fdro_core.estimators import central
from fdro_core.estimators.estimator import RegressorMixin, RobustEstimator, check_is_fitted, validate_data
from fdro_core.estimators.groups import GroupedRegression
from fdro_core.problems.linear import HuberRegression, LeastSquares, absolute, huber, squared
from uncertainty_sets.arrays import Array

__all__ = ["RobustRegressor"]

LOSSES = ("squared", "absolute", "huber")


@dataclass(repr=False, eq=False)
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
        budget, spread, radius: the set's parameters of that name; radius may be "cv".
        set_parameters: any of the set's parameters by name.
        prior: the centre q, as `RobustClassifier` has it.
        l2: the ridge. With the squared loss, and with Huber's if epsilon changes with y, it does not depend
            on the units of y; with the absolute loss, y in units 10 times smaller needs an l2 10 times
            smaller for the same model.
        tolerance: of the objective, relative to max(u, objective), where u is the variance of y under the
            prior, or its standard deviation for the absolute loss; see `gap_`.
        steps: the most passes over the data ("central"; None: 2,000), or master iterations ("aspire-models";
            None: the driver's own rule).
        solver: "central" sees all data at once: L-BFGS and the method of multipliers, to a proven gap. The
            kinks of the absolute loss are smoothed from below, more finely until the gap to the absolute loss
            itself is proved. "aspire-models" runs the federated driver, one worker per group, on a virtual
            clock; it does not take the absolute loss.
        seed: of the driver's delays and starting point; "central" uses no random numbers.

    Attributes:
        coef_, intercept_: as scikit-learn's `Ridge` has them.
        offset_: m.
        groups_: the groups, sorted; without groups the indices of the samples.
        group_sizes_: the samples of each.
        worst_group_: the one with the largest loss.
        prior_: q.
        uncertainty_set_: the set.
        group_losses_: f_g at the solution.
        worst_case_: the set's answer at those losses, with its proof.
        weights_: the groups' weights that trained the model, the distribution of the saddle point; the
            worst case at the solution need not be unique, and `worst_case_.p` is one of them.
        objective_: the worst expected loss with the ridge.
        gap_: a proven bound on how far `objective_` is above the minimum; infinite for l2 = 0, and with
            "aspire-models" if the driver has no such proof (`Result.gap`).
        n_iter_: passes over the data, or master iterations.
        cross_validation_: with radius="cv", the `radii` tried and minus every group's held-out loss.

    Two groups whose targets differ by 2. The mean serves the large one; half of the weight on each, which
    the box allows, puts the prediction in the middle:

    >>> X, y, site = np.zeros((8, 1)), np.array([0.0] * 6 + [2.0] * 2), np.array(["a"] * 6 + ["b"] * 2)
    >>> RobustRegressor(budget=0.0).fit(X, y, groups=site).predict([[0.0]]).round(2)
    array([0.5])
    >>> free = {"lower": [0.0, 0.0], "upper": [1.0, 1.0]}
    >>> model = RobustRegressor("box", set_parameters=free).fit(X, y, groups=site)
    >>> model.predict([[0.0]]).round(2), model.weights_.round(2)
    (array([1.]), array([0.5, 0.5]))
    """

    _: KW_ONLY
    loss: str = "squared"
    epsilon: float = 1.35

    def fit(self, X: Any, y: Any, groups: Any = None, sample_weight: Any = None) -> RobustRegressor:
        """Train on X (samples, features), dense or sparse, targets y and the samples' groups.

        Without groups every sample is its own group, and the set says which samples may count more. Weights
        of samples count within their group, and in the prior "samples".
        """
        self._check_settings()
        X, y = validate_data(self, X, y, dtype=np.float64, accept_sparse="csr", order="C", y_numeric=True)
        y = y.astype(np.float64)
        X, y, group, weight = self._arrange(X, y, groups, self._weights(sample_weight, X))
        self.offset_, scale = self._offset_and_scale(y, group, weight)
        # Solved for targets of deviation 1, so that tolerances and smoothing mean the same in all units.
        l2, unit = (self.l2 * scale, scale) if self.loss == "absolute" else (float(self.l2), scale**2)
        epsilon = self.epsilon / scale
        problem = GroupedRegression(X, (y - self.offset_) / scale, group, self.loss, l2, weight, epsilon)

        def worker(X: Array, y: NDArray[Any]) -> LeastSquares | HuberRegression:
            return LeastSquares(X, y, l2) if self.loss == "squared" else HuberRegression(X, y, epsilon, l2)

        minimise = central.minimise_absolute if self.loss == "absolute" else central.minimise
        w = scale * self._solve(problem, l2, worker, unit, minimise)
        self.coef_, self.intercept_ = w[:-1].copy(), float(self.offset_ + w[-1])
        return self

    def predict(self, X: Any) -> Array:
        """The predicted target of each sample."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, accept_sparse="csr", reset=False)
        predictions: Array = np.asarray(X @ self.coef_) + self.intercept_
        return predictions

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

    def _goodness(self, y: NDArray[Any], predicted: NDArray[Any]) -> Array:
        return -self._loss(float(self.epsilon))(np.asarray(predicted - y, dtype=np.float64))[0]

    def _score_name(self) -> str:
        return "mean loss"

    def _shown(self, goodness: Array) -> Array:
        return -goodness

    def _offset_and_scale(
        self, y: Array, group: NDArray[np.intp], weight: Array | None
    ) -> tuple[float, float]:
        """The mean of the targets under the prior, and their standard deviation, 1 for a constant."""
        weight = np.ones(y.size) if weight is None else weight
        share = weight * (self.prior_ / np.bincount(group, weights=weight))[group]
        offset = float(share @ y)
        scale = float(np.sqrt(share @ (y - offset) ** 2))
        if not np.isfinite(scale):
            raise ValueError("the squares of the targets y overflow; divide y by a constant")
        return offset, scale if scale > 1e-12 * max(abs(offset), np.finfo(float).tiny) else 1.0
