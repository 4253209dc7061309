"""A set from its name and parameters as people write them, on the command line and in run files."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fdro_core.cli.references import load_reference
from fdro_core.errors import InvalidSetting
from uncertainty_sets.arrays import Array
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.discovery import is_reference
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.registry import get_set, make_set


def set_class(name: str, folder: Path | None = None) -> type[UncertaintySet]:
    """Find the class of a set: by its name, or as "module:Class" in `folder` or an installed package.

    Args:
        name: as `fdro sets` lists it, or "module:Class".
        folder: where the module may be; the current folder by default.

    >>> set_class("kl")
    <class 'uncertainty_sets.sets.kl.KL'>
    >>> set_class("uncertainty_sets:KL")
    <class 'uncertainty_sets.sets.kl.KL'>
    """
    if not is_reference(name):
        return get_set(name)
    found = load_reference(name, Path.cwd() if folder is None else folder, "class")
    if not (isinstance(found, type) and issubclass(found, UncertaintySet)):
        kind = "a class of another kind" if isinstance(found, type) else f"a {type(found).__name__}"
        raise InvalidSetting(
            f"{name} is {kind}, and a set is needed: a subclass of uncertainty_sets.UncertaintySet"
        )
    return found


def written_set(
    cls: type[UncertaintySet], given: Mapping[str, Any], size: int, samples: Array | None = None
) -> UncertaintySet:
    """The set of that class for N = size entries, from numbers, lists and words.

    A centre that is not given, or is "uniform", is 1/N; "samples" is in proportion to the workers' samples.
    A number for a parameter that has an entry per probability stands for that number in every entry. A set of
    another size is for the caller to refuse, who knows why.

    >>> written_set(set_class("kl"), {"radius": 0.1, "center": "uniform"}, 4)
    KL(center=[0.25, 0.25, 0.25, 0.25], radius=0.1)
    """
    parameters = dict(given)
    if isinstance(given.get("center"), str):
        parameters["center"] = _center(given["center"], size, samples)
    refuse_words(cls, parameters)
    return make_set(cls, parameters, size)


def refuse_words(cls: type[UncertaintySet], parameters: Mapping[str, Any]) -> None:
    """Raise for a word that is given for numbers."""
    takes = inspect.signature(cls).parameters
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
