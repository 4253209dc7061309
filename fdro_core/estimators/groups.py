"""The groups of the samples, as `fit(groups=...)` and the metrics take them."""

from __future__ import annotations

import math
import sys
import warnings
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.errors import EstimatorWarning


def index_groups(groups: Any, samples: int) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The groups, sorted, and each sample's place among them.

    >>> index_groups(["b", "a", "b"], 3)
    (array(['a', 'b'], dtype='<U1'), array([1, 0, 1]))
    """
    if groups is None:
        return np.arange(samples), np.arange(samples)
    # A list of texts with a NaN would become the text "nan": entries are looked at as they are.
    labels = np.asarray(groups, dtype=None if hasattr(groups, "dtype") else object)
    if labels.shape != (samples,):
        raise ValueError(f"groups must have one entry for each of the {samples} samples, got {labels.shape}")
    missing = _missing(labels)
    if missing.any():
        raise ValueError(
            f"groups must not hold NaN or None, got {int(missing.sum())} of them, the first for sample "
            f"{int(missing.argmax())}; give samples without a group one of their own, such as 'unknown'"
        )
    try:
        names, index = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise ValueError(f"groups must be of one type that can be sorted: {error}") from error
    return np.array(names.tolist()) if names.dtype == object else names, index


def _missing(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Which entries are NaN, None, or pandas' NA and NaT."""
    if labels.dtype != object:
        equal: NDArray[np.bool_] = np.equal(labels, labels)  # false for NaN and NaT alone
        return ~equal
    kinds = {"NAType", "NaTType", "NoneType"}  # by name: pandas may not be installed
    return np.array(
        [type(each).__name__ in kinds or (isinstance(each, float) and math.isnan(each)) for each in labels],
        dtype=bool,
    )


def warn_if_forgotten(default_set: bool, level: int) -> None:
    """Warn that `fit` got no groups, if it looks as if it should have some.

    Args:
        default_set: whether the user chose no uncertainty set; one who trains for the worst samples on
            purpose names a set.
        level: how far up the stack the caller of `fit` is.
    """
    searched = _in_cross_validation()
    if not (default_set or searched):
        return
    how = (
        "scikit-learn passes groups on only with sklearn.set_config(enable_metadata_routing=True) and "
        "set_fit_request(groups=True) on this estimator"
        if searched
        else "give fit(X, y, groups=...), in a pipeline as robustclassifier__groups=... or by metadata "
        "routing; name an uncertainty_set to train for the worst samples on purpose"
    )
    warnings.warn(
        f"fit got no groups, so every sample is a group of its own; {how}",
        EstimatorWarning,
        stacklevel=level + 1,
    )


def _in_cross_validation() -> bool:
    """Whether a search or a cross-validation of scikit-learn is calling.

    Without metadata routing these give `groups` to the splitter alone, and nothing in the call of `fit`
    tells: only the stack does.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "sklearn.model_selection._validation":
            return True
        frame = frame.f_back
    return False
