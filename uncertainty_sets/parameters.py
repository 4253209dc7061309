"""Parameters as users write them: turned into clean arrays or refused, and a set built from them by name."""

from __future__ import annotations

import inspect
import math
import operator
from numbers import Real
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.errors import InvalidInput, InvalidLosses, InvalidParameter
from uncertainty_sets.registry import instead, join_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from uncertainty_sets.arrays import Array
    from uncertainty_sets.base import UncertaintySet

SomeSet = TypeVar("SomeSet", bound="UncertaintySet")

SUM_TOLERANCE = 1e-9
"""How far from 1 a centre's sum may be; it is then divided by its sum."""

ROUNDED_SUM = 4.0 * 2.0**-52
"""How far from 1 the sum is of a centre that was divided by it already."""


class HasRows(Protocol):
    """A set, as far as the layout of its parameters goes."""

    rows: int | None


def readonly(array: Array) -> Array:
    """A view that cannot be written through: what sets hand out as their parameters."""
    view = array.view()
    view.flags.writeable = False
    return view


def as_rows(owner: HasRows, array: Array) -> Array:
    """A parameter that is stored as (rows, ...), without the first axis for a single set."""
    return readonly(array if owner.rows is not None else array[0])


def as_numbers(owner: HasRows, array: Array) -> float | Array:
    """A parameter that is stored as (rows,): one number for a single set."""
    return float(array[0]) if owner.rows is None else readonly(array)


def as_floats(name: str, value: ArrayLike, error: type[InvalidInput]) -> Array:
    """Real numbers as a plain float64 array; what only looks like numbers is refused."""

    def refuse(words: str) -> InvalidInput:
        return error(f"{name} must {words}", parameter=name, value=value)

    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise refuse("not have masked entries; fill or drop them")
    if hasattr(value, "is_constant") and hasattr(value, "value"):
        unset = ", which is not set yet" if value.value is None else ""
        raise refuse(f"be real numbers, got a cvxpy {type(value).__name__}; give its `value`{unset}")
    if getattr(value, "requires_grad", False) is True:
        raise refuse(f"be plain numbers, got a tensor that requires grad; give {name}.detach()")
    if value is None:  # which NumPy would read as NaN
        raise refuse("be real numbers, got None")
    try:
        array = np.asarray(value)
        if array.dtype.kind in "fiubO":
            return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError) as cause:
        raise refuse(f"be real numbers of one shape: {cause}") from cause
    kind = "complex numbers" if array.dtype.kind == "c" else f"entries of type {array.dtype}"
    raise refuse(f"be real numbers, got {kind}")


def as_number(
    name: str,
    value: Any,
    need: str,
    allows: Callable[[float], bool],
    error: type[InvalidInput],
    hint: str = "",
) -> float:
    """One finite number that is allowed; `need` says which are."""
    plain = isinstance(value, Real) or (isinstance(value, np.ndarray) and value.ndim == 0)
    kind = value.dtype.kind if isinstance(value, np.ndarray | np.generic) else "f"
    if plain and not isinstance(value, bool) and kind in "fiu":
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number) and allows(number):
            return number
    raise error(f"{name} must be {need}, got {value!r:.80}{hint}", parameter=name, value=value)


def as_index(name: str, value: Any, count: int) -> int:
    """The place of one of so many rows, from 0; negative numbers count from the end."""
    try:
        found = None if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        found = None
    if found is None:
        raise InvalidInput(
            f"{name} must be the number of a row, a whole number, got {value!r:.80}",
            parameter=name,
            value=value,
        )
    if not -count <= found < count:
        raise InvalidInput(f"there is no {name} {value}: there are {count}", parameter=name, value=value)
    return found % count


def labels_of(given: Iterable[Any]) -> Any:
    """The index that those of the parameters share that are pandas Series; None if there are none.

    NumPy goes by places, pandas by labels: Series with other labels would be combined wrongly.
    """
    series = [each for each in given if hasattr(each, "reindex") and getattr(each, "ndim", 0) == 1]
    if not series:
        return None
    for each in series[1:]:
        if not each.index.equals(series[0].index):
            raise InvalidParameter(
                f"the parameters are pandas Series with different indices, {_shown(series[0].index)} and "
                f"{_shown(each.index)}; reindex one like the other, or give arrays (.to_numpy())",
                value=each,
            )
    return series[0].index


def check_labels(labels: Any, losses: Any) -> None:
    """Refuse losses in pandas whose entries have other labels than the set's parameters."""
    if labels is None or not hasattr(losses, "reindex"):
        return
    found = losses.index if losses.ndim == 1 else losses.columns
    if not found.equals(labels):
        raise InvalidLosses(
            f"losses and the set's parameters are pandas Series with different indices, {_shown(found)} and "
            f"{_shown(labels)}; reindex the losses like the parameters, or give arrays (.to_numpy())",
            parameter="losses",
            value=losses,
        )


def _shown(index: Any) -> str:
    first = ", ".join(map(repr, index[:4].tolist()))
    return f"[{first}, …]" if len(index) > 4 else f"[{first}]"


def as_array(name: str, value: ArrayLike, *, finite: bool = True) -> Array:
    """Our own C-contiguous float64 copy of a parameter, without NaN."""
    array = np.array(as_floats(name, value, InvalidParameter), order="C")
    if array.ndim == 0 and math.isfinite(array):  # Python checks a number sooner
        return array
    good = np.isfinite(array) if finite else ~np.isnan(array)
    if not np.logical_and.reduce(good, axis=None):  # half the time of good.all()
        bad = ~good
        need = "finite" if finite else "free of NaN"
        raise InvalidParameter(
            f"{name} must be {need}, got {array[bad].flat[0]}", parameter=name, value=value
        )
    return array


def as_vector_rows(name: str, value: ArrayLike, *, finite: bool = True) -> Array:
    """A vector (N,), or one per row (B, N), as (1 or B, N)."""
    array = as_array(name, value, finite=finite)
    if array.ndim not in {1, 2} or array.size == 0:
        raise InvalidParameter(
            f"{name} must have shape (N,) or (B, N), got {array.shape}", parameter=name, value=value
        )
    return array if array.ndim == 2 else array[None]


def as_center(value: ArrayLike, name: str = "center") -> Array:
    """A probability vector, or one per row, as (1 or B, N); sums within 1e-9 of 1 are made 1.

    In single precision or less, a sum is only known to a few units in the last place. A sum that is 1 up to
    the rounding of a division stays: a set that is made again from its own centre has the same centre.
    """
    center = as_vector_rows(name, value)
    if np.minimum.reduce(center, axis=None) < 0.0:
        at = np.unravel_index(int(center.argmin()), center.shape)
        raise InvalidParameter(
            f"{name} must not be negative, got {center[at]} at entry {at[1]}", parameter=name, value=value
        )
    with np.errstate(over="ignore"):
        total = np.add.reduce(center, axis=1, keepdims=True)
    off = float(np.maximum.reduce(np.abs(total - 1.0), axis=None))
    if off <= ROUNDED_SUM:
        return center
    if off > SUM_TOLERANCE and off > SUM_TOLERANCE + _rounding_of(value, center.shape[1]):
        worst = float(total[np.abs(total - 1.0).argmax(), 0])
        raise InvalidParameter(
            f"{name} must sum to 1, got {worst:.12g} (off by {worst - 1.0:+.3g}); divide it by its sum",
            parameter=name,
            value=value,
        )
    center /= np.where(np.abs(total - 1.0) <= ROUNDED_SUM, 1.0, total)
    return center


def _rounding_of(value: ArrayLike, size: int) -> float:
    """By how much a sum of numbers in less than double precision may be off: ulps of 1, more for many."""
    kind = getattr(value, "dtype", None)
    kind = getattr(kind, "numpy_dtype", kind)  # of pandas
    digits = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
    return 4.0 * digits.get(str(kind).removeprefix("torch."), 0.0) * max(1.0, math.sqrt(size) / 4.0)


def as_scalar_rows(name: str, value: ArrayLike, rows: int, *, finite: bool = True) -> Array:
    """A number >= 0, or one per row, as (1 or B,)."""
    array = as_array(name, value, finite=finite)
    if array.ndim > 1 or array.size == 0 or (array.ndim == 1 and rows > 1 and array.size != rows):
        shape = f"a number or shape ({rows},)" if rows > 1 else "a number or shape (B,)"
        raise InvalidParameter(
            f"{name} must be {shape}, got shape {array.shape}", parameter=name, value=value
        )
    check_not_negative(name, array)
    return array if array.ndim == 1 else array[None]


def check_not_negative(name: str, array: Array) -> None:
    """Refuse a parameter with an entry below 0."""
    if (array if array.ndim == 0 else np.minimum.reduce(array, axis=None, initial=0.0)) < 0.0:
        raise InvalidParameter(f"{name} must not be negative, got {array.min()}", parameter=name, value=array)


def broadcast(array: Array, shape: tuple[int, ...]) -> Array:
    """Broadcast to that shape; contiguous and writable, since numba compiles anew for arrays that are not."""
    if array.shape == shape:
        return array
    if (1, *array.shape) == shape:
        return array[None]
    return np.array(np.broadcast_to(array, shape), order="C")


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


def describe(value: object) -> str:
    """A parameter for a repr: short arrays whole, long ones by their shape, all but numbers by their repr."""
    if not isinstance(value, int | float | np.ndarray | np.generic):
        return repr(value)
    array = np.asarray(value)
    if array.dtype.kind not in "iuf":
        return repr(value)
    if array.ndim == 0:
        return f"{float(array):g}"
    if array.ndim == 1 and array.size <= 6:
        return "[" + ", ".join(f"{x:.4g}" for x in array) + "]"
    return f"<{'x'.join(map(str, array.shape))} array>"


# -- a set from its class and parameters by name -------------------------------------------------------------


def parameters_of(cls: type[Any]) -> dict[str, bool]:
    """The parameters of a set's constructor, and whether each is needed.

    One that takes any number of values (`*members`) is needed; by name it is given as a list.

    >>> from uncertainty_sets import Wasserstein1
    >>> parameters_of(Wasserstein1)
    {'center': True, 'radius': True, 'cost': False}
    """
    found, listed = inspect.signature(cls).parameters.values(), _listed(cls)
    return {
        item.name: item.default is item.empty
        for item in found
        if item.kind in {item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY} or item.name == listed
    }


def _listed(cls: type[UncertaintySet]) -> str | None:
    """The parameter that takes any number of values; None if there is none, or if all are passed on."""
    found = inspect.signature(cls).parameters.values()
    if any(item.kind is item.VAR_KEYWORD for item in found):
        return None
    return next((item.name for item in found if item.kind is item.VAR_POSITIONAL), None)


def check_parameters(cls: type[UncertaintySet], given: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse parameters that the set does not have, and name needed ones that are neither given nor known."""
    takes = parameters_of(cls)
    label = cls.name or cls.__name__
    open_ended = any(
        item.kind is item.VAR_KEYWORD for item in inspect.signature(cls).parameters.values()
    )  # fmt: skip
    for parameter, value in given.items():
        if parameter not in takes and not open_ended:
            raise InvalidParameter(
                f"{label} has no parameter {parameter!r}{instead(parameter, takes, 'It takes')}",
                parameter=parameter,
                value=value,
            )
    missing = [name for name, needed in takes.items() if needed and name not in {*given, *known}]
    if missing:
        raise InvalidParameter(
            f"{label} needs {join_names(missing)}; its parameters are {', '.join(takes)}",
            parameter=missing[0],
        )


def _is_number(value: Any) -> bool:
    """Whether a parameter is a single number: Python's, NumPy's, or an array without dimensions."""
    return isinstance(value, Real) or (isinstance(value, np.ndarray) and value.ndim == 0)


def build(
    cls: type[SomeSet],
    given: Mapping[str, Any],
    size: int | None,
    *,
    center: Array | None = None,
    fill: bool = False,
) -> SomeSet:
    """The set of that class over `size` entries, from parameters by name.

    A needed centre that is not given is `center`, or uniform; a needed `size` is N. One number for a
    parameter that has an entry per probability (`per_entry`) stands for that number in every entry. A set
    that leaves its size open gets it. A set that has another size is for the caller to refuse, who knows why.

    Args:
        cls: the class.
        given: parameters by name.
        size: N; None if only the losses tell, and then nothing is filled in.
        center: the centre of sets that need one.
        fill: whether all other needed parameters that are not given come from `default_parameters`.
    """
    known: dict[str, Any] = {}
    if size is not None:
        if not isinstance(size, int | np.integer) or size < 1:  # users may pass any type
            raise InvalidInput(
                f"size must be a whole number >= 1, got {size!r}", parameter="size", value=size
            )
        q = np.full(size, 1.0 / size) if center is None else center
        known = cls.default_parameters(q) if fill else {"center": q, "size": size}
    check_parameters(cls, given, known)
    needed = [name for name, is_needed in parameters_of(cls).items() if is_needed]
    chosen = {name: known[name] for name in needed if name not in given} | dict(given)
    if size is not None:
        for name in cls.per_entry & chosen.keys():
            if _is_number(chosen[name]):
                chosen[name] = np.full(size, float(chosen[name]))
    listed = _listed(cls)
    try:
        made = cls(*(chosen.pop(listed) if listed else ()), **chosen)
    except InvalidInput:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidParameter(f"{cls.name or cls.__name__}: {error}") from error
    return made if size is None or made.size is not None else made.with_size(size)
