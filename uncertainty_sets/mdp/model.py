"""A finite Markov decision process with a discount: states, actions, successors and rewards, checked once.

State-actions are the rows of a CSR matrix: the actions of state s are the rows state_rows[s], …,
state_rows[s+1] - 1, and the successors of row b are the entries indptr[b], …, indptr[b+1] - 1.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.parameters import SUM_TOLERANCE, as_floats, as_number
from uncertainty_sets.rows import Integers, as_integers, is_sparse


class MDP:
    """States, actions, transition probabilities and rewards of a Markov decision process that is maximised.

    >>> import numpy as np
    >>> stay, move = [[0.9, 0.1], [0.0, 1.0]], [[0.2, 0.8], [0.5, 0.5]]
    >>> model = MDP(np.stack([stay, move], axis=1), rewards=[[1.0, 0.0], [0.0, 0.5]], discount=0.9)
    >>> model
    MDP(2 states, 4 state-actions, 8 successors, discount=0.9)

    Attributes:
        state_rows: (S + 1,); the actions of state s are the rows state_rows[s], …, state_rows[s+1] - 1.
        actions: (rows,); the number of each row's action in its state.
        indptr: (rows + 1,); the successors of row b are the entries indptr[b], …, indptr[b+1] - 1.
        indices: (entries,); the state of each successor.
        probabilities: (entries,); the sum of each row is 1.
        row_rewards: (rows,); the part of the reward that is the same for all successors of a row.
        entry_rewards: (entries,), the part that depends on the successor; None if there is none.
        discount: in [0, 1).
    """

    state_rows: Integers
    actions: Integers
    indptr: Integers
    indices: Integers
    probabilities: Array
    row_rewards: Array
    entry_rewards: Array | None
    discount: float

    def __init__(
        self,
        transitions: Any,
        rewards: Any,
        discount: float,
        *,
        actions_per_state: ArrayLike | None = None,
    ) -> None:
        """Check and copy a model.

        The successors of a state-action are those that are stored: all states with a dense array, also those
        of probability 0; the stored entries with a sparse matrix. Sets such as a ball in total variation can
        put mass on successors of probability 0, so a dense array gives nature more freedom there.

        Args:
            transitions: an array (S, A, S) with the probability of each next state; or a SciPy CSR matrix
                with a row per state-action, those of a state one after the other, and a column per state.
            rewards: (S, A), a number per row, or with a number per successor: (S, A, S), (entries,), or a CSR
                matrix with the same entries as `transitions`.
            discount: at least 0 and below 1.
            actions_per_state: how many of the rows of a CSR matrix belong to each state, (S,); None: equally
                many for all.
        """
        self.discount = check_discount(discount)
        if is_sparse(transitions):
            self._from_sparse(transitions, actions_per_state)
        else:
            self._from_dense(transitions, actions_per_state)
        self._check_rows()
        self.row_rewards, self.entry_rewards = self._split_rewards(rewards, transitions)

    @classmethod
    def from_table(
        cls,
        states: ArrayLike,
        actions: ArrayLike,
        next_states: ArrayLike,
        probabilities: ArrayLike,
        rewards: ArrayLike,
        discount: float,
    ) -> MDP:
        """Build a model from a table with a line per state, action and next state.

        States are numbered from 0 and every one needs an action; actions have any numbers, which `actions`
        keeps. Lines with the same state, action and next state are added up, with the mean of their rewards.

        >>> table = [(0, 0, 0, 0.5, 1.0), (0, 0, 1, 0.5, 0.0), (0, 7, 1, 1.0, 2.0), (1, 0, 1, 1.0, 0.0)]
        >>> MDP.from_table(*zip(*table), discount=0.9).actions
        array([0, 7, 0])
        """
        s, a, t = (
            as_integers(*each)
            for each in (("states", states), ("actions", actions), ("next_states", next_states))
        )
        p, r = (
            as_floats(*each, InvalidParameter)
            for each in (("probabilities", probabilities), ("rewards", rewards))
        )
        sizes = {
            "states": s.size,
            "actions": a.size,
            "next_states": t.size,
            "probabilities": p.size,
            "rewards": r.size,
        }
        if len({*sizes.values()}) > 1 or not s.size or p.ndim != 1 or r.ndim != 1:
            raise InvalidParameter(
                f"the columns of the table must be equally long and not empty, got {sizes}"
            )
        _check_numbers(s, t)
        bad = np.flatnonzero(~((p >= 0.0) & (p <= 1.0 + SUM_TOLERANCE)))  # before lines are added up
        if bad.size:
            raise InvalidParameter(
                f"probabilities must be between 0 and 1, got {p[bad[0]]} for next state {t[bad[0]]} of state "
                f"{s[bad[0]]}, action {a[bad[0]]}",
                parameter="probabilities",
                value=probabilities,
            )
        order = np.lexsort((t, a, s))
        s, a, t, p, r = s[order], a[order], t[order], p[order], r[order]
        new_row = np.append(True, (np.diff(s) != 0) | (np.diff(a) != 0))
        new_entry = new_row | np.append(True, np.diff(t) != 0)
        first = np.flatnonzero(new_entry)
        total = np.add.reduceat(p, first)
        count = np.diff(np.append(first, p.size))
        whole = np.repeat(total, count)
        share = np.divide(p, whole, out=1.0 / np.repeat(count, count), where=whole > 0.0)  # 1 if alone
        mean = np.add.reduceat(share * r, first)
        model = cls.__new__(cls)
        model.discount = check_discount(discount)
        model.state_rows = np.append(0, np.cumsum(np.bincount(s[new_row], minlength=int(s.max()) + 1)))
        model.actions = a[new_row]
        model.indptr = np.append(np.searchsorted(first, np.flatnonzero(new_row)), first.size)
        model.indices, model.probabilities = t[first], total
        model._check_rows()
        model.row_rewards, model.entry_rewards = model._split_rewards(mean, None)
        return model

    def __repr__(self) -> str:
        return (
            f"MDP({self.states} states, {self.rows} state-actions, {self.entries} successors, "
            f"discount={self.discount:g})"
        )

    @property
    def states(self) -> int:
        """The number of states."""
        return self.state_rows.size - 1

    @property
    def rows(self) -> int:
        """The number of state-actions."""
        return self.indptr.size - 1

    @property
    def entries(self) -> int:
        """The number of successors of all state-actions together."""
        return self.indices.size

    @cached_property
    def most_successors(self) -> int:
        """The largest number of successors of a state-action."""
        return int(np.diff(self.indptr).max())

    @cached_property
    def reward_range(self) -> tuple[float, float]:
        """The largest size of a reward, and how far those of one state-action can be apart, at most."""
        size, spread = float(np.abs(self.row_rewards).max()), 0.0
        if self.entry_rewards is not None:
            size += float(np.abs(self.entry_rewards).max())
            spread = float(np.ptp(self.entry_rewards))
        return size, spread

    @property
    def actions_each(self) -> int | None:
        """The number of actions if all states have equally many; otherwise None."""
        counts = np.diff(self.state_rows)
        return int(counts[0]) if (counts == counts[0]).all() else None

    def per_state(self, by_row: NDArray[Any]) -> NDArray[Any]:
        """A number per row as a table (states, actions); only if all states have equally many actions.

        >>> model = MDP(
        ...     [
        ...         [[1.0]],
        ...     ],
        ...     [[2.0]],
        ...     0.5,
        ... )
        >>> model.per_state(model.row_rewards)
        array([[2.]])
        """
        if self.actions_each is None:
            raise InvalidParameter(
                "states have different numbers of actions, so this is no table; use state_rows to find a "
                "state's rows"
            )
        return by_row.reshape(self.states, -1)

    def repeat_by_state(self, by_state: NDArray[Any]) -> NDArray[Any]:
        """A number per state, repeated for each of its rows."""
        return np.repeat(by_state, np.diff(self.state_rows))

    def name_row(self, row: int) -> str:
        """State and action of a row, for messages."""
        state = int(np.searchsorted(self.state_rows, row, side="right")) - 1
        return f"state {state}, action {self.actions[row]}"

    def _from_dense(self, transitions: Any, actions_per_state: ArrayLike | None) -> None:
        array = as_floats("transitions", transitions, InvalidParameter)
        if array.ndim != 3 or array.shape[0] != array.shape[2] or not array.size:
            raise InvalidParameter(
                "transitions must be an array (states, actions, states), or a SciPy CSR matrix with a row "
                f"per state-action; got shape {array.shape}",
                parameter="transitions",
                value=transitions,
            )
        if actions_per_state is not None:
            raise InvalidParameter(
                "actions_per_state is for sparse transitions; actions of a dense array are its second axis",
                parameter="actions_per_state",
                value=actions_per_state,
            )
        states, actions, _ = array.shape
        self.state_rows = np.arange(states + 1) * actions
        self.actions = np.tile(np.arange(actions), states)
        self.indptr = np.arange(states * actions + 1) * states
        self.indices = np.tile(np.arange(states), states * actions)
        self.probabilities = np.array(array, order="C").ravel()

    def _from_sparse(self, transitions: Any, actions_per_state: ArrayLike | None) -> None:
        if transitions.format != "csr":
            raise InvalidParameter(
                f"transitions must be in CSR format, got {transitions.format}; give transitions.tocsr()",
                parameter="transitions",
                value=transitions,
            )
        rows, states = transitions.shape
        counts = self._count_actions(rows, states, actions_per_state)
        self.state_rows = np.append(0, np.cumsum(counts))
        self.actions = np.arange(rows) - np.repeat(self.state_rows[:-1], counts)
        self.indptr = np.array(transitions.indptr, dtype=np.int64)
        self.indices = np.array(transitions.indices, dtype=np.int64)
        self.probabilities = np.array(as_floats("transitions", transitions.data, InvalidParameter))

    def _count_actions(self, rows: int, states: int, given: ArrayLike | None) -> Integers:
        if given is None:
            if rows % states or not rows:
                raise InvalidParameter(
                    f"transitions have {rows} rows for {states} states, which is not the same number of "
                    "actions for each: give actions_per_state",
                    parameter="actions_per_state",
                )
            return np.full(states, rows // states)
        counts = as_integers("actions_per_state", given)
        if counts.size != states or counts.sum() != rows or (counts < 0).any():
            raise InvalidParameter(
                f"actions_per_state must have a number for each of the {states} states and sum to the {rows} "
                f"rows of transitions; got {counts.size} numbers with the sum {counts.sum()}",
                parameter="actions_per_state",
                value=given,
            )
        return counts

    def _check_rows(self) -> None:
        """Raise for states without actions, actions without successors, and rows that are no distribution."""
        counts = np.diff(self.state_rows)
        if (counts == 0).any():
            s = int(counts.argmin())
            raise InvalidParameter(
                f"state {s} has no action ({np.count_nonzero(counts == 0)} of {self.states} have none): a "
                "state in which everything ends needs a row that returns to itself with reward 0",
                parameter="transitions",
            )
        lengths = np.diff(self.indptr)
        if (lengths <= 0).any():
            raise InvalidParameter(
                f"{self.name_row(int(lengths.argmin()))} has no successor; every action needs at least one",
                parameter="transitions",
            )
        if self.indices.min() < 0 or self.indices.max() >= self.states:
            outside = np.flatnonzero((self.indices < 0) | (self.indices >= self.states))
            raise InvalidParameter(
                f"{self._name_entry(int(outside[0]))} is not one of the {self.states} states",
                parameter="transitions",
            )
        bad = np.flatnonzero(~((self.probabilities >= 0.0) & (self.probabilities <= 1.0 + SUM_TOLERANCE)))
        if bad.size:
            raise InvalidParameter(
                f"probabilities must be between 0 and 1, got {self.probabilities[bad[0]]} for "
                f"{self._name_entry(int(bad[0]))}",
                parameter="transitions",
            )
        total = np.add.reduceat(self.probabilities, self.indptr[:-1])
        worst = int(np.abs(total - 1.0).argmax())
        if not abs(total[worst] - 1.0) <= SUM_TOLERANCE:
            raise InvalidParameter(
                f"the probabilities of {self.name_row(worst)} sum to {total[worst]:.12g}, not to 1 "
                f"({np.count_nonzero(np.abs(total - 1.0) > SUM_TOLERANCE)} of {self.rows} rows are off)",
                parameter="transitions",
            )
        rounding = lengths * np.finfo(np.float64).eps  # what a row has that was divided before: keep its bits
        total[np.abs(total - 1.0) <= rounding] = 1.0
        self.probabilities = self.probabilities / np.repeat(total, lengths)

    def _name_entry(self, entry: int) -> str:
        row = int(np.searchsorted(self.indptr, entry, side="right")) - 1
        return f"next state {self.indices[entry]} of {self.name_row(row)}"

    def _split_rewards(self, rewards: Any, transitions: Any) -> tuple[Array, Array | None]:
        """Rewards per row and, if they depend on the successor, per entry."""
        if is_sparse(rewards):
            same = is_sparse(transitions) and np.array_equal(rewards.indptr, transitions.indptr)
            if not (same and np.array_equal(rewards.indices, transitions.indices)):
                raise InvalidParameter(
                    "sparse rewards must have the same entries as sparse transitions (indptr and indices); "
                    f"give a vector with a number for each of the {self.entries} entries otherwise",
                    parameter="rewards",
                    value=rewards,
                )
            rewards = rewards.data
        array = as_floats("rewards", rewards, InvalidParameter)
        each = self.actions_each
        by_row = {(self.rows,)} | ({(self.states, each)} if each else set())
        by_entry = {(self.entries,)} | ({(self.states, each, self.states)} if each else set())
        flat = np.array(array, order="C").ravel()
        if array.shape not in by_row | (by_entry if flat.size == self.entries else set()):
            raise InvalidParameter(
                f"rewards must have a number per state-action, {max(by_row, key=len)}, or per successor, "
                f"{max(by_entry, key=len)}; got shape {array.shape}",
                parameter="rewards",
                value=rewards,
            )
        if not np.isfinite(flat).all():
            bad = int(np.flatnonzero(~np.isfinite(flat))[0])
            where = self.name_row(bad) if array.shape in by_row else self._name_entry(bad)
            raise InvalidParameter(
                f"rewards must be finite, got {flat[bad]} for {where}", parameter="rewards", value=rewards
            )
        if array.shape in by_row:
            return flat, None
        return np.zeros(self.rows), flat


def check_discount(discount: float) -> float:
    """Return a discount in [0, 1) as a float."""
    return as_number(
        "discount",
        discount,
        "at least 0 and below 1",
        lambda number: 0.0 <= number < 1.0,
        InvalidParameter,
        "; without discount the value may be infinite: use 0.999 or so",
    )


def _check_numbers(states: Integers, next_states: Integers) -> None:
    """Raise for negative states and for states that occur but have no line."""
    least = min(states.min(), next_states.min())
    if least < 0:
        raise InvalidParameter(f"states are numbered from 0, got {least}", parameter="states")
    most = max(states.max(), next_states.max())
    known = np.zeros(min(most, states.size) + 1, bool)  # a single large number must not ask for much memory
    known[states[states < known.size]] = True
    if not known.all():
        missing = np.flatnonzero(~known)
        shown = ", ".join(map(str, missing[:5])) + (", …" if missing.size > 5 or most >= known.size else "")
        raise InvalidParameter(
            f"no line begins in state {shown}: every state from 0 to {most} needs an action; a "
            f"state in which everything ends needs the line {missing[0]}, 0, {missing[0]}, 1, 0",
            parameter="states",
        )
