"""What Product and Nested share: p cut into blocks, each a weight times a distribution of a set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.composed import ComposedSet
from uncertainty_sets.conic.oracle import program
from uncertainty_sets.errors import InvalidParameter

if TYPE_CHECKING:
    import cvxpy

LIGHT = 1e-15
"""A block of no more weight is, up to rounding of p, any distribution of its set."""


class BlockSet(ComposedSet):
    """p = (π₁·p₁, π₂·p₂, …) with p_g in a set of its own, over the entries of block g."""

    _blocks: tuple[UncertaintySet, ...]
    _cut: NDArray[np.intp]

    def _cut_into(self, name: str, sets: Sequence[UncertaintySet]) -> None:
        """Keep the sets of the blocks, and set `size`."""
        for k, each in enumerate(sets):
            if each.size is None:
                raise InvalidParameter(
                    f"{name}[{k}] takes its size from the losses, and here it must be known: use "
                    f"{type(each).__name__}(…).with_size(…)",
                    parameter=name,
                    value=sets,
                )
        self._blocks = tuple(sets)
        self._cut = np.cumsum([0] + [each.size or 0 for each in sets]).astype(np.intp)
        self.size = int(self._cut[-1])

    def _spans(self) -> list[slice]:
        return [slice(int(a), int(b)) for a, b in zip(self._cut, self._cut[1:], strict=False)]

    def _ask_blocks(self, name: str, losses: Array, warm_start: WorstCase | None) -> dict[str, WorstCase]:
        """The answers of the blocks' sets, by path."""
        return {
            f"{name}[{k}]": self._ask(f"{name}[{k}]", np.ascontiguousarray(losses[..., span]), warm_start)
            for k, span in enumerate(self._spans())
        }

    def _joined(self, weights: Array, parts: Sequence[Array]) -> Array:
        """p from the weights of the blocks, (G,) or (B, G), and the distributions within."""
        p: Array = np.concatenate([weights[..., k, None] * each for k, each in enumerate(parts)], axis=-1)
        return p

    def _block_residual(self, p: Array, weights: Array) -> float:
        """The largest residual of a block, times its weight; of one with hardly any, its largest entry."""
        worst = 0.0
        for each, span, weight in zip(self._blocks, self._spans(), weights, strict=True):
            part = p[span]
            off = weight * each.violation(part / weight) if weight > LIGHT else float(np.abs(part).max())
            worst = max(worst, off)
        return worst

    def _point(self, weights: Array | None) -> Array | None:
        """The only distribution of the set, if all parts have just one."""
        points = [each._singleton() for each in self._blocks]
        if weights is None or any(point is None for point in points):
            return None
        return self._joined(weights, [point for point in points if point is not None])


def scaled_constraints(
    uncertainty_set: UncertaintySet, part: cvxpy.Expression, weight: cvxpy.Expression
) -> list[cvxpy.Constraint]:
    """part = weight·p for a p in the set, also at weight 0: the set's conic program, homogenised.

    b - A x in K becomes weight·b - A x in K, with the simplex among its rows.
    """
    import cvxpy
    from scipy import sparse

    assert uncertainty_set.size is not None
    stated = program(uncertainty_set, uncertainty_set.size)
    A = sparse.csc_array(stated.A)
    slack = stated.b * weight - A[:, stated.columns] @ part
    if stated.auxiliary.size:
        slack = slack - A[:, stated.auxiliary] @ cvxpy.Variable(stated.auxiliary.size)
    zero, nonneg = stated.rows("zero"), stated.rows("nonneg")
    limits = [slack[zero] == 0] if zero.size else []
    limits += [slack[nonneg] >= 0] if nonneg.size else []
    for start, (kind, size) in zip(stated.starts, stated.cones, strict=True):
        if kind == "soc":
            limits.append(cvxpy.SOC(slack[start], slack[start + 1 : start + size]))
    exp = stated.rows("exp").reshape(-1, 3)
    if exp.size:
        limits.append(cvxpy.ExpCone(slack[exp[:, 0]], slack[exp[:, 1]], slack[exp[:, 2]]))
    return limits


def halves(center: Array, make: Callable[[Array], UncertaintySet]) -> tuple[Array, list[Any]]:
    """The masses of the two halves of a centre, and a set around each half divided by its mass."""
    middle = -(-center.size // 2)
    parts = [part for part in (center[:middle], center[middle:]) if part.size]
    masses = np.array([part.sum() for part in parts])
    shares = [
        part / mass if mass > 0.0 else np.full(part.size, 1.0 / part.size)
        for part, mass in zip(parts, masses, strict=True)
    ]
    return masses, [make(share) for share in shares]
