"""The robust problem with the absolute loss, whose kinks L-BFGS cannot pass.

    |r| = max over -1 <= s <= 1 of s·r

Each round solves the smooth problem in which a sample's loss is the maximum of s·r - width/2·(s - ŝ)²
(fdro_core/problems/linear.py), by `central` to a proved gap. Then ŝ ← s, the method of multipliers, and
the width shrinks if that gains too little. The smooth losses are below the absolute ones, so a lower bound on
their optimum is one on the optimum; and by at most 2·width, since |s - ŝ| <= 2, so that shrinking alone would
be enough.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fdro_core.estimators import central
from fdro_core.estimators.grouped import GroupedRegression
from fdro_core.problems.linear import absolute, smoothed
from fdro_core.protocol.algorithm import sized
from uncertainty_sets.arrays import Array

WIDTH = 0.1  # the first round's, in units of the targets' deviation


def minimise(
    problem: GroupedRegression, oracle: Any, l2: float, tolerance: float, budget: int
) -> central.Optimum:
    """Minimise the worst expected absolute loss, by at most `budget` >= 1 passes over the data.

    The targets' deviation should be about 1. `evaluations` does not count the forward pass after each round.
    """
    exact = problem.with_loss(absolute)
    signs, width, before, spent = np.zeros(problem.y.size), WIDTH, np.inf, 0
    best: tuple[float, Array, Array, Any] | None = None
    lower, weights = -np.inf, np.empty(0)
    accuracy, settled, start = 0.01, False, None
    while True:
        smooth = problem.with_loss(partial(smoothed, width=width, center=signs))
        found = central.minimise(smooth, oracle, l2, accuracy, budget - spent, start)
        spent += found.evaluations
        start = found.w
        ridge = 0.5 * l2 * float(start @ start)
        losses, _ = exact.evaluate(start)
        answer = sized(oracle, losses.size).worst_case(losses)
        slack = answer.value - found.worst_case.value  # what the smoothing changes at this point
        objective = max(float(answer.value), float(answer.upper_bound)) + ridge
        if best is None or objective < best[0]:
            best = objective, start, losses, answer
        proved = max(found.worst_case.value, found.worst_case.upper_bound) + ridge - found.gap
        if weights.size == 0 or l2 == 0.0 or proved > lower:
            lower, weights = proved, found.weights
        upper = best[0]
        target = tolerance * max(1.0, upper)
        if l2 > 0.0:
            settled = upper - lower <= target
        else:  # `central` proves nothing then, and says whether w stopped moving
            settled = found.converged and accuracy <= 0.5 * tolerance and slack <= 0.5 * target
        if settled or spent >= budget or not found.converged:
            _, w, losses, answer = best
            gap = max(upper - lower, 0.0)
            return central.Optimum(w, losses, answer, weights, gap, spent, settled)
        signs = smooth.samples(smooth.scores(start))[1][:, 0]
        accuracy = min(accuracy, max(0.25 * tolerance, 0.1 * slack / max(1.0, upper)))
        if slack > 0.3 * before:
            width *= 0.4
        before = slack
