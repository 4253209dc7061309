"""A set from its name and parameters as people write them, for the command line and config files."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fdro_core.words import instead, one_or_more
from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import InvalidInput, InvalidParameter
from uncertainty_sets.registry import get_set

if TYPE_CHECKING:
    from uncertainty_sets.base import UncertaintySet


_NEEDS_VECTOR = re.compile(r"(\w+) must have shape \(N,\)")


def parameters_of(cls: type[UncertaintySet]) -> dict[str, bool]:
    """The parameters of a set's constructor, and whether each is needed.

    >>> parameters_of(get_set("wasserstein-1"))
    {'center': True, 'radius': True, 'cost': False}
    """
    found = inspect.signature(cls).parameters.values()
    return {
        item.name: item.default is item.empty
        for item in found
        if item.kind in {item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY}
    }


def check_parameters(name: str, given: Mapping[str, Any]) -> None:
    """Refuse parameters that the set does not have, and say which it needs."""
    known = parameters_of(get_set(name))
    for parameter in given:
        if parameter not in known:
            raise InvalidParameter(
                f"{name} has no parameter {parameter!r}{instead(parameter, list(known), 'It takes')}"
            )
    missing = [item for item, needed in known.items() if needed and item not in {*given, "center", "size"}]
    if missing:
        raise InvalidParameter(
            f"{name} needs {one_or_more(missing)}; `fdro sets {name}` says what "
            f"{'they mean' if len(missing) > 1 else 'it means'}"
        )


def make_set(name: str, given: Mapping[str, Any], size: int, samples: Array | None = None) -> UncertaintySet:
    """The set of that name for N = size entries.

    A set that leaves its size open gets it; one of another size is for the caller to refuse, who knows why.
    A centre that is not given, or is "uniform", is 1/N; "samples" is in proportion to the workers' samples.
    A number for a parameter that needs a vector stands for that number in every entry.

    >>> make_set("kl", {"radius": 0.1}, 4)
    KL(center=[0.25, 0.25, 0.25, 0.25], radius=0.1)
    >>> make_set("box", {"lower": 0.0, "upper": 0.5}, 3)
    Box(lower=[0, 0, 0], upper=[0.5, 0.5, 0.5])
    """
    check_parameters(name, given)
    cls = get_set(name)
    parameters = dict(given)
    known = parameters_of(cls)
    if "center" in known and ("center" in parameters or known["center"]):
        parameters["center"] = _center(parameters.get("center", "uniform"), size, samples)
    if known.get("size") and "size" not in parameters:
        parameters["size"] = size
    hints = inspect.signature(cls).parameters
    for parameter, value in parameters.items():
        if isinstance(value, str) and "str" not in str(hints[parameter].annotation):
            raise InvalidParameter(f"{parameter} must be numbers, or @file with numbers, got {value!r}")
    while True:
        try:
            made = cls(**parameters)
            return made.with_size(size) if made.size is None else made
        except InvalidInput as error:
            vector = _NEEDS_VECTOR.match(str(error))
            if not vector or np.ndim(parameters.get(vector[1], [])) != 0:
                raise
            parameters[vector[1]] = np.full(size, float(parameters[vector[1]]))
        except (TypeError, ValueError) as error:
            raise InvalidParameter(f"{name}: {error}") from error


def _center(given: Any, size: int, samples: Array | None) -> Any:
    if not isinstance(given, str):
        return given
    if given == "uniform":
        return np.full(size, 1.0 / size)
    if given == "samples" and samples is not None:
        return samples / samples.sum()
    known = "uniform, samples" if samples is not None else "uniform"
    raise InvalidParameter(f"center must be {known}, a list of {size} numbers or @file, got {given!r}")
