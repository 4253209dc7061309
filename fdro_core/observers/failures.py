"""What observers raised, and the error that the run ends with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fdro_core.errors import ObserverFailed
from fdro_core.protocol.failures import words


@dataclass(frozen=True)
class Failure:
    """What one observer raised.

    Attributes:
        place: the observer's index in the list that was given.
        observer: the observer.
        in_finish: whether its `finish` raised.
        iteration: the master's iteration.
        error: the exception.
    """

    place: int
    observer: Any
    in_finish: bool
    iteration: int
    error: BaseException

    def __str__(self) -> str:
        """The observer, the place and the exception in one line."""
        where = ", in its finish," if self.in_finish else ""
        who = f"observers[{self.place}] ({_name(self.observer)}){where}"
        return f"{who} raised {words(self.error)} (iteration {self.iteration})"


def find_exit(failures: Sequence[Failure]) -> BaseException | None:
    """The first KeyboardInterrupt or SystemExit among the failures, which is raised unchanged; None if none.

    The other failures become its notes.
    """
    for failure in failures:
        if not isinstance(failure.error, Exception):
            for other in failures:
                if other is not failure:
                    failure.error.add_note(str(other))
            return failure.error
    return None


def observer_failed(failures: Sequence[Failure]) -> ObserverFailed:
    """One error for all failures, with what they raised as its cause."""
    error = ObserverFailed(f"{'; '.join(map(str, failures))}. The run was ended; `.result` keeps its state")
    errors = [failure.error for failure in failures if isinstance(failure.error, Exception)]
    error.__cause__ = errors[0] if len(errors) == 1 else ExceptionGroup("observers that raised", errors)
    return error


def _name(observer: Any) -> str:
    """A function's name; an object's repr, or its class if the repr is the default one."""
    name = getattr(observer, "__qualname__", None)
    if isinstance(name, str):
        return name.rpartition("<locals>.")[2]
    return type(observer).__name__ if "object at 0x" in repr(observer) else repr(observer)
