"""`robust.support` in problems with variables: solved by cvxpy, then bounded from both sides by oracles.

minimise τ·support(P, losses(x)) + g(x). At the solver's x the oracle gives an upper bound. Any mix of
distributions of the set gives a lower one, min over x of τ·pᵀlosses(x) + g(x), which has a closed form for
the losses and g drawn here: distributions are added until the best mix is within the tolerance of an x.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import uncertainty_sets as sets
from bench.soak import plugins
from bench.soak.families import Rng
from bench.soak.questions.question import Batch, asked
from uncertainty_sets.arrays import Array
from uncertainty_sets.robust import support

PENALTIES = ("kl", "chi-square", "total-variation")
PLUGINS: dict[str, Any] = {
    "plug-in tv": plugins.TotalVariation,
    "plug-in euclidean": plugins.Euclidean,
    "plug-in entropic": plugins.Entropic,
}
UNITS: dict[str, Any] = {
    "units tv": plugins.TotalVariationInUnits,
    "units euclidean": plugins.EuclideanInUnits,
    "units entropic": plugins.EntropicInUnits,
}
NAMES = (*sets.available_sets(), *(f"penalised {each}" for each in PENALTIES), *PLUGINS, *UNITS)
KINDS = ("quadratic", "exponential", "parameter", "squares")
GENERATORS = tuple(f"{name}: {kind}" for kind in KINDS for name in NAMES)
CASES, MIXES = 4, 40
SOLVED = 1e-5
"""What a solver may be off, over the size of the optimum: Clarabel stops at 1e-8 of data that it scaled."""


class Problem(NamedTuple):
    """A set, the losses A x + b or their squares, the price of the support function, and g about a point."""

    subject: Any
    kind: str
    A: Array
    b: Array
    price: float
    about: Array

    def losses(self, x: Array) -> Array:
        """The losses at x."""
        affine = self.A @ x + self.b
        return affine**2 if self.kind == "squares" else affine

    def other(self, x: Array) -> float:
        """g."""
        if self.kind == "exponential":
            return float(2.0 * np.cosh(x).sum())
        return float(((x - self.about) ** 2).sum())

    def best(self, p: Array) -> Array:
        """The x with the least τ·pᵀlosses(x) + g(x)."""
        if self.kind == "squares":
            weighed = self.price * p[:, None] * self.A
            normal = self.A.T @ weighed + np.eye(self.about.size)
            return np.asarray(np.linalg.solve(normal, self.about - weighed.T @ self.b), dtype=np.float64)
        slope = self.price * (p @ self.A)
        return np.asarray(
            np.arcsinh(-0.5 * slope) if self.kind == "exponential" else self.about - 0.5 * slope
        )


def batch(rng: Rng, generator: str) -> Batch:
    """Some problems of one kind."""
    name, _, kind = generator.partition(": ")
    found = Batch()
    for k in range(CASES):
        problem = draw(rng, name, kind)
        answer = asked(partial(_solve, problem))
        found.cases += 1
        if isinstance(answer, Exception):
            found.failed(answer, problem.b.size, f"{generator}, case {k}")
        else:
            x, optimum = answer
            judge(found, problem, x, optimum, f"{generator}, case {k}")
    return found


def draw(rng: Rng, name: str, kind: str) -> Problem:
    """A set of the kind and ordinary losses."""
    n, m = int(rng.choice([2, 3, 5, 10])), int(rng.choice([1, 2, 4]))
    q = rng.dirichlet(np.ones(n))
    if name.startswith("penalised"):
        weight = 10.0 ** rng.uniform(-1.0, 1.0)
        subject: Any = sets.Penalised(name.partition(" ")[2], q, float(weight))
    elif name in PLUGINS:
        subject = PLUGINS[name](0.9 * q + 0.1 / n, float(10.0 ** rng.uniform(-2.0, 0.0)))
    elif name in UNITS:
        scale, link = (float(each) for each in 10.0 ** rng.uniform(-8.0, 8.0, 2))
        link = link if rng.random() < 0.5 else 0.0
        subject = UNITS[name](0.9 * q + 0.1 / n, float(10.0 ** rng.uniform(-2.0, 0.0)), scale, link)
    else:
        subject = sets.get_set(name).example(n, rng)
    price = float(10.0 ** rng.uniform(-1.0, 1.0)) if kind == "parameter" else 1.0
    return Problem(subject, kind, rng.normal(size=(n, m)), rng.normal(size=n), price, rng.normal(size=m))


def _solve(given: Problem) -> tuple[Array, float]:
    """x and the optimum as cvxpy finds them, with no solver named; an optimum in doubt is an error."""
    import cvxpy as cp

    x, price = cp.Variable(given.about.size), cp.Parameter(nonneg=True, value=given.price)
    affine = given.A @ x + given.b
    worst = support(given.subject, cp.square(affine) if given.kind == "squares" else affine)
    exponential = given.kind == "exponential"
    other = cp.sum(cp.exp(x) + cp.exp(-x)) if exponential else cp.sum_squares(x - given.about)
    problem = cp.Problem(cp.Minimize((price * worst if given.kind == "parameter" else worst) + other))
    with warnings.catch_warnings():
        # cvxpy's own, of its choice of a solver
        warnings.simplefilter("ignore", DeprecationWarning)
        problem.solve()
    if problem.status != cp.OPTIMAL:
        raise ArithmeticError(f"cvxpy ended with status {problem.status!r}")
    return np.asarray(x.value, dtype=float), float(problem.solution.opt_val)


def judge(found: Batch, given: Problem, x: Array, optimum: float, call: str) -> None:
    """Compare with what the set's oracle attains at x, and with what mixes of its distributions prove."""
    attained = value_at(given, x)[0]
    allowed = SOLVED * (1.0 + abs(attained) + float(np.abs(given.losses(x)).max()) * given.price)
    least = lower_bound(given, x, 0.1 * allowed)
    found.compared += 1
    found.saw(float((attained - least) / allowed * SOLVED))
    found.check(
        {
            "x is not the best": (attained - least, allowed),
            "the optimum is not attained": (abs(optimum - attained), allowed),
            "lower bound above the optimum": (least - attained, allowed),
        },
        given.b.size,
        call,
    )


def value_at(given: Problem, x: Array) -> tuple[float, Array, float]:
    """The objective at x by the oracle, the worst p there, and what p pays for its divergence."""
    f = given.losses(x)
    answer = given.subject.worst_case(f)
    return given.price * answer.value + given.other(x), answer.p, float(answer.p @ f) - answer.value


def lower_bound(given: Problem, x: Array, enough: float) -> float:
    """The most that mixes of worst cases prove; the penalty of a mix is at most the mix of theirs."""
    from scipy.optimize import minimize

    _, p, cost = value_at(given, x)
    P, costs, best = p[None], np.array([cost]), -np.inf

    def proved(share: Array) -> tuple[float, Array]:
        at = given.best(share @ P)
        f = given.losses(at)
        each = given.price * (P @ f - costs)
        return -float(share @ each + given.other(at)), -each

    share = np.ones(1)
    for _ in range(MIXES):
        if share.size > 1:
            bounds = [(0.0, 1.0)] * share.size
            one: dict[str, Any] = {"type": "eq", "fun": lambda s: s.sum() - 1.0, "jac": np.ones_like}
            share = minimize(
                proved, share, jac=True, method="SLSQP", bounds=bounds, constraints=[one], tol=1e-12
            ).x.clip(0.0)
            share /= share.sum()
        best = max(best, -proved(share)[0])
        attained, p, cost = value_at(given, given.best(share @ P))
        if attained - best <= enough:
            break
        P, costs, share = np.vstack([P, p]), np.append(costs, cost), np.append(share, 0.0)
    return best
