"""From a set's `constraints` to its conic program with the solvers that hold it, once per set and size."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from uncertainty_sets.backends import in_order, is_cold, select
from uncertainty_sets.conic.certificate import Certifier
from uncertainty_sets.conic.program import CONES, ConicProgram, checked, equilibrated, in_natural_units
from uncertainty_sets.errors import BackendUnsuitable, InvalidInput, InvalidParameter, SolverFailed
from uncertainty_sets.packages import load

if TYPE_CHECKING:
    from uncertainty_sets.backends import Solver
    from uncertainty_sets.base import UncertaintySet

SomeSet = TypeVar("SomeSet", bound="UncertaintySet")

MANY, LARGE = 3_000, 1_000_000
"""From so many expressions, or entries in them, cvxpy compiles for seconds or minutes."""

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
        if isinstance(backend, str) and backend in kept and not is_cold():
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


def compile_program(uncertainty_set: UncertaintySet, size: int) -> ConicProgram:
    """The program of `uncertainty_set.constraints` in the simplex, by way of cvxpy's canonical form.

    It takes milliseconds or more and does not depend on the losses: callers keep the result.
    """
    name = type(uncertainty_set).__name__
    cp = load("cvxpy", f"the conic program of {name}")
    sparse = load("scipy.sparse", f"the conic program of {name}")
    p = cp.Variable(size)
    # 1. State the problem. The coefficients 1 … N mark the columns of p in the compiled objective: cvxpy's
    # own map, var_id_to_col, misses variables with attributes, and a Parameter costs seconds at N = 10,000.
    marks = np.arange(1.0, size + 1.0)
    stated = set_constraints(uncertainty_set, p)
    _announce(name, size, stated)
    problem = cp.Problem(cp.Minimize(marks @ p), [cp.sum(p) == 1, p >= 0, *stated])
    if problem.is_mixed_integer():
        raise InvalidParameter(
            f"the constraints of {name} have integer variables; an uncertainty set is convex"
        )
    # 2. Compile it. Clarabel's data are in standard form with every cone a set may use; nothing is solved.
    try:
        data, _, _ = problem.get_problem_data(cp.CLARABEL)
    except cp.error.DCPError as error:
        raise InvalidParameter(
            f"the constraints of {name} are not convex by cvxpy's rules (DCP): {error}"
        ) from error
    dims = data["dims"]
    if dims.psd or dims.p3d or getattr(dims, "pnd", None):
        lacking = "semidefinite" if dims.psd else "power"
        raise BackendUnsuitable(
            f"the constraints of {name} need the {lacking} cone, and no backend here takes more than "
            f"{', '.join(CONES)}. Norms and powers can be written with second-order cones; or solve "
            f"the set's constraints with cvxpy itself"
        )
    # 3. Read the cones, and find the columns of p by their marks.
    cones = [("zero", dims.zero), ("nonneg", dims.nonneg)]
    cones += [("soc", size) for size in dims.soc] + [("exp", 3)] * dims.exp
    marked = np.flatnonzero(data["c"])
    columns = marked[np.argsort(data["c"][marked])].astype(np.intp)
    if not np.array_equal(data["c"][columns], marks):
        raise SolverFailed(
            f"cvxpy {cp.__version__} compiled the objective of {name} into a form that is not supported"
        )
    return ConicProgram(
        sparse.csc_array(data["A"]),
        np.asarray(data["b"], dtype=np.float64),
        tuple((kind, int(rows)) for kind, rows in cones if rows),
        columns,
    )


def _announce(name: str, size: int, constraints: Sequence[Any]) -> None:
    """Log before it starts that a compile takes long, and why; on stderr unless logging is set up."""
    seen: dict[int, int] = {}
    left = list(constraints)
    while left:
        each = left.pop()
        if id(each) not in seen:
            seen[id(each)] = getattr(each, "size", 1)
            left += getattr(each, "args", ())
    if len(seen) <= MANY and sum(seen.values()) <= LARGE:
        return
    import logging

    remedy = (
        "; with arrays they would be few: cp.abs(p[i] - p[j]) with i, j = np.triu_indices(p.size, 1) is one "
        "expression for all pairs"
        if len(seen) > MANY
        else ""
    )
    logging.getLogger("uncertainty_sets").warning(
        f"compiling {name} for N = {size:,}, once: its constraints are {len(seen):,} cvxpy expressions with "
        f"{sum(seen.values()):,} entries, and cvxpy takes up to a millisecond per expression and "
        f"some microseconds per entry{remedy}"
    )


def set_constraints(uncertainty_set: UncertaintySet, p: Any) -> list[Any]:
    """The set's own constraints at p: checked to be cvxpy constraints, and without infinite bounds."""
    import cvxpy as cp

    name = type(uncertainty_set).__name__
    try:
        constraints = uncertainty_set.constraints(p)
    except InvalidInput:
        raise
    except (ValueError, IndexError) as error:  # what NumPy and cvxpy raise for shapes that do not fit
        raise InvalidInput(
            f"{name}.constraints cannot be written for p with {p.size} entries: {error}"
        ) from error
    try:
        constraints = list(constraints)
    except TypeError as error:
        raise InvalidInput(
            f"{name}.constraints must return a list of cvxpy constraints, got {constraints!r}"
        ) from error
    for each in constraints:
        # A comparison of constants gives True or False, which cvxpy would take as a constraint too.
        if not isinstance(each, cp.constraints.constraint.Constraint | bool | np.bool_):
            raise InvalidInput(
                f"{name}.constraints must return a list of cvxpy constraints; one of its items is {each!r}"
            )
        for parameter in [] if isinstance(each, bool | np.bool_) else each.parameters():
            if parameter.value is None:
                raise InvalidParameter(
                    f"the constraints of {name} use the cvxpy parameter {parameter.name()!r}, which has no "
                    "value: set its `value` before the set is used"
                )
    finite = [_without_infinite_bounds(each) for each in constraints]
    return [each for each in finite if each is not None]


def _without_infinite_bounds(constraint: Any) -> Any:
    """An inequality without the entries that an infinite constant leaves free; None if none is left."""
    import cvxpy as cp
    from scipy import sparse

    if not isinstance(constraint, cp.constraints.Inequality):
        return constraint
    sides, free = [], np.zeros(constraint.shape, dtype=bool)
    for side, infinite in zip(constraint.args, (-np.inf, np.inf), strict=True):
        if side.is_constant():
            value = side.value.toarray() if sparse.issparse(side.value) else np.asarray(side.value)
            sides.append(np.broadcast_to(value, constraint.shape))
            free = free | (sides[-1] == infinite)
        else:
            sides.append(side)
    if not free.any():
        return constraint
    keep = np.flatnonzero(~free.ravel(order="F"))
    if not keep.size:
        return None
    left, right = (
        each.ravel(order="F")[keep]
        if isinstance(each, np.ndarray)
        else each
        if each.size == 1
        else cp.vec(each, order="F")[keep]
        for each in sides
    )
    return left <= right


def with_size(uncertainty_set: SomeSet, size: int) -> SomeSet:
    """The set itself if it has that size, else a copy that does, made once for each size.

    The constraints are stated once, so that parameters of another length are reported here.
    """
    name, own = type(uncertainty_set).__name__, uncertainty_set.size
    if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 1:
        raise InvalidInput(f"size must be a whole number, at least 1, got {size!r}")
    if own is not None:
        if own != size:
            raise InvalidInput(f"{name} has {own} entries, and {size} are needed")
        return uncertainty_set
    kept: dict[int, SomeSet] = uncertainty_set.__dict__.setdefault("_cache_sized", {})
    if size not in kept:
        cp = load("cvxpy", f"{name}.with_size")
        twin = copy.copy(uncertainty_set)
        twin.__dict__["size"] = int(size)  # past a __setattr__ of a frozen class
        if twin.size != size:
            raise InvalidInput(
                f"{name} cannot be given a size: its `size` stays {twin.size!r}; make it a plain attribute"
            )
        set_constraints(twin, cp.Variable(int(size)))
        kept.setdefault(int(size), twin)
    return kept[size]
