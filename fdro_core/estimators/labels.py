"""The samples' groups as users give them: one entry for each sample, several, or columns of a table."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Sequence
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.errors import EstimatorWarning
from uncertainty_sets.errors import BackendMissing

Names = NDArray[Any]
Places = NDArray[np.intp]


def index_groups(groups: Any, samples: int) -> tuple[Names, Places]:
    """The groups, sorted, and each sample's place among them; a group of several entries is a tuple.

    >>> index_groups(["b", "a", "b"], 3)
    (array(['a', 'b'], dtype='<U1'), array([1, 0, 1]))
    >>> index_groups([("b", 1), ("a", 2), ("b", 1)], 3)
    (array([('a', 2), ('b', 1)], dtype=object), array([1, 0, 1]))
    """
    if groups is None:
        return np.arange(samples), np.arange(samples)
    columns = _columns(groups, samples)
    if len(columns) == 1:
        return _index(columns[0])
    parts = [_index(column) for column in columns]
    places, index = np.unique(np.column_stack([place for _, place in parts]), axis=0, return_inverse=True)
    names = np.empty(len(places), dtype=object)
    for row, place in enumerate(places):
        names[row] = tuple(own.tolist()[k] for (own, _), k in zip(parts, place, strict=True))
    return names, index.reshape(-1)


def place_groups(names: Names, groups: Any, samples: int) -> Places:
    """Each sample's place among the groups of training; -1 for a group that was not there.

    >>> place_groups(np.array(["a", "b"]), ["b", "c"], 2)
    array([ 1, -1])
    """
    known = {name: place for place, name in enumerate(names.tolist())}
    given, index = index_groups(groups, samples)
    found: Places = np.array([known.get(name, -1) for name in given.tolist()], dtype=np.intp)[index]
    return found


def take_columns(X: Any, groups: Any) -> tuple[Any, Any, tuple[str, ...]]:
    """Take the groups out of X if `groups` names columns of it: the other columns, the groups, the names.

    Works for pandas, polars and all other tables that narwhals knows.
    """
    if isinstance(groups, str):
        names: tuple[str, ...] = (groups,)
        if not is_table(X):
            raise ValueError(
                f"groups={groups!r} names a column, and X is a {type(X).__name__}, which has no names; give "
                "X as a pandas or polars table, or groups with one entry for each sample"
            )
    elif _names_columns(X, groups):
        names = tuple(groups)
    else:
        return X, groups, ()
    table = _table(X)
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise ValueError(f"X has no column {missing[0]!r} for groups; it has {', '.join(table.columns[:10])}")
    taken = [table[name].to_numpy() for name in names]
    given = taken[0] if len(names) == 1 else np.column_stack([each.astype(object) for each in taken])
    return table.drop(*names).to_native(), given, names


def warn_of_order(X: Any, level: int, **others: Any) -> None:
    """Warn of a pandas column whose index has the same labels as that of X in another order."""
    for name, other in others.items():
        if not (hasattr(X, "iloc") and hasattr(other, "iloc") and len(X) == len(other)):
            continue
        mine, its = X.index, other.index
        if not mine.equals(its) and mine.is_unique and its.is_unique and mine.isin(its).all():
            warnings.warn(
                f"X and {name} have the same index in another order, and rows are matched by position; give "
                f"{name}.loc[X.index], or {name}.to_numpy() if the positions are right",
                EstimatorWarning,
                stacklevel=level + 1,
            )


def refuse_text(X: Any) -> None:
    """Name the first column of a table that holds text which is no number."""
    for name in X.columns if is_table(X) else ():
        for cell in np.asarray(X[name], dtype=object):
            if isinstance(cell, str) and not _is_number(cell):
                raise ValueError(
                    f"column {name!r} of X holds text, such as {cell!r}; make numbers of it, "
                    f"pd.get_dummies(X, dtype=float), or give groups={name!r} if it is the group"
                )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_table(X: Any) -> bool:
    """Whether X has named columns."""
    return hasattr(X, "columns") and not hasattr(X, "tocsr")


def has_columns(X: Any, names: Sequence[str]) -> bool:
    """Whether X is a table with all these columns."""
    return bool(names) and is_table(X) and set(names) <= set(X.columns)


def _names_columns(X: Any, groups: Any) -> bool:
    """Whether `groups` is a list of different columns of X, and not of the samples' groups."""
    if not (isinstance(groups, list | tuple) and groups and all(isinstance(each, str) for each in groups)):
        return False
    if len(set(groups)) < len(groups) or not is_table(X):
        return False
    return has_columns(X, groups) or len(groups) != len(X)  # the latter are misspelt, and told so


def _table(X: Any) -> Any:
    try:
        import narwhals
    except ImportError as error:
        raise BackendMissing(
            'groups="column" needs narwhals to read the table: pip install "fdro[sklearn]"'
        ) from error
    return narwhals.from_native(X, eager_only=True)


def _columns(groups: Any, samples: int) -> list[NDArray[Any]]:
    """The columns that the groups are made of; without missing entries."""
    if is_table(groups):
        labels = [np.asarray(groups[name]) for name in groups.columns]
    else:
        # A list of texts with a NaN would become the text "nan": entries are looked at as they are.
        array = np.asarray(groups, dtype=None if hasattr(groups, "dtype") else object)
        labels = list(array.T) if array.ndim == 2 else [array]
    for column in labels or [np.empty(0)]:
        if column.shape != (samples,):
            raise ValueError(
                f"groups must have one entry for each of the {samples} samples, got {column.shape}"
            )
        missing = _missing(column)
        if missing.any():
            raise ValueError(
                f"groups must not hold NaN or None, got {int(missing.sum())} of them, the first for sample "
                f"{int(missing.argmax())}; give samples without a group one of their own, such as 'unknown'"
            )
    return labels


def _index(labels: NDArray[Any]) -> tuple[Names, Places]:
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
