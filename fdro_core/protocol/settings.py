"""Settings, each stated once.

A field made by `setting` carries a rule (what it may be), what it is, its letter in the paper and why its
default is what it is. `check_settings`, `documented` and `settings_table` make the check, the class's
docstring and the table of the docs from that. Where a constructor takes settings, `check_setting` checks one
by the same rules.

>>> from dataclasses import dataclass
>>> @documented
... @dataclass(frozen=True)
... class Descent:
...     '''Gradient descent.'''
...
...     step: float = setting(0.1, Number(), "step size", letter="η", why="fits unit curvature")
>>> print(Descent.__doc__)
Gradient descent.
<BLANKLINE>
Attributes:
    step: step size (paper: η). Default 0.1 (fits unit curvature).
>>> check_settings(Descent(step=0.0), workers=2)
Traceback (most recent call last):
fdro_core.errors.InvalidSetting: step (η) must be a finite number > 0, got 0.0
"""

from __future__ import annotations

import inspect
import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import MISSING, Field, dataclass, field, fields
from math import inf, isfinite
from os import PathLike, fspath
from pathlib import Path
from textwrap import fill
from typing import Any, TypeVar

from fdro_core.errors import InvalidSetting

Class = TypeVar("Class", bound=type)


REQUIRED: Any = MISSING
"""In the place of a default: the setting must be given."""


class Rule(ABC):
    """What a setting may be. None is allowed without asking if it is the default."""

    @abstractmethod
    def allows(self, value: Any, workers: int) -> bool:
        """Whether the setting may have this value with N workers."""

    @abstractmethod
    def needs(self, workers: int) -> str:
        """What is needed, in words that follow "must be"."""

    def plain(self, value: Any) -> Any:
        """An allowed value in the plainest type."""
        return value


@dataclass(frozen=True)
class Whole(Rule):
    """A whole number of at least `least`."""

    least: int = 1

    def allows(self, value: Any, workers: int) -> bool:
        """Whether it is an int that large."""
        return is_whole(value) and value >= self.least

    def needs(self, workers: int) -> str:
        """The bound."""
        return f"a whole number >= {self.least}"

    def plain(self, value: Any) -> int:
        """An int."""
        return int(value)


@dataclass(frozen=True)
class WorkerNumber(Rule):
    """The number of a worker; that there are so many is checked where they are known."""

    def allows(self, value: Any, workers: int) -> bool:
        """Whether it is an int."""
        return is_whole(value)

    def needs(self, workers: int) -> str:
        """Where the numbers come from."""
        return "a worker's number, counted from 0 in the order of the problems (in a run file: of the names)"

    def plain(self, value: Any) -> int:
        """An int."""
        return int(value)


@dataclass(frozen=True)
class WorkerCount(Rule):
    """A number of workers, 1..N; with `all_but` fewer by so many, and at least 1."""

    all_but: int = 0

    def allows(self, value: Any, workers: int) -> bool:
        """Whether there are so many workers."""
        return is_whole(value) and 1 <= value <= max(workers - self.all_but, 1)

    def needs(self, workers: int) -> str:
        """The range."""
        return f"in 1..{workers - self.all_but}" + ("" if self.all_but else ", the number of workers")


@dataclass(frozen=True)
class WorkerIndex(Rule):
    """The index of a worker, 0..N-1."""

    def allows(self, value: Any, workers: int) -> bool:
        """Whether there is such a worker."""
        return is_whole(value) and 0 <= value < workers

    def needs(self, workers: int) -> str:
        """The range."""
        return f"in 0..{workers - 1}"


@dataclass(frozen=True)
class Number(Rule):
    """A number above `least`, or equal to it if `inclusive`; infinity only if not `finite`."""

    least: float = 0.0
    inclusive: bool = False
    finite: bool = True
    unit: str = ""

    def allows(self, value: Any, workers: int) -> bool:
        """Whether it is such a number."""
        if not is_number(value) or (self.finite and not isfinite(value)):
            return False
        return bool(value >= self.least if self.inclusive else value > self.least)

    def needs(self, workers: int) -> str:
        """The bound."""
        kind = f"a {'finite ' if self.finite else ''}number{self.unit and f' of {self.unit}'}"
        return kind if self.least == -inf else f"{kind} {'>=' if self.inclusive else '>'} {self.least:g}"

    def plain(self, value: Any) -> float:
        """A float."""
        return float(value)


@dataclass(frozen=True)
class Steps(Rule):
    """A step size: a finite number > 0, or a function of the iteration t and the number of planes."""

    def allows(self, value: Any, workers: int) -> bool:
        """Whether it is one of the two."""
        return callable(value) or Number().allows(value, workers)

    def needs(self, workers: int) -> str:
        """The two."""
        return "a finite number > 0 or a function step(t, planes)"


def step_at(steps: Any, iteration: int, planes: int, name: str) -> float:
    """The step size at an iteration, from a setting with the rule `Steps`; 0 if that is None.

    >>> step_at(lambda t, planes: 1.0 / (t + planes), 3, 1, "worker_step")
    0.25
    """
    if not callable(steps):
        return float(steps or 0.0)
    found = steps(iteration, planes)
    if not Number().allows(found, 0):
        at = f"at t = {iteration} with {planes} planes"
        message = f"{name} must give a finite number > 0, and gave {found!r} {at}"
        raise InvalidSetting(message, parameter=name, value=steps)
    return float(found)


@dataclass(frozen=True)
class Share(Rule):
    """A part of a whole: a number in (0, 1], below 1 if not `whole`."""

    whole: bool = True

    def allows(self, value: Any, workers: int) -> bool:
        """Whether it is such a number."""
        return is_number(value) and bool(0 < value <= 1) and (self.whole or value < 1)

    def needs(self, workers: int) -> str:
        """The range."""
        return f"a number > 0 and {'<=' if self.whole else '<'} 1"


@dataclass(frozen=True)
class Chance(Rule):
    """A chance that is not certain: a number in [0, 1)."""

    def allows(self, value: Any, workers: int) -> bool:
        """Whether it is such a number."""
        return is_number(value) and bool(0 <= value < 1)

    def needs(self, workers: int) -> str:
        """The range."""
        return "a chance in [0, 1)"

    def plain(self, value: Any) -> float:
        """A float."""
        return float(value)


@dataclass(frozen=True)
class Seconds(Rule):
    """A deadline: seconds, "auto" or None."""

    def allows(self, value: Any, workers: int) -> bool:
        """Whether it is one of the three."""
        return value is None or value == "auto" or (is_number(value) and isfinite(value) and value > 0)

    def needs(self, workers: int) -> str:
        """The three."""
        return '"auto", None or a finite number of seconds > 0'


@dataclass(frozen=True)
class Instance(Rule):
    """An object of a class, or None."""

    kind: type

    def allows(self, value: Any, workers: int) -> bool:
        """Whether it is one."""
        return isinstance(value, self.kind)

    def needs(self, workers: int) -> str:
        """The class."""
        return f"an object of {self.kind.__name__}, or None"


@dataclass(frozen=True)
class ListOf(Rule):
    """A list of objects of one class."""

    kind: type

    def allows(self, value: Any, workers: int) -> bool:
        """Whether it can be walked through, and holds nothing else."""
        return isinstance(value, Iterable) and all(isinstance(each, self.kind) for each in value)

    def needs(self, workers: int) -> str:
        """The class."""
        return f"a list of {self.kind.__name__}"

    def plain(self, value: Any) -> list[Any]:
        """A list."""
        return list(value)


@dataclass(frozen=True)
class FilePath(Rule):
    """The path of a file."""

    def allows(self, value: Any, workers: int) -> bool:
        """Whether it may name a file."""
        return isinstance(value, str | PathLike) and "\0" not in str(fspath(value))

    def needs(self, workers: int) -> str:
        """A path."""
        return "the path of a file"

    def plain(self, value: Any) -> Path:
        """A `Path`."""
        return Path(value)


class OneOf(Rule):
    """One of a few names."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def allows(self, value: Any, workers: int) -> bool:
        """Whether it is one of the names."""
        return isinstance(value, str) and value in self.names

    def needs(self, workers: int) -> str:
        """The names."""
        return f"one of {', '.join(self.names)}"


def setting(default: Any, rule: Rule, what: str, *, letter: str = "", why: str = "") -> Any:
    """Make a dataclass field that carries its rule, meaning, letter and reason."""
    return field(default=default, metadata={"rule": rule, "what": what, "letter": letter, "why": why})


def check_settings(settings: Any, workers: int, owner: str = "") -> None:
    """Raise `InvalidSetting` for the first setting that its rule does not allow with N workers.

    The message names it after its owner: "Adaptive.few (s)".
    """
    for item in fields(settings):
        rule, value = item.metadata.get("rule"), getattr(settings, item.name)
        if rule is not None and not (value is None and item.default is None):
            _check(f"{owner and f'{owner}.'}{_label(item)}", item.name, value, rule, workers)


def check_setting(name: str, value: Any, rule: Rule) -> Any:
    """Return a setting "Class.parameter" in its plainest type, or raise `InvalidSetting` that names it.

    >>> check_setting("Constant.seconds", 2, Number())
    2.0
    """
    _check(name, name.rpartition(".")[2], value, rule, 0)
    return rule.plain(value)


def _check(label: str, name: str, value: Any, rule: Rule, workers: int) -> None:
    if not rule.allows(value, workers):
        message = f"{label} must be {rule.needs(workers)}, got {value!r:.80}"
        raise InvalidSetting(message, parameter=name, value=value)


class Checked:
    """A dataclass whose settings are checked when it is made."""

    def __post_init__(self) -> None:
        check_settings(self, 0, type(self).__name__)


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


def documented(cls: Class) -> Class:
    """Add every setting of a dataclass to its docstring, before the example if there is one."""
    if cls.__doc__ is None:  # python -OO
        return cls
    text, arrow, example = inspect.cleandoc(cls.__doc__).partition("\n>>> ")
    lines = [
        fill(f"{item.name}: {_sentence(item)}", 110, initial_indent=" " * 4, subsequent_indent=" " * 8)
        for item in fields(cls)
        if "what" in item.metadata
    ]
    attributes = "\n".join(["Attributes:", *lines])
    cls.__doc__ = "\n\n".join([text.rstrip(), attributes, *([arrow.lstrip() + example] if arrow else [])])
    return cls


def settings_table(cls: Any) -> str:
    """Every setting as a Markdown table: name, the paper's letter, default, why."""
    lines = ["| setting | paper | default | why |", "|---|---|---|---|"]
    for item in fields(cls):
        letter, why = item.metadata["letter"], item.metadata["why"]
        lines.append(f"| `{item.name}` | {letter} | `{item.default}` | {why} |")
    return "\n".join(lines)


def is_whole(value: Any) -> bool:
    """Whether it is an int or the like, and no bool."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether it is a real number that a float can hold, and no bool."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def _label(item: Field[Any]) -> str:
    letter = "" if isinstance(item.metadata["rule"], OneOf) else item.metadata["letter"]
    return f"{item.name} ({letter})" if letter else item.name


def _sentence(item: Field[Any]) -> str:
    about = item.metadata
    paper = f" (paper: {about['letter']})" if about["letter"] else ""
    why = f" ({about['why']})" if about["why"] else ""
    default = "" if item.default is MISSING else f" Default {item.default!r}{why}."
    return f"{about['what']}{paper}.{default}"
