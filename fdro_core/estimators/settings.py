"""The settings that both estimators have, and scikit-learn, which they need."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.errors import InvalidSetting
from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import BackendMissing
from uncertainty_sets.registry import nearest

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import accuracy_score, r2_score
    from sklearn.utils.class_weight import compute_sample_weight
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
    from threadpoolctl import threadpool_limits  # scikit-learn needs it
except ImportError as error:
    raise BackendMissing(
        'fdro_core.sklearn needs scikit-learn 1.6 or newer: pip install "fdro[sklearn]"'
    ) from error

__all__ = [
    "BaseEstimator",
    "ClassifierMixin",
    "ConvergenceWarning",
    "GroupSettings",
    "RegressorMixin",
    "_check_sample_weight",
    "accuracy_score",
    "check_classification_targets",
    "check_is_fitted",
    "compute_sample_weight",
    "progress",
    "r2_score",
    "threadpool_limits",
    "validate_data",
]


SOLVERS = ("central", "aspire-models")
BY_CROSS_VALIDATION = "cv"
BY_GROUP = "groups"


class GroupSettings(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Settings of the set, the prior, the coefficients and the solver; the set's parameters by name."""

    def __init__(  # noqa: PLR0913  # the settings, each by its name
        self,
        uncertainty_set: Any = None,
        *,
        radius: float | str | None = None,
        interactions: str | None = None,
        pooling: float | str = BY_CROSS_VALIDATION,
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
        self.uncertainty_set, self.radius = uncertainty_set, radius
        self.interactions, self.pooling = interactions, pooling
        self.prior, self.l2 = prior, l2
        self.tolerance, self.steps, self.solver = tolerance, steps, solver
        self.warm_start, self.verbose, self.seed = warm_start, verbose, seed
        for name, value in parameters.items():
            setattr(self, name, value)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings, and the set's parameters that were given."""
        settings: dict[str, Any] = super().get_params(deep=deep)
        return settings | self._set_parameters()

    def set_params(self, **params: Any) -> Any:
        """Change settings; a name that is none is a parameter of the set, which `fit` checks."""
        settings = {*self._get_param_names()}
        for name in [name for name in params if name not in settings and "__" not in name]:
            setattr(self, name, params.pop(name))
        return super().set_params(**params)

    def _set_parameters(self) -> dict[str, Any]:
        """The set's parameters that were given, but for the radius: all that is no setting and not fitted."""
        settings = {*self._get_param_names()}
        return {
            name: value
            for name, value in vars(self).items()
            if not (name in settings or name.startswith("_") or name.endswith("_"))
        }

    def _check_settings(self) -> None:
        if self.solver not in SOLVERS:
            raise InvalidSetting(
                f"solver must be one of {', '.join(map(repr, SOLVERS))}, got {self.solver!r}"
            )
        l2: Any = self.l2  # users may pass any type
        tolerance: Any = self.tolerance
        steps: Any = self.steps
        seed: Any = self.seed
        pooling: Any = self.pooling
        verbose: Any = self.verbose
        if not (isinstance(verbose, Integral | np.bool_) and int(verbose) in {0, 1, 2}):
            raise InvalidSetting(f"verbose must be 0, 1 or 2, got {self.verbose!r}")
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
            meant = nearest(self.radius, [BY_CROSS_VALIDATION])
            raise InvalidSetting(f"radius must be a number >= 0, 'cv' or None, got {self.radius!r}{meant}")
        if self.interactions not in {None, BY_GROUP}:
            raise InvalidSetting(f"interactions must be 'groups' or None, got {self.interactions!r}")
        is_number = isinstance(pooling, Real) and not isinstance(pooling, bool | np.bool_)
        if pooling != BY_CROSS_VALIDATION and not (is_number and 0.0 <= float(pooling) < np.inf):
            raise InvalidSetting(f"pooling must be a finite number >= 0 or 'cv', got {self.pooling!r}")

    def _center(self, names: NDArray[Any], sizes: Array) -> Array:
        """The centre q that `prior` describes."""
        if isinstance(self.prior, str):
            if self.prior not in {"samples", "uniform"}:
                raise InvalidSetting(
                    "prior must be 'samples', 'uniform', a number for each group or a mapping, "
                    f"got {self.prior!r}"
                )
            given = sizes if self.prior == "samples" else np.ones(sizes.size)
        elif isinstance(self.prior, Mapping):
            missing = [group for group in names.tolist() if group not in self.prior]
            if missing:
                raise InvalidSetting(f"prior has no entry for group {missing[0]!r}")
            given = np.array([self.prior[group] for group in names.tolist()])
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


def progress(level: int, unit: float) -> Callable[[int, float, float], None]:
    """A function that prints how far training is: at most once a second for level 1, each time for level 2.

    Args:
        level: of `verbose`.
        unit: what a loss of 1 is in the user's units.
    """
    begin = last = time.monotonic()

    def report(passes: int, objective: float, gap: float) -> None:
        nonlocal last
        now = time.monotonic()
        if level > 1 or now - last >= 1.0:
            last = now
            print(
                f"pass {passes}, {now - begin:.1f} s: objective {unit * objective:.6g}, "
                f"at most {unit * gap:.1e} above the minimum",
                flush=True,
            )

    return report
