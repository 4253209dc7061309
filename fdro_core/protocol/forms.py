"""What a field of a message may be: stated in the message's class, checked in every reply.

A class made by `message` declares its fields by `vector`, `number`, `ticket` and so on; the check of a reply
follows. A check returns what is wrong with the field, "" if nothing is. It looks at type and size alone,
before anything is copied, read or printed: a reply of the wrong size costs the master no more than one of the
right size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

import numpy as np

FLOAT = np.dtype(np.float64)

LARGEST = 1e150  # of a parameter, loss, metric or curvature: beyond it squares overflow
LARGEST_SQ = LARGEST**2
LARGEST_INT = 2**62  # of a ticket or a count
LONGEST_TEXT = 2**16  # characters


def vector_fault(reply: Any, name: str, size: int) -> str:
    """Check that a field is a float64 vector of that size."""
    value = getattr(reply, name, None)
    if not isinstance(value, np.ndarray):
        return f"{name} of type {type(value).__name__}; {size} numbers of float64 are needed"
    if value.dtype != FLOAT or value.shape != (size,):
        return f"{name} of shape {value.shape} and {value.dtype}; {size} numbers of float64 are needed"
    return ""


def number_fault(reply: Any, name: str, least: float = -np.inf, most: float = np.inf) -> str:
    """Check that a field is a float between two bounds; without bounds NaN is a float too."""
    value = getattr(reply, name, None)
    if not isinstance(value, float):
        return f"{name} of type {type(value).__name__}; a float is needed"
    unbounded = least == -np.inf and most == np.inf
    return (
        "" if unbounded or least <= value <= most else f"{name} = {value}; it must be in {least:g}..{most:g}"
    )


def integer_fault(reply: Any, name: str, least: int) -> str:
    """Check that a field is an int, at least `least`."""
    value = getattr(reply, name, None)
    if type(value) is not int:
        return f"{name} of type {type(value).__name__}; an int is needed"
    if abs(value) > LARGEST_INT:  # Python refuses to print one of 4,300 digits
        return f"{name}, an int of {value.bit_length()} bits; it must be in {least}..2^62"
    return "" if value >= least else f"{name} = {value}; it must be at least {least}"


def text_fault(reply: Any, name: str) -> str:
    """Check that a field is a string of at most `LONGEST_TEXT` characters."""
    value = getattr(reply, name, None)
    if type(value) is not str:
        return f"{name}, which must be a string"
    if len(value) > LONGEST_TEXT:
        return f"{name} of {len(value):,} characters; at most {LONGEST_TEXT:,} are allowed"
    return ""


# -- fields -----------------------------------------------------------------------------------------

Check = Callable[[Any, str, Any], str]
"""What is wrong with a field of a reply, given its name and the request."""

Class = TypeVar("Class", bound=type[Any])


def _declared(check: Check, exact: str = "", **default: Any) -> Any:
    """A field with its check; `exact` is the same for the usual types, in Python, "" if there is none."""
    return field(metadata={"check": check, "exact": exact}, **default)


def vector(asked_by: str = "", **default: Any) -> Any:
    """A float64 vector, as long as the one that the request has (`Message.sized_by`).

    With `asked_by` it must be there if that number of the request is positive, and be None if not.
    """

    def check(reply: Any, name: str, request: Any) -> str:
        if not asked_by or getattr(request, asked_by) > 0:
            return vector_fault(reply, name, request.size)
        return "" if getattr(reply, name, None) is None else f"{name}, which was not asked for"

    exact = "type({0}) is ndarray and {0}.dtype is FLOAT and {0}.shape == request.{1}.shape"
    exact += " and {0}.flags.carray"
    if asked_by:
        exact = f"({exact} if request.{asked_by} > 0 else {{0}} is None)"
    return _declared(check, exact, **default)


def number(least: float = -np.inf, most: float = np.inf, **default: Any) -> Any:
    """A float between two bounds; without bounds NaN is a float too."""
    exact = "type({0}) is float" if least == -np.inf and most == np.inf else ""
    return _declared(lambda reply, name, request: number_fault(reply, name, least, most), exact, **default)


def ticket() -> Any:
    """The number of the step: at least that of the request, -1 if the request has none."""
    return _declared(
        lambda reply, name, request: integer_fault(reply, name, getattr(request, "ticket", -1)),
        "type({0}) is int and {0} >= request.ticket and {0} <= LARGEST_INT",
    )


def flag(**default: Any) -> Any:
    """True or false."""

    def check(reply: Any, name: str, request: Any) -> str:
        return "" if type(getattr(reply, name, None)) is bool else f"{name}, which must be true or false"

    return _declared(check, "type({0}) is bool", **default)


def free(**default: Any) -> Any:
    """A field of a request, or one that the request checks by itself."""
    return field(**default)


@dataclass_transform(field_specifiers=(vector, number, ticket, flag, free), eq_default=False)
def message(cls: Class) -> Class:
    """Make a message of a class: slots, `__init__`, and the checks of its fields.

    For replies of which every field has an exact type, requests get `_usual(reply, request)`, made as a
    dataclass makes `__init__`: one expression for the common case, that all types are plain and all is well.
    """
    made: Any = dataclass(slots=True, eq=False)(cls)
    declared = [item for item in fields(made) if "check" in item.metadata]
    made._checks = tuple((item.name, item.metadata["check"]) for item in declared)
    if len(declared) == len(fields(made)) and all(item.metadata["exact"] for item in declared):
        made._exact = tuple((item.name, item.metadata["exact"]) for item in declared)
    result: Class = made
    return result


def usual(reply_kind: Any, sized_by: str) -> Callable[[Any, Any], bool] | None:
    """The check of the common case of a reply to requests whose vector has that name, if there is one."""
    if not reply_kind._exact:
        return None
    parts = [exact.format(f"reply.{name}", sized_by) for name, exact in reply_kind._exact]
    names = {"ndarray": np.ndarray, "FLOAT": FLOAT, "LARGEST_INT": LARGEST_INT}
    made: Callable[[Any, Any], bool] = eval(f"lambda reply, request: {' and '.join(parts)}", names)
    return made
