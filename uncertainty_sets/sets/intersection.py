"""Intersection: distributions that are in several sets at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.composed import as_sets, common_rows
from uncertainty_sets.conic import oracle as conic
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.sets.box import Box
from uncertainty_sets.sets.kl import KL

if TYPE_CHECKING:
    import cvxpy

INSIDE = 1e-12
"""The violation up to which one member's distribution counts as in the others."""


class Intersection(UncertaintySet):
    """Distributions that are in each of several sets: {p : p in A, p in B, …}.

    Args:
        members: the sets, all with the same number of entries.
    """

    name: ClassVar[str] = "intersection"
    summary: ClassVar[str] = "Distributions that are in each of several sets"
    formula: ClassVar[str] = "p in A, p in B, …"
    per_entry: ClassVar[frozenset[str]] = frozenset()
    _certifies_itself: ClassVar[bool] = True

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
        for each in self.members if self.size is not None else ():
            point = each.with_size(self.size).reference()
            if self.violation(point) <= INSIDE:
                return point
        return conic.projection_of_uniform(self)

    def _residual(self, p: Array) -> float:
        return max(each._residual(p) for each in self.members)

    def _singleton(self) -> Array | None:
        for each in self.members:
            point = each._singleton()
            if point is not None and self.violation(point) <= INSIDE:
                return point
        return None

    def _row(self, index: int) -> Intersection:
        return self if self.rows is None else Intersection(*(each._row(index) for each in self.members))

    def __repr__(self) -> str:
        return f"Intersection({', '.join(map(repr, self.members))})"
