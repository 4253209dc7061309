"""What one question tells the soak: how to draw a batch, ask the library, and judge the answers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

LONG = np.longdouble


class Wrong(NamedTuple):
    """One answer that is wrong, or an error where there is an answer; `call` is Python that shows it."""

    kind: str
    amount: float
    allowed: float
    size: int
    call: str
    error: str = ""


@dataclass
class Batch:
    """How many cases were asked, how many of them were also answered in another way, and what was found."""

    cases: int = 0
    compared: int = 0
    wrong: list[Wrong] = field(default_factory=list)
    gap: float = -np.inf
    least_gap: float = np.inf
    violation: float = 0.0

    def saw(self, gap: float, violation: float = 0.0) -> None:
        """Keep the extremes of the gap and the violation."""
        self.gap, self.least_gap = max(self.gap, gap), min(self.least_gap, gap)
        self.violation = max(self.violation, violation)

    def check(self, tests: dict[str, tuple[Any, Any]], size: int, call: str) -> bool:
        """Note the first test whose amount is above what is allowed, or NaN; return whether all pass."""
        for kind, (amount, allowed) in tests.items():
            if not amount <= allowed:
                self.wrong.append(Wrong(kind, float(amount), float(allowed), size, call))
                return False
        return True

    def failed(self, error: Exception, size: int, call: str) -> None:
        """Note an error where an answer exists."""
        kind = f"raised {type(error).__name__}"
        self.wrong.append(Wrong(kind, np.nan, 0.0, size, call, str(error)))


class Question(NamedTuple):
    """What a batch may concentrate on, and the function that runs one."""

    generators: tuple[str, ...]
    batch: Callable[[np.random.Generator, str], Batch]


def asked(call: Callable[[], Any]) -> Any:
    """The answer, or the exception; a warning counts as one."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return call()
        except Exception as error:
            return error
