"""Workers' exceptions for the user: in words, with their traceback, as an error of the run."""

from __future__ import annotations

from collections.abc import Sequence
from traceback import format_exception

from fdro_core.errors import NoWorkersLeft
from uncertainty_sets.registry import join_names

LONGEST_NAME, LONGEST_TEXT, LONGEST_TRACEBACK = 200, 2_000, 20_000  # characters


def words(error: BaseException) -> str:
    """The exception in a line or so, whatever its own `__str__` does.

    >>> words(KeyError("age"))
    "KeyError: 'age'"
    """
    try:
        text = str(error)
    except Exception as other:
        text = f"(its message cannot be shown: {type(other).__name__} in __str__)"
    name = shortened(type(error).__name__, LONGEST_NAME)
    return f"{name}: {shortened(text, LONGEST_TEXT)}" if text else name


def shortened(text: str, most: int) -> str:
    """Beginning and end of a text that is too long to keep: an exception may quote all of its data.

    >>> shortened("a" * 50 + "z" * 50, 20)
    'aaaaaaaaaa… (80 characters) …zzzzzzzzzz'
    """
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}… ({len(text) - 2 * half:,} characters) …{text[-half:]}"


def as_exception(error: BaseException) -> Exception:
    """What ended a worker's code, as an exception of that worker: sys.exit there must not end the run."""
    if isinstance(error, Exception):
        return error
    wrapped = RuntimeError(f"{words(error)} in the worker's own code")
    wrapped.__cause__ = error
    return wrapped


def traceback_of(error: BaseException) -> str:
    """The exception as Python prints it, its causes and notes included.

    An exception that came from another process has lost its traceback; its host has added that as a note.
    """
    return shortened("".join(format_exception(error)), LONGEST_TRACEBACK)


def no_workers_left(
    when: str,
    worker: int,
    last_words: str,
    failure: tuple[int, Exception] | None,
    silent: Sequence[int] = (),
) -> NoWorkersLeft:
    """The error of a run whose last worker is lost; the last exception of a worker is its cause.

    >>> print(no_workers_left("at iteration 9", 1, "silent for 120 s", None, [0, 1]))
    no worker is left at iteration 9; the last, worker 1: silent for 120 s. No answer came from ...
    """
    raised = ""
    if failure is not None and words(failure[1]) not in last_words:
        raised = f"; the last exception was worker {failure[0]}'s: {words(failure[1])}"
    hint = ""
    if silent:
        who = join_names([f"worker {j}" for j in silent])
        hint = (
            f"No answer came from {who}: if a step may take longer, set `deadline` of the algorithm or "
            "`deadline_floor` of the engine to more seconds. "
        )
    error = NoWorkersLeft(
        f"no worker is left {when}; the last, worker {worker}: {last_words}{raised}. {hint}"
        "The error's `.result` keeps the last good state"
    )
    error.__cause__ = None if failure is None else failure[1]
    return error
