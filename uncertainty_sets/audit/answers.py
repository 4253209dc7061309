"""What an audit answers: numbers, each with what holds it, and the same in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from textwrap import fill
from typing import NamedTuple

import numpy as np

from uncertainty_sets.arrays import Array

Interval = tuple[float, float]


class Holds(StrEnum):
    """What a number rests on. These are four different things, and a report never mixes them in one line."""

    SAMPLE = "in this sample, proved"
    PROVED = "population, proved"
    ASYMPTOTIC = "population, asymptotic"
    DESCRIPTION = "description"


class Statement(NamedTuple):
    """A sentence, and what holds it."""

    text: str
    holds: Holds

    def __str__(self) -> str:
        return f"{wrapped(self.text)}\n  [{self.holds}]"


class Share(NamedTuple):
    """A group in a shifted world: its share of the data now, and then."""

    group: str
    now: float
    then: float

    def __str__(self) -> str:
        return f"{self.group} went from {percent(self.now)} to {percent(self.then)}"


@dataclass(frozen=True)
class Worst:
    """The largest mean loss over a set of worlds.

    Attributes:
        kind: the set's name.
        size: its radius or tail.
        confidence: of the statements about the population.
        value: the worst mean of this sample.
        upper_bound: the certificate: no distribution in the set has a larger mean, in this sample.
        at_most: the population's worst mean is at most this, with that confidence at any number of samples;
            None if nothing is proved (`unproved` says why).
        interval: the population's, asymptotically; None where the approximation is not to be trusted.
        p: the worst distribution, over samples or over groups.
        shares: over groups, each group now and then.
        unproved: why there is no `at_most`.
    """

    kind: str
    size: float
    confidence: float
    value: float
    upper_bound: float
    at_most: float | None
    interval: Interval | None
    p: Array
    shares: tuple[Share, ...] = ()
    unproved: str = ""

    def statements(self) -> list[Statement]:
        """The numbers as sentences."""
        where = self.kind if np.isinf(self.size) else f"{self.kind} {self.size:.3g}"
        where += " over the groups" if self.shares and np.isfinite(self.size) else ""
        found = [
            Statement(f"worst mean loss within {where}: {self.value:.4g}{_as_if(self.shares)}", Holds.SAMPLE)
        ]
        if self.at_most is not None:
            given = ", given the labels" if self.shares else ""
            found.append(
                Statement(
                    f"at most {self.at_most:.4g} (confidence {percent(self.confidence)}{given})", Holds.PROVED
                )
            )
        if self.interval is not None:
            low, high = self.interval
            found.append(Statement(f"{low:.4g} to {high:.4g} ({percent(self.confidence)})", Holds.ASYMPTOTIC))
        return found

    def __str__(self) -> str:
        return _lines(self.statements(), self.unproved)


UNBOUNDED = "how small a shift may be enough is not bounded: there are too few data in the groups"


@dataclass(frozen=True)
class Failure:
    """How far the world must move before the mean loss reaches a threshold (the s-value).

    Attributes:
        kind: the set's name.
        threshold: of the mean loss.
        confidence: of the statements about the population.
        radius: the least at which this sample's worst mean reaches it; infinite if none does. Of CVaR it is
            1/tail - 1, of EVaR -log tail.
        certified: no radius below this one does, in this sample.
        at_least: no radius below this one does in the population, with that confidence at any number of
            samples; None if nothing is proved.
        interval: the population's, asymptotically; None where the approximation is not to be trusted.
        p: the distribution that reaches it; NaN if none does.
        shares: over groups, each group now and then.
        tail: for CVaR and EVaR, the largest tail that reaches it.
        unproved: why there is no `at_least`.
    """

    kind: str
    threshold: float
    confidence: float
    radius: float
    certified: float
    at_least: float | None
    interval: Interval | None
    p: Array
    shares: tuple[Share, ...] = ()
    tail: float | None = None
    unproved: str = ""

    @property
    def reached(self) -> bool:
        """Whether any world of this kind reaches the threshold, in this sample."""
        return bool(np.isfinite(self.radius))

    def statements(self) -> list[Statement]:
        """The numbers as sentences."""
        of = f"{self.kind} over the groups" if self.shares else self.kind
        if not self.reached:
            text = f"no shift in {of} makes the mean loss {self.threshold:.4g}"
        elif self.radius == 0.0:
            text = f"the mean loss is {self.threshold:.4g} or more without any shift"
        else:
            text = (
                f"the mean loss reaches {self.threshold:.4g} at {of} {self.radius:.3g}{_as_if(self.shares)}"
            )
            text += f" (tail {percent(self.tail)})" if self.tail is not None else ""
        found = [Statement(text, Holds.SAMPLE)]
        if self.at_least is not None:
            given = ", given the labels" if self.shares else ""
            less = "no radius" if self.at_least == np.inf else f"not below {self.at_least:.3g}"
            if self.at_least == 0.0:
                less = UNBOUNDED if self.shares else "that it is there already is not excluded"
            found.append(Statement(f"{less} (confidence {percent(self.confidence)}{given})", Holds.PROVED))
        if self.interval is not None:
            low, high = self.interval
            found.append(Statement(f"{low:.3g} to {high:.3g} ({percent(self.confidence)})", Holds.ASYMPTOTIC))
        return found

    def __str__(self) -> str:
        return _lines(self.statements(), self.unproved)


class GroupRow(NamedTuple):
    """A group: its rows, share and mean loss; with that confidence for all groups at once, at most `at_most`.

    `grown` is how large its share can be at the radius that was asked about, `doubling` the radius at which
    it has twice its share.
    """

    group: str
    rows: int
    share: float
    mean: float
    at_most: float | None
    grown: float | None = None
    doubling: float | None = None


@dataclass(frozen=True)
class Cell:
    """A part of the data that a tree found: a rule, its shares of the data and of the bad world, its losses.

    Everything is measured on the half of the rows that the tree did not see; the interval is simultaneous
    over all cells, and proved given the tree.
    """

    rule: str
    share: float
    weight: float
    mean: float
    interval: Interval | None


@dataclass(frozen=True)
class World:
    """A shift of the covariates that hurts: a description, found by a regression of the losses.

    Attributes:
        kind, size: the set of worlds.
        cells: parts of the data, those that gain most first.
        shifts: how far the mean of each covariate moves, in its standard deviations; the largest first.
        weights: of the samples, a function of their covariates.
    """

    kind: str
    size: float
    cells: tuple[Cell, ...]
    shifts: tuple[tuple[str, float], ...]
    weights: Array = field(repr=False)

    def statements(self) -> list[Statement]:
        """The cells that gain and the shifts as sentences."""
        found = []
        for cell in self.cells:
            if cell.weight <= cell.share:
                continue
            interval = "" if cell.interval is None else f" ({cell.interval[0]:.3g} to {cell.interval[1]:.3g})"
            text = f"{cell.rule}: {percent(cell.share)} of the data would be {percent(cell.weight)}; "
            found.append(Statement(f"{text}loss {cell.mean:.3g}{interval}", Holds.DESCRIPTION))
        moved = ", ".join(f"{name} {shift:+.2f}" for name, shift in self.shifts[:5] if abs(shift) >= 0.005)
        if moved:
            found.append(Statement(f"mean shifts in standard deviations: {moved}", Holds.DESCRIPTION))
        return found

    def __str__(self) -> str:
        return _lines(self.statements(), "")


@dataclass(frozen=True)
class Subpopulation:
    """The worst mean over parts of the data of one share that depend on the covariates only.

    Attributes:
        share: of the data.
        estimate: the mean of a part that exists, so it errs downward.
        at_least: a lower confidence bound of the worst one, asymptotic.
        at_most: no part of that share has a larger mean, whatever its rule, with that confidence; proved.
    """

    share: float
    confidence: float
    estimate: float
    at_least: float | None
    at_most: float | None

    def statements(self) -> list[Statement]:
        """The numbers as sentences."""
        text = (
            f"a part of {percent(self.share)} that the covariates tell has a mean loss of {self.estimate:.4g}"
        )
        found = [Statement(text, Holds.DESCRIPTION)]
        if self.at_least is not None:
            found.append(Statement(f"the worst such part: at least {self.at_least:.4g}", Holds.ASYMPTOTIC))
        if self.at_most is not None:
            more = (
                f"any part of that share: at most {self.at_most:.4g} (confidence {percent(self.confidence)})"
            )
            found.append(Statement(more, Holds.PROVED))
        return found

    def __str__(self) -> str:
        return _lines(self.statements(), "")


def wrapped(text: str, indent: str = "") -> str:
    """A sentence in lines that fit anywhere."""
    kept = text.replace(" %", "\u00a0%")  # a number keeps its sign
    found = fill(kept, 84, initial_indent=indent, subsequent_indent=f"{indent}  ")
    return found.replace("\u00a0%", " %")


def percent(share: float | None) -> str:
    """A share for reading.

    >>> percent(0.114), percent(0.5), percent(0.00042)
    ('11.4 %', '50 %', '0.042 %')
    """
    if share is None:
        return "–"
    value = 100.0 * share
    digits = 1 if abs(value) >= 0.1 else 3
    text = f"{value:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} %"


def grown(shares: Iterable[Share], most: int = 2) -> list[Share]:
    """The groups that gain most, by their gain; none that gains less than a tenth of the largest gain."""
    gained = sorted((each for each in shares if each.then > each.now), key=lambda each: each.now - each.then)
    return [each for each in gained[:most] if each.then - each.now >= 0.1 * (gained[0].then - gained[0].now)]


def _as_if(shares: tuple[Share, ...]) -> str:
    names = grown(shares)
    return ", as if " + " and ".join(map(str, names)) if names else ""


def _lines(statements: list[Statement], unproved: str) -> str:
    lines = [str(each) for each in statements]
    return "\n".join(
        [*lines, wrapped(f"nothing is proved for the population: {unproved}")] if unproved else lines
    )
