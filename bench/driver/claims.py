"""What runs claim, against a direct solve: random convex problems, sets, units, losses of workers, resumes.

A case is drawn by its number: least squares or softmax regression with a ridge, some with nearly collinear
features, in units of its own for each worker; one of the six sets; S; local steps; crashes of workers that
return or not; and for a third of the cases a checkpoint in the middle, from which the run goes on, every
other time in another set by force. The optimum is that of a conic program for all workers at once
(`robust.support`), which shares nothing with the run.
"""

from __future__ import annotations

import tempfile
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.driver.problems import Scaled, classification, regression, robust_value, six_sets
from fdro_core import AspireModels, Crash, LeastSquares, Result, VirtualEngine, resume, solve
from fdro_core.observers import Checkpoint
from fdro_core.result import CONVERGED
from uncertainty_sets.arrays import Array

NEAR = 1e-5  # of max(|optimum|, start - optimum): what "converged" may be off by
ACCURATE = 1e-6  # of the same: what the conic solver is off by, at most


@dataclass
class Case:
    """One case, and what was made of it.

    Attributes:
        problems, chosen: of the run at its end.
        settings: of the algorithm.
        crashes: of the engine.
        other: the set with which the run began, None if that is `chosen`.
        stop: the iteration of the checkpoint, 0 without.
    """

    problems: list[Any]
    chosen: Any
    settings: dict[str, Any]
    crashes: list[Crash]
    other: Any
    stop: int

    def run(self) -> Result:
        """The run, resumed if the case has a checkpoint."""

        def engine() -> VirtualEngine:
            return VirtualEngine(seed=1, crashes=self.crashes)

        whole = AspireModels(**self.settings)
        with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
            warnings.simplefilter("ignore")
            if not self.stop:
                return solve(self.problems, self.chosen, algorithm=whole, engine=engine())
            path, first = Path(folder) / "run.npz", self.chosen if self.other is None else self.other
            begun = AspireModels(**self.settings | {"iterations": self.stop})
            solve(self.problems, first, algorithm=begun, engine=engine(), observers=[Checkpoint(path)])
            forced = self.other is not None
            return resume(path, self.problems, self.chosen, algorithm=whole, engine=engine(), force=forced)


def draw(number: int) -> Case:
    """The case of that number."""
    rng = np.random.default_rng([34, number])
    N = int(rng.integers(1, 7))
    if rng.random() < 0.3:
        plain: list[Any] = list(classification(N, seed=number, features=3, samples=(10, 60), l2=_ridge(rng)))
    else:
        alike = 10.0 ** rng.uniform(-5.0, -1.0) if rng.random() < 0.3 else 1.0  # 1: features as they are
        plain = [
            LeastSquares(
                alike * each.X + (1.0 - alike) * each.X[:, :1], each.y, l2=_ridge(rng), intercept=False
            )
            for each in regression(N, seed=number, features=4)
        ]
    units = 10.0 ** rng.uniform(0.0, rng.choice([0.0, 2.0, 4.0]), size=N)
    problems = [Scaled(each, float(unit)) for each, unit in zip(plain, units, strict=True)]
    sets = six_sets(N, seed=number)
    names = sorted(sets)
    chosen, other = (sets[str(rng.choice(names))] for _ in range(2))
    epochs = 400
    S = int(rng.integers(1, N + 1))
    settings = {
        "active_workers": S,
        "iterations": epochs * -(-N // S),
        "local_steps": int(rng.choice([1, 1, 2, 5])),
        "dead_losses": str(rng.choice(["freeze", "drop"])),
    }
    crashes = []
    if N > 1 and rng.random() < 0.5:
        at = float(rng.uniform(1.0, 20.0))
        until = at + float(rng.choice([3.0, 30.0, np.inf]))
        crashes.append(Crash(int(rng.integers(N)), at, until))
    kind = int(rng.integers(6))  # a resume in two of six cases, forced in one
    stop = int(rng.integers(1, 40)) if kind < 2 else 0
    return Case(problems, chosen, settings, crashes, other if kind == 0 else None, stop)


def _ridge(rng: np.random.Generator) -> float:
    return float(rng.choice([1e-1, 1e-2, 1e-3, 1e-5]))


def optimum(case: Case) -> float:
    """min over w of max over p in P of pᵀf(w), by one conic program; RuntimeError if it is not solved."""
    import cvxpy as cp

    from uncertainty_sets.robust import support

    unit = max(each.factor for each in case.problems)
    v = cp.Variable(case.problems[0].dimension)
    losses = [each.factor / unit * _loss(each.problem, v) for each in case.problems]
    problem = cp.Problem(cp.Minimize(support(case.chosen, losses)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-10, tol_feas=1e-10)
        except cp.SolverError as error:
            raise RuntimeError("not solved") from error
    if problem.status not in {"optimal", "optimal_inaccurate"}:
        raise RuntimeError(problem.status)
    # The value at the program's own w is an objective that can be had: the optimum is not above it.
    return robust_value(case.problems, case.chosen, np.asarray(v.value))


def _loss(problem: Any, v: Any) -> Any:
    """The loss as an expression of v."""
    import cvxpy as cp

    n, ridge = len(problem.y), 0.5 * problem.l2 * cp.sum_squares(v)
    if isinstance(problem, LeastSquares):
        return 0.5 / n * cp.sum_squares(problem.X @ v - problem.y) + ridge
    scores = problem.X @ cp.reshape(v, (problem.X.shape[1], problem.classes), order="C")
    own = cp.sum(cp.multiply(np.eye(problem.classes)[problem.y], scores))
    return (cp.sum(cp.log_sum_exp(scores, axis=1)) - own) / n + ridge


def faults(case: Case, result: Result, best: float) -> list[str]:
    """What the run claims that is not so."""
    value = robust_value(case.problems, case.chosen, result.w)
    zero: Array = np.zeros(case.problems[0].dimension)
    start = robust_value(case.problems, case.chosen, zero)
    best = min(best, value)
    unit = max(abs(best), start - best)
    found = []
    if result.lower_bound > best + ACCURATE * unit:
        found.append(f"the lower bound {result.lower_bound:.9g} is above the optimum {best:.9g}")
    if np.isfinite(result.gap) and result.objective - result.gap > best + ACCURATE * unit:
        found.append(f"the gap {result.gap:.3g} is too small: {result.objective:.9g}, optimum {best:.9g}")
    if result.stop_reason == CONVERGED and value - best > NEAR * unit:
        found.append(f"converged {(value - best) / unit:.1e} from the optimum")
    if result.proved and value > start * (1.0 + np.sign(start) * 1e-12):
        found.append(f"ended at {value:.6g}, above its start, {start:.6g}")
    return found


def claims() -> None:
    """500 random convex runs against a direct solve: what they claim, and how they end."""
    if judge(range(500)):
        raise SystemExit(1)


def judge(numbers: range) -> list[str]:
    """What was wrong in the cases of these numbers. Prints how they ended."""
    wrong, ends, worst, unsolved = [], Counter[str](), 0.0, 0
    far = Counter[str]()
    for number in numbers:
        case = draw(number)
        try:
            best = optimum(case)
        except RuntimeError:
            unsolved += 1
            best = (
                np.inf
            )  # the run's own value then counts as the optimum: its start and its bound are judged
        result = case.run()
        wrong += [f"case {number}: {what}" for what in faults(case, result, best)]
        ends[result.stop_reason] += 1
        if np.isfinite(best):
            zero = np.zeros(case.problems[0].dimension)
            unit = max(abs(best), robust_value(case.problems, case.chosen, zero) - best)
            off = (robust_value(case.problems, case.chosen, result.w) - best) / unit
            complete = bool(np.isfinite(result.losses).all())
            if result.stop_reason == CONVERGED:
                worst = max(worst, off)
            elif complete and off > 1e-4:
                far[result.stop_reason] += 1
    print(f"{len(numbers)} cases: " + ", ".join(f"{n} {end}" for end, n in ends.most_common()), end="")
    print(f"; {unsolved} without a direct solve; the farthest that converged: {worst:.1e}; ", end="")
    print(f"more than 1e-4 off without a claim: {dict(far)}")
    print("\n".join(wrong) or "no claim was wrong")
    return wrong
