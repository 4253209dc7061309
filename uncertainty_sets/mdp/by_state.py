"""s-rectangular Bellman updates: the transitions of a state's actions share one budget of divergence.

The set of state s is {(p_a) : Σ_a D(p_a, q_a) <= budget_s} over its actions. Nature divides the budget after
it has seen the policy, so that the best policy may be randomised: it is in proportion to the multipliers θ_a
that also prove the bound (kernels/by_state.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uncertainty_sets.arrays import Array
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.errors import InvalidLosses, InvalidParameter, SolverFailed
from uncertainty_sets.kernels.dispatch import PIECE, run_pieces, unit
from uncertainty_sets.kernels.layout import (
    BOUND,
    COLUMNS,
    DUAL,
    GAP,
    ITERATIONS,
    NOT_FINITE,
    OK,
    STATUS,
    ULPS,
    VALUE,
)
from uncertainty_sets.mdp.by_action import ByAction
from uncertainty_sets.mdp.model import MDP
from uncertainty_sets.mdp.solution import Update
from uncertainty_sets.parameters import SUM_TOLERANCE, as_floats
from uncertainty_sets.sets.chi_square import ChiSquare
from uncertainty_sets.sets.kl import KL
from uncertainty_sets.sets.total_variation import TotalVariation

ROUNDING = DUAL + 1  # the column of kernels/by_state.py
NO_FLOATS, NO_INTEGERS = np.empty(0), np.empty(0, np.int64)


@dataclass(frozen=True)
class Kind:
    """How one class of sets is answered with a joint budget.

    Attributes:
        kernel: the file in kernels/ with `improve` and `evaluate`.
        on_support: whether p = 0 wherever the centre is 0; such entries are left out.
        sorted: whether `improve` starts from the last order of each row, rather than from its last tilt.
    """

    kernel: str
    on_support: bool
    sorted: bool


KINDS: dict[type[UncertaintySet], Kind] = {
    KL: Kind("by_state_kl", on_support=True, sorted=False),
    TotalVariation: Kind("by_state_l1", on_support=False, sorted=True),
    ChiSquare: Kind("by_state_chi_square", on_support=True, sorted=False),
}
"""The classes of sets that can share a budget."""


class ByState:
    """Robust Bellman updates with a joint budget per state: Σ_a D(p_a, q_a) <= budget over its actions.

    D is the divergence of the set's class: Σ p·log(p/q) for KL, ½ Σ |p-q| for
    TotalVariation, Σ (p-q)²/q for ChiSquare. O(entries) per
    update: two or three passes from the last answer, four to eight without one. Searches start from the
    answers of the last call, and the next call of the same method overwrites `p` of the last.

    >>> import numpy as np
    >>> from uncertainty_sets import KL
    >>> model = MDP(np.full((2, 2, 2), 0.5), rewards=[[1.0, 0.9], [0.0, 0.0]], discount=0.9)
    >>> update = ByState(model, KL, budget=0.1).improve(np.array([0.0, 1.0]))
    >>> update.lower.round(4), update.policy.round(4)
    (array([1.2686, 0.3089]), array([0.7003, 0.2997, 0.5   , 0.5   ]))
    """

    def __init__(
        self, model: MDP, kind: type[UncertaintySet], budget: ArrayLike, *, optimistic: bool = False
    ) -> None:
        """Check the budget and prepare the arrays of all later calls.

        Args:
            model: the states, actions and centres.
            kind: the class of the sets, one of `KINDS`.
            budget: at least 0; a number, or one per state.
            optimistic: nature helps instead: the best case over the set instead of the worst.
        """
        if kind not in KINDS:
            raise InvalidParameter(
                f"a joint budget per state is for {', '.join(each.__name__ for each in KINDS)}, got "
                f"{getattr(kind, '__name__', kind)}; use a radius per state-action for other sets",
                parameter="kind",
                value=kind,
            )
        self._model, self._kind, self._optimistic = model, kind, optimistic
        self._budget = _check_budget(budget, model.states)
        self._sign = 1.0 if optimistic else -1.0
        self._inside = self._leave_out_zeros()
        self._row_offsets = self._sign * model.row_rewards
        self._sizes = np.abs(model.row_rewards)
        if self._offsets.size:
            self._sizes = self._sizes + np.maximum.reduceat(np.abs(self._offsets), self._indptr[:-1])
        pieces = np.arange(0, self._center.size, PIECE)
        edges = np.searchsorted(self._indptr[model.state_rows], pieces).tolist()
        self._edges: list[int] = sorted({*edges, model.states})
        places = np.arange(self._center.size) - np.repeat(self._indptr[:-1], np.diff(self._indptr))
        self._direct = NO_INTEGERS if np.array_equal(places, self._indices) else self._indices
        self._last = places if KINDS[kind].sorted else np.full(model.rows, np.nan)
        self._best = np.full((COLUMNS, model.states), np.nan)
        self._given = np.full((COLUMNS, model.states), np.nan)
        self._p = {question: np.empty(self._center.size) for question in ("improve", "evaluate")}
        self._each: ByAction | None = None

    def __repr__(self) -> str:
        words = ", optimistic" if self._optimistic else ""
        return f"ByState({self._model!r}, {self._kind.__name__}{words})"

    def improve(self, values: Array, *, transitions: bool = True) -> Update:
        """Update with the best policy, which may be randomised."""
        v, policy = self._check_values(values), np.empty(self._model.rows)
        if self._optimistic:
            return self._improve_optimistically(v)
        return self._update("improve", v, policy, self._best, (self._last, policy), transitions)

    def evaluate(self, policy: Array, values: Array) -> Update:
        """Update with a given policy: (rows,), the probabilities of a state's actions sum to 1."""
        v, given = self._check_values(values), self._check_policy(policy)
        return self._update("evaluate", v, given, self._given, (given,))

    def _update(
        self,
        question: str,
        v: Array,
        policy: Array,
        out: Array,
        extra: tuple[Any, ...],
        transitions: bool = True,
    ) -> Update:
        """Run a kernel on all states, and those without a proof again."""
        model, edges = self._model, self._edges
        kernel: Callable[..., None] = getattr(self._kernels(), question)
        P = self._p[question] if transitions else NO_FLOATS
        losses = (v, self._direct, self._offsets, self._row_offsets, self._sizes, self._sign * model.discount)
        rows = (model.state_rows, self._indptr)

        def run(power: float, first: int, after: int) -> None:
            kernel(*losses, power, *rows, first, after, self._center, self._budget, *extra, P, out)

        run_pieces(lambda i, j: run(1.0, edges[i], edges[j]), len(edges) - 1, self._center.size)
        for state in np.flatnonzero(out[STATUS] != OK).tolist():
            self._redo(state, question, v, out, run)
        slack = out[ROUNDING]
        low, high = out[VALUE] - slack, out[BOUND] + slack
        if not self._optimistic:
            low, high = -high, -low
        p = self._spread_out(P) if transitions else P
        return Update(low, high, policy, p, float(out[ITERATIONS].sum()) / model.rows)

    def _redo(
        self, state: int, question: str, v: Array, out: Array, run: Callable[[float, int, int], None]
    ) -> None:
        """Answer one state again, cold and scaled by a power of two; raise if there is still no proof."""
        f = self._losses(state, v)
        if out[STATUS, state] == NOT_FINITE or not np.isfinite(f).all():
            raise InvalidLosses(
                f"rewards + discount·values of state {state} are too large: they reach {np.abs(f).max():.3g}",
                parameter="values",
                value=v,
            )
        spread = out[GAP, state]
        usable = np.isfinite(spread) and spread > 0.0
        power = unit(np.array([0.0, spread])) if usable else unit(f)
        out[DUAL, state] = np.nan
        run(power, state, state + 1)
        out[[VALUE, BOUND, GAP, ROUNDING], state] /= power
        out[DUAL, state] = np.nan
        if out[STATUS, state] != OK:
            raise SolverFailed(
                f"{question} of state {state} has a gap of {out[GAP, state]:.3g}, beyond the promise: try "
                " rewards and probabilities that span fewer orders of magnitude"
            )

    def _improve_optimistically(self, v: Array) -> Update:
        """The best policy spends the whole budget on one action: each may use it, and all others stay."""
        model = self._model
        radius = {"radius": model.repeat_by_state(self._budget)}
        if self._each is None:
            self._each = ByAction(model, self._kind, radius, optimistic=True)
        found = self._each.improve(v)
        p = np.where(np.repeat(found.policy > 0.0, np.diff(model.indptr)), found.p, model.probabilities)
        largest = max(np.abs(part).max() for part in (v, model.row_rewards, self._offsets) if part.size)
        rounding = ULPS * largest
        low, high = np.minimum(found.lower, found.upper), np.maximum(found.lower, found.upper)
        return Update(low - rounding, high + rounding, found.policy, p, found.evaluations)

    def _kernels(self) -> Any:
        return import_module(f"uncertainty_sets.kernels.{KINDS[self._kind].kernel}")

    def _leave_out_zeros(self) -> NDArray[np.bool_] | None:
        """Set the entries that kernels see; return which of the model's they are, None for all."""
        model = self._model
        q, indices, indptr, offsets = model.probabilities, model.indices, model.indptr, model.entry_rewards
        inside = None
        if KINDS[self._kind].on_support and (q == 0.0).any():
            inside = q > 0.0
            indptr = np.append(0, np.cumsum(inside))[indptr]
            q, indices = q[inside], indices[inside]
            offsets = None if offsets is None else offsets[inside]
        self._center, self._indices, self._indptr = q, indices, indptr
        self._offsets = NO_FLOATS if offsets is None else self._sign * offsets
        return inside

    def _spread_out(self, P: Array) -> Array:
        """Probabilities along the entries of the model."""
        if self._inside is None:
            return P
        p = np.zeros(self._model.entries)
        p[self._inside] = P
        return p

    def _losses(self, state: int, v: Array) -> Array:
        """The losses of all entries of one state, as the kernel forms them."""
        rows = slice(self._model.state_rows[state], self._model.state_rows[state + 1])
        starts = self._indptr[rows.start : rows.stop + 1]
        entries = slice(starts[0], starts[-1])
        with np.errstate(over="ignore", invalid="ignore"):
            f = self._sign * self._model.discount * v[self._indices[entries]]
            if self._offsets.size:
                f = f + self._offsets[entries]
            found: Array = f + np.repeat(self._row_offsets[rows], np.diff(starts))
        return found

    def _check_values(self, values: Array) -> Array:
        v = np.require(as_floats("values", values, InvalidLosses), requirements=["C", "W", "A"])
        if v.shape != (self._model.states,) or not np.isfinite(v).all():
            raise InvalidLosses(
                f"values must be a finite number for each of the {self._model.states} states, got shape "
                f"{v.shape} with {np.count_nonzero(~np.isfinite(v))} that are not finite",
                parameter="values",
                value=values,
            )
        return v

    def _check_policy(self, policy: Array) -> Array:
        model = self._model
        given = np.require(as_floats("policy", policy, InvalidParameter), requirements=["C", "W", "A"])
        if given.shape != (model.rows,) or not (given >= 0.0).all():
            raise InvalidParameter(
                f"policy must have a probability for each of the {model.rows} state-actions, got shape "
                f"{given.shape}" + ("" if (given >= 0.0).all() else " with numbers that are not >= 0"),
                parameter="policy",
                value=policy,
            )
        total = np.add.reduceat(given, model.state_rows[:-1])
        worst = int(np.abs(total - 1.0).argmax())
        if not abs(total[worst] - 1.0) <= SUM_TOLERANCE:
            raise InvalidParameter(
                f"the probabilities of state {worst} in the policy sum to {total[worst]:.12g}, not to 1",
                parameter="policy",
                value=policy,
            )
        return given


def _check_budget(budget: ArrayLike, states: int) -> Array:
    array = as_floats("budget", budget, InvalidParameter)
    if array.shape not in {(), (states,)} or not (np.isfinite(array) & (array >= 0.0)).all():
        raise InvalidParameter(
            f"budget must be a finite number >= 0, or one for each of the {states} states, got {budget!r}",
            parameter="budget",
            value=budget,
        )
    return np.array(np.broadcast_to(array, (states,)))
