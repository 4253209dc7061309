"""(s,a)-rectangular ambiguity: nature answers every state-action on its own, one oracle row for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

import numpy as np

from uncertainty_sets.answer import RaggedWorstCase, WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.mdp.model import MDP
from uncertainty_sets.mdp.solution import Update
from uncertainty_sets.parameters import parameters_of
from uncertainty_sets.ragged import Ragged
from uncertainty_sets.rows import Integers, entries_of, is_sparse

Ambiguity = type[UncertaintySet] | Callable[[Array], UncertaintySet]
"""A class of sets, or a function from the probabilities of one state-action to the set around them."""


class Rows(Protocol):
    """The sets of all state-actions: closed-form rows, or single sets."""

    def worst_case(self, values: Array, *, offsets: Array | None, scale: float) -> None:
        """Answer every row; the losses are offsets + scale·values[successors]."""
        ...

    def take(self, rows: Integers) -> Rows:
        """Those rows alone."""
        ...

    value: Array
    bound: Array
    p: Array
    iterations: Array


class ByAction:
    """The Bellman operator of a problem whose transitions are uncertain for each state-action on its own."""

    def __init__(
        self, model: MDP, ambiguity: Ambiguity, parameters: Mapping[str, Any], *, optimistic: bool
    ) -> None:
        """Build the set of every state-action.

        Args:
            model: the nominal model.
            ambiguity: the class of the sets, or a function that makes one.
            parameters: of the class: a number, one per state, per state-action or per successor.
            optimistic: whether nature chooses the best transitions instead of the worst.
        """
        self._model = model
        self._sign = 1.0 if optimistic else -1.0
        self._all = rows_of(model, ambiguity, parameters)
        self._chosen: tuple[Integers, Rows] | None = None

    def improve(self, values: Array, *, transitions: bool = True) -> Update:
        """Update with the best action in each state, of equal ones the first; transitions in any case."""
        model, starts = self._model, self._model.state_rows[:-1]
        low, high = self._answer(self._all, values, model.row_rewards, model.entry_rewards)
        best = np.maximum.reduceat(low, starts)
        policy = np.zeros(model.rows)
        policy[first_true(low == model.repeat_by_state(best), model.state_rows)] = 1.0
        upper = np.maximum.reduceat(high, starts)
        return Update(best, upper, policy, self._all.p, float(self._all.iterations.mean()))

    def evaluate(self, policy: Array, values: Array) -> Update:
        """Update with a given policy; only the rows that it uses are answered, others keep the centre."""
        model = self._model
        rows, sets = self._rows_of_policy(policy)
        entries = entries_of(rows, model.indptr)
        offsets = None if model.entry_rewards is None else model.entry_rewards[entries]
        low, high = self._answer(sets, values, model.row_rewards[rows], offsets)
        state = np.searchsorted(model.state_rows, rows, side="right") - 1
        p = model.probabilities.copy()
        p[entries] = sets.p
        weights, size = policy[rows], model.states
        return Update(
            np.bincount(state, weights * low, size).astype(float),
            np.bincount(state, weights * high, size).astype(float),
            policy,
            p,
            float(sets.iterations.mean()),
        )

    def _answer(
        self, sets: Rows, values: Array, rewards: Array, offsets: Array | None
    ) -> tuple[Array, Array]:
        """Bounds on the value of each row: nature minimises r + γv, so signs flip unless optimistic."""
        sign = self._sign
        sets.worst_case(
            values, offsets=None if offsets is None else sign * offsets, scale=sign * self._model.discount
        )
        if sign > 0.0:
            return rewards + sets.value, rewards + sets.bound
        return rewards - sets.bound, rewards - sets.value

    def _rows_of_policy(self, policy: Array) -> tuple[Integers, Rows]:
        rows = np.flatnonzero(policy > 0.0)
        if self._chosen is None or not np.array_equal(self._chosen[0], rows):
            self._chosen = rows, self._all.take(rows)
        return self._chosen


class ClosedRows:
    """Rows of a set with a closed form for ragged rows; searches start at the last answer."""

    def __init__(self, rows: Ragged) -> None:
        self._rows = rows
        self._last: RaggedWorstCase | None = None

    def worst_case(self, values: Array, *, offsets: Array | None, scale: float) -> None:
        """Answer every row, in the memory of the last answer."""
        last = self._last
        self._last = self._rows.worst_case(values, offsets=offsets, scale=scale, warm_start=last, out=last)
        self.value, self.bound, self.p = self._last.value, self._last.upper_bound, self._last.p
        self.iterations = self._last.iterations

    def take(self, rows: Integers) -> ClosedRows:
        """Those rows alone."""
        return ClosedRows(self._rows.take(rows))


class SingleRows:
    """A set object per row, for sets without ragged rows: any set that `worst_case` can answer."""

    def __init__(self, sets: list[UncertaintySet], indptr: Integers, indices: Integers) -> None:
        self._sets, self._indptr, self._indices = sets, indptr, indices
        self._last: list[WorstCase | None] = [None] * len(sets)
        self.p = np.empty(indices.size)
        self.value, self.bound, self.iterations = (np.empty(len(sets)) for _ in range(3))

    def worst_case(self, values: Array, *, offsets: Array | None, scale: float) -> None:
        """Answer every row, one after the other."""
        losses = scale * values[self._indices]
        if offsets is not None:
            losses = losses + offsets
        for b, each in enumerate(self._sets):
            part = slice(self._indptr[b], self._indptr[b + 1])
            answer = each.worst_case(losses[part], warm_start=self._last[b])
            self._last[b], self.p[part] = answer, answer.p
            self.value[b], self.bound[b], self.iterations[b] = (
                answer.value,
                answer.upper_bound,
                answer.iterations,
            )

    def take(self, rows: Integers) -> SingleRows:
        """Those rows alone."""
        lengths = np.diff(self._indptr)[rows]
        entries = entries_of(rows, self._indptr)
        return SingleRows(
            [self._sets[b] for b in rows], np.append(0, np.cumsum(lengths)), self._indices[entries]
        )


def rows_of(model: MDP, ambiguity: Ambiguity, parameters: Mapping[str, Any]) -> Rows:
    """The sets of all state-actions of a model."""
    if not (isinstance(ambiguity, type) and issubclass(ambiguity, UncertaintySet)):
        if parameters:
            raise InvalidParameter(
                f"a function that makes the sets takes no further parameters, got {', '.join(parameters)}; "
                "let the function use them",
                parameter=next(iter(parameters)),
            )
        make = cast("Callable[[Array], UncertaintySet]", ambiguity)
        return _single_rows(model, lambda b, q: make(q))
    flat = {name: _flat(model, ambiguity, name, value) for name, value in parameters.items()}
    if "center" in parameters_of(ambiguity):
        flat["center"] = model.probabilities
    if not ambiguity.has_ragged:
        return _single_rows(model, lambda b, q: ambiguity(**_of_row(model, flat, b)))
    return ClosedRows(ambiguity.ragged(**flat, indptr=model.indptr, indices=model.indices))


def _single_rows(model: MDP, make: Callable[[int, Array], UncertaintySet]) -> SingleRows:
    pieces = np.split(model.probabilities, model.indptr[1:-1])
    sets = [make(b, q) for b, q in enumerate(pieces)]
    for b, (each, q) in enumerate(zip(sets, pieces, strict=True)):
        if not isinstance(each, UncertaintySet) or each.size not in {None, q.size} or each.rows is not None:
            raise InvalidParameter(
                f"ambiguity must return a set over the {q.size} successors of each state-action, got "
                f"{each!r:.80} for row {b}",
                parameter="ambiguity",
                value=each,
            )
    return SingleRows(sets, model.indptr, model.indices)


def _flat(model: MDP, kind: type[UncertaintySet], name: str, value: Any) -> Any:
    """A parameter along rows or entries, from one number, one per state, (S, A) or (S, A, S)."""
    if is_sparse(value) or np.ndim(value) == 0:
        return value
    array, each = np.asarray(value), model.actions_each
    by_row = np.ndim(kind.default_parameters(np.full(2, 0.5)).get(name, [])) == 0
    if by_row and array.shape == (model.states,):
        return model.repeat_by_state(array)
    if by_row and each and array.shape == (model.states, each):
        return array.ravel()
    if each and array.shape == (model.states, each, model.states) and array.size == model.entries:
        return array.ravel()
    return value


def _of_row(model: MDP, flat: Mapping[str, Any], row: int) -> dict[str, Any]:
    """The parameters of one row, for a set object of its own."""
    entries = slice(model.indptr[row], model.indptr[row + 1])
    found = {}
    for name, value in flat.items():
        if np.shape(value) == (model.rows,):
            found[name] = value[row]
        else:
            found[name] = value[entries] if np.shape(value) == (model.entries,) else value
    return found


def first_true(mask: Array, edges: Integers) -> Integers:
    """The place of the first True in each part edges[s], …, edges[s+1] - 1; every part has one."""
    places = np.flatnonzero(mask)
    return np.asarray(places[np.searchsorted(places, edges[:-1])], np.int64)
