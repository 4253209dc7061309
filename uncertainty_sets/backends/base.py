"""What a conic solver has to do to be a backend.

A backend is one file with one subclass of `Backend`, in this folder or in another package. What it can do is
data on the class; the solver's own package is imported when a program is first compiled for it, never before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from uncertainty_sets.conic.program import CONES
from uncertainty_sets.registry import Registry, join_names

if TYPE_CHECKING:
    from uncertainty_sets.arrays import Array
    from uncertainty_sets.conic.program import ConicProgram

Outcome = Literal["solved", "inaccurate", "infeasible", "failed"]
"""What a solver's own status means here. "inaccurate": it has an answer and doubts it; the certificate
decides."""


class Solution(NamedTuple):
    """What came back from a solver for: minimise costᵀx subject to b - A x in K.

    y is in the dual cone and Aᵀy = -cost, both up to the solver's tolerance; if the outcome is
    "infeasible", y is a proof of it if the solver gave one (Aᵀy = 0, bᵀy < 0) and may be empty.
    """

    outcome: Outcome
    x: Array
    y: Array
    iterations: int
    status: str


class Solver(ABC):
    """One program in one solver, ready for any number of objectives. Not shared between threads."""

    @abstractmethod
    def solve(self, cost: Array) -> Solution:
        """Minimise costᵀx; only the objective is sent."""


class Backend(ABC):
    """A conic solver and what it can do."""

    name: ClassVar[str] = ""
    """What `worst_case(..., backend=name)` takes."""
    package: ClassVar[str]
    """The module to import."""
    install: ClassVar[str]
    """What to give to pip."""
    cones: ClassVar[frozenset[str]]
    """The kinds of `uncertainty_sets.conic.program.CONES` that it can solve."""
    preference: ClassVar[int | None] = None
    """When "auto" tries it, among those with the cones: the smallest number first; None: only by name."""
    options: ClassVar[str] = ""
    """What may follow the name and a colon, given to the constructor; "" for nothing."""

    def __init_subclass__(cls, *, replace: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        if vars(cls).get("name"):
            lacking = [data for data in ("package", "install", "cones") if not hasattr(cls, data)]
            if lacking:
                raise TypeError(f"the backend {cls.__name__} must set {join_names(lacking)}")
            unknown = set(cls.cones) - set(CONES)
            if unknown or not set(cls.cones) >= {"zero", "nonneg"}:
                raise TypeError(
                    f"the cones of the backend {cls.__name__} must include zero and nonneg, and be of "
                    f"{', '.join(CONES)}: got {', '.join(sorted(cls.cones)) or 'none'}"
                )
        BACKENDS.define(cls, replace=replace)

    @classmethod
    def installed(cls) -> bool:
        """Whether the package is there, found without importing it."""
        try:
            return find_spec(cls.package) is not None
        except ModuleNotFoundError:  # the package that it is in
            return False

    @classmethod
    def suits(cls, program: ConicProgram) -> bool:
        """Whether "auto" tries it for that program in the order of `preference`; if not, after the others."""
        return True

    @abstractmethod
    def compile(self, program: ConicProgram) -> Solver:
        """Hand the program to the solver, whose package is imported here or later."""


CLOSED_FORM = "closed-form"

BACKENDS: Registry[Backend] = Registry(
    "backend", Backend, ["uncertainty_sets.backends"], reserved=["auto", CLOSED_FORM]
)
"""Every backend with a name; their files import no solver."""
