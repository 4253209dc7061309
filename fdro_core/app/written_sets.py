"""A set from its name and parameters as people write them, on the command line and in run files."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.registry import get_set, make_set

if TYPE_CHECKING:
    from uncertainty_sets.base import UncertaintySet


def written_set(
    name: str, given: Mapping[str, Any], size: int, samples: Array | None = None
) -> UncertaintySet:
    """The set of that name for N = size entries, from numbers, lists and words.

    A centre that is not given, or is "uniform", is 1/N; "samples" is in proportion to the workers' samples.
    A number for a parameter that has an entry per probability stands for that number in every entry. A set of
    another size is for the caller to refuse, who knows why.

    >>> written_set("kl", {"radius": 0.1, "center": "uniform"}, 4)
    KL(center=[0.25, 0.25, 0.25, 0.25], radius=0.1)
    """
    parameters = dict(given)
    if isinstance(given.get("center"), str):
        parameters["center"] = _center(given["center"], size, samples)
    refuse_words(name, parameters)
    return make_set(name, parameters, size)


def refuse_words(name: str, parameters: Mapping[str, Any]) -> None:
    """Raise for a word that is given for numbers."""
    takes = inspect.signature(get_set(name)).parameters
    for parameter, value in parameters.items():
        if isinstance(value, str) and parameter in takes and "str" not in str(takes[parameter].annotation):
            raise InvalidParameter(
                f"{parameter} must be numbers, or @file with numbers, got {value!r}",
                parameter=parameter,
                value=value,
            )


def _center(given: str, size: int, samples: Array | None) -> Array:
    """The centre that a word stands for."""
    if given == "uniform":
        return np.full(size, 1.0 / size)
    if given == "samples" and samples is not None:
        shares: Array = samples / samples.sum()
        return shares
    known = "uniform, samples" if samples is not None else "uniform"
    raise InvalidParameter(
        f"center must be {known}, a list of {size} numbers or @file, got {given!r}",
        parameter="center",
        value=given,
    )
