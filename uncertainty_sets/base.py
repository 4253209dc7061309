"""What every uncertainty set is, and what every oracle answers.

An uncertainty set P is a convex set of probability vectors p. Its oracle answers

    maximise  pᵀf   over  p in P,   p >= 0,   1ᵀp = 1

for a vector f of losses, with a proof: a feasible p (a lower bound on the maximum) and dual
multipliers (an upper bound that does not depend on p).
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import BackendUnsuitable, InvalidInput, InvalidLosses
from uncertainty_sets.parameters import as_floats, example_center

if TYPE_CHECKING:
    import cvxpy

    from uncertainty_sets.conic.program import ConicProgram


class UncertaintySet(ABC):
    """A convex set of probability vectors with a worst-case oracle.

    A new set needs `constraints` alone (docs/add-a-set.md). One that knows a faster way overrides
    `_closed_form`. Give a subclass a `name` and the registry finds it.
    """

    name: ClassVar[str] = ""
    """The registry's name; a set without one is used by its class alone."""

    complexity: ClassVar[str] = "a conic program"
    """What one call of the default oracle costs, for tables that people read."""

    size: int | None = None
    """N, or None where the losses decide it."""

    rows: int | None = None
    """B where the parameters differ by row of a batch, else None."""

    _certifies_itself: ClassVar[bool] = True
    """Said by a class whose `_closed_form` measures value and violation from p: its answers are not measured
    again (checking.py). A subclass with a `_closed_form` of its own has to say it anew."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        owner = next(each for each in cls.__mro__ if "_closed_form" in vars(each))
        cls._certifies_itself = vars(owner).get("_certifies_itself", False)
        if "name" in cls.__dict__ and cls.name:
            from uncertainty_sets.registry import register

            register(cls)

    @abstractmethod
    def constraints(self, p: cvxpy.Variable) -> list[cvxpy.Constraint]:
        """The set as cvxpy constraints on p, without p >= 0 and 1ᵀp = 1, which hold for every set."""

    def worst_case(
        self, losses: ArrayLike, *, backend: str = "auto", warm_start: WorstCase | None = None
    ) -> WorstCase:
        """The distribution in the set that makes the expected loss largest, with its proof.

        A closed form promises a gap of at most 1e-9 of the losses' spread (or a few units in the last place
        of the losses) and a violation of at most 1e-10. An answer, or a row of a batch, that breaks the
        promise goes to a conic solver, and `backend` says so; if that fails too, SolverFailed is raised with
        the certificate in `.answer`.

        Args:
            losses: finite numbers, shape (N,), or (B, N) for a batch whose rows run in parallel.
            backend: "auto" (closed form where there is one), "closed-form", or a name from
                `available_backends()`.
            warm_start: an earlier answer of this or a similar set; its multipliers start the search.
                The answer is the same, only faster.
        """
        f = self._check_losses(losses)
        if warm_start is not None and not isinstance(warm_start, WorstCase):
            raise InvalidInput(
                f"warm_start must be an earlier answer (WorstCase), got {type(warm_start).__name__}"
            )
        if backend in {"auto", "closed-form"}:
            if self._certifies_itself:
                answer = self._closed_form(f, warm_start)
            else:
                from uncertainty_sets import claims as checking

                answer = checking.closed_form(self, f, warm_start)
            if answer is not None:
                if not answer.unproved:
                    return answer
                from uncertainty_sets import fallback

                return fallback.settle(self, f, answer, backend)
            if backend == "closed-form":
                raise BackendUnsuitable(
                    f"{type(self).__name__} has no closed form; use backend='auto' or one of "
                    "available_backends()"
                )
        from uncertainty_sets.conic import oracle as conic

        return conic.worst_case(self, f, backend, warm_start)

    def violation(self, p: ArrayLike) -> float:
        """The largest residual of p over the simplex and the set's constraints, at least 0.

        Each residual is scaled by max(1, |right-hand side|); auxiliary variables (a transport plan)
        are minimised out. What the rounding of p itself brings about (a few units in the last place of its
        entries, times a long distance or divided by a small spread) is no violation.
        """
        point = self._check_point(p)
        simplex = max(float(-point.min()), abs(float(point.sum()) - 1.0), 0.0)
        return max(simplex, self._residual(point)) + 0.0  # no -0.0

    def contains(self, p: ArrayLike, tol: float = 1e-9) -> bool:
        """Whether p is in the set, up to a violation of tol."""
        return self.violation(p) <= tol

    def with_size(self, size: int) -> UncertaintySet:
        """The set over that many entries: itself if it has them, a copy that does if it leaves them open.

        For whoever knows N before there are losses, as a driver knows its workers. InvalidInput if the set
        has another size, or its constraints cannot be written for that one.
        """
        from uncertainty_sets.conic import sizing

        return sizing.with_size(self, size)

    def reference(self) -> Array:
        """A distribution in the set: its centre, or else the uniform one projected onto the set.

        A set that leaves its size to the losses has one for each: `with_size(N).reference()`.
        """
        from uncertainty_sets.conic import oracle as conic

        return conic.projection_of_uniform(self)

    @classmethod
    def example(cls, size: int, rng: np.random.Generator | None = None) -> UncertaintySet:
        """A set of that size to try things on: what the shared tests, the benchmark and the gallery use.

        A plug-in whose constructor takes only `center`, `radius` and `size` has one by default; others
        override this. Without `rng` the example is the same every time and its centre uniform.
        """
        known: dict[str, Any] = {"center": example_center(size, rng), "radius": 0.1, "size": size}
        wanted = inspect.signature(cls).parameters.values()
        if any(item.default is item.empty and item.name not in known for item in wanted):
            raise InvalidInput(
                f"{cls.__name__} has no example: its constructor takes more than center, radius and size; "
                "give it a classmethod example(size, rng)"
            )
        return cls(**{item.name: known[item.name] for item in wanted if item.name in known})

    def _closed_form(self, losses: Array, warm_start: WorstCase | None) -> WorstCase | None:
        """The exact answer by this set's own method, or None where it has none."""
        return None

    def _by_solver(self, losses: Array) -> WorstCase:
        """One loss vector by a conic solver, where the closed form has no proof."""
        from uncertainty_sets.conic import oracle as conic

        return conic.worst_case(self, losses, "auto", None)

    def _residual(self, p: Array) -> float:
        """The largest scaled residual of the set's own constraints at p (the simplex is checked apart)."""
        from uncertainty_sets.conic import oracle as conic

        return conic.residual(self, p)

    def _conic_program(self, size: int) -> ConicProgram | None:
        """The oracle's conic program, where the set can write it down; None compiles `constraints`."""
        return None

    def _dual_from_conic(self, y: Array) -> dict[str, Any]:
        """`WorstCase.dual` for multipliers y of the program's rows; a set may name its own."""
        return {"y": y}

    def _row(self, index: int) -> UncertaintySet:
        """The set of one row of a batch, where parameters differ by row."""
        return self

    def _singleton(self) -> Array | None:
        """The only distribution in the set, where there is just one and that is known."""
        return None

    def _check_losses(self, losses: ArrayLike) -> Array:
        """Losses as a C-contiguous writable float64 array, (N,) or (B, N); kernels look for NaN."""
        if type(losses) is np.ndarray and losses.dtype == np.float64 and losses.flags.carray:
            f = losses
        else:
            f = np.require(as_floats("losses", losses, InvalidLosses), requirements=["C", "W", "A"])
        if f.ndim not in {1, 2} or f.size == 0:
            raise InvalidLosses(
                f"losses must have shape (N,) or (B, N) with at least one entry, got {f.shape}"
            )
        size = self.size
        if size is not None and f.shape[-1] != size:
            raise InvalidLosses(f"losses must have {size} entries, as the set has, got shape {f.shape}")
        if self.rows is not None and f.shape != (self.rows, f.shape[-1]):
            if f.ndim != 1:
                raise InvalidLosses(
                    f"this set's parameters have {self.rows} rows: losses must have shape "
                    f"({self.rows}, {f.shape[-1]}) or ({f.shape[-1]},), got {f.shape}"
                )
            f = np.tile(f, (self.rows, 1))
        return f

    def _check_point(self, p: ArrayLike) -> Array:
        point = np.ascontiguousarray(as_floats("p", p, InvalidInput))
        if self.rows is not None:
            raise InvalidInput(
                "violation and contains look at one distribution, and this set's parameters differ by row; "
                "make a set for the row in question"
            )
        if point.ndim != 1 or point.size == 0 or (self.size is not None and point.size != self.size):
            needed = "one entry or more" if self.size is None else f"{self.size} entries"
            raise InvalidInput(f"p must be a vector of {needed}, got shape {point.shape}")
        if not np.isfinite(point).all():
            raise InvalidInput(f"p must be finite, got {point[~np.isfinite(point)][0]}")
        return point

    def __getstate__(self) -> dict[str, Any]:
        # Compiled programs and solver handles are remade where they are needed.
        return {key: value for key, value in self.__dict__.items() if not key.startswith("_cache")}

    def __copy__(self) -> UncertaintySet:
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__getstate__())
        return twin
