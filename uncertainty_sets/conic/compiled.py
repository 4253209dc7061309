"""A set's conic program for one size, with the solvers that hold it."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING

from uncertainty_sets.backends import in_order, is_cold, select
from uncertainty_sets.conic.certificate import Certifier
from uncertainty_sets.conic.compile import compile_program
from uncertainty_sets.conic.program import checked, equilibrated, in_natural_units

if TYPE_CHECKING:
    from uncertainty_sets.backends import Solver
    from uncertainty_sets.base import UncertaintySet
    from uncertainty_sets.conic.program import ConicProgram

_compiling = threading.RLock()


class Compiled:
    """A set's program for one size, with the solvers that hold it.

    Solvers, certificate and membership use `program`, whose auxiliary variables are in natural units and
    whose rows and cones are equilibrated. `given` is the set's own; a multiplier y of `program` is
    y·`factors` for `given`.
    """

    def __init__(self, given: ConicProgram) -> None:
        self.given = given
        self.program, self.factors = equilibrated(in_natural_units(given))
        self.certifier = Certifier(self.program)
        self._solvers = threading.local()  # threads must not share solver objects

    @cached_property
    def order(self) -> list[str]:
        """The backends that "auto" tries; kept, since to look which are installed takes 0.1 ms."""
        return in_order(self.program)

    def solver(self, backend: str) -> Solver:
        """The program in that backend; kept, except inside `backends.cold()`."""
        kept = self._solvers.__dict__
        if backend in kept and not is_cold():
            solver: Solver = kept[backend]
            return solver
        solver = select(backend, self.program).compile(self.program)
        if not is_cold():
            kept[backend] = solver
        return solver


def compiled(uncertainty_set: UncertaintySet, size: int) -> Compiled:
    """The set's program for that size, made once.

    Whatever needs the constraints comes here first, so that it accepts the same sets as the oracle.
    """
    kept: dict[int, Compiled] = uncertainty_set.__dict__.setdefault("_cache_conic", {})
    found = kept.get(size)
    if found is None:
        with _compiling:
            if size not in kept:
                own = uncertainty_set._conic_program(size)
                stated = own if own is not None else compile_program(uncertainty_set, size)
                kept[size] = Compiled(checked(stated, type(uncertainty_set).__name__))
            found = kept[size]
    return found
