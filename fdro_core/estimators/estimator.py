"""What both estimators share: settings, groups and the set, the solvers, the table of groups."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from html import escape
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fdro_core.aspire.models.algorithm import AspireModels
from fdro_core.errors import InvalidSetting
from fdro_core.estimators import central, group_set
from fdro_core.estimators.group_set import build_set, default_set
from fdro_core.estimators.groups import Grouped, index_groups, warn_if_forgotten
from fdro_core.solving import solve
from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import BackendMissing, InvalidInput

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import accuracy_score
    from sklearn.utils.class_weight import compute_sample_weight
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise BackendMissing(
        'fdro_core.sklearn needs scikit-learn 1.6 or newer: pip install "fdro[sklearn]"'
    ) from error

__all__ = [
    "BaseEstimator",
    "ClassifierMixin",
    "ConvergenceWarning",
    "GroupTable",
    "RegressorMixin",
    "RobustEstimator",
    "_check_sample_weight",
    "accuracy_score",
    "check_classification_targets",
    "check_is_fitted",
    "clone",
    "compute_sample_weight",
    "validate_data",
]


SOLVERS = ("central", "aspire-models")
BY_CROSS_VALIDATION = "cv"
ROUGHLY = 1e-3  # tolerance of the models in cross-validation, whose scores are no more exact


@dataclass(repr=False, eq=False)
class RobustEstimator(BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn has no types
    """A linear model for the worst distribution over groups of samples.

    A dataclass, so that the settings of both estimators are written once: scikit-learn reads them from the
    signature of the `__init__` that this makes.
    """

    uncertainty_set: Any = None
    _: KW_ONLY
    budget: float | None = None
    spread: ArrayLike | None = None
    radius: float | str | None = None
    set_parameters: Mapping[str, Any] | None = None
    prior: Any = "samples"
    l2: float = 1e-3
    tolerance: float = 1e-4
    steps: int | None = None
    solver: str = "central"
    seed: int = 0

    # -- settings ---------------------------------------------------------------------------------------

    def _check_settings(self) -> None:
        if self.solver not in SOLVERS:
            raise InvalidSetting(
                f"solver must be one of {', '.join(map(repr, SOLVERS))}, got {self.solver!r}"
            )
        l2: Any = self.l2  # users may pass any type
        tolerance: Any = self.tolerance
        steps: Any = self.steps
        seed: Any = self.seed
        for name, value in (("l2", l2), ("tolerance", tolerance), ("steps", steps), ("seed", seed)):
            if isinstance(value, bool | np.bool_):  # which Python counts among the numbers
                raise InvalidSetting(f"{name} must be a number, got {value!r}")
        if not (isinstance(l2, Real) and 0.0 <= float(l2) < np.inf):
            raise InvalidSetting(f"l2 must be a number >= 0, got {self.l2!r}")
        if not (isinstance(tolerance, Real) and 0.0 < float(tolerance) < np.inf):
            raise InvalidSetting(f"tolerance must be a finite number > 0, got {self.tolerance!r}")
        if steps is not None and not (isinstance(steps, Integral) and int(steps) >= 1):
            raise InvalidSetting(
                f"steps must be a whole number, at least 1, or None for the default, got {self.steps!r}"
            )
        if not (isinstance(seed, Integral) and int(seed) >= 0):
            raise InvalidSetting(f"seed must be a whole number >= 0, got {self.seed!r}")
        if isinstance(self.radius, str) and self.radius != BY_CROSS_VALIDATION:
            raise InvalidSetting(f"radius must be a number >= 0, 'cv' or None, got {self.radius!r}")

    def _center(self, sizes: Array) -> Array:
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

    # -- samples and groups -----------------------------------------------------------------------------

    def _weights(self, sample_weight: Any, X: Any) -> Array | None:
        """The samples' weights; None if all are the same."""
        if sample_weight is None:
            return None
        weight: Array = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        return weight

    def _arrange(
        self, X: Any, y: NDArray[Any], groups: Any, weight: Array | None
    ) -> tuple[Any, NDArray[Any], NDArray[np.intp], Array | None]:
        """Set the groups, their prior and the set; return the samples that count, and their groups.

        A sample of weight 0 is as if it were not there.
        """
        self.groups_, group = index_groups(groups, y.size)
        if weight is not None and not weight.all():
            kept = weight > 0
            X, y, weight = X[kept], y[kept], weight[kept]
            present, group = np.unique(group[kept], return_inverse=True)
            self.groups_ = self.groups_[present]
        self.group_sizes_ = np.bincount(group)
        self.prior_ = self._center(np.bincount(group, weights=weight).astype(np.float64))
        named = {"budget": self.budget, "spread": self.spread, "radius": self.radius}
        chosen = default_set(named) if self.uncertainty_set is None else self.uncertainty_set
        if self.radius == BY_CROSS_VALIDATION:
            if groups is None:
                raise InvalidSetting(
                    "radius='cv' takes the size that is best for the worst group, and fit got no groups"
                )
            named["radius"] = self._best_radius(chosen, X, y, group, weight)
        self.uncertainty_set_ = build_set(chosen, self.prior_, named, self.set_parameters)
        if groups is None:
            settings = (self.uncertainty_set, self.set_parameters, *named.values())
            warn_if_forgotten(all(each is None for each in settings), level=3)
        return X, y, group, weight

    def _best_radius(
        self, chosen: Any, X: Any, y: NDArray[Any], group: NDArray[np.intp], weight: Array | None
    ) -> float:
        """The radius that `group_set` chooses; the groups must be set."""
        try:
            any_size = build_set(chosen, self.prior_, {"radius": 1.0}, self.set_parameters)
        except InvalidInput as error:
            raise InvalidSetting(f"radius='cv' needs a set with a radius, such as 'kl': {error}") from error
        prior = dict(zip(self.groups_.tolist(), self.prior_.tolist(), strict=True))

        def score(radius: float, train: NDArray[np.bool_]) -> Array:
            twin = clone(self).set_params(
                uncertainty_set=chosen, radius=radius, prior=prior, tolerance=max(self.tolerance, ROUGHLY)
            )
            with warnings.catch_warnings():  # the last fit, on all samples, says it if it must be said
                warnings.simplefilter("ignore", ConvergenceWarning)
                twin.fit(
                    X[train],
                    y[train],
                    groups=self.groups_[group[train]],
                    sample_weight=None if weight is None else weight[train],
                )
            return self._goodness(y[~train], twin.predict(X[~train]))

        self.cross_validation_ = group_set.choose(
            group_set.radii(any_size),
            group_set.folds(y, group, self.seed),
            group,
            np.ones(y.size) if weight is None else weight,
            score,
        )
        return self.cross_validation_.radius

    @abstractmethod
    def _goodness(self, y: NDArray[Any], predicted: NDArray[Any]) -> Array:
        """How good each prediction is, higher is better: what `radius="cv"` compares."""

    # -- training ---------------------------------------------------------------------------------------

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
            if problem.weight is not None:
                raise InvalidSetting(
                    "solver='aspire-models' takes no weights of samples or classes; use solver='central'"
                )
            X = problem.X.toarray() if hasattr(problem.X, "toarray") else problem.X
            rows = [np.flatnonzero(problem.group == g) for g in range(problem.sizes.size)]
            workers = [worker(X[of], problem.labels[of]) for of in rows]
            config = AspireModels(iterations=self.steps, seed=self.seed)
            result = solve(workers, self.uncertainty_set_, algorithm=config)
            w, weights = problem.from_columns(result.w), result.weights
            losses, _ = problem.evaluate(w)
            gap, self.n_iter_ = result.gap, result.iterations
        self.weights_, self.gap_ = weights, unit * gap
        self.group_losses_ = unit * losses
        self.worst_group_ = self.groups_[int(np.argmax(losses))]
        self.worst_case_ = self.uncertainty_set_.worst_case(self.group_losses_)
        self.objective_ = float(self.worst_case_.value) + unit * 0.5 * l2 * float(w @ w)
        return w

    # -- what was learned -------------------------------------------------------------------------------

    def summary(self, X: Any = None, y: Any = None, groups: Any = None) -> GroupTable:
        """A table of the groups, the worst first: on the new data if there is some, else in training.

        Its columns are the samples in training, the prior, the weight that trained the model and the training
        loss. With radius="cv" the score on held-out folds follows. If X, y and groups are given, data that
        training did not see, their samples and the scores there follow.
        """
        check_is_fitted(self)
        if X is not None and groups is None:
            raise ValueError("summary(X, y, groups) needs the groups of the new samples, got none")
        worst = -self.group_losses_
        columns: dict[str, list[Any]] = {
            "group": self.groups_.tolist(),
            "samples": self.group_sizes_.tolist(),
            "prior": self.prior_.tolist(),
            "weight": self.weights_.tolist(),
            "loss": self.group_losses_.tolist(),
        } | self._training_columns()
        if hasattr(self, "cross_validation_"):
            found = self.cross_validation_
            scores = found.scores[int(np.flatnonzero(found.radii == found.radius)[0])]
            columns[f"cross-validated {self._score_name()}"] = self._shown(scores).tolist()
        if X is not None:
            names, index = index_groups(groups, len(y))
            unknown = [name for name in names.tolist() if name not in columns["group"]]
            if unknown:
                raise ValueError(f"group {unknown[0]!r} was not in training")
            good = self._goodness(np.asarray(y), self.predict(X))
            place = {name: number for number, name in enumerate(names.tolist())}
            rows = [good[index == place[name]] if name in place else good[:0] for name in columns["group"]]
            columns |= self._test_columns(rows)
            worst = np.array([each.mean() if each.size else np.inf for each in rows])
        order = np.argsort(worst, kind="stable")
        title = (
            f"{type(self).__name__} for the worst of {len(order)} groups in {self._describe_set()}\n"
            f"objective {self.objective_:.4f}, at most {self.gap_:.1e} above the minimum"
        )
        return GroupTable(title, [{name: values[g] for name, values in columns.items()} for g in order])

    def _describe_set(self) -> str:
        size = getattr(self.uncertainty_set_, "radius", None)
        name = type(self.uncertainty_set_).__name__
        return name if size is None or np.ndim(size) else f"{name} of radius {float(size):.3g}"

    def _training_columns(self) -> dict[str, list[Any]]:
        """More columns about the training data."""
        return {}

    @abstractmethod
    def _score_name(self) -> str:
        """What `_shown` of a `_goodness` is called."""

    @abstractmethod
    def _shown(self, goodness: Array) -> Array:
        """A mean of `_goodness` as users know it."""

    def _test_columns(self, goodness: list[Array]) -> dict[str, list[Any]]:
        """The columns about new data, from every group's `_goodness`."""
        means = [float(each.mean()) if each.size else np.nan for each in goodness]
        return {
            "new samples": [each.size for each in goodness],
            self._score_name(): self._shown(np.array(means)).tolist(),
        }

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class GroupTable(Sequence[Mapping[str, Any]]):
    """One row per group, the worst first; prints as text, and as a table in a notebook.

    A row is a mapping from column to value: ``table[0]["group"]``. `pandas.DataFrame(table)` takes it.
    """

    def __init__(self, title: str, rows: Sequence[Mapping[str, Any]], shown: int = 20) -> None:
        self.title, self._rows, self._shown = title, list(rows), shown

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self._rows)

    def __getitem__(self, place: Any) -> Any:
        return self._rows[place]

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        head = list(self._rows[0])
        return head, [[_text(row[name]) for name in head] for row in self._rows[: self._shown]]

    def _left_out(self) -> str:
        more = len(self._rows) - self._shown
        return f"{more} more groups" if more > 0 else ""

    def __str__(self) -> str:
        head, cells = self._cells()
        widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if place == 0 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in [head, *cells]
        ]
        return "\n".join(filter(None, [self.title, *lines, self._left_out()]))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, cells = self._cells()
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in cells
        )
        names = "".join(f"<th>{escape(name)}</th>" for name in head)
        return (
            f"<p>{escape(self.title)}</p><table><thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table>"
            f"{self._left_out()}"
        )


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return " to ".join(f"{each:.3f}" for each in value)
    return f"{value:.3f}" if isinstance(value, float) else str(value)
