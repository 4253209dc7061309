"""Value iteration and policy iteration on a Bellman operator that comes with bounds.

Every sweep computes Tv between bounds l <= Tv <= u. T is monotone and T(v + c) = Tv + γc, so (MacQueen)

    l + γ/(1-γ)·min(l - v)  <=  v*  <=  u + γ/(1-γ)·max(u - v),

whatever v is. A method only chooses the next v. Value iteration takes Tv. Policy iteration fixes the policy
of this sweep and takes its robust value, which rises with every policy; for that nature improves her answer
to the fixed policy in turn, which is a problem with one player, so that neither of them can cycle.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels import chain
from uncertainty_sets.mdp.model import MDP
from uncertainty_sets.mdp.solution import Solution, Sweep, Update, Updater

EPS = 2.0**-52
FLOOR = 1.5  # widths within this factor of what rounding allows cannot be improved
PART = 0.5  # of the bounds' present width: how exactly a policy is evaluated before the next
MOST_ANSWERS = 50  # of nature to one policy; 3 to 6 are usual

Observer = Callable[[Sweep], None]
Advance = Callable[["Bounds"], Array]


@dataclass(eq=False)
class Bounds:
    """A sweep's update of v and the bounds on v* that it proves."""

    v: Array
    update: Update
    lower: Array
    upper: Array
    width: float
    floor: float  # the width that rounding and the oracle's gaps leave at a fixed point


def solve(updater: Updater, model: MDP, method: str, tolerance: float, **options: Any) -> Solution:
    """Find the best policy."""

    part, narrowest = PART, math.inf

    def evaluate_policy(found: Bounds) -> Array:
        nonlocal part, narrowest
        if found.width >= narrowest:  # values that are too coarse to tell policies apart lead in a circle
            part *= 0.1
        narrowest = min(narrowest, found.width)
        policy, p, v = found.update.policy, found.update.p, found.v
        enough = part * max(found.width, tolerance)
        for _ in range(MOST_ANSWERS):
            v = value_of_chain(model, policy, p, v, 0.1 * (1.0 - model.discount) * enough)
            own = bound(model, v, updater.evaluate(policy, v))
            if own.width <= max(enough, FLOOR * own.floor):
                break
            p = own.update.p
        return middle(own.update)

    if method == "policy":
        return iterate(model, updater.improve, evaluate_policy, tolerance=tolerance, **options)

    sweep = partial(updater.improve, transitions=False)
    return iterate(
        model,
        sweep,
        lambda found: middle(found.update),
        transitions=lambda v: updater.improve(v).p,
        tolerance=tolerance,
        **options,
    )


def evaluate(updater: Updater, model: MDP, policy: Array, tolerance: float, **options: Any) -> Solution:
    """Find the value of one policy: nature's policy iteration."""

    def answer_of_nature(found: Bounds) -> Array:
        accuracy = 0.1 * (1.0 - model.discount) * tolerance
        return value_of_chain(model, policy, found.update.p, found.v, accuracy)

    return iterate(
        model, lambda v: updater.evaluate(policy, v), answer_of_nature, tolerance=tolerance, **options
    )


def iterate(
    model: MDP,
    sweep: Callable[[Array], Update],
    advance: Advance,
    *,
    tolerance: float,
    most: int | None,
    start: Array,
    observer: Observer | None,
    transitions: Callable[[Array], Array] | None = None,
) -> Solution:
    """Sweep until the bounds are within the tolerance, or as close as rounding lets them come.

    `transitions` finds nature's answer to the last values, if sweeps leave it out.
    """
    began = time.perf_counter()
    history: list[Sweep] = []
    best: Bounds | None = None
    v, interrupted = start, False
    try:
        while True:
            found = bound(model, v, sweep(v))
            if best is None or found.width < best.width:
                best = copy_of(found)
            history.append(
                Sweep(len(history) + 1, best.width, found.update.evaluations, time.perf_counter() - began)
            )
            if observer is not None:
                observer(history[-1])
            if most is None:
                most = enough_sweeps(model.discount, best.width, tolerance)
            if best.width <= max(tolerance, FLOOR * best.floor) or len(history) >= most:
                break
            v = advance(found)
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
        transitions=best.update.p if transitions is None else transitions(best.v),
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
    return Bounds(v, update, lower, upper, width, floor)


def rounding(model: MDP, v: Array) -> float:
    """What rounding may add to an update of v: some units in the last place, and a sum over successors."""
    size, spread = model.reward_range
    low, high = float(v.min()), float(v.max())
    return EPS * (8.0 * (size + max(high, -low)) + model.most_successors * (spread + high - low))


def middle(update: Update) -> Array:
    """Tv, between its bounds."""
    return np.asarray(0.5 * (update.lower + update.upper))


def copy_of(bounds: Bounds) -> Bounds:
    """The same in arrays of its own: an update's may be overwritten by the next sweep."""
    u = bounds.update
    own = Update(u.lower.copy(), u.upper.copy(), u.policy.copy(), u.p.copy(), u.evaluations)
    return Bounds(bounds.v, own, bounds.lower, bounds.upper, bounds.width, bounds.floor)


def enough_sweeps(discount: float, width: float, tolerance: float) -> int:
    """Plain sweeps that shrink the width to the tolerance, by the discount in each; and some more."""
    if discount == 0.0 or not width > tolerance > 0.0:
        return 10
    return 10 + 2 * math.ceil(math.log(width / tolerance) / -math.log(discount))


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


DIRECT = 200  # states up to which a dense system is solved directly
MOST = 1000  # iterations for larger ones


def value_of_chain(model: MDP, policy: Array, p: Array, v: Array, accuracy: float) -> Array:
    """The value of the chain; of a large one up to a residual of `accuracy`, starting at v."""
    rewards = np.empty(model.states)
    by_entry = np.empty(0) if model.entry_rewards is None else model.entry_rewards
    chain.expected_rewards(model.state_rows, model.indptr, policy, p, model.row_rewards, by_entry, rewards)
    if model.states <= DIRECT:
        return _solve_dense(model, policy, p, rewards)
    return _solve_by_steps(model, policy, p, rewards, v, accuracy)


def _solve_dense(model: MDP, policy: Array, p: Array, rewards: Array) -> Array:
    lengths = np.diff(model.indptr)
    state = np.repeat(model.repeat_by_state(np.arange(model.states)), lengths)
    weight = np.repeat(policy, lengths) * p
    flat = np.bincount(state * model.states + model.indices, weight, model.states**2)
    matrix = np.eye(model.states) - model.discount * flat.reshape(model.states, model.states)
    return np.asarray(np.linalg.solve(matrix, rewards), float)


def _solve_by_steps(model: MDP, policy: Array, p: Array, rewards: Array, v: Array, accuracy: float) -> Array:
    """BiCGSTAB (van der Vorst 1992); if it breaks down the best v so far: any v will do for the bounds."""

    def apply(x: Array) -> Array:
        out = np.empty_like(x)
        chain.discounted_rest(
            model.state_rows, model.indptr, model.indices, policy, p, model.discount, x, out
        )
        return out

    x, r = v.copy(), rewards - apply(v)
    best, least = x, float(np.abs(r).max())
    shadow, direction = r.copy(), r.copy()
    rho = float(r @ r)
    for _ in range(MOST):
        if least <= accuracy:
            break
        image = apply(direction)
        below = float(shadow @ image)
        if below == 0.0 or rho == 0.0:
            break
        alpha = rho / below
        s = r - alpha * image
        t = apply(s)
        square = float(t @ t)
        omega = float(t @ s) / square if square > 0.0 else 0.0
        x = x + alpha * direction + omega * s
        r = s - omega * t
        size = float(np.abs(r).max())
        if not np.isfinite(size) or omega == 0.0:
            break
        if size < least:
            best, least = x, size
        rho, before = float(shadow @ r), rho
        direction = r + (rho / before) * (alpha / omega) * (direction - omega * image)
    return best
