"""Conic solvers behind one protocol, found by walking this folder.

>>> available_backends()
['clarabel', 'closed-form', 'cvxpy', 'highs', ...]
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING

from uncertainty_sets.backends.base import Backend, Solution, Solver
from uncertainty_sets.errors import BackendMissing, BackendUnsuitable, UnknownName

if TYPE_CHECKING:
    from uncertainty_sets.conic.program import ConicProgram

__all__ = ["Backend", "Solution", "Solver", "available_backends", "cold", "in_order", "is_cold", "select"]

CLOSED_FORM = "closed-form"
PREFERRED = ("highs", "clarabel", "scs")

_cold: ContextVar[bool] = ContextVar("uncertainty_sets_cold", default=False)


@cache
def _classes() -> dict[str, type[Backend]]:
    """Every backend of this folder by name; their files import no solver."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    return {cls.name: cls for cls in Backend.__subclasses__()}


def available_backends() -> list[str]:
    """The names that `worst_case(..., backend=name)` takes now: their packages are installed.

    "cvxpy" also takes a solver of cvxpy's own after a colon, as in "cvxpy:MOSEK".
    """
    return sorted([CLOSED_FORM, *(name for name, cls in _classes().items() if cls.installed())])


def in_order(program: ConicProgram) -> list[str]:
    """The backends that "auto" tries for that program: HiGHS for an LP, Clarabel, and SCS where installed."""
    classes = _classes()
    able = [name for name in PREFERRED if program.kinds <= classes[name].cones]
    return [name for name in able if name == able[0] or classes[name].installed()]


def select(name: str, program: ConicProgram) -> Backend:
    """The backend of that name, able to solve that program; "auto" is HiGHS for an LP, else Clarabel."""
    classes = _classes()
    if name == "auto":
        name = in_order(program)[0]
    base, colon, option = str(name).partition(":")
    cls = classes.get(base)
    if cls is None or (colon and not hasattr(cls, "options")):
        known = sorted([CLOSED_FORM, *classes])
        close = get_close_matches(base.lower(), known, n=1, cutoff=0.4)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise UnknownName(
            f"no backend is called {name!r}{hint} There are: {', '.join(known)}; and cvxpy:NAME for any "
            "solver that cvxpy finds"
        )
    if not cls.installed():
        raise BackendMissing(f"backend {base!r} needs the package {cls.package}: pip install {cls.install}")
    lacking = program.kinds - cls.cones
    if lacking:
        able = [each for each, other in sorted(classes.items()) if program.kinds <= other.cones]
        raise BackendUnsuitable(
            f"backend {base!r} has no {', '.join(sorted(lacking))} cone, which this set needs; "
            f"these have it: {', '.join(able)}"
        )
    return cls(option) if colon else cls()  # type: ignore[call-arg]


@contextmanager
def cold() -> Iterator[None]:
    """Inside, every conic solve starts from nothing, so an answer depends on the losses alone.

    Outside, a solver keeps what helps it (HiGHS its last basis), and among several optimal
    distributions may return another one than it would have returned at first. A run that has to be
    repeatable bit by bit from any point solves inside `cold()`.

    >>> from uncertainty_sets import Polyhedron
    >>> with cold():
    ...     Polyhedron([[1.0, 0.0, 0.0]], [0.5]).worst_case([3.0, 2.0, 1.0]).value
    2.5
    """
    token = _cold.set(True)
    try:
        yield
    finally:
        _cold.reset(token)


def is_cold() -> bool:
    """Whether we are inside `cold()`."""
    return _cold.get()
