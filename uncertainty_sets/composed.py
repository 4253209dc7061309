"""What sets made of sets share: checked members, rows of a batch, and one answer from several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.errors import BackendUnsuitable, InvalidParameter
from uncertainty_sets.kernels.layout import ULPS
from uncertainty_sets.verdict import keeps_promise

if TYPE_CHECKING:
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
    return WorstCase(p, value, bound, gap, violation, dual, backend, iterations, unproved)


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
