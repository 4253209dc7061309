"""Budgets shared by the actions of a state: transitions and policies judged apart, in long double.

An update is right if its transitions are in the set and attain `upper` (below it is no worst case), and if
its policy guarantees `lower` against every transition: the support function of the set in the policy's
direction, found here by a search of its own.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from bench.soak import centers
from bench.soak.families import Rng, mixed
from bench.soak.questions.question import LONG, Batch, asked
from uncertainty_sets import KL, ChiSquare, TotalVariation
from uncertainty_sets.arrays import Array
from uncertainty_sets.mdp.by_state import ByState
from uncertainty_sets.mdp.model import MDP

KINDS: dict[str, Any] = {"kl": KL, "chi-square": ChiSquare, "total-variation": TotalVariation}
GENERATORS = tuple(
    f"{kind}: {what}"
    for kind in KINDS
    for what in ("plain", "concentrated", "corner", "zeros", "ties", "units")
)
STATES, ACTIONS = 60, 4
GAP, FEASIBLE = 1e-9, 1e-10


def batch(rng: Rng, generator: str) -> Batch:
    """One model, a few value vectors, improved and evaluated; each state of each update is a case."""
    name, _, what = generator.partition(": ")
    n, kind = int(rng.choice([2, 3, 6, 12])), KINDS[name]
    families = {what: centers.FAMILIES[what]} if what in centers.FAMILIES else {"plain": centers.plain}
    q = mixed(families, rng, (STATES * ACTIONS, n), next(iter(families)))
    rows = STATES * ACTIONS
    places = (q.ravel(), np.tile(np.arange(n), rows), n * np.arange(rows + 1))
    P = csr_array(places, shape=(rows, STATES))  # the first states are the successors of all
    rewards = np.where(rng.random() < 0.3, rng.integers(-2, 3, rows), rng.normal(size=rows))
    unit = 10.0 ** rng.uniform(-90.0, 90.0) if what == "units" else 1.0
    budget = rng.choice([0.0, 1e-12, 1e-6, 1e-3, 0.05, 0.3, 1.0, 5.0, 1e3], STATES)
    model = MDP(P, unit * rewards, 0.9, actions_per_state=np.full(STATES, ACTIONS))
    updates, found = ByState(model, kind, budget), Batch()
    for turn in range(3):
        v = np.where(what == "ties", rng.integers(-2, 3, STATES), rng.normal(size=STATES)) * unit
        z = (unit * rewards)[:, None] + 0.9 * v[None, :n]  # as the library forms them
        policy = rng.dirichlet(np.full(ACTIONS, 0.5), STATES).ravel()
        for question in ("improve", "evaluate"):
            call = f"{generator}, turn {turn}, {question}"
            given = (v,) if question == "improve" else (policy, v)
            answer = asked(partial(getattr(updates, question), *given))
            found.cases += STATES
            if isinstance(answer, Exception):
                found.failed(answer, n, call)
            else:
                judge(found, name, q, z, budget, answer, question, call)
    return found


def judge(
    found: Batch, name: str, q: Any, z: Any, budget: Array, answer: Any, question: str, call: str
) -> None:
    """Recompute what the transitions cost and attain, and what the policy guarantees."""
    shape = (STATES, ACTIONS, q.shape[1])
    q, z = (q / q.sum(axis=1, keepdims=True)).astype(LONG).reshape(shape), z.astype(LONG).reshape(shape)
    p = np.zeros((STATES * ACTIONS, q.shape[2]))
    p[spots(answer, q)] = answer.p
    P, policy = p.astype(LONG).reshape(shape), answer.policy.astype(LONG).reshape(shape[:2])
    spent, means = divergence(name, P, q).sum(axis=1), (P * z).sum(axis=2)
    attained = means.max(axis=1) if question == "improve" else (policy * means).sum(axis=1)
    guaranteed = -support(name, policy, -z, q, budget.astype(LONG))
    spread = np.ptp(z.reshape(STATES, -1), axis=1)
    allowed = GAP * spread + 64.0 * 2.0**-52 * np.abs(z).max(axis=(1, 2))
    for s in range(STATES):
        gap = answer.upper[s] - answer.lower[s]
        found.saw(float(gap / (spread[s] or 1.0)), float((spent[s] - budget[s]) / max(1.0, budget[s])))
        found.check(
            {
                "p < 0": (-P[s].min(), 0.0),
                "Σp is not 1": (np.abs(P[s].sum(axis=1) - 1.0).max(), FEASIBLE),
                "Σπ is not 1": (abs(policy[s].sum() - 1.0), FEASIBLE),
                "beyond the budget": ((spent[s] - budget[s]) / max(1.0, budget[s]), FEASIBLE),
                "lower > upper": (-gap, 0.0),
                "gap": (gap, 3.0 * allowed[s]),
                "upper is not attained": (attained[s] - answer.upper[s], allowed[s]),
                "lower is not guaranteed": (answer.lower[s] - guaranteed[s], allowed[s]),
                "upper is below what is guaranteed": (guaranteed[s] - answer.upper[s], allowed[s]),
            },
            shape[2],
            f"{call}, state {s}",
        )


def spots(answer: Any, q: Any) -> Any:
    """Where the model's entries are: all successors, or those with q > 0 if the model dropped zeros."""
    everywhere = np.ones(q.reshape(-1, q.shape[2]).shape, bool)
    return everywhere if answer.p.size == everywhere.size else q.reshape(everywhere.shape) > 0.0


def divergence(name: str, p: Any, q: Any) -> Any:
    """D of each row, infinite where mass left the support."""
    if name == "total-variation":
        return 0.5 * np.abs(p - q).sum(axis=2)
    inside = q > 0.0
    out = np.where((p > 0.0) & ~inside, np.inf, 0.0).sum(axis=2)
    safe = np.where(inside, q, 1.0)
    if name == "chi-square":
        return out + np.where(inside, (p - q) ** 2 / safe, 0.0).sum(axis=2)
    ratio = np.where(inside & (p > 0.0), p / safe, 1.0)
    return out + np.where(inside, np.where(p > 0.0, p * np.log(ratio), 0.0) - p + q, 0.0).sum(axis=2)


def support(name: str, policy: Any, f: Any, q: Any, budget: Any) -> Any:
    """The largest Σ π·pᵀf of each state: the least bound over the multiplier, or the greedy answer for TV."""
    weight = policy[:, :, None] * f
    top = np.where((q > 0.0) | (name == "total-variation"), weight, -np.inf).max(axis=2, keepdims=True)
    nominal = (q * weight).sum(axis=(1, 2))
    if name == "total-variation":
        gain, mass = (top - weight).reshape(len(f), -1), q.reshape(len(f), -1)
        order = np.argsort(-gain, axis=1)
        gain, mass = np.take_along_axis(gain, order, 1), np.take_along_axis(mass, order, 1)
        before = np.cumsum(mass, axis=1) - mass
        return nominal + (np.clip(budget[:, None] - before, 0.0, mass) * gain).sum(axis=1)
    g = np.where(q > 0.0, weight - top, 0.0)
    scale = -g.min(axis=(1, 2))
    h = g / np.where(scale > 0.0, scale, 1.0)[:, None, None]

    def bound(x: Any) -> Any:
        eta = np.exp(x)
        rows = conjugate(name, eta[:, None, None] * h, q)
        return (rows.sum(axis=1) + budget) / eta

    a, b = np.full(len(f), -30.0, LONG), np.full(len(f), 45.0, LONG)
    for _ in range(110):
        left, right = a + (b - a) / 3.0, b - (b - a) / 3.0
        lower = bound(left) <= bound(right)
        a, b = np.where(lower, a, left), np.where(lower, right, b)
    least = np.where(budget > 0.0, bound(0.5 * (a + b)), (q * h).sum(axis=(1, 2)))
    return top.sum(axis=(1, 2)) + scale * np.minimum(least, 0.0)


def conjugate(name: str, y: Any, q: Any) -> Any:
    """The largest pᵀy - D(p, q) of each row; y <= 0 with its top at 0."""
    if name == "kl":
        less, weight = (q * np.expm1(y)).sum(axis=2), (q * np.exp(y)).sum(axis=2)
        return np.where(less > -0.5, np.log1p(np.maximum(less, -0.6)), np.log(weight))
    # χ²: p = q·(1 + (y - m)/2)₊ with Σp = 1, from the largest y down to the last with p > 0.
    order = np.argsort(-y, axis=2, kind="stable")
    falling, mass = np.take_along_axis(y, order, 2), np.take_along_axis(q, order, 2)
    total, gain = mass.cumsum(axis=2), (mass * falling).cumsum(axis=2)
    m = (2.0 * (total - 1.0) + gain) / np.where(total > 0.0, total, 1.0)
    last = (((total > 0.0) & (falling > m - 2.0)).cumsum(axis=2)).argmax(axis=2)
    p = q * np.maximum(1.0 + 0.5 * (y - np.take_along_axis(m, last[:, :, None], 2)), 0.0)
    p = p / p.sum(axis=2, keepdims=True)
    return (p * y).sum(axis=2) - np.where(q > 0.0, (p - q) ** 2 / np.where(q > 0.0, q, 1.0), 0.0).sum(axis=2)
