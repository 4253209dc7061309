"""What both estimators share: groups and the set, the solvers, held-out comparisons, the summary."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from numbers import Real
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.aspire.models.algorithm import AspireModels
from fdro_core.errors import EstimatorWarning, InvalidSetting
from fdro_core.estimators import diagnosis, group_set
from fdro_core.estimators.held_out import (
    Choice,
    HeldOut,
    Measured,
    PoolingChoice,
    choose_pooling,
    choose_radius,
)
from fdro_core.estimators.labels import (
    has_columns,
    index_groups,
    place_groups,
    refuse_text,
    take_columns,
    warn_if_forgotten,
    warn_of_order,
)
from fdro_core.estimators.pooling import Coefficients, Task
from fdro_core.estimators.settings import (
    BY_CROSS_VALIDATION,
    ConvergenceWarning,
    GroupSettings,
    _check_sample_weight,
    check_is_fitted,
    progress,
    validate_data,
)
from fdro_core.estimators.tables import GroupTable
from fdro_core.solving import solve
from uncertainty_sets import UncertaintySet
from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import InvalidInput

if TYPE_CHECKING:
    from uncertainty_sets.audit import Audit


class RobustEstimator(GroupSettings, ABC):
    """A linear model for the worst distribution over groups of samples."""

    # With metadata routing, groups that are given reach these methods without a request.
    __metadata_request__predict = {"groups": True}  # noqa: RUF012  # scikit-learn reads it from the class
    __metadata_request__score = {"groups": True}  # noqa: RUF012

    lower_is_better = False
    """Whether a lower value of `_row` is the better one."""

    # -- samples and groups -----------------------------------------------------------------------------

    def _validated(self, X: Any, *y: Any, **options: Any) -> Any:
        """X as an array, and y if given, as scikit-learn checks them."""
        try:
            return validate_data(self, X, *y, dtype=np.float64, accept_sparse="csr", **options)
        except ValueError:
            refuse_text(X)
            raise

    def _weights(self, sample_weight: Any, X: Any) -> Array | None:
        """The samples' weights; None if all are the same."""
        if sample_weight is None:
            return None
        weight: Array = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        return weight

    def _arrange(
        self, X: Any, y: NDArray[Any], groups: Any, weight: Array | None
    ) -> tuple[Any, NDArray[Any], NDArray[np.intp], Array | None]:
        """Set the groups and their prior; return the samples that count, and their groups.

        A sample of weight 0 is as if it were not there.
        """
        self.groups_, group = index_groups(groups, y.size)
        if weight is not None and not weight.all():
            kept = weight > 0
            X, y, weight = X[kept], y[kept], weight[kept]
            present, group = np.unique(group[kept], return_inverse=True)
            self.groups_ = self.groups_[present]
        self.group_sizes_ = np.bincount(group)
        self.prior_ = self._center(self.groups_, np.bincount(group, weights=weight).astype(np.float64))
        if groups is None:
            if self.radius == BY_CROSS_VALIDATION:
                raise InvalidSetting(
                    "radius='cv' takes the size that is best for the worst group, and fit got no groups"
                )
            if self.interactions is not None:
                raise InvalidSetting(
                    f"interactions={self.interactions!r} gives each group coefficients of its own, and fit "
                    "got no groups"
                )
            chosen = (self.uncertainty_set, self.radius, *self._set_parameters().values())
            warn_if_forgotten(all(each is None for each in chosen), level=3)
        elif self.groups_.size == 1:
            warnings.warn("one group: this is ordinary training", EstimatorWarning, stacklevel=3)
        return X, y, group, weight

    def _read(self, X: Any, groups: Any) -> tuple[Any, NDArray[np.intp]]:
        """New samples and the places of their groups, -1 for one that training did not see."""
        check_is_fitted(self)
        groups = self._groups_of(X, groups)
        if has_columns(X, self.group_columns_):
            X, _, _ = take_columns(X, list(self.group_columns_))
        X = self._validated(X, reset=False)
        if self.group_coef_ is None:
            return X, np.full(X.shape[0], -1)
        if groups is None:
            warnings.warn(
                "the model has coefficients by group and got no groups, so all samples get the shared ones; "
                f"give {type(self).__name__}.predict(X, groups=...)",
                EstimatorWarning,
                stacklevel=3,
            )
            return X, np.full(X.shape[0], -1)
        place = place_groups(self.groups_, groups, X.shape[0])
        if (place < 0).any():
            names, index = index_groups(groups, X.shape[0])
            unseen = names[np.unique(index[place < 0])].tolist()
            warnings.warn(
                f"not in training: {', '.join(map(repr, unseen[:10]))}{', …' if len(unseen) > 10 else ''}; "
                "samples of these groups get the shared coefficients",
                EstimatorWarning,
                stacklevel=3,
            )
        return X, place

    def _groups_of(self, X: Any, groups: Any) -> Any:
        """The groups that are given, or in the columns that `fit` took them from; None if there are none."""
        if groups is None and has_columns(X, self.group_columns_):
            groups = list(self.group_columns_)
        warn_of_order(X, 3, groups=groups)
        return take_columns(X, groups)[1]

    # -- training ---------------------------------------------------------------------------------------

    @abstractmethod
    def _task(
        self,
        X: Any,
        y: NDArray[Any],
        group: NDArray[np.intp],
        weight: Array | None,
        prior: Array,
        pooling: float,
    ) -> Task:
        """What is minimised over these samples; every group of the prior has some."""

    @abstractmethod
    def _measure(self, task: Task, scores: Array, y: NDArray[Any]) -> tuple[Array, Array]:
        """Each sample's loss and score, in the user's units."""

    @abstractmethod
    def _constant(self, y: NDArray[Any], share: Array, tested: NDArray[Any]) -> tuple[Array, Array]:
        """Loss and score on `tested` of the best constant for y with weights `share` that sum to 1."""

    @abstractmethod
    def _row(self, mean: Array, square: Array, count: Array) -> tuple[Array, Array, Array]:
        """What is shown of scores with these means and mean squares: value and ends of an interval."""

    @abstractmethod
    def _goodness(self, found: Measured) -> Array:
        """How good each prediction is, higher is better: what radius="cv" compares."""

    def _train(
        self,
        X: Any,
        y: NDArray[Any],
        group: NDArray[np.intp],
        weight: Array | None,
        worker: Callable[[Task, Array, NDArray[Any]], Any],
    ) -> tuple[Task, Coefficients]:
        """Choose pooling and radius, solve, compare on held-out folds; set what describes the result."""
        given = self._set_parameters()
        wanted = group_set.default_set(given) if self.uncertainty_set is None else self.uncertainty_set
        by_radius = self.radius == BY_CROSS_VALIDATION
        if self.radius is not None and not by_radius:
            given["radius"] = self.radius

        def make(**size: float) -> UncertaintySet:
            return group_set.build_set(wanted, self.prior_, {**given, **size}, self._get_param_names())

        by_pooling = self.interactions is not None and self.pooling == BY_CROSS_VALIDATION
        self.pooling_ = float(self.pooling) if self.interactions is not None and not by_pooling else 0.0
        self.cross_validation_: Choice | None = None
        self.pooling_cross_validation_: PoolingChoice | None = None
        self.comparison_: diagnosis.Comparison | None = None
        self.ceiling_: diagnosis.Ceiling | None = None
        self.uncertainty_set_ = make()
        held, tried = None, []
        if by_radius or by_pooling:
            held = HeldOut(self, X, y, group, weight, self.prior_, self.seed, self.tolerance)
        measured: Measured | None = None
        if held is not None and by_pooling:
            self.pooling_cross_validation_, measured = choose_pooling(held, self.uncertainty_set_)
            self.pooling_ = self.pooling_cross_validation_.pooling
        if held is not None and by_radius:
            try:
                sizes = group_set.radii(make(radius=1.0))
            except InvalidInput as error:
                raise InvalidSetting(
                    f"radius='cv' needs a set with a radius, such as 'kl': {error}"
                ) from error
            tried = [held.measure(make(radius=size), self.pooling_) for size in sizes.tolist()]
            scores = np.array([held.by_group(self._goodness(each)) for each in tried])
            self.cross_validation_ = choose_radius(sizes, scores)
            self.uncertainty_set_ = make(radius=self.cross_validation_.radius)
            measured = tried[int(np.flatnonzero(sizes == self.cross_validation_.radius)[0])]
        names = given if self.cross_validation_ is None else [*given, "radius"]
        self.not_given_ = group_set.not_given(wanted, self.uncertainty_set_, names)
        task = self._task(X, y, group, weight, self.prior_, self.pooling_)
        model = task.decode(self._solve(task, worker))
        self._start = self.groups_.tolist(), model
        if held is not None and measured is not None:
            self._diagnose(held, measured, tried, make())
        return task, model

    def _solve(self, task: Task, worker: Callable[[Task, Array, NDArray[Any]], Any]) -> Array:
        """The solution in the task's parameters; sets what describes it."""
        problem, unit = task.problem, task.unit
        if self.solver == "central":
            steps = 2000 if self.steps is None else self.steps
            report = progress(int(self.verbose), unit) if self.verbose else None
            found = task.minimise(self.uncertainty_set_, self.tolerance, steps, self._warm(task), report)
            if not found.converged:
                warnings.warn(
                    f"{type(self).__name__} stopped after {found.evaluations} passes with a gap of "
                    f"{unit * found.gap:.2g}; the tolerance is {self.tolerance:g}; scale the features "
                    "(StandardScaler), raise steps or l2",
                    ConvergenceWarning,
                    stacklevel=4,
                )
            w, losses, weights = found.w, found.losses, found.weights
            gap, self.n_iter_ = found.gap, found.evaluations
        else:
            if problem.weight is not None:
                raise InvalidSetting(
                    "solver='aspire-models' takes no weights of samples or classes; use solver='central'"
                )
            X = problem.X.toarray() if hasattr(problem.X, "toarray") else problem.X
            rows = [np.flatnonzero(problem.group == g) for g in range(problem.sizes.size)]
            workers = [worker(task, X[of], problem.labels[of]) for of in rows]
            config = AspireModels(iterations=self.steps, seed=self.seed)
            result = solve(workers, self.uncertainty_set_, algorithm=config)
            w, weights = problem.from_columns(result.w), result.weights
            losses, _ = problem.evaluate(w)
            gap, self.n_iter_ = result.gap, result.iterations
        self.weights_, self.gap_ = weights, unit * gap
        self.group_losses_ = unit * losses
        self.worst_group_ = self.groups_[int(np.argmax(losses))]
        self.worst_case_ = self.uncertainty_set_.worst_case(self.group_losses_)
        self.objective_ = float(self.worst_case_.value) + unit * 0.5 * task.l2 * float(w @ w)
        return w

    def _warm(self, task: Task) -> Coefficients | None:
        """Where training starts: the last fit's coefficients with warm_start, if they have the same shape."""
        if not (self.warm_start and hasattr(self, "_start")):
            return None
        groups, model = self._start
        if model.shared.shape != task.shape:
            return None
        return model if groups == self.groups_.tolist() else Coefficients(model.shared)

    def _diagnose(
        self, held: HeldOut, measured: Measured, tried: list[Measured], usual: UncertaintySet
    ) -> None:
        """Compare the fit with simpler models and with coefficients by group, and warn.

        The latter have the usual radius: one chosen for a shared model can be far too large for them.
        """
        shared = self.pooling_ == 0.0
        chosen = measured if shared else held.measure(self.uncertainty_set_, 0.0)
        plain = tried[0] if shared and tried else None  # the smallest radius tried is 0
        is_pooled = self.interactions is not None
        pooled = measured if is_pooled else held.measure(usual, diagnosis.ALTERNATIVE)
        fitted = "pooled" if is_pooled else "chosen"
        self.comparison_ = diagnosis.compare(self, held, self.groups_.tolist(), chosen, pooled, plain, fitted)
        self.ceiling_ = diagnosis.ceiling(
            self, held.X, held.y, held.group, held.weight, self.prior_, self.seed
        )
        found = diagnosis.remarks(self.comparison_, self.ceiling_, not is_pooled)
        if found and not is_pooled:
            warnings.warn("; ".join([*found, diagnosis.REMEDY]), EstimatorWarning, stacklevel=4)

    # -- what was learned -------------------------------------------------------------------------------

    def summary(self, X: Any = None, y: Any = None, groups: Any = None) -> GroupTable:
        """A table of the groups, the worst first: on the new data if there is some, else in training.

        Its columns are the samples in training, the prior, the weight that trained the model and the training
        loss. With radius="cv" the score on held-out folds follows. If X, y and groups are given, data that
        training did not see, their samples and the scores there follow. After a fit with "cv" a second table
        compares the model on held-out folds with a constant, radius 0, even weights of the groups, the set
        with shared coefficients, and the set with coefficients by group.
        """
        check_is_fitted(self)
        worst = -self.group_losses_
        columns: dict[str, list[Any]] = {
            "group": self.groups_.tolist(),
            "samples": self.group_sizes_.tolist(),
            "prior": self.prior_.tolist(),
            "weight": self.weights_.tolist(),
            "loss": self.group_losses_.tolist(),
        } | self._training_columns()
        if self.cross_validation_ is not None:
            found = self.cross_validation_
            scores = found.scores[int(np.flatnonzero(found.radii == found.radius)[0])]
            columns |= self._held_out_column(scores)
        if X is not None:
            given = self._groups_of(X, groups)
            if given is None:
                raise ValueError("summary(X, y, groups) needs the groups of the new samples, got none")
            place = place_groups(self.groups_, given, len(y))
            if (place < 0).any():
                unknown = index_groups(given, len(y))
                name = unknown[0].tolist()[unknown[1][int(np.argmin(place))]]
                raise ValueError(
                    f"group {name!r} was not in training; leave its samples out, or train with it"
                )
            rows = [np.flatnonzero(place == g) for g in range(self.groups_.size)]
            worst, found_new = self._test_columns(np.asarray(y), self.predict(X, groups=given), rows)
            columns |= {"new samples": [each.size for each in rows]} | found_new
        order = np.argsort(worst, kind="stable")
        table = [{name: values[g] for name, values in columns.items()} for g in order]
        if self.comparison_ is None:
            return GroupTable(self._title(), table)
        said = diagnosis.remarks(self.comparison_, self.ceiling_, self.interactions is None)
        return GroupTable(self._title(), table, self.comparison_.rows, said)

    def audit(self, X: Any, y: Any, groups: Any = None, *, scoring: Any = None, **options: Any) -> Audit:
        """Ask how far the world may move before the model fails, on data that training did not see.

        Args:
            X, y: new data.
            groups: of its samples, as `fit` takes them; a model by group predicts with them.
            scoring: what a loss is, a scorer of scikit-learn that is a mean over samples; None: errors of a
                classifier, absolute errors of a regressor.
            options: of `uncertainty_sets.audit.Audit`, such as covariates and clusters; a regressor's losses
                have no known bounds unless `bounds` says so.
        """
        from uncertainty_sets.audit import Audit, losses_of

        groups = self._groups_of(X, groups)
        model: Any = self
        if self.group_coef_ is not None:
            of_them = ("predict", "predict_proba")
            model = SimpleNamespace(
                **{
                    name: partial(getattr(self, name), groups=groups)
                    for name in of_them
                    if hasattr(self, name)
                },
                **({"classes_": self.classes_} if hasattr(self, "classes_") else {}),
            )
        losses = losses_of(model, X, y, scoring)
        if scoring is not None or not hasattr(self, "classes_"):
            options.setdefault("bounds", None)
        return Audit(losses, groups=groups, **options)

    def _title(self) -> str:
        size = getattr(self.uncertainty_set_, "radius", None)
        name = type(self.uncertainty_set_).__name__
        shown = name if size is None or np.ndim(size) else f"{name} of radius {float(size):.3g}"
        filled = [
            f"{key} = {value:.3g}" if np.ndim(value) == 0 and isinstance(value, Real) else key
            for key, value in self.not_given_.items()
        ]
        lines = [f"{type(self).__name__} for the worst of {len(self.groups_)} groups in {shown}"]
        if filled:
            lines.append(f"not given, so by default: {', '.join(filled)}")
        if self.interactions is not None:
            lines.append(f"coefficients by group with pooling {self.pooling_:g}")
        gap = f"at most {self.gap_:.1e} above the minimum"
        if self.objective_ > 0.0:
            gap += f", relative {self.gap_ / self.objective_:.1e}"
        return "\n".join([*lines, f"objective {self.objective_:.4g}, {gap}"])

    @abstractmethod
    def _training_columns(self) -> dict[str, list[Any]]:
        """More columns about the training data."""

    @abstractmethod
    def _held_out_column(self, goodness: Array) -> dict[str, list[Any]]:
        """The column about the groups' mean `_goodness` in cross-validation."""

    @abstractmethod
    def _test_columns(
        self, y: NDArray[Any], predicted: NDArray[Any], rows: list[NDArray[np.intp]]
    ) -> tuple[Array, dict[str, list[Any]]]:
        """What puts the groups in order, the worst lowest, and the columns about new data."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
