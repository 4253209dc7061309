"""Observers that raise: what is kept of it, and the error that comes of it in the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fdro_core.errors import ObserverFailed


@dataclass(frozen=True)
class Failure:
    """What one observer raised.

    Attributes:
        place: of the observer in the list that was given.
        observer: the observer.
        in_finish: whether it was in its `finish`.
        iteration: when.
        error: what it raised.
    """

    place: int
    observer: Any
    in_finish: bool
    iteration: int
    error: BaseException

    def __str__(self) -> str:
        """Who, where and what, in one line."""
        where = ", in its finish," if self.in_finish else ""
        who = f"observers[{self.place}] ({_name(self.observer)}){where}"
        return f"{who} raised {_words(self.error)} (iteration {self.iteration})"


def leaving(failures: Sequence[Failure]) -> BaseException | None:
    """KeyboardInterrupt, SystemExit and the like among the failures, which pass as they are."""
    for failure in failures:
        if not isinstance(failure.error, Exception):
            for other in failures:
                if other is not failure:
                    failure.error.add_note(str(other))
            return failure.error
    return None


def observer_failed(failures: Sequence[Failure]) -> ObserverFailed:
    """One error for all of them, with their errors as its cause."""
    error = ObserverFailed(f"{'; '.join(map(str, failures))}. The run was ended; `.result` keeps its state")
    errors = [failure.error for failure in failures if isinstance(failure.error, Exception)]
    error.__cause__ = errors[0] if len(errors) == 1 else ExceptionGroup("observers that raised", errors)
    return error


def _name(observer: Any) -> str:
    """A function's name; an object as it prints itself, or its class where it does not."""
    name = getattr(observer, "__qualname__", None)
    if isinstance(name, str):
        return name.rpartition("<locals>.")[2]
    return type(observer).__name__ if "object at 0x" in repr(observer) else repr(observer)


def _words(error: BaseException) -> str:
    """An exception in words, even one whose own words raise."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}, whose message cannot be read"
