"""The problems the driver is measured on, and their optima by an independent conic model."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from fdro_core import LeastSquares, Problem, SoftmaxRegression
from uncertainty_sets import KL, Box, CDNorm, Ellipsoid, Polyhedron, Wasserstein1
from uncertainty_sets.arrays import Array

CLARABEL: tuple[dict[str, Any], ...] = (
    {},
    {"min_terminate_step_length": 1e-6, "max_step_fraction": 0.9},
    {"equilibrate_enable": False},
)


class Scaled:
    """A problem with its losses multiplied by a factor."""

    def __init__(self, problem: Any, factor: float) -> None:
        self.problem = problem
        self.factor = factor
        self.dimension = problem.dimension
        self.strong_convexity = factor * problem.strong_convexity

    def loss_and_gradient(
        self, w: Array, rng: np.random.Generator | None = None, batch_size: int | None = None
    ) -> tuple[float, Array]:
        """The problem's own, times the factor."""
        loss, gradient = self.problem.loss_and_gradient(w, rng, batch_size)
        return self.factor * loss, self.factor * gradient

    def metric(self) -> Array:
        """The problem's own, times the factor."""
        metric: Array = self.factor * self.problem.metric()
        return metric


class Counted:
    """A problem that counts its evaluations, whoever asks for them: start-up included."""

    def __init__(self, problem: Any) -> None:
        self.problem = problem
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.problem, name)

    def loss_and_gradient(self, *arguments: Any) -> tuple[float, Array]:
        """The problem's own, counted."""
        self.calls += 1
        answer: tuple[float, Array] = self.problem.loss_and_gradient(*arguments)
        return answer


def classification(
    workers: int,
    *,
    seed: int = 0,
    features: int = 5,
    classes: int = 3,
    samples: tuple[int, int] = (20, 200),
    condition: float = 1.0,
    agreement: float = 0.5,
    l2: float = 1e-3,
) -> list[SoftmaxRegression]:
    """Workers whose labels follow models of their own around a common one, on shifted features.

    `condition` is the ratio of the largest to the smallest feature scale.
    """
    rng = np.random.default_rng(seed)
    scales = np.geomspace(1.0, 1.0 / condition, features)
    common = 2.0 * rng.normal(size=(features, classes))
    problems = []
    for _ in range(workers):
        n = int(rng.integers(*samples, endpoint=True))
        X = rng.normal(size=(n, features)) + 0.7 * rng.normal(size=features)
        own = 2.0 * rng.normal(size=(features, classes))
        scores = X @ (agreement * common + (1 - agreement) * own)
        y = np.argmax(scores + rng.gumbel(size=(n, classes)), axis=1)
        problems.append(SoftmaxRegression(X * scales, y, classes, l2=l2, intercept=False))
    return problems


def regression(workers: int, *, seed: int = 0, features: int = 6, noise: float = 0.5) -> list[LeastSquares]:
    """Least squares with a coefficient vector of its own for each worker, around a common one."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=features)
    problems = []
    for _ in range(workers):
        n = int(rng.integers(15, 150))
        X = rng.normal(size=(n, features)) * rng.uniform(0.5, 1.5)
        w = common + 0.7 * rng.normal(size=features)
        problems.append(LeastSquares(X, X @ w + noise * rng.normal(size=n), intercept=False))
    return problems


def six_sets(workers: int, seed: int = 0) -> dict[str, Any]:
    """One set of each kind, of middle size, around a random prior."""
    rng = np.random.default_rng(seed + 1000)
    q = rng.dirichlet(np.full(workers, 5.0))
    D = np.vstack([np.eye(workers), rng.uniform(0.0, 1.0, size=(3, workers))])
    c = np.concatenate([3.0 * q, D[workers:] @ q + 0.05])
    return {
        "box": Box(0.3 * q, np.minimum(1.0, 3.0 * q)),
        "cd-norm": CDNorm(q, 0.8 * q, 0.5 * workers),
        "ellipsoid": Ellipsoid(q, q, 0.3),
        "kl": KL(q, 0.2),
        "polyhedron": Polyhedron(D, c),
        "wasserstein-1": Wasserstein1(q, 0.1 * workers),
    }


def optimum(problems: Sequence[Any], uncertainty_set: Any) -> float:
    """min over w of max over p in P of pᵀf(w), by `robust.support` and Clarabel.

    Clarabel's defaults end in numerical errors on some of these problems, so a common factor of the losses is
    taken out, and features are tried scaled and as they are, steps as they are and shortened.
    """
    import cvxpy as cp

    from uncertainty_sets.robust import support

    factor, problems = _common_factor(problems)
    measured = np.sqrt(np.mean([np.mean(problem.X**2, axis=0) for problem in problems], axis=0))
    v = cp.Variable(problems[0].dimension)
    values = []
    for scale, options in product((measured, np.ones_like(measured)), CLARABEL):
        losses = [_model(problem, v, scale) for problem in problems]
        problem = cp.Problem(cp.Minimize(support(uncertainty_set, losses)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # cvxpy says "inaccurate"; the status says it too
            try:
                problem.solve(solver=cp.CLARABEL, **options)
            except cp.SolverError:
                continue
        if problem.status == cp.OPTIMAL:
            return factor * float(problem.value)
        if problem.status == cp.OPTIMAL_INACCURATE:
            values.append(factor * float(problem.value))
    if values:
        return min(values)
    raise RuntimeError("Clarabel found no optimum")


def cutting_planes(
    problems: Sequence[Any], uncertainty_set: Any, tolerance: float = 1e-7, rounds: int = 200
) -> float:
    """The same optimum without a conic solver or the driver: SciPy's SLSQP on planes pᵀf(w) <= h.

    Each round asks the oracle for the worst p at the model's own optimum, until the model's value h, which
    is below the optimum, and the objective there, which is above, are within `tolerance` of each other.
    """
    from scipy.optimize import minimize

    factor, problems = _common_factor(problems)
    planes = [np.asarray(uncertainty_set.reference())]
    metric = np.sqrt(np.mean([problem.metric() for problem in problems], axis=0))
    seen: dict[bytes, tuple[Array, Array]] = {}

    def at(x: Array) -> tuple[Array, Array]:
        """(losses, gradients as rows) at w = x[1:] / metric."""
        key = x[1:].tobytes()
        if key not in seen:
            seen.clear()
            pairs = [problem.loss_and_gradient(x[1:] / metric) for problem in problems]
            seen[key] = np.array([f for f, _ in pairs]), np.array([g / metric for _, g in pairs])
        return seen[key]

    x = np.zeros(1 + len(metric))
    x[0] = uncertainty_set.worst_case(at(x)[0]).value
    unit = abs(x[0])
    ahead = np.eye(1, len(x))[0]
    for _ in range(rounds):
        P = np.array(planes)
        under = {
            "type": "ineq",
            "fun": lambda x, P=P: (x[0] - P @ at(x)[0]) / unit,
            "jac": lambda x, P=P: np.column_stack([np.ones(len(P)), -P @ at(x)[1]]) / unit,
        }
        x = minimize(
            lambda x: x[0] / unit,
            x,
            jac=lambda x: ahead / unit,
            constraints=[under],
            method="SLSQP",
            options={"ftol": 1e-12, "maxiter": 1000},
        ).x
        answer = uncertainty_set.worst_case(at(x)[0])
        if answer.value - x[0] <= tolerance * unit:
            return factor * float(answer.value)
        planes.append(np.asarray(answer.p))
    raise RuntimeError("cutting planes found no optimum")


def reference(problems: Sequence[Any], uncertainty_set: Any) -> tuple[float, str]:
    """The optimum, and what found it: Clarabel and cutting planes, or the one of them that does.

    Both values are objectives at a point, so the lower of the two is the better; if they differ by more
    than 1e-5, the text says so. RuntimeError if neither finds one.
    """
    found: dict[str, float] = {}
    for name, solver in (("Clarabel", optimum), ("SLSQP planes", cutting_planes)):
        with contextlib.suppress(RuntimeError):
            found[name] = solver(problems, uncertainty_set)
    if not found:
        raise RuntimeError("no optimum by Clarabel or by SLSQP on planes")
    best, most = min(found.values()), max(found.values())
    if len(found) == 1:
        return best, f"{next(iter(found))} only"
    apart = (most - best) / max(abs(best), 1e-300)
    return best, "both" if apart <= 1e-5 else f"{min(found, key=found.__getitem__)} ({apart:.0e} apart)"


def _common_factor(problems: Sequence[Any]) -> tuple[float, Sequence[Any]]:
    """Return the common factor of all losses, 1 if there is none, and the problems without it."""
    factors = {problem.factor if isinstance(problem, Scaled) else None for problem in problems}
    factor = factors.pop()
    if factors or factor is None:
        return 1.0, problems
    return factor, [problem.problem for problem in problems]


def _model(problem: Any, v: Any, scale: Array) -> Any:
    """The loss as a cvxpy expression of v, where w = v / scale feature by feature."""
    import cvxpy as cp

    n, X = len(problem.y), problem.X / scale
    width = problem.dimension // len(scale)
    ridge = 0.5 * problem.l2 * cp.sum_squares(cp.multiply(v, np.repeat(1.0 / scale, width)))
    if isinstance(problem, LeastSquares):
        return 0.5 / n * cp.sum_squares(X @ v - problem.y) + ridge
    scores = X @ cp.reshape(v, (len(scale), problem.classes), order="C")
    own = cp.sum(cp.multiply(np.eye(problem.classes)[problem.y], scores))
    return (cp.sum(cp.log_sum_exp(scores, axis=1)) - own) / n + ridge


def robust_value(problems: Sequence[Problem], uncertainty_set: Any, w: Array) -> float:
    """max over p in P of pᵀf(w)."""
    losses = np.array([problem.loss_and_gradient(w)[0] for problem in problems])
    return float(uncertainty_set.worst_case(losses).value)


def relative_gap(value: float, best: float, start: float) -> float:
    """(value - best) / max(|best|, start - best)."""
    return (value - best) / max(abs(best), start - best)
