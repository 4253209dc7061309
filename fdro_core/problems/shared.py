"""What the shipped problems share: checked matrices and mini-batches."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fdro_core.errors import InvalidProblem
from uncertainty_sets.arrays import Array


def as_matrix(name: str, X: ArrayLike, intercept: bool) -> Array:
    """A float64 copy of X, with a column of ones if there is an intercept."""
    try:
        if np.iscomplexobj(X):
            raise ValueError("complex numbers, of which the imaginary part would be lost")
        matrix = np.array(X, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise InvalidProblem(f"{name}: X must be a matrix of numbers: {error}") from error
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InvalidProblem(f"{name}: X must be (samples, features), both at least 1, got {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise InvalidProblem(f"{name}: X holds NaN or infinity; drop or fill those samples")
    if intercept:
        matrix = np.ascontiguousarray(np.column_stack([matrix, np.ones(len(matrix))]))
    return matrix


def as_labels(name: str, y: ArrayLike, samples: int, classes: int) -> NDArray[np.int64]:
    """The labels as whole numbers, if they are 0..classes-1."""
    labels = np.asarray(y)
    if labels.shape != (samples,):
        raise InvalidProblem(f"{name}: y must have shape ({samples},), as X has rows, got {labels.shape}")
    if labels.dtype.kind == "O":  # a column of a table may hold whole numbers as objects
        labels = np.array(labels.tolist())
    if labels.dtype.kind not in "biuf":  # words, dates, objects
        found = ", ".join(repr(label) for label in labels[:3].tolist()) + (", ..." if samples > 3 else "")
    elif not np.isfinite(labels).all():
        found = "NaN or infinity"
    elif (labels % 1 != 0).any():
        found = f"{labels[labels % 1 != 0][0]}"
    elif labels.min() < 0 or labels.max() >= classes:
        found = f"{labels.min()}..{labels.max()}"
    else:
        return labels.astype(np.int64)
    raise InvalidProblem(
        f"{name}: y must hold whole numbers 0..{classes - 1}, got {found}; number the labels of "
        "all workers together: names, y = np.unique(y, return_inverse=True)"
    )


def check_l2(name: str, l2: float) -> float:
    """Validate the weight of the ridge term."""
    if not (np.isfinite(l2) and l2 >= 0):
        raise InvalidProblem(f"{name}: l2 must be a number >= 0, got {l2}")
    return float(l2)


def draw(rng: np.random.Generator | None, batch_size: int | None, samples: int) -> NDArray[np.int64] | None:
    """Rows of a mini-batch, or None for all of them."""
    if rng is None or batch_size is None or batch_size >= samples:
        return None
    return rng.choice(samples, size=batch_size, replace=False)


def batch(
    X: Array, y: NDArray[Any], rng: np.random.Generator | None, batch_size: int | None
) -> tuple[Array, NDArray[Any]]:
    """A mini-batch of X and y, or all of them."""
    rows = draw(rng, batch_size, len(X))
    return (X, y) if rows is None else (X[rows], y[rows])
