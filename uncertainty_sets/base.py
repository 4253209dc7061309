"""The base class of all uncertainty sets.

An uncertainty set P is a convex set of probability vectors p. Its oracle answers

    maximise  pᵀf   over  p in P,   p >= 0,   1ᵀp = 1

for a vector f of losses, with a proof: a feasible p (a lower bound on the maximum) and dual
multipliers (an upper bound that does not depend on p).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets import inverse, projection, ragged, verdict
from uncertainty_sets.answer import BestCase, WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.conic import oracle as conic
from uncertainty_sets.conic.compile import with_size
from uncertainty_sets.errors import BackendUnsuitable, BrokenSet, InvalidInput
from uncertainty_sets.kernels.dispatch import reject_not_finite
from uncertainty_sets.oracle import Oracle
from uncertainty_sets.parameters import as_floats, as_number, build, example_center, parameters_of
from uncertainty_sets.registry import Registry

if TYPE_CHECKING:
    import cvxpy

    from uncertainty_sets.conic.program import ConicProgram
    from uncertainty_sets.penalised import Penalty
    from uncertainty_sets.ragged import Ragged
    from uncertainty_sets.rows import Layout, Structure


def _states(cls: type[Any]) -> bool:
    """Whether a class itself says what its constraints are."""
    return "constraints" in vars(cls) and not getattr(vars(cls)["constraints"], "__isabstractmethod__", False)


def _named(function: Any, name: str) -> Any:
    """The same function under another name: Python's error for a missing argument then names this class."""
    if not isinstance(function, FunctionType):
        return function
    copy = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__, copy.__doc__, copy.__module__ = (
        function.__kwdefaults__, function.__doc__, function.__module__
    )  # fmt: skip
    copy.__annotations__ = function.__annotations__
    copy.__dict__.update(function.__dict__)
    copy.__qualname__ = name
    return copy


class UncertaintySet(Oracle):
    """A convex set of probability vectors with a worst-case oracle.

    A new set needs only `constraints` (docs/add-a-set.md). A set with a faster method overrides
    `_closed_form`. A subclass with a `name` is found by the registry; if another class has that name, the
    definition is an error, unless it says ``class Mine(UncertaintySet, replace=True)``.

    ``certified=True`` in the same place says that the class's own `_closed_form` measures value and violation
    from the p that it returns: its answers are not measured again (verdict.py), and it takes `out`.
    """

    name: ClassVar[str] = ""
    """The name in the registry; a set without a name is used through its class."""

    summary: ClassVar[str] = ""
    """What the set contains, in a few words, for tables and `fdro sets`."""

    formula: ClassVar[str] = ""
    """The condition on p, as in "Σ p·log(p/q) <= radius"; p >= 0 and 1ᵀp = 1 are implied."""

    complexity: ClassVar[str] = "a conic program"
    """The cost of one call of the default oracle, for tables and `fdro sets`."""

    has_closed_form: ClassVar[bool] = False
    """Whether the class overrides `_closed_form`. This is derived; do not set it."""

    has_ragged: ClassVar[bool] = False
    """Whether there are `ragged` rows of this class, by its `layout`. This is derived; do not set it."""

    layout: ClassVar[Layout | None] = None
    """How the parameters lie in ragged rows, and the kernel that answers them (rows.py). A subclass with
    other parameters needs its own."""

    sized_by: ClassVar[str] = ""
    """The parameter that says how large the set is, "radius" or "budget": a number >= 0. At 0 the set is its
    `reference()` q, and if p is within a radius, q + s·(p - q) is within s times as much (or this holds for a
    power of it: `_concave_in_power`): the largest pᵀf is concave. Empty if there is none."""

    per_entry: ClassVar[frozenset[str]] = frozenset({"center"})
    """Parameters with one number per entry of p; `make_set` repeats a single number for them."""

    penalty: ClassVar[Penalty | None] = None
    """What the set's divergence costs as a price, for `Penalised`; subclasses of another name have none."""

    _certified: ClassVar[bool] = True
    """Whether the class that defines `_closed_form` said `certified=True`. This is derived; do not set it."""

    def __init_subclass__(cls, *, replace: bool = False, certified: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" not in vars(cls) and cls.__init__ is not object.__init__:
            cls.__init__ = _named(cls.__init__, f"{cls.__qualname__}.__init__")  # type: ignore[method-assign]
        cls._refuse_other_constraints()
        owner = next(each for each in cls.__mro__ if "_closed_form" in vars(each))
        if certified and owner is not cls:
            raise BrokenSet(
                f"certified=True is about the `_closed_form` that a class defines, and {cls.__name__} has "
                "none of its own: leave it out"
            )
        cls._certified = certified if owner is cls else vars(owner).get("_certified", False)
        cls.has_closed_form = cls._closed_form is not UncertaintySet._closed_form
        cls.has_ragged = cls.layout is not None and [*cls.layout.parameters] == [*parameters_of(cls)]
        SETS.define(cls, replace=replace)

    @classmethod
    def _refuse_other_constraints(cls) -> None:
        """What a class inherits, such as a closed form or a reference, must be of its own set."""
        stated = [each for each in cls.__mro__ if _states(each)]
        if len(stated) > 1:
            own, parent = cls.__name__, stated[1].__name__
            raise BrokenSet(
                f"{own} has other `constraints` than its parent {parent}, whose closed form, reference and "
                f"other methods would answer for {parent}: derive {own} from UncertaintySet, with a {parent} "
                f"as an attribute if it takes over its constraints, or use Intersection({parent}(…), …)"
            )

    @abstractmethod
    def constraints(self, p: cvxpy.Variable) -> list[cvxpy.Constraint]:
        """Return the set as cvxpy constraints on p, without p >= 0 and 1ᵀp = 1, which hold for every set."""

    def _answer_checked(
        self, f: Array, backend: str, warm_start: WorstCase | None, out: Array | None
    ) -> WorstCase:
        answer: WorstCase | None = None
        if backend in ("auto", "closed-form"):
            if self._certified:
                answer = self._closed_form(f, warm_start, out)
            else:
                answer = verdict.measured_closed_form(self, f, warm_start)
            if answer is not None and answer.unproved:
                answer = verdict.settle(self, f, answer, backend)
        if answer is None:
            if backend == "closed-form":
                raise BackendUnsuitable(
                    f"{type(self).__name__} has no closed form; use backend='auto' or one of "
                    "available_backends()"
                )
            answer = conic.worst_case(self, f, backend, warm_start)
        return answer

    def best_case(
        self, losses: ArrayLike, *, backend: str = "auto", on_failure: verdict.OnFailure = "raise"
    ) -> BestCase:
        """Return the distribution in the set with the smallest expected loss, with its certificate.

        It is the worst case of -losses, and keeps the promises of `worst_case`. For warm starts and
        derivatives take ``worst_case(-losses)``.

        >>> from uncertainty_sets import KL
        >>> ball = KL([0.5, 0.3, 0.2], 0.1)
        >>> best, worst = ball.best_case([1.0, 2.0, 4.0]), ball.worst_case([1.0, 2.0, 4.0])
        >>> round(best.value, 4), round(worst.value, 4), bool(best.lower_bound <= best.value)
        (1.4388, 2.4389, True)
        """
        f = self._check_losses(losses)
        reject_not_finite(f)  # before the sign is turned, which the message would show
        found = self.worst_case(-f, backend=backend, on_failure=on_failure)
        return BestCase(
            found.p, -found.value, -found.upper_bound, found.gap, found.violation, found.dual, found.backend,
            found.iterations, found.failed,
        )  # fmt: skip

    def radius_for(self, losses: ArrayLike, target: ArrayLike) -> inverse.LeastRadius:
        """Return the least radius (or budget) at which the largest pᵀf reaches a target.

        The set's own radius does not matter. The radius is 0 if the centre's mean reaches the target, and
        infinite if no radius does: `reached` is False then. KL, TotalVariation, ChiSquare, the power
        divergences and CVaR have a closed form; other sets need a few oracle calls per target. Risk measures
        are asked for their tail: the radius is 1/tail - 1 for CVaR, and -log tail for EVaR.

        Args:
            losses: finite numbers, shape (N,) or (B, N).
            target: a number, or shape (B,): one per row of losses, or several for one loss vector.

        The lower bound of KL is θ·target - log Σ q·exp(θf) for any θ >= 0, here the answer's multiplier:

        >>> import numpy as np
        >>> from uncertainty_sets import KL
        >>> f, q = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.3, 0.2])
        >>> answer = KL(q, 0.0).radius_for(f, target=2.5)
        >>> round(answer.radius, 6), answer.p.round(4)
        (0.122847, array([0.3141, 0.2789, 0.407 ]))
        >>> theta = answer.multiplier
        >>> bool(np.isclose(theta * 2.5 - np.log(q @ np.exp(theta * f)), answer.lower_bound))
        True
        >>> round(KL(q, answer.radius).worst_case(f).value, 9)
        2.5
        """
        return inverse.radius_for(self, losses, target)

    def scaled(self, factor: ArrayLike) -> UncertaintySet:
        """Return the set with its radius (or budget) times a factor >= 0, or one factor per batch row.

        >>> from uncertainty_sets import CDNorm
        >>> CDNorm([0.5, 0.5], 0.1, budget=1.0).scaled(0.5).budget
        0.5
        """
        found: UncertaintySet = inverse.scaled(self, factor)
        return found

    def worst_case_path(self, losses: ArrayLike, radii: ArrayLike) -> WorstCase:
        """Return the worst cases of one loss vector for several radii (or budgets), as a batch has them.

        For trade-off curves: row k belongs to radii[k]. Radii are answered from the smallest to the largest,
        each from the multipliers of the one before.

        >>> from uncertainty_sets import KL
        >>> KL([0.5, 0.3, 0.2], 0.1).worst_case_path([1.0, 2.0, 4.0], [0.0, 0.1, 10.0]).value.round(3)
        array([1.9  , 2.439, 4.   ])
        """
        return inverse.worst_case_path(self, losses, radii)

    def radius_of(self, p: ArrayLike) -> float:
        """Return the least radius (or budget) at which the set contains p; infinite if none does.

        >>> from uncertainty_sets import KL
        >>> round(KL([0.5, 0.5], 0.1).radius_of([0.8, 0.2]), 6)
        0.192745
        """
        return inverse.radius_of(self, self._check_point(p))

    def project(self, point: ArrayLike) -> projection.Nearest:
        """Return the point of the set nearest to any given vector, in the Euclidean norm, with a proof.

        Box, CDNorm, KL, ChiSquare, TotalVariation and Ellipsoid with a diagonal shape have a closed form;
        others take a conic program. An oracle call proves the answer: with d = point - p, half the squared
        distance is at most max over the set of p'ᵀd - pᵀd from the least one.

        >>> import numpy as np
        >>> from uncertainty_sets import KL
        >>> ball, x = KL([0.5, 0.3, 0.2], 0.1), np.array([0.0, 0.5, 0.9])
        >>> nearest = ball.project(x)
        >>> nearest.p.round(3), bool(nearest.gap < 1e-12)
        (array([0.303, 0.335, 0.362]), True)
        >>> d = x - nearest.p
        >>> bool(np.isclose(nearest.gap, ball.worst_case(d).upper_bound - d @ nearest.p, atol=1e-15))
        True
        """
        return projection.project(self, self._check_point(point))

    def prox(self, point: ArrayLike, step: float) -> Array:
        """Return the z that minimises (the largest pᵀz over the set) + ‖z - point‖²/(2·step).

        This is the proximal step of the support function: point - step·project(point/step).p, and that
        projection has the proof.

        >>> from uncertainty_sets import Box
        >>> Box([0.0, 0.0], [1.0, 1.0]).prox([3.0, 0.0], step=1.0)
        array([2., 0.])
        """
        size = as_number("step", step, "positive and finite", lambda number: number > 0.0, InvalidInput)
        return projection.prox(self, self._check_point(point), size)

    @classmethod
    def ragged(
        cls, *parameters: Any, indptr: ArrayLike | None = None, indices: ArrayLike | None = None, **named: Any
    ) -> Ragged:
        """Return rows of this kind of set with different numbers of entries, over one shared value vector.

        The parameters are those of the constructor. What has an entry per probability lies along the entries
        of all rows, or is one number for all; a radius is a number, or one per row; a cost is that between
        the values, once for all rows; whatever else there is, all rows share. Only sets with a closed form
        have rows. Others would take a conic program per row, milliseconds each, and their parameters are not
        known to be cut by rows: for them call `worst_case` of a set per row.

        Args:
            *parameters: of the constructor. The first, such as the centre, may be a SciPy CSR matrix, which
                brings indptr and indices.
            indptr: the entries of row b are indptr[b], …, indptr[b+1] - 1. Not needed with a CSR matrix.
            indices: for each entry the place of its value; an index may repeat in a row, as an entry of its
                own. None: there is a value for each entry.
            **named: the same parameters by name.

        >>> from uncertainty_sets import ChiSquare
        >>> rows = ChiSquare.ragged([0.5, 0.5, 0.2, 0.3, 0.5], radius=0.04, indptr=[0, 2, 5])
        >>> rows.worst_case([1.0, 2.0, 3.0, 2.0, 1.0]).p.round(4)
        array([0.4   , 0.6   , 0.2666, 0.323 , 0.4104])
        """
        if cls.has_ragged:
            return ragged.made_of(cls, parameters, named, indptr, indices)
        able = ", ".join(sorted(each.__name__ for each in SETS.classes().values() if each.has_ragged))
        raise BackendUnsuitable(
            f"{cls.__name__} has no closed form for ragged rows (sets that have one: {able}); make a "
            f"{cls.__name__} for each row and call its worst_case with values[indices[indptr[b]:indptr[b+1]]]"
        )

    def violation(self, p: ArrayLike) -> float:
        """Return the largest residual of p over the simplex and the set's constraints, at least 0.

        Each residual is scaled by max(1, |right-hand side|). For a set that has only `constraints` it is in
        units of p, so that multiplying a constraint by 1e-8 changes nothing; auxiliary variables (a transport
        plan) are minimised out. The rounding of p itself (a few units in the last place of its entries, times
        a long distance or divided by a small spread) is not counted as a violation.
        """
        point = self._check_point(p)
        simplex = max(float(-point.min()), abs(float(point.sum()) - 1.0), 0.0)
        return max(simplex, self._residual(point)) + 0.0  # no -0.0

    def contains(self, p: ArrayLike, tol: float = 1e-9) -> bool:
        """Whether p is in the set, up to a violation of tol."""
        limit = as_number("tol", tol, "a finite number >= 0", lambda number: number >= 0.0, InvalidInput)
        return self.violation(p) <= limit

    def with_size(self, size: int) -> Self:
        """Return the set with that many entries: itself if it has that size, a copy if it has no size.

        For callers that know N before there are losses, as `solve` knows the number of workers. Raises
        InvalidInput if the set has another size, or if its constraints do not work with that size.
        """
        return with_size(self, size)

    def reference(self) -> Array:
        """Return a distribution in the set: its centre, or otherwise the uniform one projected onto the set.

        If the set has no size, use `with_size(N).reference()`.
        """
        return conic.projection_of_uniform(self)

    @classmethod
    def default_parameters(cls, center: Array) -> dict[str, Any]:
        """Return parameters by name for a set around that centre, reasonable for any size.

        Estimators and `example` use them for required parameters that were not given. A class whose
        constructor needs other parameters adds them.
        """
        return {"center": center, "radius": 0.1, "size": center.size}

    @classmethod
    def example(cls, size: int, rng: np.random.Generator | None = None) -> Self:
        """Return an example of that size, for the shared tests, the benchmark and the gallery.

        The inherited method works if `default_parameters` covers all required arguments of the constructor;
        by default it covers `center`, `radius` and `size`. Without `rng` the example is always the same, with
        a uniform centre.
        """
        center = example_center(size, rng)
        known = cls.default_parameters(center)
        lacking = [name for name, needed in parameters_of(cls).items() if needed and name not in known]
        if lacking:
            raise InvalidInput(
                f"{cls.__name__} has no example: its constructor needs {', '.join(lacking)}; give it a "
                "classmethod default_parameters(center) or example(size, rng)"
            )
        return build(cls, {}, size, center=center, fill=True)

    def _closed_form(
        self, losses: Array, warm_start: WorstCase | None, out: Array | None = None
    ) -> WorstCase | None:
        """The exact answer by this set's own method, or None if it has none.

        `out` (for p) is given only to certified classes; for others p is copied into it.
        """
        return None

    @classmethod
    def _ragged_kernel(
        cls, structure: Structure, given: dict[str, Any]
    ) -> tuple[str | Callable[..., None], tuple[Any, ...]]:
        """The kernel of ragged rows, and what it takes between `after` and `warm`.

        Here what depends on several parameters is checked; `given` may be changed.
        """
        assert cls.layout is not None
        return cls.layout.kernel, tuple(given.values())

    def _given_by_name(self) -> dict[str, Any]:
        named = {} if self.layout is None else self.layout.parameters
        return {name: getattr(self, name) for name, each in named.items() if each.what in {"entries", "rows"}}

    def _by_solver(self, losses: Array) -> WorstCase:
        """Answer one loss vector by a conic solver, after the closed form gave no proof."""
        return conic.worst_case(self, losses, "auto", None)

    def _residual(self, p: Array) -> float:
        """The largest scaled residual of the set's own constraints at p (the simplex is checked apart)."""
        return conic.residual(self, p)

    def _closed_radius(self, losses: Array, targets: Array) -> inverse.LeastRadius | None:
        """The least radius per row of losses, (B, N), and target; None if the set has no method for it."""
        return None

    def _slope(self, losses: Array, answer: WorstCase) -> float | None:
        """How fast the bound by one answer's multipliers grows with the radius; None if they do not tell.

        By the radius to the power `_concave_in_power`, if that is not 1.
        """
        return None

    @property
    def _concave_in_power(self) -> float:
        """The largest pᵀf is a concave function of the radius to this power: 2 for Wasserstein of order 2."""
        return 1.0

    def _distance(self, p: Array) -> float | None:
        """The least radius at which the set has p, if there is a formula; None tries radii instead."""
        return None

    @property
    def _distance_is_quick(self) -> bool:
        """Whether that takes no program to solve: then `radius_for` asks for it at every step."""
        return True

    def _projection(self) -> Callable[[Array], Array] | None:
        """The function target ↦ nearest point of the set, if it has a closed form (projection.py)."""
        return None

    def _conic_program(self, size: int) -> ConicProgram | None:
        """The oracle's conic program, if the set can write it down; None compiles `constraints`."""
        return None

    def _dual_from_conic(self, y: Array) -> dict[str, Any]:
        """`WorstCase.dual` for multipliers y of the program's rows; a set may name its own."""
        return {"y": y}

    def _row(self, index: int) -> UncertaintySet:
        """The set of one row of a batch, if parameters differ by row."""
        return self

    def _singleton(self) -> Array | None:
        """The only distribution in the set, if there is just one and that is known."""
        return None

    def _check_point(self, p: ArrayLike) -> Array:
        point = np.ascontiguousarray(as_floats("p", p, InvalidInput))
        if self.rows is not None:
            raise InvalidInput(
                "violation and contains take one distribution, and this set's parameters differ by row; "
                "make a set for the row in question"
            )
        if point.ndim != 1 or point.size == 0 or (self.size is not None and point.size != self.size):
            needed = "one entry or more" if self.size is None else f"{self.size} entries"
            raise InvalidInput(
                f"p must be a vector of {needed}, got shape {point.shape}", parameter="p", value=p
            )
        if not np.isfinite(point).all():
            raise InvalidInput(
                f"p must be finite, got {point[~np.isfinite(point)][0]}", parameter="p", value=p
            )
        return point


SETS: Registry[UncertaintySet] = Registry("uncertainty set", UncertaintySet, ["uncertainty_sets.sets"])
"""Every set with a name; the files of `uncertainty_sets.sets` are imported at the first look-up."""
