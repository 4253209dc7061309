"""What sets around a centre share: parameters by row, a radius, and the balls of a power divergence.

    D(p, q) = Σ q·φ(p/q),  φ(t) = (t^k - kt + k - 1)/(k(k-1)),  k the power

φ is convex with φ(1) = φ'(1) = 0 and φ''(1) = 1. k = 2 is half of χ², 1 is KL, ½ is 2·Σ(√p-√q)², 0 is Burg.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.face import Effect, Face, Rows
from uncertainty_sets.inverse import LeastRadius, closed
from uncertainty_sets.kernels.dispatch import answer, on_support
from uncertainty_sets.parameters import as_center, as_numbers, as_rows, as_scalar_rows, same_rows
from uncertainty_sets.rows import CENTER, EACH_ROW, Layout, Structure
from uncertainty_sets.sets._tilt_face import power_bend, power_face

if TYPE_CHECKING:
    import cvxpy


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

    def _residual(self, p: Array) -> float:
        """By the distance, where a subclass has a formula for it."""
        distance, radius = self._distance(p), float(self._radius[0])
        if distance is None:
            return super()._residual(p)
        return max((distance - radius) / max(1.0, radius), 0.0)


class SupportedBall(Ball):
    """A ball of a divergence, of which most hold p at 0 where q is 0.

    A subclass has a `_divergence` in units of the radius, and a multiplier `eta` of it.
    """

    _inside: NDArray[np.bool_] | None
    """Where q > 0, or None if that is everywhere."""

    @property
    def _keeps_support(self) -> bool:
        """Whether p = 0 where q = 0: losses there are left out."""
        return True

    def _store(self, differ: bool, center: Array, *others: Array) -> None:
        super()._store(differ, center, *others)
        inside = self._center > 0.0
        self._inside = None if np.logical_and.reduce(inside, axis=None) else inside

    def _on_support(self, losses: Array) -> Array:
        """Losses where q = 0 replaced by one where q > 0, so that they do not set the scale of the search."""
        if self._inside is None:
            return losses
        return on_support(losses, self._inside)

    def _none_outside(self, p: cvxpy.Variable) -> list[cvxpy.Constraint]:
        """p = 0 where q = 0."""
        outside = np.flatnonzero(self._center[0] == 0.0)
        return [p[outside] == 0.0] if outside.size else []

    def _slope(self, losses: Array, answer: WorstCase) -> float | None:
        return answer.dual.get("eta")

    @abstractmethod
    def _divergence(self, p: Array) -> float:
        """Of p from the centre, over q > 0 if p has to be 0 elsewhere."""

    def _distance(self, p: Array) -> float:
        outside = self._keeps_support and p[self._center[0] == 0.0].any()
        return np.inf if outside else max(0.0, self._divergence(p))

    def _residual(self, p: Array) -> float:
        radius = float(self._radius[0])
        outside = p[self._center[0] == 0.0] if self._keeps_support else np.zeros(0)
        excess = (self._divergence(p) - radius) / max(1.0, radius)
        return max(float(np.abs(outside).max(initial=0.0)), excess, 0.0)


def pulled_in(p: Array, center: Array, radius: float, distance: Callable[[Array], float]) -> Array:
    """p, moved towards the centre if rounding has left it just outside the ball, whose distance is convex."""
    far = distance(p)
    if radius < far < np.inf:
        p = center + (radius / far) * (p - center)
    return p


KEYS = ("eta", "margin")
"""The multiplier of the radius, and how far the pole or zero of p/q is from the largest loss."""

TINY = 1e-290  # of q: p may have become 0 by underflow there


class PowerBall(SupportedBall, certified=True):
    """A ball {p : D(p, q) <= unit·radius}; a subclass has a `power`, `constraints` and its own docstring."""

    power: float = np.nan
    """k, for which 0 and ½ are exact limits and 1 is `KL`."""

    unit: ClassVar[float] = 1.0
    """How much of D one unit of the radius is."""

    layout: ClassVar[Layout | None] = Layout("cressie_read", KEYS, center=CENTER, radius=EACH_ROW)

    @classmethod
    def _ragged_kernel(
        cls, structure: Structure, given: dict[str, Any]
    ) -> tuple[str | Callable[..., None], tuple[Any, ...]]:
        family = np.array([[given.get("power", cls.power), cls.unit]])
        return "cressie_read", (given["center"], given["radius"], family)

    def _closed_form(
        self, losses: Array, warm_start: WorstCase | None, out: Array | None = None
    ) -> WorstCase:
        from uncertainty_sets.kernels.cressie_read import rows

        f = self._on_support(losses) if self._keeps_support else losses
        family = np.array([[self.power, self.unit]])
        return answer(rows, f, (self._center, self._radius, family), KEYS, warm_start, out)

    def _closed_radius(self, losses: Array, targets: Array) -> LeastRadius:
        from uncertainty_sets.kernels.power_radius import rows

        f = self._on_support(losses) if self._keeps_support else losses
        return closed(self, rows, f, (self._center, np.array([[self.power, self.unit]])), targets)

    @property
    def _keeps_support(self) -> bool:
        return self.power >= 1.0

    def _divergence(self, p: Array) -> float:
        return divergence_of(p, self._center[0], self.power) / self.unit

    def _face(self, rows: Rows, losses: Any, p: Any, eta: Any, given: Mapping[str, Any]) -> Face:
        return power_face(rows, losses, p, eta, given["center"], self.power, self._limits(rows, given))

    _is_curved = True

    @property
    def _link(self) -> float:  # type: ignore[override]  # read only
        return self.power

    def _limits(self, rows: Rows, given: Mapping[str, Any]) -> dict[str, Effect]:
        return {"radius": Effect(room=self.unit, per_row=True)}

    def _bent(self, p: Array, given: Mapping[str, Any]) -> Array | None:
        q = given["center"]
        if self.power < 1.0 and ((q <= 0.0) & (p > 0.0)).any():  # mass where the centre has none
            return None
        return power_bend(p, q, self.power)

    def _eta(self, rows: Rows, losses: Any, given: Mapping[str, Any], dual: Mapping[str, Any]) -> Any:
        return super()._eta(rows, losses, given, dual) / self.unit


def divergence_of(p: Array, q: Array, power: float) -> float:
    """D(p, q), as a sum of terms that are each >= 0, so that a small D keeps its digits."""
    inside = q > (TINY if power <= 0.0 else 0.0)
    x, y = np.maximum(p[inside], 0.0), q[inside]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        t = x / y
        s = t - 1.0
        # q·t^k for k > 1 as p·t^{k-1}: t = 1e155 squared is too large for a number, and q·t² need not be.
        moments = x * t ** (power - 1.0) if power > 1.0 else y * t**power
        rise = y * np.log(t) if power == 0.0 else (moments - y) / power
        terms = (rise - y * s) / (power - 1.0)
        # (t-1)²/2·(1 + (k-2)(t-1)/3 + (k-2)(k-3)(t-1)²/12): four digits more than the difference has there
        near = 0.5 * y * s * s * (1.0 + (power - 2.0) * s * (1.0 / 3.0 + (power - 3.0) * s / 12.0))
        terms = np.where(np.abs(s) < 1e-4, near, terms)
    # Where q = 0, φ grows by 1/(1-k) per unit of p if k < 1; the sum of p - q is 0 with those entries.
    return float(terms.sum()) + _at_infinity(p, q, power)


def _at_infinity(p: Array, q: Array, power: float) -> float:
    """Σ p·φ(t)/t for t → ∞ over the entries where q = 0: mass that left the support, for k < 1."""
    if power >= 1.0:
        return 0.0
    return float(np.maximum(p[q == 0.0], 0.0).sum()) / (1.0 - power)
