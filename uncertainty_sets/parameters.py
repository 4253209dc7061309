"""Checks that sets share: parameters come in as users write them and leave as clean arrays, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.errors import InvalidInput, InvalidParameter

if TYPE_CHECKING:
    from uncertainty_sets.arrays import Array
    from uncertainty_sets.base import UncertaintySet

SUM_TOLERANCE = 1e-9
"""How far from 1 a centre's sum may be; it is then divided by its sum."""


def readonly(array: Array) -> Array:
    """A view that cannot be written through: what sets hand out as their parameters."""
    view = array.view()
    view.flags.writeable = False
    return view


def as_rows(owner: UncertaintySet, array: Array) -> Array:
    """A parameter kept as (rows, ...) the way its user gave it: without the first axis for a single set."""
    return readonly(array if owner.rows is not None else array[0])


def as_numbers(owner: UncertaintySet, array: Array) -> float | Array:
    """The same for a parameter that is one number a row."""
    return float(array[0]) if owner.rows is None else readonly(array)


def as_floats(name: str, value: ArrayLike, error: type[InvalidInput]) -> Array:
    """Real numbers as a plain float64 array; what only looks like numbers is refused."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise error(f"{name} must not have masked entries; fill or drop them")
    if hasattr(value, "is_constant") and hasattr(value, "value"):
        raise error(
            f"{name} must be real numbers, got a cvxpy {type(value).__name__}; give its `value`"
            f"{', which is not set yet' if value.value is None else ''}"
        )
    if getattr(value, "requires_grad", False) is True:
        raise error(f"{name} must be plain numbers, got a tensor that requires grad; give {name}.detach()")
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "fiubO":
            kind = "complex numbers" if array.dtype.kind == "c" else f"entries of type {array.dtype}"
            raise error(f"{name} must be real numbers, got {kind}")
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError) as cause:
        if isinstance(cause, error):
            raise
        raise error(f"{name} must be real numbers of one shape: {cause}") from cause


def as_array(name: str, value: ArrayLike, *, finite: bool = True) -> Array:
    """Our own C-contiguous float64 copy of a parameter, without NaN."""
    array = np.array(as_floats(name, value, InvalidParameter), order="C")
    bad = ~np.isfinite(array) if finite else np.isnan(array)
    if bad.any():
        need = "finite" if finite else "free of NaN"
        raise InvalidParameter(f"{name} must be {need}, got {array[bad].flat[0]}")
    return array


def as_vector_rows(name: str, value: ArrayLike, *, finite: bool = True) -> Array:
    """A vector (N,) or one for each row (B, N), as (1 or B, N)."""
    array = as_array(name, value, finite=finite)
    if array.ndim not in {1, 2} or array.size == 0:
        raise InvalidParameter(f"{name} must have shape (N,) or (B, N), got {array.shape}")
    return np.atleast_2d(array)


def as_center(value: ArrayLike) -> Array:
    """A probability vector, or one for each row, as (1 or B, N); sums within 1e-9 of 1 are made 1."""
    center = as_vector_rows("center", value)
    if (center < 0.0).any():
        at = np.unravel_index(int(center.argmin()), center.shape)
        raise InvalidParameter(f"center must not be negative, got {center[at]} at entry {at[1]}")
    with np.errstate(over="ignore"):
        total = center.sum(axis=1, keepdims=True)
    off = float(np.abs(total - 1.0).max())
    if off > SUM_TOLERANCE:
        worst = float(total[np.abs(total - 1.0).argmax(), 0])
        raise InvalidParameter(
            f"center must sum to 1, got {worst:.12g} (off by {worst - 1.0:+.3g}); divide it by its sum"
        )
    center /= total
    return center


def as_scalar_rows(name: str, value: ArrayLike, rows: int, *, finite: bool = True) -> Array:
    """A number >= 0, or one for each row, as (1 or B,)."""
    array = as_array(name, value, finite=finite)
    if array.ndim > 1 or array.size == 0 or (array.ndim == 1 and rows > 1 and array.size != rows):
        shape = f"a number or shape ({rows},)" if rows > 1 else "a number or shape (B,)"
        raise InvalidParameter(f"{name} must be {shape}, got shape {array.shape}")
    if (array < 0.0).any():
        raise InvalidParameter(f"{name} must not be negative, got {array.min()}")
    return np.atleast_1d(array)


def spread_to(array: Array, shape: tuple[int, ...]) -> Array:
    """Broadcast to that shape; contiguous and writable, since numba compiles anew for arrays that are not."""
    return array if array.shape == shape else np.array(np.broadcast_to(array, shape), order="C")


def same_rows(*arrays: Array) -> tuple[Array, ...]:
    """Parameters broadcast to one number of rows, each contiguous."""
    count = max(len(array) for array in arrays)
    return tuple(
        array
        if len(array) == count
        else np.ascontiguousarray(np.broadcast_to(array, (count, *array.shape[1:])))
        for array in arrays
    )


def example_center(size: int, rng: np.random.Generator | None) -> Array:
    """A centre for examples: uniform, or drawn from the whole simplex."""
    return np.full(size, 1.0 / size) if rng is None else rng.dirichlet(np.ones(size))


def describe(array: Array | float) -> str:
    """A parameter for a repr: short arrays whole, long ones by their shape."""
    array = np.asarray(array)
    if array.ndim == 0:
        return f"{float(array):g}"
    if array.ndim == 1 and array.size <= 6:
        return "[" + ", ".join(f"{x:.4g}" for x in array) + "]"
    return f"<{'x'.join(map(str, array.shape))} array>"
