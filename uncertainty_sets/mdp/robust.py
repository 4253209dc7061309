"""Robust Markov decision processes: the best policy against the worst transitions of an ambiguity set."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.arrays import Array
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.by_name import get_set
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.mdp.by_action import Ambiguity, ByAction
from uncertainty_sets.mdp.by_state import ByState
from uncertainty_sets.mdp.iterate import Observer, evaluate, solve
from uncertainty_sets.mdp.model import MDP
from uncertainty_sets.mdp.solution import Solution, Updater
from uncertainty_sets.parameters import as_floats, as_number

MOST = 1e300
"""Of the size of a value: its bounds, and differences of these, stay finite."""

Rectangular = Literal["sa", "s"]
Method = Literal["policy", "value"]


class RobustMDP:
    """A Markov decision process whose transition probabilities are only known to lie in uncertainty sets.

    v*(s) = max over policies of min over transitions in the sets of the expected discounted reward from s.
    With ``rectangular="sa"`` nature chooses the transitions of each state-action from a set of their own,
    after the action; a deterministic policy is optimal. With ``"s"`` the distances of all actions of a state
    share one budget and nature does not see the action, so that a randomised policy can be better; for KL,
    TotalVariation and ChiSquare.

    >>> import numpy as np
    >>> from uncertainty_sets import KL
    >>> stay, move = [[0.9, 0.1], [0.0, 1.0]], [[0.2, 0.8], [0.5, 0.5]]
    >>> transitions, rewards = np.stack([stay, move], axis=1), [[1.0, 0.0], [0.0, 0.5]]
    >>> problem = RobustMDP(transitions, rewards, 0.9, KL, radius=0.05)
    >>> solution = problem.solve()
    >>> solution.actions
    array([0, 1])
    >>> bool((solution.lower <= solution.value).all() and solution.width <= 1e-6)
    True
    """

    def __init__(
        self,
        transitions: Any,
        rewards: Any,
        discount: float,
        ambiguity: Ambiguity | str,
        *,
        rectangular: Rectangular = "sa",
        optimistic: bool = False,
        actions_per_state: ArrayLike | None = None,
        **parameters: Any,
    ) -> None:
        """Build the sets of all states and actions.

        Args:
            transitions: (S, A, S), or a SciPy CSR matrix with a row per state-action; see `MDP`.
            rewards: (S, A), or (S, A, S), or along the rows or entries of a CSR matrix.
            discount: at least 0 and below 1.
            ambiguity: a class of sets such as KL, its name in the registry, or a function that takes the
                probabilities of the successors of one state-action and returns a set of any kind.
            rectangular: "sa": a set for each state-action; "s": one budget for all actions of a state.
            optimistic: whether nature helps: the largest value instead of the smallest.
            actions_per_state: how many rows of a CSR matrix belong to each state; None: equally many.
            **parameters: of the set, such as radius=0.1: a number, one per state, per state-action, or (for
                bounds, weights and the like) per successor.
        """
        model = MDP(transitions, rewards, discount, actions_per_state=actions_per_state)
        self._build(model, ambiguity, rectangular, optimistic, parameters)

    @classmethod
    def of(
        cls,
        model: MDP,
        ambiguity: Ambiguity | str,
        *,
        rectangular: Rectangular = "sa",
        optimistic: bool = False,
        **parameters: Any,
    ) -> RobustMDP:
        """Build the sets around a model, such as a reader or a generator returns.

        >>> from uncertainty_sets import TotalVariation
        >>> model = MDP([[[0.5, 0.5]], [[0.0, 1.0]]], [[1.0], [0.0]], discount=0.5)
        >>> RobustMDP.of(model, TotalVariation, radius=0.25).solve().value.round(6)
        array([1.142857, 0.      ])
        """
        self = cls.__new__(cls)
        self._build(model, ambiguity, rectangular, optimistic, parameters)
        return self

    def _build(
        self,
        model: MDP,
        ambiguity: Ambiguity | str,
        rectangular: Rectangular,
        optimistic: bool,
        parameters: dict[str, Any],
    ) -> None:
        kind = get_set(ambiguity) if isinstance(ambiguity, str) else ambiguity
        if not callable(kind):
            raise InvalidParameter(
                "ambiguity must be a class of sets such as KL, its name, or a function from probabilities "
                f"to a set; got {ambiguity!r}",
                parameter="ambiguity",
                value=ambiguity,
            )
        if rectangular not in ("sa", "s"):
            raise InvalidParameter(
                f'rectangular must be "sa" or "s", got {rectangular!r}',
                parameter="rectangular",
                value=rectangular,
            )
        _check_rewards(model)
        self.model, self.ambiguity, self.parameters = model, kind, dict(parameters)
        self.rectangular, self.optimistic = rectangular, optimistic
        self._updater = self._make_updater()

    def _make_updater(self) -> Updater:
        model, kind, parameters = self.model, self.ambiguity, self.parameters
        if self.rectangular == "sa":
            return ByAction(model, kind, parameters, optimistic=self.optimistic)
        budget = dict(parameters)
        size = getattr(kind, "sized_by", "")
        if not (isinstance(kind, type) and issubclass(kind, UncertaintySet)) or {*parameters} != {size}:
            raise InvalidParameter(
                'rectangular="s" needs a class of sets and its radius alone, as the budget of each state; '
                f"got {kind} with {', '.join(parameters) or 'no parameter'}",
                parameter="ambiguity",
                value=kind,
            )
        return ByState(model, kind, budget[size], optimistic=self.optimistic)

    def __repr__(self) -> str:
        kind = getattr(self.ambiguity, "__name__", repr(self.ambiguity))
        given = "".join(
            f", {name}={value if np.ndim(value) == 0 else '…'}" for name, value in self.parameters.items()
        )
        what = ", optimistic=True" if self.optimistic else ""
        return f"RobustMDP({self.model}, {kind}{given}, rectangular={self.rectangular!r}{what})"

    def solve(
        self,
        method: Method = "policy",
        *,
        tolerance: float = 1e-6,
        max_sweeps: int | None = None,
        start: Solution | ArrayLike | None = None,
        on_sweep: Observer | None = None,
    ) -> Solution:
        """Return the optimal policy and value, with bounds on v* that are at most `tolerance` apart.

        A sweep asks the oracle of every state-action once, starting its searches at the last sweep's
        answers. Ctrl-C returns the best solution found so far.

        Args:
            method: "policy": between sweeps, evaluate the policy of the last one, which takes 4 to 10 sweeps;
                "value": value iteration, about log(1/tolerance)/(1 - discount).
            tolerance: the largest upper - lower allowed in any state.
            max_sweeps: None: as many as value iteration can need.
            start: values to begin with, or an earlier solution of a similar problem.
            on_sweep: called with a `Sweep` after each, for progress.
        """
        if method not in ("policy", "value"):
            raise InvalidParameter(
                f'method must be "policy" or "value", got {method!r}', parameter="method", value=method
            )
        return solve(
            self._updater,
            self.model,
            method,
            check_tolerance(tolerance),
            most=check_sweeps(max_sweeps),
            start=self._start(start),
            observer=on_sweep,
        )

    def evaluate(
        self,
        policy: Solution | ArrayLike,
        *,
        tolerance: float = 1e-6,
        max_sweeps: int | None = None,
        start: Solution | ArrayLike | None = None,
        on_sweep: Observer | None = None,
    ) -> Solution:
        """Return the robust value of a given policy, with bounds that are at most `tolerance` apart.

        Args:
            policy: an action per state, (S,), by its number in the model; probabilities (S, A) or (rows,); or
                a solution.
            tolerance: the largest upper - lower allowed in any state.
            max_sweeps: None: as many as value iteration can need.
            start: values to begin with, or an earlier solution of a similar problem.
            on_sweep: called with a `Sweep` after each, for progress.
        """
        weights = policy_weights(self.model, policy)
        return evaluate(
            self._updater,
            self.model,
            weights,
            check_tolerance(tolerance),
            most=check_sweeps(max_sweeps),
            start=self._start(start),
            observer=on_sweep,
        )

    def _start(self, start: Solution | ArrayLike | None) -> Array:
        if start is None:
            return np.zeros(self.model.states)
        given = start.value if isinstance(start, Solution) else start
        values = as_floats("start", given, InvalidParameter)
        if values.shape != (self.model.states,) or not np.isfinite(values).all():
            raise InvalidParameter(
                f"start must have a finite number for each of the {self.model.states} states, got shape "
                f"{values.shape}",
                parameter="start",
                value=start,
            )
        return np.array(values)


def policy_weights(model: MDP, policy: Solution | ArrayLike) -> Array:
    """The probability of every state-action, from any form of a policy."""
    given = np.asarray(policy.policy if isinstance(policy, Solution) else policy)
    if given.shape == (model.states,) and given.dtype.kind in "iu":
        chosen = model.actions == model.repeat_by_state(given)
        have = np.add.reduceat(chosen, model.state_rows[:-1])
        if not have.all():
            s = int(have.argmin())
            known = model.actions[model.state_rows[s] : model.state_rows[s + 1]]
            raise InvalidParameter(
                f"state {s} has no action {given[s]}; it has {', '.join(map(str, known[:10]))}",
                parameter="policy",
                value=policy,
            )
        return np.array(chosen, float)
    weights = as_floats("policy", given, InvalidParameter)
    if weights.shape == (model.states, model.actions_each):
        weights = weights.ravel()
    if weights.shape != (model.rows,):
        raise InvalidParameter(
            f"policy must have an integer, the action, for each of the {model.states} states, or a "
            f"probability for each of the {model.rows} rows; got {given.dtype} of shape {given.shape}",
            parameter="policy",
            value=policy,
        )
    total = np.add.reduceat(weights, model.state_rows[:-1])
    bad = np.flatnonzero(~(np.abs(total - 1.0) <= 1e-9))
    if bad.size or not (weights >= 0.0).all():
        s = int(bad[0]) if bad.size else int(np.searchsorted(model.state_rows, weights.argmin(), "right")) - 1
        raise InvalidParameter(
            f"the probabilities of a policy must be at least 0 and sum to 1 in every state; in state {s} "
            f"they are {weights[model.state_rows[s] : model.state_rows[s + 1]]}",
            parameter="policy",
            value=policy,
        )
    return np.asarray(weights / model.repeat_by_state(total))


def _check_rewards(model: MDP) -> None:
    """Refuse rewards whose discounted sums come near the end of the floats' range."""
    parts = [model.row_rewards] + ([] if model.entry_rewards is None else [model.entry_rewards])
    most = max(float(np.abs(each).max()) for each in parts)
    if most > MOST * (1.0 - model.discount):
        raise InvalidParameter(
            f"rewards of up to {most:.3g} with a discount of {model.discount:g} make values beyond {MOST:g}, "
            "near the end of the floats' range; give rewards in a larger unit",
            parameter="rewards",
            value=most,
        )


def check_tolerance(tolerance: float) -> float:
    """Return a tolerance > 0."""
    need = "a finite number above 0 (1e-6 is the default)"
    return as_number("tolerance", tolerance, need, lambda number: number > 0.0, InvalidParameter)


def check_sweeps(most: Any) -> int | None:
    """Return a number of sweeps >= 1, or None."""
    if most is not None and (isinstance(most, bool) or not isinstance(most, Integral) or most < 1):
        raise InvalidParameter(
            f"max_sweeps must be a whole number, at least 1, got {most!r}", parameter="max_sweeps", value=most
        )
    return None if most is None else int(most)
