"""What sets made of sets share: checked members, one answer from several, and p cut into blocks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.conic.oracle import program
from uncertainty_sets.derivatives import sensitivity_of
from uncertainty_sets.errors import BackendUnsuitable, InvalidParameter
from uncertainty_sets.kernels.layout import ULPS
from uncertainty_sets.verdict import keeps_promise

if TYPE_CHECKING:
    import cvxpy

    from uncertainty_sets.verdict import OnFailure


class ComposedSet(UncertaintySet):
    """A set whose answers come from those of other sets, each asked by its own default method.

    A subclass passes the sets to `_compose`, with the path by which its users reach each: the multipliers of
    the set at `inners[0]` are `dual["inners[0].eta"]` and so on.
    """

    _parts: dict[str, UncertaintySet]

    def _compose(self, parts: dict[str, UncertaintySet]) -> None:
        """Keep the sets by path and set `rows`: B if the parameters of one differ by row, else None."""
        self._parts = parts
        self.rows = common_rows(parts)

    def worst_case(
        self,
        losses: ArrayLike,
        *,
        backend: str = "auto",
        warm_start: WorstCase | None = None,
        on_failure: OnFailure = "raise",
        out: Array | None = None,
    ) -> WorstCase:
        """As for every set. `backend="closed-form"` needs a closed form of each of the sets.

        "auto" asks each set by its own default method; the answer's `backend` names all that were used.
        """
        lacking = [path for path, part in self._parts.items() if not part.has_closed_form]
        if backend == "closed-form" and lacking:
            raise BackendUnsuitable(
                f"{lacking[0]} of {type(self).__name__} is a {type(self._parts[lacking[0]]).__name__}, which "
                "has no closed form; use backend='auto' or one of available_backends()"
            )
        return super().worst_case(
            losses, backend=backend, warm_start=warm_start, on_failure=on_failure, out=out
        )

    def _given_by_name(self) -> dict[str, Any]:
        return {
            _joined_path(path, name): each
            for path, part in self._parts.items()
            for name, each in part._given_by_name().items()
        }

    def _is_distribution(self, name: str) -> bool:
        path = name.rpartition(".")[0]
        owner = next(
            (each for each in sorted(self._parts, key=len, reverse=True) if path.startswith(each)), None
        )
        if owner is None:
            return False
        return self._parts[owner]._is_distribution(name[len(owner) + 1 :] if owner else name)

    def _part_with(self, path: str, given: Mapping[str, Any]) -> UncertaintySet:
        """One of the sets with those of the parameters that are its own, by their full names."""
        part = self._parts[path]
        own = {name: given.get(_joined_path(path, name)) for name in part._given_by_name()}
        changed = {name: each for name, each in own.items() if each is not None}
        return part._with(changed) if changed else part

    def _ask(self, path: str, losses: Array, warm_start: WorstCase | None) -> WorstCase:
        """The answer of one of the sets, started from its own multipliers in an earlier answer."""
        return self._parts[path].worst_case(losses, warm_start=_part_of(warm_start, path))


def common_rows(parts: dict[str, UncertaintySet]) -> int | None:
    """B of the sets whose parameters differ by row; None if there is no such set."""
    counts = {path: part.rows for path, part in parts.items() if part.rows is not None}
    if len(set(counts.values())) > 1:
        raise InvalidParameter(
            f"parameters that differ by row must have the same number of rows in all sets, got {counts}"
        )
    return next(iter(counts.values()), None)


def as_sets(name: str, given: Any) -> tuple[UncertaintySet, ...]:
    """One set or more, as a tuple."""
    if isinstance(given, UncertaintySet) or not isinstance(given, Iterable):
        raise InvalidParameter(
            f"{name} must be a list of sets, got {type(given).__name__}", parameter=name, value=given
        )
    sets = tuple(given)
    if not sets:
        raise InvalidParameter(f"{name} must hold at least one set", parameter=name, value=given)
    for k, each in enumerate(sets):
        check_set_given(f"{name}[{k}]", each)
    return sets


def check_set_given(name: str, given: Any) -> None:
    """Refuse what is no set."""
    if not isinstance(given, UncertaintySet):
        raise InvalidParameter(
            f"{name} must be an uncertainty set, got {type(given).__name__}", parameter=name, value=given
        )


def combined(
    losses: Array,
    p: Array,
    value: Any,
    bound: Any,
    gap: Any,
    violation: Any,
    answers: dict[str, WorstCase],
    out: Array | None,
) -> WorstCase:
    """One answer from those of several sets, by their paths; rows beyond the promise are marked.

    Args:
        losses: (N,) or (B, N).
        p: the distribution, of that shape.
        value: pᵀf; like `bound`, `gap` and `violation` a number, or one per row.
        bound: what the multipliers of all answers prove.
        gap: bound - value, before rounding.
        violation: of p.
        answers: those of the sets.
        out: an array for p, or None.
    """
    dual = {
        f"{path}.{key}" if path else key: multiplier
        for path, each in answers.items()
        for key, multiplier in each.dual.items()
    }
    backend = " and ".join(
        sorted({name for each in answers.values() for name in each.backend.split(" and ")})
    )
    iterations = sum(each.iterations for each in answers.values())
    unproved: tuple[int, ...] = ()
    if backend == "closed-form":  # a solver's answers have been judged by its own promise
        with np.errstate(over="ignore"):
            spread = np.ptp(losses, axis=-1)
        rounding = ULPS * np.abs(losses).max(axis=-1)
        proved = keeps_promise(gap, violation, spread, rounding)
        unproved = tuple(int(row) for row in np.flatnonzero(~np.atleast_1d(proved)))
    if losses.ndim == 1:
        value, bound, gap, violation = float(value), float(bound), float(gap), float(violation)
    if out is not None:
        np.copyto(out, p)
        p = out
    found = WorstCase(p, value, bound, gap, violation, dual, backend, iterations, unproved)
    found.parts = answers
    return found


class Chain:
    """The derivatives of a set made of sets, by those of the sets; a subclass has `jvp` and `vjp`.

    The parameters of the set at `inners[0]` are `inners[0].radius` and so on.

    Args:
        answer: with those of the sets in `parts`.
    """

    def __init__(self, answer: WorstCase) -> None:
        self.parts = {path: sensitivity_of(each)[0] for path, each in answer.parts.items()}
        self.parameters = {
            _joined_path(path, name): shape
            for path, part in self.parts.items()
            for name, shape in part.parameters.items()
        }

    def given(self, path: str, parameters: Mapping[str, Array]) -> dict[str, Array]:
        """Those of the parameters that belong to one of the sets, by their own names."""
        names = {_joined_path(path, name): name for name in self.parts[path].parameters}
        return {names[name]: each for name, each in parameters.items() if name in names}

    def pulls(
        self, path: str, p: Array | None, value: Array | None, names: Collection[str]
    ) -> tuple[Array, dict[str, Array]]:
        """The pull on the losses of one of the sets, and those on its parameters, by their full names."""
        own = [name for name in self.parts[path].parameters if _joined_path(path, name) in names]
        found = self.parts[path].vjp(p, value, own)
        losses = found.pop("losses")
        return losses, {_joined_path(path, name): each for name, each in found.items()}


def _joined_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def largest_violation(answers: Sequence[WorstCase]) -> Any:
    """The largest violation of several answers, by row."""
    return np.max([each.violation for each in answers], axis=0)


def _part_of(answer: WorstCase | None, path: str) -> WorstCase | None:
    """An earlier answer with the multipliers of one set, under their own names."""
    if answer is None:
        return None
    dual = {
        key.removeprefix(f"{path}."): multiplier
        for key, multiplier in answer.dual.items()
        if key.startswith(f"{path}.")
    }
    return WorstCase(answer.p, 0.0, 0.0, 0.0, 0.0, dual, answer.backend, 0)


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
