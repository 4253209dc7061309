"""Nested: a worst mix of groups, each with its own worst mix of samples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.kernels.dispatch import reject_not_finite
from uncertainty_sets.sets._composed import (
    BlockSet,
    Chain,
    as_sets,
    check_set_given,
    combined,
    halves,
    largest_violation,
    scaled_constraints,
)
from uncertainty_sets.sets.kl import KL

if TYPE_CHECKING:
    import cvxpy


class Nested(BlockSet, certified=True):
    """Weights of groups and weights within each: {p : p = (π₁·p₁, π₂·p₂, …), π in outer, p_g in inners[g]}.

    The entries of p are cut into blocks, one for each group, in order. The worst case is
    σ_outer(σ₁(f₁), σ₂(f₂), …): each group's own worst case, then the worst mix of these. The cost is that of
    the oracles involved.

    ==================  ===============================================================
    dual                meaning
    ==================  ===============================================================
    inners[g].…         the multipliers of `inners[g]`, which prove a bound for group g
    outer.…             those of `outer`, asked for the groups' bounds
    ==================  ===============================================================

    The bound is that of `outer` for the bounds of the groups:

    >>> import numpy as np
    >>> from uncertainty_sets import KL
    >>> f, q, within = np.array([1.0, 2.0, 4.0, 0.0]), np.array([0.5, 0.5]), np.array([0.3, 0.7])
    >>> r = Nested(KL(q, 0.1), [KL(q, 0.1), KL(within, 0.2)]).worst_case(f)
    >>> r.p.round(4), round(r.value, 4)
    (array([0.0785, 0.2017, 0.4364, 0.2834]), 2.2275)
    >>> def bound(q, radius, f, eta):
    ...     return eta * (radius + np.log(q @ np.exp(f / eta)))
    >>> groups = [
    ...     bound(q, 0.1, f[:2], r.dual["inners[0].eta"]),
    ...     bound(within, 0.2, f[2:], r.dual["inners[1].eta"]),
    ... ]
    >>> bool(np.isclose(bound(q, 0.1, np.array(groups), r.dual["outer.eta"]), r.upper_bound))
    True

    Args:
        outer: the set of the groups' weights π, with an entry for each group.
        inners: the set of the distributions within each group; their sizes are the lengths of the blocks.
    """

    name: ClassVar[str] = "nested"
    summary: ClassVar[str] = "Weights of groups and weights within each"
    formula: ClassVar[str] = "p = (π₁·p₁, π₂·p₂, …), π in outer, p_g in inners[g]"
    complexity: ClassVar[str] = "the oracles of `outer` and `inners`"
    per_entry: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, outer: UncertaintySet, inners: Sequence[UncertaintySet]) -> None:
        check_set_given("outer", outer)
        self.inners = as_sets("inners", inners)
        if outer.size not in {None, len(self.inners)}:
            raise InvalidParameter(
                f"inners must hold a set for each of the {outer.size} entries of outer, got "
                f"{len(self.inners)}",
                parameter="inners",
                value=inners,
            )
        self._cut_into("inners", self.inners)
        self.outer = outer.with_size(len(self.inners))
        self._compose({f"inners[{g}]": each for g, each in enumerate(self.inners)} | {"outer": self.outer})

    @classmethod
    def default_parameters(cls, center: Array) -> dict[str, Any]:
        """Two halves: KL balls around the centre in each, and around the masses of the halves."""
        masses, inners = halves(center, lambda share: KL(share, 0.1))
        return super().default_parameters(center) | {"outer": KL(masses, 0.1), "inners": inners}

    def constraints(self, p: cvxpy.Variable) -> list[cvxpy.Constraint]:
        """The blocks' sums are in `outer`; each block is its sum times a distribution of its set."""
        import cvxpy

        parts = [p[span] for span in self._spans()]
        sums = cvxpy.hstack([cvxpy.sum(part) for part in parts])
        limits = list(self.outer.constraints(sums))
        for g, part in enumerate(parts):
            limits += scaled_constraints(self.inners[g], part, sums[g])
        return limits

    def reference(self) -> Array:
        """The references of `inners`, weighted by that of `outer`."""
        return self._joined(self.outer.reference(), [each.reference() for each in self.inners])

    def _closed_form(
        self, losses: Array, warm_start: WorstCase | None, out: Array | None = None
    ) -> WorstCase:
        reject_not_finite(losses)
        inner = self._ask_blocks("inners", losses, warm_start)
        bounds = np.stack([each.upper_bound for each in inner.values()], axis=-1)
        mix = self._ask("outer", bounds, warm_start)
        # value = Σ π·(value of the group), and the gap without its rounding.
        short = np.einsum("...g,...g->...", mix.p, np.stack([each.gap for each in inner.values()], axis=-1))
        # A block's share may miss 1 by as much as its violation, of which the outer set would make more.
        shares = [each.p / each.p.sum(axis=-1, keepdims=True) for each in inner.values()]
        p = self._joined(mix.p, shares)
        violation = largest_violation([mix, *inner.values()])
        answers = inner | {"outer": mix}
        return combined(
            losses, p, mix.value - short, mix.upper_bound, mix.gap + short, violation, answers, out
        )

    def _with(self, given: Mapping[str, Any]) -> Nested:
        inners = [self._part_with(path, given) for path in self._parts if path != "outer"]
        return Nested(self._part_with("outer", given), inners)

    def _by_parts(self, losses: Any, given: Mapping[str, Any], ask: Callable[..., Any], joined: Any) -> Any:
        found = [
            ask(each, f"inners[{g}]", losses[..., span])
            for g, (each, span) in enumerate(zip(self.inners, self._spans(), strict=True))
        ]
        values = joined([value[..., None] for value, _ in found], -1)
        value, weights = ask(self.outer, "outer", values)
        return value, joined([weights[..., g, None] * p for g, (_, p) in enumerate(found)], -1)

    def _sensitivity(self, losses: Array, answer: WorstCase) -> GroupsWithin:
        return GroupsWithin(answer, self._spans())

    def _residual(self, p: Array) -> float:
        sums = np.add.reduceat(p, self._cut[:-1])
        return max(self.outer.violation(sums), self._block_residual(p, sums))

    def _singleton(self) -> Array | None:
        return self._point(self.outer._singleton())

    def _row(self, index: int) -> Nested:
        if self.rows is None:
            return self
        return Nested(self.outer._row(index), [each._row(index) for each in self.inners])


class GroupsWithin(Chain):
    """dp_g = dπ_g·p_g + π_g·dp_g, where π moves with the values of the groups."""

    def __init__(self, answer: WorstCase, spans: list[slice]) -> None:
        super().__init__(answer)
        self._weights, self._spans = answer.parts["outer"].p, spans
        self._within = [each.p for path, each in answer.parts.items() if path != "outer"]

    def _groups(self) -> list[tuple[str, slice, Array, Array]]:
        """The path, the entries, the weight and the distribution of each group."""
        paths = [path for path in self.parts if path != "outer"]
        weights = [self._weights[..., g, None] for g in range(len(paths))]
        return list(zip(paths, self._spans, weights, self._within, strict=True))

    def jvp(self, losses: Array | None, parameters: Mapping[str, Array]) -> tuple[Array, Array]:
        """The moves of p and the value."""
        found = [
            self.parts[path].jvp(None if losses is None else losses[..., span], self.given(path, parameters))
            for path, span, _, _ in self._groups()
        ]
        values = np.stack([value for _, value in found], axis=-1)
        shift, value = self.parts["outer"].jvp(values, self.given("outer", parameters))
        moves = [
            shift[..., g, None] * p + weight * found[g][0]
            for g, (_, _, weight, p) in enumerate(self._groups())
        ]
        return np.concatenate(moves, axis=-1), value

    def vjp(self, p: Array | None, value: Array | None, names: Collection[str]) -> dict[str, Array]:
        """The pulls on the losses and on these parameters."""
        groups = self._groups()
        on_weights = None
        if p is not None:
            on_weights = np.stack([(p[..., span] * own).sum(axis=-1) for _, span, _, own in groups], axis=-1)
        on_values, found = self.pulls("outer", on_weights, value, names)
        losses = []
        for g, (path, span, weight, _) in enumerate(groups):
            pull, more = self.pulls(
                path, None if p is None else weight * p[..., span], on_values[..., g], names
            )
            losses.append(pull)
            found |= more
        return {"losses": np.concatenate(losses, axis=-1), **found}
