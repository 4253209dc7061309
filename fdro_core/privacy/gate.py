"""The gate of a private worker: whatever leaves it passes here, replies, states and errors alike.

Replies are of kinds that the worker lists, and are made anew from plain numbers, flags, vectors and words of
a fixed list. Of an error the class of Python's own that it belongs to passes, and the worker's number.
Nothing else of what was raised does: texts, names of classes, causes and notes may all quote data.
"""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from fdro_core.errors import DriverError
from fdro_core.protocol.forms import FLOAT, LARGEST_INT
from fdro_core.protocol.messages import Message, Reply, Request

T = TypeVar("T")

CLASSES = frozenset(
    each for each in vars(builtins).values() if isinstance(each, type) and issubclass(each, BaseException)
)
"""The classes that an error is named by: Python's own."""


class Refusal(Exception):
    """An error in the worker's own words, which passes the gate as it is; it never leaves itself."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def hushed(index: int, call: Callable[[], T]) -> T:
    """Call what may look at data; all that passes of an error is its class."""
    try:
        return call()
    except KeyboardInterrupt:
        error: BaseException = KeyboardInterrupt()
    except BaseException as raised:  # sys.exit with a text, too
        error = Refusal(_failure(index, raised))
    raise error  # out here, where it has no context


def passed(index: int, call: Callable[[], T]) -> T:
    """Call what only speaks for itself by `Refusal`; of every other error the class passes.

    >>> passed(2, lambda: {}["patient 17"])
    Traceback (most recent call last):
    fdro_core.errors.DriverError: worker 2 is private and its problem raised a KeyError; its message is ...
    """
    try:
        return call()
    except Refusal as refusal:
        error: BaseException = refusal.error
    except KeyboardInterrupt:
        error = KeyboardInterrupt()
    except BaseException as raised:
        error = _failure(index, raised)
    raise error


def _failure(index: int, raised: BaseException) -> DriverError:
    kind = next(each for each in type(raised).__mro__ if each in CLASSES)
    return DriverError(
        f"worker {index} is private and its problem raised a {kind.__name__}; its message is not sent, since "
        "it may quote data: evaluate the problem at the worker to see it"
    )


class Gate(ABC):
    """A worker behind the gate: the public methods are the gate, those of a subclass are behind it.

    Attributes:
        kinds: classes of replies that may leave.
        words: texts that may be in them.
    """

    kinds: ClassVar[tuple[type[Message], ...]] = ()
    words: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, index: int, make: Callable[[], None]) -> None:
        """Args: index, and what makes the rest of the worker."""
        self.index = index
        passed(index, make)

    def handle(self, message: Request) -> Reply:
        """The reply to a message."""
        return passed(self.index, lambda: self._plain_reply(self._answer(message)))

    def snapshot(self) -> dict[str, Any]:
        """The state: counts alone."""
        return passed(self.index, lambda: {name: int(count) for name, count in self._state().items()})

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Go back to a snapshot."""
        passed(self.index, lambda: self._restore(state))

    def recall(self, opening: Sequence[Request], last: Reply | None, replies: int) -> None:
        """Continue in a new process."""
        passed(self.index, lambda: self._recall(opening, last, replies))

    def _plain_reply(self, reply: Reply) -> Reply:
        """The reply made anew; `TypeError` for one that may not leave."""
        cls = type(reply)
        if cls not in self.kinds or hasattr(reply, "__dict__"):
            raise TypeError
        copy = cls.__new__(cls)
        for name, value in reply.fields().items():
            setattr(copy, name, self._plain(value))
        return copy

    def _plain(self, value: Any) -> Any:
        kind = type(value)
        if value is None or kind is bool or kind is float:
            return value
        if kind is int and abs(value) <= LARGEST_INT:
            return value
        if kind is str and value in self.words:
            return value
        if kind is np.ndarray and value.dtype == FLOAT:
            fresh = np.empty(value.shape)  # of NumPy's own type, which may carry no notes
            fresh[...] = value
            return fresh
        raise TypeError

    # -- behind the gate ------------------------------------------------------------------------------

    @abstractmethod
    def _answer(self, message: Request) -> Reply: ...

    @abstractmethod
    def _state(self) -> Mapping[str, int]: ...

    @abstractmethod
    def _restore(self, state: Mapping[str, Any] | None) -> None: ...

    @abstractmethod
    def _recall(self, opening: Sequence[Request], last: Reply | None, replies: int) -> None: ...
