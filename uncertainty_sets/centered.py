"""What sets around a centre share: the centre, parameters that differ by row of a batch, the reference."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uncertainty_sets.arrays import Array
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.kernels.dispatch import on_support
from uncertainty_sets.parameters import as_center, as_numbers, as_rows, as_scalar_rows, same_rows


class CenteredSet(UncertaintySet):
    """A set around a centre q, which is a member.

    A subclass names in `by_row` the parameters that may differ by row of a batch, passes them to `_store` in
    its constructor, and has a property for every other parameter, by which `_row` reads it.
    """

    by_row: ClassVar[tuple[str, ...]]
    """Parameters that may differ by row of a batch, the centre first; each is stored as `_name`."""

    _center: Array

    def _store(self, differ: bool, center: Array, *others: Array) -> None:
        """Keep the parameters of `by_row`, each with 1 or B rows, and set `size` and `rows`.

        Args:
            differ: whether a parameter was given by row.
            center: the centre.
            others: the other parameters, in the order of `by_row`.
        """
        for name, array in zip(self.by_row, same_rows(center, *others), strict=True):
            setattr(self, f"_{name}", array)
        self.size = center.shape[1]
        self.rows = len(self._center) if differ else None

    @property
    def center(self) -> Array:
        """The centre q."""
        return as_rows(self, self._center)

    def reference(self) -> Array:
        """The centre."""
        return self.center.copy()

    def _row(self, index: int) -> UncertaintySet:
        if self.rows is None:
            return self
        # The class that stores the parameters: a subclass may have another constructor.
        owner: Any = next(cls for cls in type(self).__mro__ if "by_row" in vars(cls))
        parameters = {name: getattr(self, name) for name in inspect.signature(owner).parameters}
        parameters |= {name: getattr(self, f"_{name}")[index] for name in self.by_row}
        row: UncertaintySet = owner(**parameters)
        return row


class Ball(CenteredSet):
    """All distributions within a radius of a centre; at a radius of 0 the centre alone."""

    sized_by: ClassVar[str] = "radius"
    _radius: Array

    def __init__(self, center: ArrayLike, radius: ArrayLike) -> None:
        q = as_center(center)
        self._store(np.ndim(center) == 2 or np.ndim(radius) == 1, q, as_scalar_rows("radius", radius, len(q)))

    @property
    def radius(self) -> float | Array:
        """The largest distance from the centre, as the set measures it."""
        return as_numbers(self, self._radius)

    def _singleton(self) -> Array | None:
        return self.center if self.rows is None and self._radius[0] == 0.0 else None


class SupportedBall(Ball):
    """A ball that knows where its centre has mass: losses elsewhere may have to be left out."""

    _inside: NDArray[np.bool_] | None
    """Where q > 0, or None if that is everywhere."""

    def __init__(self, center: ArrayLike, radius: ArrayLike) -> None:
        super().__init__(center, radius)
        inside = self._center > 0.0
        self._inside = None if inside.all() else inside

    def _on_support(self, losses: Array) -> Array:
        """Losses where q = 0 replaced by one where q > 0, so that they do not set the scale of the search."""
        if self._inside is None:
            return losses
        return on_support(losses, self._inside)


def pulled_in(p: Array, center: Array, radius: float, distance: Callable[[Array], float]) -> Array:
    """p, moved towards the centre if rounding has left it just outside the ball, whose distance is convex."""
    far = distance(p)
    if radius < far < np.inf:
        p = center + (radius / far) * (p - center)
    return p
