"""Losses, groups and covariates as people have them, turned into arrays or refused with what to do.

Arrays, lists, columns of pandas, polars or pyarrow by themselves or by name, and torch tensors all come as
NumPy arrays by one call; nothing of these packages is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import InvalidInput
from uncertainty_sets.parameters import as_floats
from uncertainty_sets.registry import instead

SMALL = 50
"""Rows below which groups are merged."""

MOST_CATEGORIES = 30
"""Of a covariate in words."""

OTHERS = "other groups"


def plain(value: Any) -> NDArray[Any]:
    """An array of a column, a list or a tensor."""
    if hasattr(value, "detach"):  # a tensor, with or without gradients, wherever it is
        value = value.detach().cpu()
        if value.is_floating_point():
            value = value.double()  # NumPy has no bfloat16
    return np.asarray(value)


def column(data: Any, name: str, what: str) -> NDArray[Any]:
    """A column of a table by name."""
    if data is None:
        raise InvalidInput(
            f"{what}={name!r} is the name of a column: give the table as data=", parameter=what
        )
    if hasattr(data, "collect") and not hasattr(data, "to_numpy"):
        raise InvalidInput("data is lazy: give data.collect()", parameter="data")
    names = (
        list(getattr(data, "columns", None) or getattr(data, "column_names", None) or data)
        if not hasattr(data, "iloc")
        else [str(each) for each in data.columns]
    )
    if name not in names:
        known = [str(each) for each in names]
        raise InvalidInput(f"data has no column {name!r}{instead(name, known, 'It has')}", parameter=what)
    return plain(data[name])


def as_losses(given: Any, data: Any) -> Array:
    """A finite loss for each row."""
    values = column(data, given, "losses") if isinstance(given, str) else plain(given)
    if values.dtype.kind == "b":
        values = values.astype(np.float64)
    losses = as_floats("losses", values, InvalidInput)
    if losses.ndim == 2 and 1 in losses.shape:
        losses = losses.ravel()
    if losses.ndim != 1 or losses.size < 2:
        raise InvalidInput(
            f"losses must be one number for each row, two rows or more, got shape {losses.shape}",
            parameter="losses",
        )
    bad = np.flatnonzero(~np.isfinite(losses))
    if bad.size:
        raise InvalidInput(
            f"losses must be finite: row {bad[0]} has {losses[bad[0]]}, and {bad.size - 1} more "
            "are not; drop these rows, or decide what they cost",
            parameter="losses",
        )
    return losses


def as_bounds(given: Any, losses: Array) -> tuple[float, float] | None:
    """The least and largest possible loss, which must be known beforehand."""
    if given is None:
        return None
    low, top = (float(each) for each in given)
    if not low < top or not np.isfinite([low, top]).all():
        raise InvalidInput(
            f"bounds must be two finite numbers, the smaller first, got {given!r}", parameter="bounds"
        )
    least, most = float(losses.min()), float(losses.max())
    if least < low or most > top:
        raise InvalidInput(
            f"losses go from {least:.6g} to {most:.6g}, outside bounds=({low:g}, {top:g}). Give the least "
            "and largest loss that are possible, known without these data; or clip: losses.clip(low, high), "
            "which audits the clipped loss; or bounds=None, and nothing is said of the population",
            parameter="bounds",
        )
    return low, top


def as_weights(given: Any, data: Any, n: int) -> Array | None:
    """A weight for each row, above 0; they are divided by their sum."""
    if given is None:
        return None
    values = column(data, given, "sample_weight") if isinstance(given, str) else plain(given)
    weights = as_floats("sample_weight", values, InvalidInput)
    if weights.shape != (n,) or not np.isfinite(weights).all() or not (weights > 0.0).all():
        raise InvalidInput(
            f"sample_weight must be {n} finite numbers above 0, one for each row; leave out rows of weight 0",
            parameter="sample_weight",
        )
    return np.asarray(weights / weights.sum())


def codes(given: Any, n: int, what: str) -> tuple[list[str], NDArray[np.intp]]:
    """Labels and the number of each row's label, in sorted order of the labels."""
    # A list of texts with a NaN would become the text "nan": its entries are looked at as they are.
    values = np.asarray(given, dtype=object) if isinstance(given, list) else plain(given)
    if values.shape != (n,):
        raise InvalidInput(
            f"{what} must have a label for each of {n} rows, got shape {values.shape}", parameter=what
        )
    if values.dtype.kind in "iub":
        labels, code = np.unique(values, return_inverse=True)
        return [str(each) for each in labels.tolist()], code.astype(np.intp)
    listed = values.tolist()
    missing = next((k for k, each in enumerate(listed) if _is_missing(each)), None)
    if missing is not None or "" in listed:
        row = listed.index("") if missing is None else missing
        raise InvalidInput(
            f"{what} has no label in row {row}: give missing ones a name of their own", parameter=what
        )
    places: dict[Any, int] = {}
    found = np.fromiter((places.setdefault(each, len(places)) for each in listed), np.intp, n)
    order = sorted(
        range(len(places)), key=lambda k: _sortable(list(places)[k]) if len(places) < 2000 else str(k)
    )
    known = list(places)
    rank = np.empty(len(order), np.intp)
    rank[order] = np.arange(len(order))
    return [str(known[k]) for k in order], rank[found]


def _is_missing(label: Any) -> bool:
    """None, NaN, and what pandas has in their place."""
    return label is None or type(label).__name__ in {"NAType", "NaTType"} or label != label  # noqa: PLR0124


def _sortable(label: Any) -> tuple[int, float, str]:
    return (0, float(label), "") if isinstance(label, int | float) else (1, 0.0, str(label))


def as_groups(given: Any, data: Any, n: int) -> tuple[list[str], list[NDArray[np.intp]], bool]:
    """The groups' names, the rows of each, and whether a row is in at most one.

    Labels, the name of a column of them, a boolean array (rows, groups), a mapping from name to booleans, or
    a list of names of columns of 0 and 1. Groups with under 50 rows are merged, if there are several and no
    row is in two.
    """
    names: list[str]
    if isinstance(given, str):
        given = column(data, given, "groups")
    if isinstance(given, Mapping):
        names, columns = [str(each) for each in given], [plain(each) for each in given.values()]
    elif isinstance(given, Sequence) and data is not None and all(isinstance(each, str) for each in given):
        names, columns = list(given), [column(data, each, "groups") for each in given]
    else:
        values = plain(given)
        if values.ndim == 1:
            return _disjoint(*codes(given, n, "groups"))
        own = getattr(given, "columns", None)
        names = (
            [f"group {g}" for g in range(values.shape[-1])] if own is None else [str(each) for each in own]
        )
        columns = list(values.T)
    rows = []
    for name, each in zip(names, columns, strict=True):
        if each.shape != (n,) or not np.isin(each, (0, 1)).all():
            raise InvalidInput(
                f"group {name!r} must have true or false for each of {n} rows, got {each.dtype} of shape "
                f"{each.shape}",
                parameter="groups",
            )
        rows.append(np.flatnonzero(each))
        if not rows[-1].size:
            raise InvalidInput(f"group {name!r} has no rows: leave it out", parameter="groups")
    seen = np.bincount(np.concatenate(rows), minlength=n)
    if (seen == 0).any():
        rows.append(np.flatnonzero(seen == 0))
        names = [*names, "in no group"]
    return names, rows, bool((seen <= 1).all())


def _disjoint(names: list[str], code: NDArray[np.intp]) -> tuple[list[str], list[NDArray[np.intp]], bool]:
    sizes = np.bincount(code)
    small = np.flatnonzero(sizes < SMALL)
    if small.size > 1:
        kept = np.flatnonzero(sizes >= SMALL)
        place = np.full(sizes.size, kept.size)
        place[kept] = np.arange(kept.size)
        names = [names[g] for g in kept] + [f"{OTHERS} ({small.size} under {SMALL} rows)"]
        code = place[code]
        sizes = np.bincount(code)
    order = np.argsort(code.astype(np.int16 if sizes.size < 30000 else np.int64), kind="stable")
    return names, np.split(order, np.cumsum(sizes)[:-1]), True


def as_covariates(given: Any, data: Any, names: Sequence[str] | None, n: int) -> tuple[Array, list[str]]:
    """Numbers (rows, covariates) and their names; a column of words becomes a column of 0 and 1 per word."""
    if isinstance(given, str):
        given = [given]
    if data is not None and isinstance(given, Sequence) and all(isinstance(each, str) for each in given):
        labels, parts = list(given), [column(data, each, "covariates") for each in given]
    elif isinstance(given, Mapping):
        labels, parts = [str(each) for each in given], [plain(each) for each in given.values()]
    elif hasattr(given, "columns") and not callable(given.columns):
        labels = [str(each) for each in given.columns]
        parts = [column(given, each, "covariates") for each in labels]
    else:
        values = plain(given)
        values = values[:, None] if values.ndim == 1 else values
        labels = list(names) if names is not None else [f"x{j}" for j in range(values.shape[-1])]
        parts = list(values.T)
    if len(labels) != len(parts):
        raise InvalidInput(
            f"names must be {len(parts)}, one for each covariate, got {len(labels)}", parameter="names"
        )
    found: list[Array] = []
    shown: list[str] = []
    for label, part in zip(labels, parts, strict=True):
        if part.shape != (n,):
            raise InvalidInput(
                f"covariate {label!r} must have {n} rows, got shape {part.shape}", parameter="covariates"
            )
        for name, values in _numbers(label, part):
            shown.append(name)
            found.append(values)
    return np.column_stack(found), shown


def _numbers(label: str, part: NDArray[Any]) -> list[tuple[str, Array]]:
    """One covariate as columns of numbers."""
    try:
        values = part.astype(np.float64)
    except (TypeError, ValueError):
        words = np.array(["missing" if _is_missing(each) else str(each) for each in part.tolist()])
        kinds = sorted(set(words.tolist()))
        if len(kinds) > MOST_CATEGORIES:
            raise InvalidInput(
                f"covariate {label!r} has {len(kinds)} different words; leave it out, or join rare ones",
                parameter="covariates",
            ) from None
        return [(f"{label} = {kind}", (words == kind).astype(np.float64)) for kind in kinds]
    if not np.isfinite(values).all():
        raise InvalidInput(
            f"covariate {label!r} has NaN or infinity in row {int(np.argmin(np.isfinite(values)))}; fill it",
            parameter="covariates",
        )
    return [(label, values)]


PER_SAMPLE = {
    "accuracy": "error",
    "accuracy_score": "error",
    "zero_one_loss": "error",
    "neg_brier_score": "brier",
    "brier_score_loss": "brier",
    "neg_mean_absolute_error": "absolute",
    "mean_absolute_error": "absolute",
    "neg_mean_squared_error": "squared",
    "mean_squared_error": "squared",
    "neg_log_loss": "log",
    "log_loss": "log",
}
"""scikit-learn's scorers and metrics that are means over samples, and the loss of a sample."""


def losses_of(model: Any, X: Any, y: Any, scoring: Any = None) -> Array:
    """The loss of each sample under a fitted scikit-learn model, for a scorer that is a mean over samples.

    Args:
        model: fitted.
        X, y: data that it has not seen.
        scoring: a scorer of scikit-learn or its name; None: "accuracy" for classifiers and
            "neg_mean_absolute_error" for other models.
    """
    if scoring is None:
        scoring = "accuracy" if hasattr(model, "classes_") else "neg_mean_absolute_error"
    function = getattr(scoring, "_score_func", scoring)
    name = function if isinstance(function, str) else getattr(function, "__name__", repr(function))
    kind = PER_SAMPLE.get(name)
    if kind is None:
        raise InvalidInput(
            f"scoring={name!r} is not a mean over samples, so samples have no losses of it; one of "
            f"{', '.join(each for each in PER_SAMPLE if not each.startswith('mean'))}, or compute the losses",
            parameter="scoring",
            value=scoring,
        )
    truth = plain(y)
    if kind == "error":
        return np.asarray((plain(model.predict(X)) != truth).astype(np.float64))
    if kind in {"absolute", "squared"}:
        error = np.abs(plain(model.predict(X)).astype(np.float64) - truth)
        return np.asarray(error if kind == "absolute" else error**2)
    probabilities, classes = plain(model.predict_proba(X)), plain(model.classes_)
    right = probabilities[np.arange(truth.size), np.searchsorted(classes, truth)]
    if kind == "log":
        return np.asarray(-np.log(np.maximum(right, 1e-15)))
    if classes.size == 2:
        return np.asarray((1.0 - right) ** 2)
    return np.asarray(((probabilities - (classes == truth[:, None])) ** 2).sum(axis=1) / 2.0)
