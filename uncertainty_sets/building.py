"""Build a set from its class and parameters by name: for the registry, examples, estimators and run files."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from uncertainty_sets.errors import InvalidInput, InvalidParameter
from uncertainty_sets.names import instead, join_names

if TYPE_CHECKING:
    from uncertainty_sets.arrays import Array
    from uncertainty_sets.contract import SetContract

SomeSet = TypeVar("SomeSet", bound="SetContract")


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


def _listed(cls: type[SetContract]) -> str | None:
    """The parameter that takes any number of values; None if there is none, or if all are passed on."""
    found = inspect.signature(cls).parameters.values()
    if any(item.kind is item.VAR_KEYWORD for item in found):
        return None
    return next((item.name for item in found if item.kind is item.VAR_POSITIONAL), None)


def check_parameters(cls: type[SetContract], given: Mapping[str, Any], known: Collection[str]) -> None:
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
