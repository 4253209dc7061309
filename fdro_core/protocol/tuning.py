"""What an algorithm tells a search about its settings: which to vary, over which values, in which unit.

A class that is compared with others carries three class attributes, from which the experiments build its row
of a table::

    label: ClassVar[str]  # its name in tables
    year: ClassVar[int]  # of publication, 0 for a plain reference; orders the tables
    tunable: ClassVar[Mapping[str, Tunable]]  # the settings that are searched, by name

It may carry a fourth, `variants`: rows that differ from its own in some settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar, Literal, Protocol

import numpy as np


@dataclass(frozen=True)
class Range:
    """A number in [low, high], drawn uniformly on a logarithmic scale.

    A search whose best value is at an end may go on beyond it, but not out of `limits`.
    """

    low: float
    high: float
    limits: tuple[float, float] = (0.0, np.inf)

    def draw(self, rng: np.random.Generator) -> float:
        """Draw a number, rounded to three digits."""
        return float(f"{np.exp(rng.uniform(np.log(self.low), np.log(self.high))):.3g}")


@dataclass(frozen=True)
class Choice:
    """One of a few values, all equally likely; `cover` asks the search to try each of them at least once.

    A search whose best is the first or the last of increasing numbers may go on beyond it, but not out of
    `limits`.
    """

    values: tuple[Any, ...]
    cover: bool = False
    limits: tuple[float, float] = (0.0, np.inf)

    def draw(self, rng: np.random.Generator) -> Any:
        """Draw a value."""
        return self.values[int(rng.integers(len(self.values)))]


Space = Range | Choice


@dataclass(frozen=True)
class Tunable:
    """A setting that a search may vary.

    Attributes:
        default: the first value tried.
        space: the values to draw from; None: the indices of the workers, each tried at least once.
        field: the algorithm's field that the value is for; "" if it has the setting's own name.
        unit: what one unit of the value is in that field: "1" itself, "1/L" the inverse of the workers'
            largest curvature, "N" the number of workers, "√N" its root.
        informed: default and space to use instead if the prior carries information; None: the same ones.
    """

    default: Any
    space: Space | None
    field: str = ""
    unit: Literal["1", "1/L", "N", "√N"] = "1"
    informed: tuple[Any, Space] | None = None

    def search(self, workers: int, informed: bool) -> tuple[Any, Space]:
        """Return the default and the values to draw from, for a number of workers.

        >>> Tunable(0, None).search(workers=3, informed=False)
        (0, Choice(values=(0, 1, 2), cover=True, limits=(0.0, inf)))
        """
        if informed and self.informed is not None:
            return self.informed
        if self.space is None:
            return self.default, Choice(tuple(range(workers)), cover=True)
        return self.default, self.space

    def value(self, chosen: Any, workers: int, curvature: float) -> Any:
        """Convert a searched value into the field's own unit.

        >>> Tunable(0.006, None, unit="√N").value(0.01, workers=25, curvature=2.0)
        0.05
        """
        if self.unit == "1":
            return chosen
        return chosen * {"1/L": 1.0 / curvature, "N": workers, "√N": sqrt(workers)}[self.unit]


@dataclass(frozen=True)
class Variant:
    """A second row of a class: the same search with some settings fixed and some searched elsewhere.

    Attributes:
        suffix: what follows the class's label in the row's name.
        fixed: settings with one value.
        tunable: settings whose search replaces the class's own, or adds to it.
    """

    suffix: str
    fixed: Mapping[str, Any]
    tunable: Mapping[str, Tunable]


class Compared(Protocol):
    """A class of algorithms that has a row in comparisons."""

    label: ClassVar[str]
    year: ClassVar[int]
    tunable: ClassVar[Mapping[str, Tunable]]


STEP = Tunable(0.5, Range(0.1, 10.0), unit="1/L")
"""A gradient method's step."""

ARRIVALS_STEP = Tunable(0.5, Range(0.1, 100.0), unit="1/L")
"""That of a method that mixes arrivals: where each counts little, good ones are far beyond 1/L."""

ARRIVALS_LOCAL_STEPS = Tunable(5, Choice((1, 2, 5, 10)))
"""Its local steps: one too, for many of a fast worker lead away from what the others want."""

PRECONDITIONED_STEP = Tunable(0.006, Range(6e-4, 0.6), unit="√N")
"""The longest step in a metric that follows the replies: no multiple of 1/L, since their scale cancels."""

PRECONDITIONED = Variant(
    "+ P", {"preconditioner": "gradients", "averaging": 0.1}, {"step": PRECONDITIONED_STEP}
)
"""The row of a method with the preconditioner and averaging of `AspireModels`."""

LOCAL_STEPS = Tunable(5, Choice((2, 5, 10)))
"""Local steps per round."""

WEIGHT_STEP = Tunable(0.01, Range(1e-4, 0.3))
"""The step of workers' weights."""
