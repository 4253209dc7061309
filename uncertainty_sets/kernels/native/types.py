"""The types of an entry's parameters and results, as numba and C write them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SCALARS = {float: "float64", int: "int64", bool: "boolean"}

IN_C = {"float64": "double", "int64": "int64_t", "boolean": "uint8_t"}
"""numba's scalars in C; a boolean is a byte in arguments and results."""

ENTRIES = {"float64", "float32", "int64"}
"""What an array may hold."""


class UnsuitableEntry(TypeError):
    """An entry has a parameter or a result that a library cannot hand over."""


@dataclass(frozen=True)
class Parameter:
    """One parameter: an array of `dimensions`, or a number if that is 0."""

    name: str
    scalar: str
    dimensions: int
    written: bool

    @property
    def numba(self) -> str:
        """The type as numba writes it."""
        if not self.dimensions:
            return self.scalar
        return f"{self.scalar}[{':, ' * (self.dimensions - 1)}::1]"


def parameters(name: str, function: Callable[..., Any], writes: tuple[str, ...]) -> list[Parameter]:
    """Return the parameters of an entry, from its annotations."""
    hints = typing.get_type_hints(function, include_extras=True)
    names = list(inspect.signature(function).parameters)
    if unknown := set(writes) - set(names):
        raise UnsuitableEntry(f"{name}: entry names {', '.join(sorted(unknown))}, not among its parameters")
    return [_parameter(name, each, hints.get(each), each in writes) for each in names]


def _parameter(entry: str, name: str, hint: Any, written: bool) -> Parameter:
    if hint in SCALARS:
        return Parameter(name, SCALARS[hint], 0, written)
    text = next(iter(getattr(hint, "__metadata__", ())), "")
    scalar, _, axes = str(text).partition("[")
    found = Parameter(name, scalar, axes.count(":") - 1, written)
    if scalar not in ENTRIES or found.numba != text:
        raise UnsuitableEntry(
            f"{entry}: parameter {name} is annotated with {hint}; an entry takes Vector, Matrix, Cube, "
            "Indices, SingleVector or SingleMatrix of uncertainty_sets/arrays.py, float, int or bool"
        )
    return found


def results(name: str, returned: Any) -> tuple[str, ...] | str:
    """Return numba's return type as a scalar, a tuple of scalars, or "none"."""
    text = {"bool": "boolean"}.get(str(returned), str(returned))
    if text == "none" or text in IN_C:
        return text
    each = tuple(str(one) for one in getattr(returned, "types", ()))
    if each and all(one in {"float64", "int64"} for one in each):
        return each
    raise UnsuitableEntry(f"{name} returns {text}; an entry returns nothing, a number, or a tuple of numbers")
