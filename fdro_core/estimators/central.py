"""The robust problem with all data in one place: what the estimators solve.

    minimise over w    max over p in P of Σ_g p_g f_g(w)  +  l2/2·‖w‖²

Newton's method (newton.py) solves it in a few steps where its matrices are not too large. Otherwise there are
two stages. First L-BFGS on the objective itself, whose gradient is Σ p*_g ∇f_g (Danskin): that is enough if P
is smooth. If P has corners, the objective has kinks on which L-BFGS stalls. Then the method of multipliers
takes over: L-BFGS on

    max over p in P of   pᵀf(w) - μ/2·‖p - p̂‖²  +  l2/2·‖w‖²

which has no kinks, then p̂ ← p. The maximiser is the projection of p̂ + f/μ onto P
(uncertainty_sets/projection.py).

All stop on a proof. For any p̄ in P the function h(w) = p̄ᵀf(w) + l2/2·‖w‖² is below the objective and
l2-strongly convex, so the optimum is at least h(w) - ‖∇h(w)‖²/(2·l2), for any w.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from fdro_core.estimators import newton
from fdro_core.protocol.algorithm import sized
from uncertainty_sets.arrays import Array
from uncertainty_sets.projection import Projection

if TYPE_CHECKING:
    from fdro_core.estimators.groups import GroupedRegression

Pull = Callable[[Array], Array]
Report = Callable[[int, float, float], None]
"""Told the passes so far, the objective reached, and the gap that is proved."""

MEMORY = 20  # pairs that L-BFGS keeps: passes over w are cheap beside passes over the data
INNER = 60  # L-BFGS iterations between two updates of p̂, at most
NOMINAL = 8  # L-BFGS iterations for the reference distribution, to leave the starting point
SPAN = 1e6  # by which μ may differ from its first value; hundreds of short rounds would take it to 0
WINDOW = 15  # evaluations without progress after which L-BFGS on the objective is stuck on a kink

WIDTH = 0.1  # the first round of the absolute loss's, in units of the targets' deviation


class Groups(Protocol):
    """A model's losses by group."""

    dimension: int

    def evaluate(self, w: Array) -> tuple[Array, Pull]:
        """Every group's loss f(w), and the function p ↦ Σ_g p_g ∇f_g(w)."""
        ...

    def metric(self) -> Array:
        """Positive numbers: an estimate of the curvature's diagonal."""
        ...


@dataclass(frozen=True)
class Optimum:
    """A robust minimiser and its proof.

    Attributes:
        w: the parameters.
        losses: f(w).
        worst_case: the set's answer at those losses.
        weights: the distribution in P that the gap is proved with, the training weights of the saddle point.
            `worst_case.p` is a vertex if the worst case is not unique, and these weights lie between.
        gap: a bound on how far the objective at w is above the minimum; infinite without ridge.
        evaluations: passes over the data, forward and back.
        converged: whether the gap is within the tolerance; without ridge, whether w stopped moving.
    """

    w: Array
    losses: Array
    worst_case: Any
    weights: Array
    gap: float
    evaluations: int
    converged: bool


class _Enough(Exception):
    """Raised to end the search: the budget of evaluations is spent, or the gap is proved."""


class _Next(Exception):
    """Raised to end a stage or round that makes no more progress."""


class Look(NamedTuple):
    """What one pass over the data tells of a w."""

    w: Array
    losses: Array
    pull: Pull
    answer: Any
    ridge: float

    @property
    def value(self) -> float:
        """The worst expected loss."""
        return float(self.answer.value)

    @property
    def bound(self) -> float:
        """A proved upper bound on it."""
        return float(self.answer.upper_bound)

    @property
    def objective(self) -> float:
        """The worst expected loss with the ridge."""
        return self.value + self.ridge


class Search:
    """The best point so far and the bounds on both sides."""

    def __init__(
        self,
        groups: Groups,
        oracle: Any,
        l2: float,
        tolerance: float,
        budget: int,
        report: Report | None = None,
    ) -> None:
        self.groups, self.oracle, self.l2 = groups, oracle, l2
        self.tolerance, self.budget, self.report = tolerance, budget, report
        self.scale = np.sqrt(1.0 / groups.metric())  # L-BFGS runs in w/scale
        self.evaluations = 0
        self.best: tuple[Array, Array, Any, float] | None = None
        self._last: Look | None = None
        self.lower = -np.inf
        self.weights: Array | None = None
        self.settled = False

    @cached_property
    def reference(self) -> Array:
        """A distribution in the set; the first `look` must have set the number of groups."""
        return np.asarray(self.oracle.reference(), dtype=np.float64)

    @property
    def point(self) -> Array:
        """The best w so far."""
        assert self.best is not None
        return self.best[0]

    @property
    def upper(self) -> float:
        """A proved upper bound on the objective at the best point."""
        return np.inf if self.best is None else self.best[3]

    @property
    def target(self) -> float:
        """The gap to reach: relative to the objective, absolute below 1."""
        return self.tolerance * max(1.0, abs(self.upper)) if np.isfinite(self.upper) else 0.0

    def look(self, w: Array) -> Look:
        """Evaluate w, unless that was done last."""
        if self._last is not None and np.array_equal(self._last.w, w):
            return self._last
        if self.evaluations >= self.budget:
            raise _Enough
        self.evaluations += 1
        losses, pull = self.groups.evaluate(w)
        self.oracle = sized(self.oracle, losses.size)  # known only from the first losses
        answer = self.oracle.worst_case(losses)
        ridge = 0.5 * self.l2 * float(w @ w)
        # A conic answer's bound is above its value by as much as its proof lacks, and so is what is proved.
        objective = max(float(answer.value), float(answer.upper_bound)) + ridge
        if objective < self.upper:
            self.best = w.copy(), losses, answer, objective
        if self.report is not None:
            self.report(self.evaluations, self.upper, self.upper - self.lower)
        self._last = Look(w.copy(), losses, pull, answer, ridge)
        return self._last

    def prove(self, value: float, gradient: Array, p: Array, slack: float = 0.0) -> float:
        """Raise the lower bound by h(w) and ∇h(w), for h of p that is `slack` below the objective at w.

        Returns how far h(w) is above the minimum of h: a bound with a ridge, otherwise an estimate from the
        metric. Raises `_Enough` if the gap is proved.
        """
        if self.l2 > 0.0:
            excess = float(gradient @ gradient) / (2.0 * self.l2)
            if self.weights is None or value - excess > self.lower:
                self.weights = p
            self.lower = max(self.lower, value - excess)
            self.settled = self.upper - self.lower <= self.target
        else:
            scaled = gradient * self.scale
            excess = 0.5 * float(scaled @ scaled)
            self.weights = p
            self.settled = slack + excess <= 0.01 * self.target
        if self.settled:
            raise _Enough
        return excess


def minimise(
    groups: Groups,
    oracle: Any,
    l2: float,
    tolerance: float,
    budget: int,
    start: Array | None = None,
    report: Report | None = None,
) -> Optimum:
    """Minimise the worst expected loss from `start` or 0, by at most `budget` >= 1 passes over the data."""
    search = Search(groups, oracle, l2, tolerance, budget, report)
    with suppress(_Enough):
        if newton.suits(groups, l2):
            passes = newton.patience(search, start)
            if passes:
                start = _directly(search, start, passes)
            newton.minimise(search, start)
            start = search.point
        _directly(search, start, budget)
        _by_multipliers(search)
    assert search.best is not None
    assert search.weights is not None
    w, losses, answer, value = search.best
    gap = max(value - search.lower, 0.0)
    return Optimum(w, losses, answer, search.weights, gap, search.evaluations, search.settled)


def _lbfgs(
    function: Callable[[Array], tuple[float, Array]], search: Search, w: Array, iterations: int
) -> None:
    """Run L-BFGS in the search's metric, up to that many iterations."""
    from scipy.optimize import minimize

    def scaled(v: Array) -> tuple[float, Array]:
        value, gradient = function(v * search.scale)
        return value, gradient * search.scale

    options = {"maxiter": iterations, "maxfun": 10**9, "ftol": 0.0, "gtol": 0.0, "maxcor": MEMORY}
    minimize(scaled, w / search.scale, jac=True, method="L-BFGS-B", options=options)


def _directly(search: Search, start: Array | None, passes: int) -> Array:
    """Run L-BFGS on the objective, as long as the objective or its gradient falls; the best point after it.

    It ends after about that many passes too. Without a start it begins with a few steps towards the minimum
    for the reference distribution: if all losses are equal, as at w = 0, every p is a worst case, and the
    gradient of one of them need not be a descent direction.
    """

    def nominal(w: Array) -> tuple[float, Array]:
        _, losses, pull, answer, ridge = search.look(w)
        reference = search.reference
        value, gradient = float(reference @ losses) + ridge, pull(reference) + search.l2 * w
        proved = min(value, answer.upper_bound + ridge)
        search.prove(proved, gradient, reference, search.upper - value)
        return value, gradient

    if start is None:
        _lbfgs(nominal, search, np.zeros(search.groups.dimension), NOMINAL)
        start = search.point
    path: list[tuple[float, float]] = []

    def objective(w: Array) -> tuple[float, Array]:
        _, losses, pull, answer, ridge = search.look(w)
        gradient = pull(answer.p) + search.l2 * w
        value = answer.value + ridge
        # p may be off the set by its violation, and pᵀf above the maximum by that much of the spread.
        off = float(answer.violation) * float(np.ptp(losses))
        search.prove(min(answer.value, answer.upper_bound) + ridge - off, gradient, answer.p)
        if len(path) >= passes:
            raise _Next
        path.append((search.upper, min(float(gradient @ gradient), path[-1][1] if path else np.inf)))
        if len(path) > WINDOW:
            (early, steep), (late, flat) = path[-1 - WINDOW], path[-1]
            if early - late <= 1e-3 * abs(late) and flat > 0.5 * steep:
                raise _Next
        return value, gradient

    with suppress(_Next):
        _lbfgs(objective, search, start, search.budget)
    return search.point


def _by_multipliers(search: Search) -> None:
    """Run the method of multipliers from the best point so far, until the search raises `_Enough`."""
    assert search.best is not None
    w, losses, answer, _ = search.best
    projection = Projection(search.oracle, answer.p)
    center = answer.p
    # μ in the losses' units: a tenth of what moves p across the set. Rounds adapt it.
    reach = max(float(np.abs(center - search.reference).max()), 1e-6)
    softness = 0.1 * max(float(np.ptp(losses)), 0.1 * float(np.abs(losses).max()), 1e-9) / reach
    narrowest, widest = softness / SPAN, softness * SPAN
    before = np.inf
    while True:
        last: tuple[Array, Array, float] = (w, center, np.inf)

        def augmented(w: Array, center: Array = center, softness: float = softness) -> tuple[float, Array]:
            nonlocal last
            _, losses, pull, answer, ridge = search.look(w)
            p = projection.nearest(center + losses / softness, 0.05 * search.target / softness)
            gradient = pull(p) + search.l2 * w
            expected = float(p @ losses)
            slack = answer.value - expected
            last = w.copy(), p, slack
            proved = min(expected, answer.upper_bound) + ridge
            if search.prove(proved, gradient, p, slack) <= 0.2 * slack:
                raise _Next  # w is now as accurate as p̂
            move = p - center
            return expected - 0.5 * softness * float(move @ move) + ridge, gradient

        finished = True
        with suppress(_Next):
            _lbfgs(augmented, search, w, INNER)
            finished = False
        w, center, slack = last
        if not finished:
            softness = min(2.0 * softness, widest)
        elif slack > 0.3 * before:
            softness = max(0.4 * softness, narrowest)
        before = slack


def after(passes: int, report: Report | None) -> Report | None:
    """The same report, of a search that begins after so many passes."""
    if report is None:
        return None
    return lambda more, objective, gap: report(passes + more, objective, gap)


def minimise_absolute(
    problem: GroupedRegression,
    oracle: Any,
    l2: float,
    tolerance: float,
    budget: int,
    report: Report | None = None,
) -> Optimum:
    """Minimise the worst expected absolute loss, by at most `budget` >= 1 passes over the data.

    L-BFGS cannot pass the kinks of |r| = max over -1 <= s <= 1 of s·r. So each round solves the smooth
    problem in which a sample's loss is the maximum of s·r - width/2·(s - ŝ)²
    (fdro_core/problems/kernels.py), by `minimise` to a proved gap. Then ŝ ← s, the method of multipliers,
    and the width shrinks if that gains too little. The smooth losses are below the absolute ones, so a lower
    bound on their optimum is one on the optimum; and by at most 2·width, since |s - ŝ| <= 2, so that
    shrinking alone would be enough.

    The targets' deviation should be about 1. `evaluations` does not count the forward pass after each round.
    """
    exact = problem.with_loss("absolute")
    signs, width, before, spent = np.zeros(problem.y.size), WIDTH, np.inf, 0
    best: tuple[float, Array, Array, Any] | None = None
    lower, weights = -np.inf, np.empty(0)
    accuracy, settled, start = 0.01, False, None
    while True:
        smooth = problem.with_loss("smoothed", width, signs)
        found = minimise(smooth, oracle, l2, accuracy, budget - spent, start, after(spent, report))
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
            return Optimum(w, losses, answer, weights, gap, spent, settled)
        signs = smooth.evaluate(start)[1].slopes[:, 0]
        accuracy = min(accuracy, max(0.25 * tolerance, 0.1 * slack / max(1.0, upper)))
        if slack > 0.3 * before:
            width *= 0.4
        before = slack
