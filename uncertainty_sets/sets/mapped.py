"""Mapped: mixtures of given distributions, with weights from a set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.conic import oracle as conic
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.kernels.dispatch import reject_not_finite
from uncertainty_sets.parameters import SUM_TOLERANCE, as_array, check_not_negative
from uncertainty_sets.sets._composed import Chain, ComposedSet, check_set_given, combined
from uncertainty_sets.sets.kl import KL

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    import cvxpy

EXACT = 1e-13
"""A residual this small is rounding: no other weights are looked for."""

DENSE = 10_000_000
"""Entries of M up to which the weights of a given p are found by dense least squares."""


class Mapped(ComposedSet, certified=True):
    """Mixtures of given distributions with weights from a set: {p : p = Mᵀπ, π in groups}.

    The rows of M are distributions over the samples, one for each group. Groups may overlap: a sample counts
    in every row in which it has mass. The worst case asks the set of group weights for the groups' expected
    losses M f: the cost of that oracle on G entries, and two products with M. The group weights
    themselves are `groups.worst_case(M @ f).p`.

    The multipliers in `dual` are those of `groups.worst_case(M @ f)`, whose bound is the bound here:

    >>> import numpy as np
    >>> from uncertainty_sets import KL
    >>> M = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])  # the second sample is in both groups
    >>> f, q, radius = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.5]), 0.1
    >>> r = Mapped(KL(q, radius), M).worst_case(f)
    >>> r.p.round(4), round(r.value, 4)
    (array([0.1401, 0.5   , 0.3599]), 2.5797)
    >>> eta = r.dual["eta"]
    >>> bound = eta * (radius + np.log(q @ np.exp(M @ f / eta)))
    >>> round(float(bound), 6), round(r.upper_bound, 6)
    (2.579692, 2.579692)

    Args:
        groups: the set of the groups' weights π, with G entries.
        M: shape (G, N), dense or scipy sparse; every row is a distribution.
    """

    name: ClassVar[str] = "mapped"
    summary: ClassVar[str] = "Mixtures of given distributions with weights from a set"
    formula: ClassVar[str] = "p = Mᵀπ, π in groups"
    complexity: ClassVar[str] = "the oracle of `groups`, and O(entries of M)"
    per_entry: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, groups: UncertaintySet, M: Any) -> None:
        check_set_given("groups", groups)
        self._M = _as_distributions(M)
        count, self.size = self._M.shape
        if groups.size not in {None, count}:
            raise InvalidParameter(
                f"M must have a row for each of the {groups.size} entries of groups, got {count}",
                parameter="M",
                value=M,
            )
        self.groups = groups.with_size(count)
        self._compose({"": self.groups})

    @property
    def M(self) -> Any:  # noqa: N802 - the letter of p = Mᵀπ
        """The groups' distributions, one in each row."""
        return self._M.copy()

    @classmethod
    def default_parameters(cls, center: Array) -> dict[str, Any]:
        """Two groups, of which one has more of the first samples and the other more of the last ones."""
        ramp = np.linspace(1.0, 3.0, center.size) if center.size > 1 else np.full(1, 2.0)
        M = np.array([center * ramp, center * ramp[::-1]])
        share = (M @ np.ones(center.size)) / 4.0  # ramp + its reverse is 4
        M /= np.maximum(M.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        return super().default_parameters(center) | {"groups": KL(share, 0.1), "M": M}

    def constraints(self, p: cvxpy.Variable) -> list[cvxpy.Constraint]:
        """p = Mᵀπ for a distribution π in `groups`."""
        import cvxpy

        pi = cvxpy.Variable(self._M.shape[0])
        return [p == self._M.T @ pi, pi >= 0, cvxpy.sum(pi) == 1, *self.groups.constraints(pi)]

    def reference(self) -> Array:
        """The mixture by the reference of `groups`."""
        return self._mix(self.groups.reference())

    def _mix(self, weights: Array) -> Array:
        p: Array = np.ascontiguousarray((self._M.T @ weights.T).T)
        return p

    def _closed_form(
        self, losses: Array, warm_start: WorstCase | None, out: Array | None = None
    ) -> WorstCase:
        reject_not_finite(losses)
        found = self.groups.worst_case(self._of_groups(losses), warm_start=warm_start)
        p = self._mix(found.p)
        violation = np.maximum(found.violation, np.abs(p.sum(axis=-1) - 1.0))
        return combined(losses, p, found.value, found.upper_bound, found.gap, violation, {"": found}, out)

    def _with(self, given: Mapping[str, Any]) -> Mapped:
        return Mapped(self._part_with("", given), self._M)

    def _by_parts(self, losses: Any, given: Mapping[str, Any], ask: Callable[..., Any], joined: Any) -> Any:
        M = self._M if isinstance(self._M, np.ndarray) else self._M.toarray()
        rows = losses.new_tensor(M)
        value, weights = ask(self.groups, "", losses @ rows.T)
        return value, weights @ rows

    def _sensitivity(self, losses: Array, answer: WorstCase) -> MixedGroups:
        return MixedGroups(answer, self._M)

    def _of_groups(self, losses: Array) -> Array:
        """M f, taken about the middle of f: the rows of M sum to 1 only up to rounding."""
        middle = 0.5 * losses.min(axis=-1, keepdims=True) + 0.5 * losses.max(axis=-1, keepdims=True)
        return np.ascontiguousarray(middle + (self._M @ (losses - middle).T).T)

    def _singleton(self) -> Array | None:
        weights = self.groups._singleton()
        return None if weights is None else self._mix(weights)

    def _residual(self, p: Array) -> float:
        if self._M.shape[0] * self._M.shape[1] > DENSE:
            return conic.residual(self, p)
        # Weights by least squares: the only candidates if the rows are independent, else the nearest to 0.
        M = self._M if isinstance(self._M, np.ndarray) else self._M.toarray()
        weights, _, rank, _ = np.linalg.lstsq(M.T, p, rcond=None)
        off = max(float(np.abs(self._mix(weights) - p).max()), self.groups.violation(weights))
        if rank == len(M) or off <= EXACT:
            return off
        return min(off, conic.residual(self, p))

    def _row(self, index: int) -> Mapped:
        return self if self.rows is None else Mapped(self.groups._row(index), self._M)

    def __repr__(self) -> str:
        return f"Mapped({self.groups!r}, M=<{'x'.join(map(str, self._M.shape))} matrix>)"


class MixedGroups(Chain):
    """dp = Mᵀdπ for the losses M df of the groups; M itself is fixed."""

    def __init__(self, answer: WorstCase, M: Any) -> None:
        super().__init__(answer)
        self._M = M

    def jvp(self, losses: Array | None, parameters: Mapping[str, Array]) -> tuple[Array, Array]:
        """The moves of p and the value."""
        of_groups = None if losses is None else (self._M @ losses.T).T
        weights, value = self.parts[""].jvp(of_groups, parameters)
        return (self._M.T @ weights.T).T, value

    def vjp(self, p: Array | None, value: Array | None, names: Collection[str]) -> dict[str, Array]:
        """The pulls on the losses and on these parameters."""
        losses, found = self.pulls("", None if p is None else (self._M @ p.T).T, value, names)
        return {"losses": (self._M.T @ losses.T).T, **found}


def _as_distributions(M: Any) -> Any:
    """M as an array or CSR matrix, with rows that are distributions; sums within 1e-9 of 1 are made 1."""
    if hasattr(M, "tocsr"):
        from scipy import sparse

        matrix = sparse.csr_array(M, dtype=np.float64, copy=True)
        values = as_array("M", matrix.data)
    else:
        matrix = values = as_array("M", M)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InvalidParameter(f"M must have shape (G, N), got {matrix.shape}", parameter="M", value=M)
    check_not_negative("M", values)
    totals = np.asarray(matrix.sum(axis=1)).ravel()
    worst = int(np.abs(totals - 1.0).argmax())
    if abs(totals[worst] - 1.0) > SUM_TOLERANCE:
        raise InvalidParameter(
            f"every row of M must sum to 1, got {totals[worst]:.12g} in row {worst}; divide by the sum",
            parameter="M",
            value=M,
        )
    if matrix is values:
        matrix /= totals[:, None]
    else:
        matrix.data /= np.repeat(totals, np.diff(matrix.indptr))
    return matrix
