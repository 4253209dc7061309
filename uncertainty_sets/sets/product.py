"""Product: independent blocks with fixed weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.kernels.dispatch import reject_not_finite
from uncertainty_sets.parameters import as_center, readonly
from uncertainty_sets.sets._composed import BlockSet, Chain, as_sets, combined, halves, largest_violation
from uncertainty_sets.sets.kl import KL

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    import cvxpy


class Product(BlockSet, certified=True):
    """Blocks with fixed weights, each with its own set: {p : p = (w₁·p₁, w₂·p₂, …), p_k in sets[k]}.

    The entries of p are cut into blocks, in order, and the blocks do not influence each other: the worst case
    is Σ w_k·σ_k(f_k), the weighted sum of the worst cases of the blocks. p is a distribution, since
    the weights sum to 1; for the plain sum Σ σ_k(f_k) over K blocks give each the weight 1/K and multiply the
    value by K. The cost is that of the oracles involved.

    ==============  =====================================================
    dual            meaning
    ==============  =====================================================
    sets[k].…       the multipliers of `sets[k]`
    ==============  =====================================================

    The bound is the weighted sum of the bounds of the blocks:

    >>> import numpy as np
    >>> from uncertainty_sets import KL, Box
    >>> f, q, lower, upper = np.array([1.0, 2.0, 4.0, 0.0]), np.array([0.5, 0.5]), 0.2, 0.8
    >>> r = Product([KL(q, 0.1), Box([lower, lower], [upper, upper])], weights=[0.25, 0.75]).worst_case(f)
    >>> r.p.round(4), round(r.value, 4)
    (array([0.0701, 0.1799, 0.6   , 0.15  ]), 2.8299)
    >>> eta, above = r.dual["sets[0].eta"], f[2:] - r.dual["sets[1].nu"]
    >>> first = eta * (0.1 + np.log(q @ np.exp(f[:2] / eta)))
    >>> second = r.dual["sets[1].nu"] + np.maximum(lower * above, upper * above).sum()
    >>> bound = 0.25 * first + 0.75 * second
    >>> round(float(bound), 6), round(r.upper_bound, 6)
    (2.829949, 2.829949)

    Args:
        sets: the sets of the blocks; their sizes are the lengths of the blocks.
        weights: a distribution over the blocks.
    """

    name: ClassVar[str] = "product"
    summary: ClassVar[str] = "Blocks with fixed weights, each with its own set"
    formula: ClassVar[str] = "p = (w₁·p₁, w₂·p₂, …), p_k in sets[k]"
    complexity: ClassVar[str] = "the oracles of `sets`"
    per_entry: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, sets: Sequence[UncertaintySet], weights: ArrayLike) -> None:
        self.sets = as_sets("sets", sets)
        self._weights = as_center(weights, "weights")[0]
        if np.shape(weights) != (len(self.sets),):
            raise InvalidParameter(
                f"weights must have an entry for each of the {len(self.sets)} sets, got shape "
                f"{np.shape(weights)}",
                parameter="weights",
                value=weights,
            )
        self._cut_into("sets", self.sets)
        self._compose({f"sets[{k}]": each for k, each in enumerate(self.sets)})

    @property
    def weights(self) -> Array:
        """The weights of the blocks."""
        return readonly(self._weights)

    @classmethod
    def default_parameters(cls, center: Array) -> dict[str, Any]:
        """Two halves, weighted by their masses, with a KL ball around each."""
        masses, sets = halves(center, lambda share: KL(share, 0.1))
        return super().default_parameters(center) | {"sets": sets, "weights": masses}

    def constraints(self, p: cvxpy.Variable) -> list[cvxpy.Constraint]:
        """Each block is its weight times a distribution of its set."""
        import cvxpy

        limits: list[Any] = []
        for each, span, weight in zip(self.sets, self._spans(), self._weights, strict=True):
            part = p[span]
            limits.append(cvxpy.sum(part) == weight)
            if weight > 0.0:
                limits += each.constraints(part / weight)
        return limits

    def reference(self) -> Array:
        """The references of the blocks' sets, weighted."""
        return self._joined(self._weights, [each.reference() for each in self.sets])

    def _closed_form(
        self, losses: Array, warm_start: WorstCase | None, out: Array | None = None
    ) -> WorstCase:
        reject_not_finite(losses)
        found = self._ask_blocks("sets", losses, warm_start)
        answers = list(found.values())
        value, bound, gap = (
            np.stack([getattr(each, field) for each in answers], axis=-1) @ self._weights
            for field in ("value", "upper_bound", "gap")
        )
        p = self._joined(self._weights, [each.p for each in answers])
        return combined(losses, p, value, bound, gap, largest_violation(answers), found, out)

    def _given_by_name(self) -> dict[str, Any]:
        return {**super()._given_by_name(), "weights": self.weights}

    def _with(self, given: Mapping[str, Any]) -> Product:
        return Product(
            [self._part_with(path, given) for path in self._parts], given.get("weights", self.weights)
        )

    def _by_parts(self, losses: Any, given: Mapping[str, Any], ask: Callable[..., Any], joined: Any) -> Any:
        found = [
            ask(each, f"sets[{k}]", losses[..., span])
            for k, (each, span) in enumerate(zip(self.sets, self._spans(), strict=True))
        ]
        weights = given.get("weights", losses.new_tensor(self._weights))
        parts = [weights[..., k, None] * p for k, (_, p) in enumerate(found)]
        return sum(weights[..., k] * value for k, (value, _) in enumerate(found)), joined(parts, -1)

    def _is_distribution(self, name: str) -> bool:
        return name == "weights" or super()._is_distribution(name)

    def _sensitivity(self, losses: Array, answer: WorstCase) -> Blocks:
        return Blocks(answer, self._weights, self._spans())

    def _residual(self, p: Array) -> float:
        return self._block_residual(p, self._weights)

    def _singleton(self) -> Array | None:
        return self._point(self._weights)

    def _row(self, index: int) -> Product:
        if self.rows is None:
            return self
        return Product([each._row(index) for each in self.sets], self._weights)


class Blocks(Chain):
    """dp_k = dw_k·p_k + w_k·dp_k; the weights w count as divided by their sum."""

    def __init__(self, answer: WorstCase, weights: Array, spans: list[slice]) -> None:
        super().__init__(answer)
        self._answers, self._weights, self._spans = list(answer.parts.values()), weights, spans
        self.parameters["weights"] = weights.shape

    def jvp(self, losses: Array | None, parameters: Mapping[str, Array]) -> tuple[Array, Array]:
        """The moves of p and the value."""
        shift = parameters.get("weights", np.zeros(self._weights.size))
        shift = shift - self._weights * shift.sum()
        moves, total = [], 0.0
        for k, (path, span) in enumerate(zip(self.parts, self._spans, strict=True)):
            own = None if losses is None else losses[..., span]
            dp, value = self.parts[path].jvp(own, self.given(path, parameters))
            moves.append(self._weights[k] * dp + shift[k] * self._answers[k].p)
            total = total + self._weights[k] * value + shift[k] * np.asarray(self._answers[k].value)
        return np.concatenate(moves, axis=-1), np.asarray(total)

    def vjp(self, p: Array | None, value: Array | None, names: Collection[str]) -> dict[str, Array]:
        """The pulls on the losses and on these parameters."""
        found: dict[str, Array] = {}
        losses, on_weights = [], np.zeros(self._weights.size)
        for k, (path, span) in enumerate(zip(self.parts, self._spans, strict=True)):
            weight, own = self._weights[k], None if p is None else p[..., span]
            pull, more = self.pulls(
                path, None if own is None else weight * own, None if value is None else weight * value, names
            )
            losses.append(pull)
            found |= more
            if own is not None:
                on_weights[k] += float((own * self._answers[k].p).sum())
            if value is not None:
                on_weights[k] += float((value * self._answers[k].value).sum())
        on_weights -= self._weights @ on_weights
        return {
            "losses": np.concatenate(losses, axis=-1),
            **found,
            **({"weights": on_weights} if "weights" in names else {}),
        }
