"""Checks of single settings. Each returns the value, or raises `InvalidSetting` that names the setting."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, isfinite, nan
from numbers import Integral, Real
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from fdro_core.errors import InvalidSetting


def check_number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    unit: str = "",
    infinite: bool = False,
) -> float:
    """Check that a setting is a finite number, above or at least a bound; `infinite` allows infinity.

    >>> check_number("Constant.seconds", 2, above=0)
    2.0
    """
    found = _as_float(value)
    if (
        not (isfinite(found) or (infinite and found == inf))
        or (above is not None and found <= above)
        or (least is not None and found < least)
    ):
        bound = f" > {above:g}" if above is not None else "" if least is None else f" >= {least:g}"
        kind = "number" if infinite else "finite number"
        raise _invalid(name, f"a {kind}{unit}{bound}", value)
    return found


def _as_float(value: Any) -> float:
    """The value as a float; NaN if it is not a number, or is too large for a float."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return nan
    try:
        return float(value)
    except OverflowError:
        return nan


def check_whole(name: str, value: Any, least: int) -> int:
    """Check that a setting is a whole number, at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise _invalid(name, f"a whole number >= {least}", value)
    return int(value)


def check_path(name: str, value: Any) -> Path:
    """Check that a setting is the path of a file."""
    if not isinstance(value, str | PathLike) or "\0" in fspath(value):
        raise _invalid(name, "the path of a file", value)
    return Path(value)


def check_list_of(name: str, values: Any, kind: type) -> list[Any]:
    """Check that a setting is a list of instances of one class."""
    found = list(values) if isinstance(values, Iterable) else [values]
    if not isinstance(values, Iterable) or not all(isinstance(value, kind) for value in found):
        raise _invalid(name, f"a list of {kind.__name__}", values)
    return found


def _invalid(name: str, need: str, value: Any) -> InvalidSetting:
    """The error for a setting "Class.parameter"."""
    parameter = name.rpartition(".")[2]
    return InvalidSetting(f"{name} must be {need}, got {value!r:.80}", parameter=parameter, value=value)


def check_object(name: str, value: Any, methods: Iterable[str], example: str) -> None:
    """Check that an argument is an object with these methods, not its class and not its name.

    >>> check_object("engine", "thread", ["start"], "ThreadEngine()")
    Traceback (most recent call last):
        ...
    fdro_core.errors.InvalidSetting: engine is a str without `start`, got 'thread'; give an object ...
    """
    if isinstance(value, type):
        raise InvalidSetting(
            f"{name} is the class {value.__name__}; give an object of it, {value.__name__}(...)",
            parameter=name,
            value=value,
        )
    for method in methods:
        if not callable(getattr(value, method, None)):
            raise InvalidSetting(
                f"{name} is a {type(value).__name__} without `{method}`, got {value!r:.80}; give an object "
                f"such as {example}",
                parameter=name,
                value=value,
            )
