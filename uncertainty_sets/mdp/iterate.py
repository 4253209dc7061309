"""Value iteration and policy iteration on any Bellman operator that comes with bounds.

Every sweep computes Tv between bounds l <= Tv <= u. T is monotone and T(v + c) = Tv + γc, so (MacQueen)

    l + γ/(1-γ)·min(l - v)  <=  v*  <=  u + γ/(1-γ)·max(u - v),

whatever v is. A method only chooses the next v: value iteration takes Tv; policy iteration fixes the policy
and nature's transitions of this sweep and takes the value of that chain, which needs far fewer sweeps. With
both players fixed this may cycle, so the bounds decide: a v whose bounds are not closer together than the
best ones is left for Tv of the best, where plain sweeps go on, twice as many after each such failure.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels import fixed_transitions
from uncertainty_sets.mdp.model import MDP
from uncertainty_sets.mdp.solution import Solution, Sweep
from uncertainty_sets.mdp.updates import Update

EPS = 2.0**-52
DIRECT = 400  # states up to which the chain is solved as a dense linear system
MOST_INNER = 500  # Gauss-Seidel sweeps for larger chains; any v will do
FLOOR = 1.5  # widths within this factor of what rounding allows cannot be improved

Observer = Callable[[Sweep], None]


@dataclass(eq=False)
class Bounds:
    """A sweep's update and the bounds on v* that it proves."""

    update: Update
    lower: Array
    upper: Array
    width: float
    floor: float  # the width that rounding and the oracle's gaps leave at a fixed point


def iterate(
    model: MDP,
    sweep: Callable[[Array], Update],
    *,
    method: str,
    tolerance: float,
    most: int | None,
    start: Array,
    observer: Observer | None,
) -> Solution:
    """Sweep until the bounds are within the tolerance, or as close as rounding lets them come."""
    began = time.perf_counter()
    history: list[Sweep] = []
    best: Bounds | None = None
    v, interrupted, plain, failures = start, False, 0, 0
    try:
        while True:
            found = bound(model, v, sweep(v))
            better = best is None or found.width < best.width
            if better:
                best = copy_of(found)
            assert best is not None
            history.append(
                Sweep(len(history) + 1, best.width, found.update.evaluations, time.perf_counter() - began)
            )
            if observer is not None:
                observer(history[-1])
            if most is None:
                most = len(history) + enough(model.discount, best.width, tolerance)
            if best.width <= max(tolerance, FLOOR * best.floor) or len(history) >= most:
                break
            if not better and plain == 0:
                failures += 1
                plain = 2**failures
                v = 0.5 * (best.update.lower + best.update.upper)
                continue
            v = 0.5 * (found.update.lower + found.update.upper)
            if plain:
                plain -= 1
            elif method == "policy":
                v = value_of_chain(model, found.update, v, 0.01 * (1.0 - model.discount) * best.width)
    except KeyboardInterrupt:
        if best is None:
            raise
        interrupted = True
    converged = best.width <= tolerance
    if not (converged or interrupted):
        _warn(best, tolerance, len(history))
    return Solution(
        value=0.5 * (best.lower + best.upper),
        lower=best.lower,
        upper=best.upper,
        policy=best.update.policy,
        transitions=best.update.p,
        converged=converged,
        interrupted=interrupted,
        model=model,
        history=history,
    )


def bound(model: MDP, v: Array, update: Update) -> Bounds:
    """The bounds on v* that an update of v proves, with an allowance for rounding."""
    factor = model.discount / (1.0 - model.discount)
    slack = rounding(model, v) / (1.0 - model.discount)
    lower = update.lower + (factor * float(np.min(update.lower - v)) - slack)
    upper = update.upper + (factor * float(np.max(update.upper - v)) + slack)
    width = float(np.max(upper - lower))
    floor = 2.0 * slack + float(np.max(update.upper - update.lower)) / (1.0 - model.discount)
    return Bounds(update, lower, upper, width, floor)


def rounding(model: MDP, v: Array) -> float:
    """What rounding may add to an update of v: some units in the last place, and a sum over successors."""
    rewards = model.row_rewards if model.entry_rewards is None else model.entry_rewards
    size = float(np.max(np.abs(model.row_rewards)) + np.max(np.abs(rewards)) + np.max(np.abs(v)))
    spread = float(np.ptp(rewards) + np.ptp(v))
    return EPS * (8.0 * size + int(np.diff(model.indptr).max()) * spread)


def copy_of(bounds: Bounds) -> Bounds:
    """The same in arrays of its own: an update's may be overwritten by the next sweep."""
    u = bounds.update
    own = Update(u.lower.copy(), u.upper.copy(), u.policy.copy(), u.p.copy(), u.evaluations)
    return Bounds(own, bounds.lower, bounds.upper, bounds.width, bounds.floor)


def enough(discount: float, width: float, tolerance: float) -> int:
    """Plain sweeps that shrink the width to the tolerance, by the discount in each; and some more."""
    if discount == 0.0 or not width > tolerance > 0.0:
        return 10
    return 10 + 2 * math.ceil(math.log(width / tolerance) / -math.log(discount))


def value_of_chain(model: MDP, update: Update, v: Array, tolerance: float) -> Array:
    """The value of the policy and the transitions of an update, near v."""
    rewards = np.empty(model.states)
    by_entry = np.empty(0) if model.entry_rewards is None else model.entry_rewards
    policy, p = update.policy, update.p
    fixed_transitions.expected_rewards(
        model.state_rows, model.indptr, policy, p, model.row_rewards, by_entry, rewards
    )
    if model.states <= DIRECT:
        chain = np.zeros((model.states, model.states))
        lengths = np.diff(model.indptr)
        state = np.repeat(model.repeat_by_state(np.arange(model.states)), lengths)
        np.add.at(chain, (state, model.indices), np.repeat(policy, lengths) * p)
        return np.asarray(np.linalg.solve(np.eye(model.states) - model.discount * chain, rewards), float)
    w, change = v.copy(), np.empty(1)
    fixed_transitions.sweeps(
        model.state_rows,
        model.indptr,
        model.indices,
        policy,
        p,
        rewards,
        model.discount,
        MOST_INNER,
        tolerance,
        w,
        change,
    )
    return w


def _warn(best: Bounds, tolerance: float, sweeps: int) -> None:
    reason = (
        "that is what rounding and the oracle's own gaps allow"
        if best.width <= FLOOR * best.floor
        else "give more sweeps with max_sweeps"
    )
    warnings.warn(
        f"after {sweeps} sweeps the proved bounds are {best.width:.3g} apart, more than the tolerance "
        f"{tolerance:.3g}: {reason}",
        stacklevel=4,
    )
