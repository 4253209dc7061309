"""CVaR: the mean of the worst share of the losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.face import Effect, Face, Rows
from uncertainty_sets.inverse import EPS, LeastRadius, gather
from uncertainty_sets.kernels.dispatch import answer, reject_not_finite
from uncertainty_sets.parameters import as_center
from uncertainty_sets.rows import CENTER, Layout, Structure
from uncertainty_sets.sets._tails import EACH_TAIL, TailMeasure, as_tail_rows
from uncertainty_sets.sets._vertex_face import selection_face
from uncertainty_sets.sets.box import Box

if TYPE_CHECKING:
    import cvxpy


class CVaR(TailMeasure, certified=True):
    """The mean of the worst share of the losses: {p : p <= q/tail}.

    The largest expected loss is the conditional value at risk, also called average value at risk, expected
    shortfall or superquantile. It ranges from the mean at tail = 1 to the largest loss with q > 0 as the
    tail goes to 0. Mind the level of other libraries: their α = 0.95 is often tail = 0.05 here. O(N) by
    selection, as in `Box(0, q/tail)`; losses that tie at the threshold are weighted in proportion to q.

    ====  =====================================================================
    dual  meaning
    ====  =====================================================================
    var   the value at risk: the probability of larger losses is at most `tail`
    ====  =====================================================================

    The bound is var + Σ q·max(f - var, 0) / tail for any var (Rockafellar and Uryasev):

    >>> import numpy as np
    >>> f, q, tail = np.array([1.0, 2.0, 4.0, 3.0]), np.array([0.4, 0.3, 0.1, 0.2]), 0.2
    >>> r = CVaR(q, tail).worst_case(f)
    >>> r.p.round(12), round(r.value, 12)
    (array([0. , 0. , 0.5, 0.5]), 3.5)
    >>> var = r.dual["var"]
    >>> bound = var + q @ np.maximum(f - var, 0) / tail
    >>> round(float(bound), 6), round(r.upper_bound, 6)
    (3.5, 3.5)

    `radius_for` finds the largest tail whose mean reaches a target: radius = max p/q - 1, so tail = 1/(1 +
    radius). For any a < target, no tail above Σ q·max(f - a, 0)/(target - a) reaches it (the buffered
    probability of exceedance is the least of these). O(N log N).

    >>> least = CVaR(q, 1.0).radius_for(f, target=3.5)
    >>> round(1 / (1 + least.radius), 12)
    0.2

    There is no calibration: the tail says how cautious a decision is to be, which no number of samples
    behind the centre decides. A set that holds the true distribution with a given confidence is a ball
    around the centre (`KL` with `calibration.kl_radius`).

    Args:
        center: probabilities, shape (N,), or (B, N) for one centre per batch row.
        tail: in (0, 1]; a number, or shape (B,).
    """

    name: ClassVar[str] = "cvar"
    summary: ClassVar[str] = "The mean of the worst share of the losses"
    formula: ClassVar[str] = "p <= q/tail"
    complexity: ClassVar[str] = "O(N)"
    by_row: ClassVar[tuple[str, ...]] = ("center", "tail")
    layout: ClassVar[Layout | None] = Layout("box", ("var",), center=CENTER, tail=EACH_TAIL)

    def __init__(self, center: ArrayLike, tail: ArrayLike) -> None:
        q = as_center(center)
        self._store(np.ndim(center) == 2 or np.ndim(tail) == 1, q, as_tail_rows(tail, len(q)))
        # Not cut at 1: the threshold of the uncut bounds is the value at risk.
        self._most = self._center / self._tail[:, None]
        self._none, self._rest = np.zeros(self._most.shape), np.ones(len(self._most))

    @classmethod
    def _ragged_kernel(
        cls, structure: Structure, given: dict[str, Any]
    ) -> tuple[str | Callable[..., None], tuple[Any, ...]]:
        q, each = given["center"], np.array(np.broadcast_to(given["tail"], structure.rows))
        return "box", (np.zeros(q.size), q / structure.repeat(each), np.ones(structure.rows))

    def constraints(self, p: cvxpy.Variable) -> list[cvxpy.Constraint]:
        """p <= min(q/tail, 1)."""
        return [p <= self._upper()]

    def _upper(self) -> Array:
        upper: Array = np.minimum(self._most[0], 1.0)
        return upper

    def _closed_form(
        self, losses: Array, warm_start: WorstCase | None, out: Array | None = None
    ) -> WorstCase:
        from uncertainty_sets.kernels.box import rows

        return answer(rows, losses, (self._none, self._most, self._rest), ("var",), warm_start, out)

    def _closed_radius(self, losses: Array, targets: Array) -> LeastRadius:
        reject_not_finite(losses)
        centers = np.broadcast_to(self._center, losses.shape)
        return gather([_least(q, f, float(t)) for q, f, t in zip(centers, losses, targets, strict=True)])

    _is_vertex = True

    def _face(self, rows: Rows, losses: Any, p: Any, eta: Any, given: Mapping[str, Any]) -> Face:
        zero, q, tail = 0.0 * p, given["center"], rows.each(given["tail"])
        at_most, _, w, force = selection_face(rows, losses, p, zero, q / tail)
        raw = rows.where(at_most, 1.0 + zero, zero) / tail
        effects = {
            "center": Effect(raw, zero, raw * force, center=q),
            "tail": Effect(-raw * p, zero, -raw * p * force, per_row=True),
        }
        return Face(rows, p, zero, w, w, zero, at_most & ~at_most, effects, stiff=True)

    def _projection(self) -> Callable[[Array], Array] | None:
        return None if self.rows is not None else Box(self._none[0], self._upper())._projection()

    def _residual(self, p: Array) -> float:
        return float(max((p - self._upper()).max(), 0.0))

    def _singleton(self) -> Array | None:
        return self.center if self.rows is None and self._tail[0] == 1.0 else None


def _least(q: Array, f: Array, target: float) -> LeastRadius:
    """The largest tail whose mean reaches the target, as a radius.

    From the largest loss down, Σ q·(f - target) rises and then falls: the tail ends where it is 0 again, at
    the loss a, which is also the multiplier.
    """
    g = f - target
    inside = q > 0.0
    top, mean = float(g[inside].max()), float(q @ g)
    if mean >= -4.0 * EPS * float(q @ np.abs(g)):
        return LeastRadius(0.0, 0.0, 0.0, q.copy(), float(q @ f), 0.0, "closed-form", 1)
    if top < 0.0:
        return LeastRadius(np.inf, np.inf, 0.0, np.full(f.size, np.nan), np.nan, np.inf, "closed-form", 1)
    order = np.argsort(-g, kind="stable")
    gained = np.cumsum((q * g)[order])
    last = int(np.argmax((gained < 0.0) & (g[order] < 0.0)))  # the first at which it falls below 0
    a = float(g[order[last]])
    above, at = g > a, g == a
    spent = float(q[above] @ g[above]) / -a  # mass at the loss a
    tail = float(q[above].sum()) + spent
    left = float(q[~above & ~at].sum()) + float(q[at].sum()) - spent
    p = np.where(above, q, 0.0)
    p[at] = q[at] * (spent / float(q[at].sum()))
    p /= tail
    bound = float(q @ np.maximum(g - a, 0.0)) / -a
    lower = max((1.0 - bound) / bound, 0.0)
    radius = max(left / tail, lower)
    return LeastRadius(radius, lower, radius - lower, p, float(p @ f), 1.0 / (tail * -a), "closed-form", 2)
