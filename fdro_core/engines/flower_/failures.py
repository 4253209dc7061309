"""A worker's exception as plain values, and back: no pickle, so no code of the other side.

The class is found again by its name among Python's own exceptions and fdro's; any other becomes a
RuntimeError whose text begins with that name. The traceback comes along as a note.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any

from fdro_core import errors
from fdro_core.engines.flower_ import plain
from fdro_core.engines.wall_clock.host import RAISED_AT
from fdro_core.protocol.failures import traceback_of, words

LONGEST_TEXT, LONGEST_TRACEBACK = 4000, 40_000


def to_values(error: Exception, *, details: bool = True) -> dict[str, str]:
    """Return an exception as texts; without `details` its class alone, since a text may quote data.

    >>> to_values(KeyError("age"), details=False)["class"]
    'KeyError'
    """
    name = type(error).__name__
    if not details:
        return {"class": name, "text": "(its text stays at the node)", "arguments": "", "traceback": ""}
    return {
        "class": name,
        "text": words(error)[:LONGEST_TEXT],
        "arguments": _arguments(error),
        "traceback": traceback_of(error)[-LONGEST_TRACEBACK:],
    }


def from_values(values: Mapping[str, Any]) -> Exception:
    """Return the exception that the values describe.

    >>> from_values(to_values(KeyError("age")))
    KeyError('age')
    >>> from_values({"class": "Unheard", "text": "Unheard: of", "arguments": "", "traceback": ""})
    RuntimeError('Unheard: of')
    """
    name, text, arguments, trace = (
        str(values.get(key, "")) for key in ("class", "text", "arguments", "traceback")
    )
    error = _made(name, arguments)
    if error is None:
        short = text[:LONGEST_TEXT]
        error = RuntimeError(short if short.startswith(name) else f"{name[:80]} {short}".strip())
    if trace:
        error.add_note(RAISED_AT + trace[-LONGEST_TRACEBACK:])
    return error


def _arguments(error: Exception) -> str:
    given = error.args
    if isinstance(error, OSError) and error.filename is not None and len(given) == 2:
        given = (*given, str(error.filename))  # which Python keeps apart
    try:
        text = plain.dump(given)
        return text if len(text) <= LONGEST_TEXT else ""
    except Exception:  # arguments that are no plain values: the text has to do
        return ""


def _made(name: str, arguments: str) -> Exception | None:
    """Return the exception if its class is known and takes these arguments."""
    known = vars(errors) | vars(builtins)
    cls = known.get(name)
    if not arguments or not (isinstance(cls, type) and issubclass(cls, Exception)):
        return None
    try:
        given = plain.load(arguments)
        error = cls(*given)
        words(error)
    except Exception:  # it does not take them
        return None
    return error if isinstance(error, Exception) else None
