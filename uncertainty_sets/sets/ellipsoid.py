"""Ellipsoid: distributions within a quadratic distance of a centre."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.face import Effect, Face, Rows
from uncertainty_sets.kernels.dispatch import answer, unit
from uncertainty_sets.parameters import (
    as_array,
    broadcast,
    example_center,
    readonly,
    same_rows,
)
from uncertainty_sets.rows import CENTER, EACH_ROW, Along, Layout, Structure, as_flat, is_sparse
from uncertainty_sets.sets._balls import Ball, pulled_in
from uncertainty_sets.sets._tilt_face import matrix_face, quadratic_face

if TYPE_CHECKING:
    import cvxpy


SMALLEST = 1e-100


class Ellipsoid(Ball, certified=True):
    """Distributions near a centre q in a quadratic norm: {p : (p - q)ᵀ Q⁻¹ (p - q) <= radius}.

    Always with p >= 0, which the paper's formula leaves out. Diagonal Q: O(N), 2 to 12 passes, and some tens
    if losses or shape span many orders of magnitude. Dense Q: an active-set method, O(N²) per step in
    addition to factorising Q on the entries at 0. If Q is badly conditioned, this may not reach the promised
    gap; a conic solver then answers, and `backend` names it. Gap and violation are computed in twice the
    precision for (Q + Qᵀ)/2, so they are correct even if they are large.

    ====  ===================================================================================
    dual  meaning
    ====  ===================================================================================
    nu    multiplier of 1ᵀp = 1
    tau   diagonal Q: 1/τ is the step from the centre; y = max(f - ν, -τ·q/Q)
    mu    dense Q: multipliers of p >= 0; y = f - ν + μ
    ====  ===================================================================================

    The bound is ν + qᵀy + √(radius·yᵀQy), for any ν and any τ, μ >= 0 (τ = ∞: y = f - ν):

    >>> import numpy as np
    >>> f, q, Q, radius = np.array([1.0, 0.5, 0.0]), np.array([0.5, 0.4, 0.1]), np.ones(3), 0.05
    >>> r = Ellipsoid(q, Q, radius).worst_case(f)
    >>> round(r.value, 3)
    0.841
    >>> y = np.maximum(f - r.dual["nu"], -r.dual["tau"] * q / Q)
    >>> bound = r.dual["nu"] + q @ y + np.sqrt(radius * (Q * y * y).sum())
    >>> round(float(bound), 6), round(r.upper_bound, 6)
    (0.841144, 0.841144)

    Ragged rows have diagonal shapes.

    Args:
        center: probabilities, shape (N,), or (B, N) for one centre per batch row.
        shape: Q: a number > 0, the diagonal (N,), or a symmetric positive definite matrix (N, N). One per
            batch row: diagonals (B, N), or (B, 1, N) if B = N, which would be a matrix; matrices (B, N, N).
        radius: at least 0; compared with the squared norm, so Q = I and radius r² is a ball of radius r; a
            number, or (B,).
    """

    name: ClassVar[str] = "ellipsoid"
    summary: ClassVar[str] = "Distributions near a centre q in a quadratic norm"
    formula: ClassVar[str] = "(p - q)ᵀ Q⁻¹ (p - q) <= radius"
    complexity: ClassVar[str] = "O(N) diagonal, O(N³) dense"
    by_row: ClassVar[tuple[str, ...]] = ("center", "radius")
    layout: ClassVar[Layout | None] = Layout(
        "ellipsoid_diagonal",
        ("nu", "tau"),
        center=CENTER,
        shape=Along("entries", lambda name, shape, structure: _as_flat_shape(shape, structure)),
        radius=EACH_ROW,
    )

    def __init__(self, center: ArrayLike, shape: ArrayLike, radius: ArrayLike) -> None:
        super().__init__(center, radius)
        self._given = as_array("shape", shape)
        self._shape, differs = _as_rows_of_shape(self._given, self._center.shape[1], np.ndim(center) == 2)
        if differs:
            if self.rows not in {None, len(self._shape)}:
                raise _bad_shape(
                    f"have {self.rows} rows, as center or radius has, got {len(self._shape)}", shape
                )
            self._store(True, *same_rows(self._center, self._radius, self._shape)[:2])
        self._dense = self._shape.ndim == 3
        if self._dense:
            self._root = _factor(self._shape)
            self._shape = 0.5 * (self._shape + self._shape.transpose(0, 2, 1))
            self._inverse = np.ascontiguousarray(np.linalg.inv(self._shape))
            self._condition = _largest_row_sum(self._shape) * _largest_row_sum(self._inverse)
        else:
            _check_diagonal(self._shape, shape)
            self._ratio = self._center / self._shape
            self._heavy = self._shape.argmax(axis=1)

    @property
    def shape(self) -> Array:
        """Q as given, which is a number, its diagonal or the matrix, or one of these per row."""
        return readonly(self._given)

    @classmethod
    def default_parameters(cls, center: Array) -> dict[str, Any]:
        """The centre as its own diagonal shape."""
        return super().default_parameters(center) | {"shape": np.maximum(center, 1e-9)}

    @classmethod
    def example(cls, size: int, rng: np.random.Generator | None = None) -> Ellipsoid:
        """The centre as its own diagonal shape, a χ² ball, of radius 1/2."""
        center = example_center(size, rng)
        return cls(center, center + 1e-6 / size, 0.5)

    def constraints(self, p: cvxpy.Variable) -> list[cvxpy.Constraint]:
        """‖Q^(-1/2) (p - q)‖ <= √radius; a norm, since that reaches a solver as one second-order cone."""
        import cvxpy

        return [cvxpy.norm(self._whiten(p - self._center[0])) <= np.sqrt(self._radius[0])]

    def _whiten(self, difference: cvxpy.Expression) -> cvxpy.Expression:
        import cvxpy

        if not self._dense:
            return cvxpy.multiply(1.0 / np.sqrt(self._shape[0]), difference)
        return np.linalg.inv(self._root[0]) @ difference

    def _closed_form(
        self, losses: Array, warm_start: WorstCase | None, out: Array | None = None
    ) -> WorstCase:
        if not self._dense:
            from uncertainty_sets.kernels.ellipsoid_diagonal import rows

            diagonal = (self._center, self._shape, self._ratio, self._radius, self._heavy)
            return answer(rows, losses, diagonal, ("nu", "tau"), warm_start, out)
        from uncertainty_sets.kernels.ellipsoid_dense import rows as dense_rows

        mu = np.zeros((1, losses.size) if losses.ndim == 1 else losses.shape)
        before = None if warm_start is None else warm_start.dual.get("mu")
        if before is not None and np.shape(before) == losses.shape:
            mu[:] = before
        factors = (self._shape, self._root, self._inverse, self._condition)
        dense = (self._center, *factors, self._radius)
        return answer(dense_rows, losses, dense, ("nu",), None, out, {"mu": mu})

    def _by_solver(self, losses: Array) -> WorstCase:
        """The conic answer; for a dense Q with its own multipliers: y from the cone, ν and μ from y.

        A solver sees Q⁻¹, which has lost digits if Q is badly conditioned. So p is made feasible for Q
        itself, and gap and violation are those of Q.
        """
        if not self._dense:
            return super()._by_solver(losses)
        from uncertainty_sets.conic import oracle as conic
        from uncertainty_sets.kernels.quadratic_form import pull_back, quadratic

        scale = unit(losses)
        losses = losses * scale  # squares of losses would overflow
        result = conic.worst_case(self, losses, "auto", None)
        program, cone = conic.program(self), self._center.shape[1] + 1
        y = (program.A.tocsr()[-cone:].T @ result.dual["y"][-cone:])[program.columns]
        q, Q, radius = self._center[0], self._shape[0], float(self._radius[0])
        top = float(losses.max())
        g, p = losses - top, np.maximum(result.p, 0.0)
        nu = (top + float((g - y).max())) - top
        mu = np.maximum(0.0, y - (g - nu))
        y = g - nu + mu
        pull_back(p, q, Q, self._root[0], self._condition[0], radius)
        value, bound = (
            float(p @ g),
            nu + float(q @ y) + math.sqrt(radius * quadratic(Q, self._condition[0], y)),
        )
        result.p, result.violation = p, self.violation(p)
        with np.errstate(over="ignore"):
            result.value, result.upper_bound = (top + value) / scale, (top + bound) / scale
            result.gap = (bound - value) / scale
            result.dual = {"nu": (top + nu) / scale, "mu": mu / scale}
        return result

    def _face(self, rows: Rows, losses: Any, p: Any, eta: Any, given: Mapping[str, Any]) -> Face:
        limits = {"radius": Effect(room=1.0, per_row=True)}
        face = matrix_face if self._dense else quadratic_face
        return face(rows, losses, p, eta, given["center"], given["shape"], limits)

    @property
    def _is_curved(self) -> bool:  # type: ignore[override]  # of a single matrix there is no diagonal
        return not self._dense

    def _bent(self, p: Array, given: Mapping[str, Any]) -> Array | None:
        found: Array = 0.5 * given["shape"] * (p > 0.0)
        return found

    def _eta(self, rows: Rows, losses: Any, given: Mapping[str, Any], dual: Mapping[str, Any]) -> Any:
        if self._dense:
            y = losses - rows.each(np.asarray(dual["nu"])) + dual["mu"]
            size = rows.sum((given["shape"] @ y[..., None])[..., 0] * y)
            with np.errstate(divide="ignore"):
                return 0.5 * np.sqrt(size / rows.each(np.asarray(given["radius"])))
        tau = 0.5 * rows.each(np.asarray(dual["tau"]))
        if np.isfinite(tau).all():
            return tau
        # Nothing is cut off, or the losses are equal: by the step's length.
        radius = rows.each(np.asarray(given["radius"]))
        above = losses - rows.each(np.asarray(dual["nu"]))
        with np.errstate(divide="ignore", invalid="ignore"):
            whole = 0.5 * np.sqrt(rows.sum(given["shape"] * above * above) / radius)
        return np.where(np.isfinite(tau), tau, np.where(np.isnan(whole), 0.0, whole))

    def _slope(self, losses: Array, answer: WorstCase) -> float | None:
        dual, radius = answer.dual, float(self._radius[0])
        if radius == 0.0 or not {"tau", "mu"} & dual.keys():
            return None
        y = losses - dual["nu"]
        if self._dense:
            from uncertainty_sets.kernels.quadratic_form import quadratic

            y = y + dual["mu"]
            return math.sqrt(quadratic(self._shape[0], self._condition[0], y) / radius) / 2.0
        if dual["tau"] < np.inf:
            y = np.maximum(y, -dual["tau"] * self._ratio[0])
        return math.sqrt(float((self._shape[0] * y * y).sum()) / radius) / 2.0

    def _distance(self, p: Array) -> float:
        d = p - self._center[0]
        if self._dense:
            from uncertainty_sets.kernels.quadratic_form import distance

            return float(distance(self._shape[0], self._root[0], self._condition[0], d))
        return float((d * d / self._shape[0]).sum())

    def _projection(self) -> Callable[[Array], Array] | None:
        from uncertainty_sets.kernels.projection import QUADRATIC
        from uncertainty_sets.kernels.projection import nearest_in_ball as nearest

        if self.rows is not None or self._dense:
            return None
        q, Q, radius = self._center[0], self._shape[0], float(self._radius[0])

        def exact(point: Array) -> Array:
            return pulled_in(nearest(point, q, Q, QUADRATIC, 0.5 * radius), q, radius, self._distance)

        return exact

    def _row(self, index: int) -> UncertaintySet:
        if self.rows is None:
            return self
        shape = self._shape[index if len(self._shape) > 1 else 0]
        return Ellipsoid(self._center[index], shape, self._radius[index])


def _as_rows_of_shape(given: Array, n: int, centers: bool) -> tuple[Array, bool]:
    """Q as (1 or B, N) for diagonals or (1 or B, N, N) for matrices, and whether it was given by row.

    `centers` is whether the centre was given by row: then an (N, N) that is no matrix may be meant as N
    diagonals, and the error says how to write that.
    """
    if given.shape in {(), (n,)}:
        return broadcast(given, (1, n)), False
    if given.shape == (n, n):
        if centers and n > 1 and not _is_symmetric(given):
            raise _bad_shape(
                f"be symmetric if it is one matrix of shape ({n}, {n}); for {n} diagonals, one per row, give "
                f"shape[:, None], of shape ({n}, 1, {n})",
                given,
            )
        return given[None], False
    if given.size > 0 and given.ndim in {2, 3} and given.shape[1:] in {(n,), (1, n)}:
        return given.reshape(-1, n), True
    if given.size > 0 and given.ndim == 3 and given.shape[1:] == (n, n):
        return given, True
    raise _bad_shape(
        f"be a number, a diagonal of shape ({n},) or a matrix of shape ({n}, {n}), or one per row, "
        f"(B, {n}) or (B, {n}, {n}), got shape {given.shape}",
        given,
    )


def _skew(matrices: Array) -> Array:
    """By how much mirrored entries differ at most, of each matrix."""
    skew: Array = np.abs(matrices - np.swapaxes(matrices, -1, -2)).max(axis=(-1, -2))
    return skew


def _is_symmetric(matrices: Array) -> Any:
    return _skew(matrices) <= 1e-10 * np.abs(matrices).max(axis=(-1, -2))


def _largest_row_sum(matrices: Array) -> Array:
    """The norm of each matrix, of which two make a condition number."""
    largest: Array = np.abs(matrices).sum(axis=2).max(axis=1)
    return largest


def _factor(matrices: Array) -> Array:
    """The Cholesky factor of each matrix, or an error that says why there is none."""
    where = " in row {}" if len(matrices) > 1 else ""
    skewed = np.flatnonzero(~_is_symmetric(matrices))
    if skewed.size:
        skew = float(_skew(matrices[skewed[0]]))
        raise _bad_shape(
            f"be symmetric, got entries that differ by {skew:.3g}{where.format(skewed[0])}", matrices
        )
    symmetric = 0.5 * (matrices + matrices.transpose(0, 2, 1))
    try:
        return np.ascontiguousarray(np.linalg.cholesky(symmetric))
    except np.linalg.LinAlgError:
        least = np.linalg.eigvalsh(symmetric)[:, 0]
        raise _bad_shape(
            f"be positive definite, got a smallest eigenvalue of {least.min():.3g}"
            f"{where.format(least.argmin())}",
            matrices,
        ) from None


def _as_flat_shape(shape: Any, structure: Structure) -> Array:
    """The diagonals of ragged rows along their entries, or a number for all."""
    if np.ndim(shape) > 1 and not is_sparse(shape):
        raise _bad_shape(
            f"be a number or a diagonal along the entries, ({structure.entries},), got shape "
            f"{np.shape(shape)}; a matrix would be factorised for every row: make an Ellipsoid per row",
            shape,
        )
    diagonal = as_flat("shape", shape, structure)
    _check_diagonal(diagonal, shape)
    return diagonal


def _check_diagonal(diagonal: Array, given: Any) -> None:
    least, most = float(diagonal.min()), float(diagonal.max())
    if least <= 0.0:
        raise _bad_shape(f"be positive, got {least}", given)
    if least < SMALLEST or most > 1.0 / SMALLEST:
        raise _bad_shape(f"lie between 1e-100 and 1e100, got {least if least < SMALLEST else most}", given)


def _bad_shape(words: str, value: ArrayLike) -> InvalidParameter:
    return InvalidParameter(f"shape must {words}", parameter="shape", value=value)
