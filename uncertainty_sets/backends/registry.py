"""Finding backends by name, and the order in which "auto" tries them; neither is a list to edit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from uncertainty_sets.backends.base import BACKENDS, CLOSED_FORM, Backend
from uncertainty_sets.errors import BackendMissing, BackendUnsuitable

if TYPE_CHECKING:
    from uncertainty_sets.conic.program import ConicProgram

_cold: ContextVar[bool] = ContextVar("uncertainty_sets_cold", default=False)


def available_backends() -> list[str]:
    """Return the names for `worst_case(..., backend=name)` whose packages are installed.

    "cvxpy" also accepts the name of one of cvxpy's solvers after a colon, as in "cvxpy:MOSEK".

    >>> {"clarabel", "closed-form", "cvxpy", "highs"} <= set(available_backends())
    True
    """
    return sorted([CLOSED_FORM, *(name for name, cls in BACKENDS.classes().items() if cls.installed())])


def in_order(program: ConicProgram) -> list[str]:
    """The backends that "auto" tries for that program: those that are installed, by `suits` and `preference`.

    If none is, the first that could solve the program, so that `select` can say what to install.
    """
    known = BACKENDS.classes()
    able = {name: cls for name, cls in known.items() if program.kinds <= cls.cones}
    ranked = sorted(
        (not cls.suits(program), cls.preference, name)
        for name, cls in able.items()
        if cls.preference is not None
    )
    order = [name for _, _, name in ranked]
    return [name for name in order if known[name].installed()] or order[:1]


def select(name: str, program: ConicProgram) -> Backend:
    """The backend of that name, able to solve that program; "auto" is the first of `in_order`."""
    if name == "auto":
        name = in_order(program)[0]
    base, colon, option = str(name).partition(":")
    cls = BACKENDS.find(base)
    if cls is None or (colon and not cls.options):
        raise BACKENDS.unknown(name, "; and cvxpy:NAME for any solver that cvxpy finds", "backend")
    if not cls.installed():
        raise BackendMissing(f"backend {base!r} needs the package {cls.package}: pip install {cls.install}")
    lacking = program.kinds - cls.cones
    if lacking:
        able = [each for each, other in BACKENDS.classes().items() if program.kinds <= other.cones]
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
