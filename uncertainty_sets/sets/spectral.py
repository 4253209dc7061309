"""Spectral: risk measures that weight losses by their rank."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.derivatives import NUMPY, OnFace
from uncertainty_sets.errors import BackendUnsuitable, InvalidParameter
from uncertainty_sets.face import Effect, Face
from uncertainty_sets.kernels.dispatch import answer, run_pieces
from uncertainty_sets.parameters import as_array, as_center, readonly
from uncertainty_sets.rows import CENTER, Along, Layout, Structure
from uncertainty_sets.sets._balls import CenteredSet

if TYPE_CHECKING:
    import cvxpy


class Spectral(CenteredSet, certified=True):
    """A spectral risk measure, losses weighted by their rank: {p : Σ_S p <= H(Σ_S q) for every event S}.

    The distortion H is concave and rises from H(0) = 0 to H(1) = 1: it is the largest probability of an
    event, given its probability under q. H(u) = min(1, u/tail) is `CVaR`, u**0.5 the proportional hazards
    transform, 1 - (1-u)**k the expected largest of k draws. The worst case sorts the losses downwards: p is
    the rise of H over the cumulated masses, and losses that tie share theirs in proportion to q.
    O(N log N) and one evaluation of H per entry.

    =====  ========================================================
    dual   meaning
    =====  ========================================================
    order  the entries from the largest loss to the smallest
    =====  ========================================================

    The order is the certificate: with f and q in that order and Q the partial sums of q, the bound is
    f_N + Σ (f_k - f_{k+1})·H(Q_k), since the multipliers of the events are the steps between losses:

    >>> import numpy as np
    >>> f, q = np.array([1.0, 2.0, 4.0, 3.0]), np.array([0.4, 0.3, 0.1, 0.2])
    >>> r = Spectral(q, np.sqrt).worst_case(f)
    >>> r.p.round(6), round(r.value, 6)
    (array([0.225403, 0.226874, 0.316228, 0.231495]), 2.638547)
    >>> g, Q = f[r.dual["order"]], np.cumsum(q[r.dual["order"]])
    >>> bound = g[-1] + (g[:-1] - g[1:]) @ np.sqrt(Q[:-1])
    >>> round(float(bound), 6), round(r.upper_bound, 6)
    (2.638547, 2.638547)

    Breakpoints (u, H(u)) give a piecewise linear H:

    >>> round(Spectral(q, [(0, 0), (0.1, 0.5), (1, 1)]).worst_case(f).value, 6)
    2.888889

    Ragged rows have one distortion, and an empty `dual`, which has room for two numbers per row: the order of
    row b is that of ``rows.row(b).worst_case(losses)``. H is called with the entries of many rows at once,
    by several threads if there are many entries:

    >>> rows = Spectral.ragged([0.5, 0.5, 0.2, 0.3, 0.5], np.sqrt, indptr=[0, 2, 5])
    >>> v = [1.0, 2.0, 3.0, 2.0, 1.0]
    >>> rows.worst_case(v).value.round(4), rows.row(1).worst_case(v[2:]).dual["order"]
    (array([1.7071, 2.1543]), array([0, 1, 2]))

    For solvers and `robust.support` H has to be piecewise linear, or the centre uniform. A mixture of a few
    CVaRs is faster as `CVaRMixture`.

    Args:
        center: probabilities, shape (N,), or (B, N) for one centre per batch row.
        distortion: H, a function of arrays, tested for concavity on a grid; or breakpoints of shape (K, 2).
    """

    name: ClassVar[str] = "spectral"
    summary: ClassVar[str] = "A spectral risk measure, losses weighted by their rank"
    formula: ClassVar[str] = "Σ_S p <= H(Σ_S q) for every event S"
    complexity: ClassVar[str] = "O(N log N)"
    by_row: ClassVar[tuple[str, ...]] = ("center",)
    layout: ClassVar[Layout | None] = Layout(
        "spectral", (), center=CENTER, distortion=Along("all", lambda name, H, structure: as_distortion(H))
    )

    _is_vertex = True

    def __init__(self, center: ArrayLike, distortion: Callable[[Array], Array] | ArrayLike) -> None:
        self._store(np.ndim(center) == 2, as_center(center))
        self._distortion = as_distortion(distortion)

    @classmethod
    def _ragged_kernel(
        cls, structure: Structure, given: dict[str, Any]
    ) -> tuple[str | Callable[..., None], tuple[Any, ...]]:
        return partial(_ragged, given["distortion"]), (given["center"],)

    @property
    def distortion(self) -> Callable[[Array], Array] | Array:
        """The function, or the breakpoints as an array of shape (K, 2)."""
        return as_given(self._distortion)

    @classmethod
    def default_parameters(cls, center: Array) -> dict[str, Any]:
        """Half of the mean of the worst fifth, and half of the mean."""
        return super().default_parameters(center) | {"distortion": [(0.0, 0.0), (0.2, 0.6), (1.0, 1.0)]}

    def constraints(self, p: cvxpy.Variable) -> list[cvxpy.Constraint]:
        """p = Σ x_k over the levels of a mixture of CVaRs: Σ_i x_k = weight_k, x_k <= weight_k·q/tail_k."""
        import cvxpy

        q = self._center[0]
        tails, weights = self._piecewise_linear(q).mixture()
        x = [cvxpy.Variable(q.size, nonneg=True) for _ in tails]
        limits = [
            each <= weight * np.minimum(q / tail, 1.0)
            for each, tail, weight in zip(x, tails, weights, strict=True)
        ]
        totals = [cvxpy.sum(each) == weight for each, weight in zip(x, weights, strict=True)]
        return [p == sum(x), *limits, *totals]

    def _piecewise_linear(self, q: Array) -> PiecewiseLinear:
        """H, or an H with the same set."""
        if isinstance(self._distortion, PiecewiseLinear):
            return self._distortion
        if np.ptp(q) <= 1e-12 / q.size:
            return at_steps(self._distortion, q.size)
        raise BackendUnsuitable(
            "a solver needs a piecewise linear distortion unless the centre is uniform, and this one is a "
            "function: give breakpoints (u, H(u)), such as np.column_stack([u, H(u)]) for u from 0 to 1. "
            "worst_case needs no solver"
        )

    def _closed_form(
        self, losses: Array, warm_start: WorstCase | None, out: Array | None = None
    ) -> WorstCase:
        from uncertainty_sets.kernels.spectral import masses, rows, rows_by_breakpoints, sort

        F, q, H = np.atleast_2d(losses), self._center, self._distortion
        places, given = np.empty(F.shape, np.int64), isinstance(H, PiecewiseLinear)
        heights = np.empty((0, 0) if given else F.shape)

        def prepare(first: int, after: int) -> None:
            piece = slice(first, after)
            sort(F[piece], places[piece])
            if not given:
                masses(q[piece] if len(q) > 1 else q, places[piece], UNIT, UNIT, heights[piece])

        run_pieces(prepare, len(F), F.size)
        parameters: tuple[Any, ...] = (q, places)
        if isinstance(H, PiecewiseLinear):
            found = answer(rows_by_breakpoints, losses, (*parameters, H.breakpoints), (), warm_start, out)
        else:
            heights = evaluate(H, heights)
            heights[:, -1] = 1.0
            found = answer(rows, losses, (*parameters, heights), (), warm_start, out)
        found.dual = {"order": places.reshape(losses.shape)}
        return found

    def _sensitivity(self, losses: Array, answer: WorstCase) -> OnFace:
        """p = the rises of H along the order of the losses: constant while that holds, and smooth in q."""
        q, p = np.broadcast_to(self.center, losses.shape), answer.p
        order = (
            answer.dual["order"] if "order" in answer.dual else np.argsort(-losses, axis=-1, kind="stable")
        )
        sums = np.cumsum(np.take_along_axis(q, order, axis=-1), axis=-1)
        rate = slope_of(self._distortion, np.minimum(sums, 1.0))
        rate[..., -1] = 0.0  # H(1) = 1
        back = np.argsort(order, axis=-1)

        def move(dq: Array) -> Array:
            sorted_move = np.take_along_axis(np.broadcast_to(dq, q.shape), order, axis=-1)
            rise = rate * np.cumsum(sorted_move, axis=-1)
            return np.take_along_axis(np.diff(rise, axis=-1, prepend=0.0), back, axis=-1)

        def pull(r: Array) -> Array:
            r = np.take_along_axis(r, order, axis=-1)
            steps = rate * -np.diff(r, axis=-1, append=0.0)
            return np.take_along_axis(np.cumsum(steps[..., ::-1], axis=-1)[..., ::-1], back, axis=-1)

        zero = np.zeros(losses.shape)
        effects = {"center": Effect((move, pull), zero, pull(losses), center=q)}
        face = Face(NUMPY, p, np.zeros(1), zero, zero, zero, zero > 0.0, effects, stiff=True)
        return OnFace(face, {"center": self.center.shape})

    def _residual(self, p: Array) -> float:
        return excess(p, self._center[0], self._distortion)


def _ragged(H: Distortion, *given: Any) -> None:
    """Answer ragged rows as a kernel does: sort, evaluate H, spend."""
    from uncertainty_sets.kernels.spectral import ragged, ragged_order

    shared, rest = given[:9], given[9:]  # losses, rows and centre, which both kernels take; what is left
    indptr, first, after = shared[5:8]
    ends = indptr[first : after + 1] - indptr[first]
    places, heights = np.empty(ends[-1], np.int64), np.empty(ends[-1])
    knots, values = H.breakpoints[0] if isinstance(H, PiecewiseLinear) else (UNIT, UNIT)
    ragged_order(*(*shared, knots, values, places, heights))
    if not isinstance(H, PiecewiseLinear):
        heights = evaluate(H, heights)
        heights[ends[1:] - 1] = 1.0
    ragged(*(*shared, places, heights, *rest))


UNIT = np.array([0.0, 1.0])
"""Knots and values of H(u) = u, for sums that Python puts into H."""

Distortion = Callable[[Array], Array]
"""H, for an array of any shape."""

ROUNDING = 1e-12
"""By how much a distortion may fail to be concave, or miss 0 and 1 at the ends."""

GRID = np.concatenate([[0.0], 2.0 ** -np.arange(40.0, 8.0, -0.5), np.arange(1.0, 257.0) / 256.0])
"""Where a function is tested: evenly, and closer and closer to 0, where distortions are steep."""


class PiecewiseLinear:
    """The distortion through breakpoints (u, H(u))."""

    def __init__(self, points: Array) -> None:
        """Keep breakpoints, (K, 2), that are checked already."""
        self.points = readonly(points)
        self.breakpoints = np.array(points.T[None], order="C")
        """Knots and values for the kernels."""
        values = self.breakpoints[0, 1]
        np.minimum(np.maximum(values, 0.0), 1.0, out=values)
        values[-1] = 1.0

    def __call__(self, u: Array) -> Array:
        """Return H(u) by interpolation."""
        return np.interp(u, self.points[:, 0], self.points[:, 1])

    def mixture(self) -> tuple[Array, Array]:
        """Return tails and weights with H(u) = Σ weight·min(1, u/tail)."""
        knots, heights = self.points.T
        slopes = np.diff(heights) / np.diff(knots)
        weights = (slopes - np.append(slopes[1:], 0.0)) * knots[1:]
        kept = weights > ROUNDING
        return knots[1:][kept], weights[kept] / weights[kept].sum()


def of_mixture(tails: Array, weights: Array) -> PiecewiseLinear:
    """Return H(u) = Σ weight·min(1, u/tail), of tails and weights that are checked already."""
    knots = np.array(sorted({0.0, 1.0, *tails.tolist()}))
    points = np.empty((knots.size, 2))
    points[:, 0] = knots
    points[:, 1] = np.minimum(1.0, knots[:, None] / tails) @ weights
    points[-1, 1] = 1.0
    return PiecewiseLinear(points)


def at_steps(distortion: Distortion, steps: int) -> PiecewiseLinear:
    """Return the interpolation at 0, 1/steps, …, 1, which is exact for events of equally likely entries."""
    knots = np.arange(steps + 1) / steps
    heights = evaluate(distortion, knots.copy())
    heights[0], heights[-1] = 0.0, 1.0
    return PiecewiseLinear(np.column_stack([knots, heights]))


def as_distortion(given: Any) -> Distortion:
    """Return H from a function or from breakpoints, or refuse what is not concave from (0, 0) to (1, 1)."""
    if isinstance(given, PiecewiseLinear):  # checked where it was made
        return given
    if callable(given):
        check_shape(given, GRID, evaluate(given, GRID.copy()))
        return given  # type: ignore[no-any-return]
    points = as_array("distortion", given)
    if points.ndim != 2 or points.shape[1] != 2 or len(points) < 2:
        raise InvalidParameter(
            "distortion must be a function or breakpoints (u, H(u)) of shape (K, 2) from (0, 0) to (1, 1), "
            f"got shape {points.shape}",
            parameter="distortion",
            value=given,
        )
    if points[0, 0] != 0.0 or points[-1, 0] != 1.0 or (points[1:, 0] <= points[:-1, 0]).any():
        raise InvalidParameter(
            f"the breakpoints of distortion must ascend from u = 0 to u = 1, got u = {points[:, 0].tolist()}",
            parameter="distortion",
            value=given,
        )
    check_shape(given, points[:, 0], points[:, 1])
    return PiecewiseLinear(points)


def as_given(distortion: Distortion) -> Distortion | Array:
    """Return the function, or the breakpoints of a piecewise linear H."""
    return distortion.points if isinstance(distortion, PiecewiseLinear) else distortion


def evaluate(distortion: Distortion, u: Array) -> Array:
    """Return H(u), cut to [0, 1]; refuse what is not one finite number for each u.

    Its code may write into u.
    """
    shape = u.shape
    heights = np.asarray(distortion(u), dtype=np.float64)
    if heights.shape != shape or not (np.isfinite(heights.sum()) or np.isfinite(heights).all()):
        found = "numbers that are not finite" if heights.shape == shape else f"shape {heights.shape}"
        raise InvalidParameter(
            f"distortion must return a finite number for each entry of an array (np.vectorize makes it do "
            f"so), got {found} for an array of shape {shape}",
            parameter="distortion",
            value=distortion,
        )
    bounded: Array = np.maximum(heights, 0.0)
    return np.minimum(bounded, 1.0, out=bounded)


TURN = 1e-20
"""An imaginary step, of which no digit is lost to a difference."""

APART = 1e-6
"""A real step, relative to the distance from 0 and 1."""


def slope_of(distortion: Distortion, u: Array) -> Array:
    """Return H'(u): exact between breakpoints; of a function by an imaginary step, or else by a difference.

    At 0 and 1, where only one side is known, it is 0 for a function.
    """
    if isinstance(distortion, PiecewiseLinear):
        knots, heights = distortion.points.T
        rates = np.diff(heights) / np.diff(knots)
        found: Array = rates[np.clip(np.searchsorted(knots, u, side="left") - 1, 0, rates.size - 1)]
        return found
    step = APART * np.minimum(u, 1.0 - u)
    inner = step > 0.0
    divisor = np.where(inner, 2.0 * step, 1.0)
    rough = np.where(inner, (evaluate(distortion, u + step) - evaluate(distortion, u - step)) / divisor, 0.0)
    try:  # code for real numbers may refuse, or drop the imaginary part
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            turned: Any = np.where(inner, u, 0.5) + TURN * 1j
            exact = np.imag(np.asarray(distortion(turned))) / TURN
    except Exception:
        return rough
    if (
        exact.shape != u.shape
        or not (np.abs(exact - rough)[inner] <= 1e-3 * (1.0 + np.abs(rough[inner]))).all()
    ):
        return rough
    return np.where(inner, exact, 0.0)


def check_shape(given: Any, u: Array, heights: Array) -> None:
    """Refuse values of H that do not rise from 0 to 1, or that lie below a chord."""

    def refuse(words: str) -> InvalidParameter:
        return InvalidParameter(f"distortion must {words}", parameter="distortion", value=given)

    ends = (heights[0], heights[-1])
    if abs(ends[0]) > ROUNDING or abs(ends[1] - 1.0) > ROUNDING:
        raise refuse(f"have H(0) = 0 and H(1) = 1, got {ends[0]:.12g} and {ends[1]:.12g}")
    falls = heights[1:] - heights[:-1] < -ROUNDING
    if falls.any():
        k = int(falls.argmax())
        raise refuse(
            f"not fall, got H({u[k]:.6g}) = {heights[k]:.6g} and H({u[k + 1]:.6g}) = {heights[k + 1]:.6g}"
        )
    steps = u[1:] - u[:-1]
    left, right = steps[:-1], steps[1:]
    chord = (heights[:-2] * right + heights[2:] * left) / (left + right)
    below = chord - heights[1:-1] > ROUNDING
    if below.any():
        k = int(below.argmax()) + 1
        raise refuse(
            f"be concave, got H({u[k]:.6g}) = {heights[k]:.6g} below the chord from {u[k - 1]:.6g} to "
            f"{u[k + 1]:.6g}, which is {chord[k - 1]:.6g} there"
        )


def excess(p: Array, q: Array, distortion: Distortion) -> float:
    """Return the largest p(S) - H(q(S)) over all events S: the worst of them are the largest ratios p/q."""
    with np.errstate(over="ignore"):
        ratio = np.divide(p, q, out=np.where(p > 0.0, np.inf, -np.inf), where=q > 0.0)
    order = np.argsort(-ratio, kind="stable")
    most = evaluate(distortion, np.minimum(np.cumsum(q[order]), 1.0))
    return max(0.0, float((np.cumsum(p[order]) - most).max()))
