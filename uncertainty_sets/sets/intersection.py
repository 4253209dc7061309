"""Intersection: distributions that are in several sets at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from uncertainty_sets.answer import WorstCase, name_rows
from uncertainty_sets.arrays import Array
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.conic import oracle as conic
from uncertainty_sets.errors import EmptySet, InvalidParameter
from uncertainty_sets.face import Effect, Face, Rows
from uncertainty_sets.sets._clipped_ball import ClippedBall
from uncertainty_sets.sets._composed import as_sets, common_rows
from uncertainty_sets.sets._tilt_face import ALIKE, Bounds, power_face, quadratic_face
from uncertainty_sets.sets._tilted_ball import TiltedBall, TiltedRows, row_of
from uncertainty_sets.sets.box import Box
from uncertainty_sets.sets.chi_square import ChiSquare
from uncertainty_sets.sets.ellipsoid import Ellipsoid
from uncertainty_sets.sets.kl import KL
from uncertainty_sets.sets.polyhedron import Polyhedron
from uncertainty_sets.verdict import batch

if TYPE_CHECKING:
    from collections.abc import Mapping

    import cvxpy

INSIDE = 1e-12
"""The violation up to which one member's distribution counts as in the others."""


class Intersection(UncertaintySet, certified=True):
    """Distributions that are in each of several sets: {p : p in A, p in B, …}.

    Members of these kinds have a closed form, in any order; several boxes count as one:

    - a KL and boxes: the tilted centre, cut at the bounds, p = clip(q·exp((f-ν)/η), lower, upper);
    - a diagonal Ellipsoid of shape s (s = q: a χ² ball) and boxes: p = clip(q + s·(f-ν)/2η, lower, upper);
    - a KL and polyhedra D p <= c: p ∝ q·exp((f - Dᵀy)/η), y >= 0; two opposite rows are an equation;
    - boxes alone.

    With boxes they take O(N), 10 to 30 passes; with m rows of polyhedra O(m²N), some tens of Newton steps. A
    conic solver answers for all other members.

    ====  ================================================================================================
    dual  meaning, for a ball with boxes or polyhedra
    ====  ================================================================================================
    eta   multiplier of the divergence, in [0, ∞]; 0: the other members alone decide; ∞: a radius of 0
    nu    with boxes: the multiplier of 1ᵀp = 1
    y     with polyhedra: the multipliers of their rows, y >= 0, in the order of the members; 0 where c = ∞
    ====  ================================================================================================

    Boxes alone have Box's multiplier, a solver's answer those of the conic program.

    The bound of KL and boxes is ν + η·radius + Σ (p·(f-ν) - η·(p·log(p/q) - p + q)) with p as above, for any
    η > 0 and ν:

    >>> import numpy as np
    >>> from uncertainty_sets import KL, Box, Polyhedron
    >>> f, q = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.3, 0.2])
    >>> lower, upper = np.array([0.2, 0.3, 0.1]), np.ones(3)
    >>> r = Intersection(KL(q, 0.1), Box(lower, upper)).worst_case(f)
    >>> r.p.round(4), round(r.value, 4)
    (array([0.321, 0.3  , 0.379]), 2.437)
    >>> eta, nu = r.dual["eta"], r.dual["nu"]
    >>> p = np.clip(q * np.exp((f - nu) / eta), lower, upper)
    >>> bound = nu + eta * 0.1 + (p * (f - nu) - eta * (p * np.log(p / q) - p + q)).sum()
    >>> round(float(bound), 6), round(r.upper_bound, 6)
    (2.43698, 2.43698)

    For an Ellipsoid the last bracket is (p-q)²/s. At η = 0 the bound is that of the boxes, as in `Box`. The
    bound of KL and polyhedra is η·radius + cᵀy + η·log Σ q·exp((f - Dᵀy)/η), for any η > 0 and y >= 0:

    >>> D, c = np.array([[0.0, 1.0, 0.0], [0.0, -1.0, 0.0]]), np.array([0.25, -0.25])  # p₂ = 0.25
    >>> r = Intersection(KL(q, 0.1), Polyhedron(D, c)).worst_case(f)
    >>> r.p.round(4), round(r.value, 4)
    (array([0.3566, 0.25  , 0.3934]), 2.4301)
    >>> eta, y = r.dual["eta"], r.dual["y"]
    >>> bound = eta * (0.1 + np.log(q @ np.exp((f - D.T @ y) / eta))) + c @ y
    >>> round(float(bound), 6), round(r.upper_bound, 6)
    (2.430111, 2.430111)

    Args:
        members: the sets, all with the same number of entries.

    Raises:
        EmptySet: the members have no distribution in common; for members without a closed form, at the first
            call of an oracle.
    """

    name: ClassVar[str] = "intersection"
    summary: ClassVar[str] = "Distributions that are in each of several sets"
    formula: ClassVar[str] = "p in A, p in B, …"
    complexity: ClassVar[str] = "O(N) for a KL or χ² ball and boxes, else a conic program"
    per_entry: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, *members: UncertaintySet) -> None:
        self.members = as_sets("members", members)
        sizes = {each.size for each in self.members} - {None}
        if len(sizes) > 1:
            raise InvalidParameter(
                f"all sets must have the same number of entries, got {[each.size for each in self.members]}",
                parameter="members",
                value=members,
            )
        self.size = next(iter(sizes), None)
        self.rows = common_rows({f"members[{k}]": each for k, each in enumerate(self.members)})
        try:
            self._method = _closed_method(self.members)
        except EmptySet:
            if self.rows is None:
                raise
            # One row that is empty must not take the others with it.
            self._method = RowByRow([self._row_or_none(index) for index in range(self.rows)])

    @classmethod
    def default_parameters(cls, center: Array) -> dict[str, Any]:
        """A KL ball, and no probability below half or above 1.5 times the centre's."""
        members = (KL(center, 0.1), Box(0.5 * center, 1.5 * center))
        return super().default_parameters(center) | {"members": members}

    def constraints(self, p: cvxpy.Variable) -> list[cvxpy.Constraint]:
        """Those of all members."""
        return [limit for each in self.members for limit in each.constraints(p)]

    def reference(self) -> Array:
        """The reference of the first member that is in all others, or else the one nearest to uniform."""
        if self.rows is not None:
            return np.array([self._row(index).reference() for index in range(self.rows)])
        if self._method is not None:
            nearest: Array = self._method.reference()[0]
            return nearest
        if self.size is not None:
            for each in self.members:
                point = each.with_size(self.size).reference()
                if self.violation(point) <= INSIDE:
                    return point
        return conic.projection_of_uniform(self)

    def _closed_form(
        self, losses: Array, warm_start: WorstCase | None, out: Array | None = None
    ) -> WorstCase | None:
        return None if self._method is None else self._method.worst_case(losses, warm_start, out)

    def _by_solver(self, losses: Array) -> WorstCase:
        """If the ball does not matter, the linear program of the other members is more exact than cones."""
        found = self._method.without_ball(losses) if isinstance(self._method, TiltedRows) else None
        return super()._by_solver(losses) if found is None else found

    def _given_by_name(self) -> dict[str, Any]:
        """The ball's parameters, and the bounds that are in force if all boxes are."""
        if not isinstance(self._method, BoxAlone | ClippedBall):
            return {}
        boxes = [each for each in self.members if type(each) is Box]
        lower, upper = _common_bounds(boxes)
        balls = [each._given_by_name() for each in self.members if each not in boxes]
        return {name: each for given in balls for name, each in given.items()} | {
            "lower": lower,
            "upper": upper,
        }

    def _with(self, given: Mapping[str, Any]) -> Intersection:
        balls = [
            each._with({name: given[name] for name in each._given_by_name() if name in given})
            for each in self.members
            if type(each) is not Box
        ]
        bounds = self._given_by_name() | dict(given)
        return Intersection(*balls, Box(bounds["lower"], bounds["upper"]))

    @property
    def _is_curved(self) -> bool:  # type: ignore[override]  # by the members
        return isinstance(self._method, ClippedBall)

    def _bent(self, p: Array, given: Mapping[str, Any]) -> Array:
        low, high = np.maximum(given["lower"], 0.0), np.minimum(given["upper"], 1.0)
        ball = next(each for each in self.members if type(each) is not Box)
        bent = p if type(ball) is KL else 0.5 * (given["shape"] if "shape" in given else given["center"])
        found: Array = bent * ((p > low + ALIKE * low) & (p < high - ALIKE * high))
        return found

    def _face(self, rows: Rows, losses: Any, p: Any, eta: Any, given: Mapping[str, Any]) -> Face | None:
        bounds = Bounds(given["lower"], given["upper"]) if given else None
        ball = next((each for each in self.members if type(each) is not Box), None)
        if bounds is None:
            return None
        if ball is None:
            return Box._face(self.members[0], rows, losses, p, eta, given)  # type: ignore[arg-type]
        limits, q = {"radius": Effect(room=1.0, per_row=True)}, given["center"]
        if type(ball) is KL:
            return power_face(rows, losses, p, eta, q, 1.0, limits, bounds=bounds)
        Q = q if type(ball) is ChiSquare else given["shape"]
        face = quadratic_face(rows, losses, p, eta, q, Q, limits, bounds=bounds)
        if type(ball) is ChiSquare:
            face.effects["center"] = face.effects.pop("shape").added_to(face.effects["center"])
        return face

    def _residual(self, p: Array) -> float:
        return max(each._residual(p) for each in self.members)

    def _singleton(self) -> Array | None:
        for each in self.members:
            point = each._singleton()
            if point is not None and self.violation(point) <= INSIDE:
                return point
        return None

    def _row_or_none(self, index: int) -> Intersection | None:
        """The set of one row, or None if it is empty."""
        try:
            return self._row(index)
        except EmptySet:
            return None

    def _row(self, index: int) -> Intersection:
        return self if self.rows is None else Intersection(*(each._row(index) for each in self.members))

    def __repr__(self) -> str:
        return f"Intersection({', '.join(map(repr, self.members))})"


class Method(Protocol):
    """A closed form for members of certain types."""

    def reference(self) -> Array:
        """A distribution in the intersection for each row of the parameters, (1 or B, N)."""
        ...

    def worst_case(self, losses: Array, warm_start: WorstCase | None, out: Array | None) -> WorstCase:
        """The answer to one loss vector or a batch."""
        ...


class BoxAlone:
    """The method for boxes alone."""

    def __init__(self, box: Box) -> None:
        self._box = box

    def reference(self) -> Array:
        """The box's reference, (1 or B, N)."""
        return np.atleast_2d(self._box.reference())

    def worst_case(self, losses: Array, warm_start: WorstCase | None, out: Array | None) -> WorstCase:
        """The box's answer."""
        return self._box._closed_form(losses, warm_start, out)


class RowByRow:
    """Each row by its own method, where some rows are empty: those are failed rows of every answer.

    Args:
        rows: the sets; None for an empty one. EmptySet if all are.
    """

    def __init__(self, rows: list[Intersection | None]) -> None:
        self._rows = rows
        self._some = next((each for each in rows if each is not None), None)
        if self._some is None:
            raise EmptySet("the intersection is empty in every row; make it of one row to see why")

    def reference(self) -> Array:
        """That of each row."""
        if None in self._rows:
            empty = [b for b, each in enumerate(self._rows) if each is None]
            raise EmptySet(f"the intersection is empty in {name_rows(empty)} of {len(self._rows)}")
        return np.array([each.reference() for each in self._rows if each is not None])

    def worst_case(self, losses: Array, warm_start: WorstCase | None, out: Array | None) -> WorstCase:
        """The answers row by row; those of empty rows are for `verdict`, which asks the row itself why."""
        found = {
            b: each.worst_case(losses[b], on_failure="nan", warm_start=row_of(warm_start, b))
            for b, each in enumerate(self._rows)
            if each is not None
        }
        answer = batch(found, *losses.shape)
        failed = {b for b, one in found.items() if one.failed}
        answer.unproved = tuple(b for b, each in enumerate(self._rows) if each is None or b in failed)
        return answer


def _closed_method(members: tuple[UncertaintySet, ...]) -> Method | None:
    """The closed form for members of these types; None if there is none."""
    boxes = [each for each in members if type(each) is Box]
    linear = [each for each in members if type(each) is Polyhedron]
    others = [each for each in members if type(each) not in {Box, Polyhedron}]
    if boxes and not linear and not others:
        return BoxAlone(Box(*_common_bounds(boxes)))
    if len(others) == 1 and boxes and not linear:
        return _clipped(others[0], boxes)
    if len(others) == 1 and linear and not boxes and type(others[0]) is KL:
        return _tilted(others[0], linear)
    return None


def _clipped(member: UncertaintySet, boxes: list[Box]) -> ClippedBall | None:
    ball = _ball(member)
    lower, upper = (np.atleast_2d(each) for each in _common_bounds(boxes))
    return None if ball is None else ClippedBall(*ball, np.maximum(lower, 0.0), np.minimum(upper, 1.0))


def _tilted(ball: KL, linear: list[Polyhedron]) -> TiltedRows | None:
    D, c = np.vstack([each.D for each in linear]), np.concatenate([each.c for each in linear])
    rows = zip(ball._center, ball._radius, strict=True)
    balls = [TiltedBall(q, float(radius), D, c) for q, radius in rows]
    if not all(each.is_usable for each in balls):
        return None
    return TiltedRows(balls, ball, Polyhedron(D, c))


def _common_bounds(boxes: list[Box]) -> tuple[Array, Array]:
    """The bounds that are in force if all boxes are; EmptySet if a lower one is above an upper one."""
    lower, upper = boxes[0].lower, boxes[0].upper
    for each in boxes[1:]:
        lower, upper = np.maximum(lower, each.lower), np.minimum(upper, each.upper)
    if (lower > upper).any():
        at = np.unravel_index(int((lower - upper).argmax()), lower.shape)
        raise EmptySet(
            f"the intersection is empty: one box has a lower bound of {lower[at]:g} at entry {at[-1]}, "
            f"another an upper bound of {upper[at]:g}"
        )
    return lower, upper


def _ball(member: UncertaintySet) -> tuple[Array, Array | None, Array] | None:
    """Centre, diagonal shape (None for KL) and radius of a ball, by rows; None if it is of another kind."""
    if type(member) is KL:
        return member._center, None, member._radius
    if type(member) is ChiSquare:
        return member._center, member._center, member._radius
    if type(member) is Ellipsoid and not member._dense:
        return member._center, member._shape, member._radius
    return None
