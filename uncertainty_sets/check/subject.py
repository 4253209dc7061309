"""A set under test, losses to try it on, and the same problem solved a second time by cvxpy itself."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from uncertainty_sets.errors import FdroError
from uncertainty_sets.kernels.layout import PROMISE
from uncertainty_sets.verdict import expected_loss

if TYPE_CHECKING:
    import cvxpy

    from uncertainty_sets.answer import WorstCase
    from uncertainty_sets.arrays import Array
    from uncertainty_sets.base import UncertaintySet

CONIC_GAP = 1e-7
"""The gap that conic solvers reach, relative to max(f) - min(f): asked for 1e-11, they may stop at 1e-8."""

FEASIBLE = 1e-8
"""The largest violation of an answer; closed forms stay far below."""

FIRST_ORDER = 1e-3
"""The largest violation of an answer by a first-order method (SCS), asked for by name."""

MODEL = 1e-5
"""How far cvxpy's own answer may be from the maximum, relative to the spread: solvers stop at 1e-8 on scaled
data, and exponential cones are the hardest of them."""


PROVED = 1e-8
"""By how much an answer may exceed what is proved, relative to half the spread: rounding, and room for p."""


def trial_losses(size: int, rng: np.random.Generator) -> dict[str, Array]:
    """Losses of every kind that has caused trouble, by name."""
    normal = rng.normal(size=size)
    return {
        "normal": normal,
        "normal again": rng.normal(size=size),
        "ties": rng.integers(-2, 3, size).astype(np.float64),
        "two values": rng.integers(0, 2, size).astype(np.float64),
        "zeros": np.zeros(size),
        "all equal": np.full(size, -0.7),
        "negative": -1.0 - rng.random(size),
        "only the first": np.eye(size)[0],
        "only the last": np.eye(size)[-1],
        "all but the last": 1.0 - np.eye(size)[-1],
        "rising": np.arange(size, dtype=np.float64),
        "many sizes": np.exp(3.0 * rng.normal(size=size)),
        "a large shift": normal + 1e6,
        "1e150 times": 1e150 * normal,
        "1e-150 times": 1e-150 * normal,
    }


class Subject:
    """A set with a size, losses by name, and its answers to them, each asked for once."""

    def __init__(self, uncertainty_set: UncertaintySet, losses: dict[str, Array], seed: int = 0) -> None:
        self.set, self.losses, self.seed = uncertainty_set, losses, seed
        self.size = next(iter(losses.values())).size
        self.state = state(uncertainty_set)
        self.overwritten: dict[str, Array] = {}  # losses that the set wrote into
        self.backends: dict[str, None] = {}  # those that answered
        self._answers: dict[str, WorstCase] = {}

    @property
    def rng(self) -> np.random.Generator:
        """The same numbers for every property, whatever ran before."""
        return np.random.default_rng([self.seed, 1])

    def answer(self, name: str) -> WorstCase:
        """The set's answer to the losses of that name."""
        if name not in self._answers:
            given = self.losses[name].copy()
            try:
                self._answers[name] = self.set.worst_case(given)
            finally:
                if not np.array_equal(given, self.losses[name]):
                    self.overwritten[name] = given
        return self._answers[name]

    def drop_unanswered(self) -> None:
        """Keep only the losses that the set answered."""
        self.losses = {name: f for name, f in self.losses.items() if name in self._answers}

    @cached_property
    def proof(self) -> Proof:
        """The same problem, for bounds that are proved."""
        return Proof(self.set, self.size)

    @cached_property
    def model(self) -> Model:
        """The same problem, for cvxpy alone to solve."""
        return Model(self.set, self.size)


class Proof:
    """Bounds on the maximum from both sides, from the constraints alone: a p inside, and checked multipliers.

    cvxpy's own answer is known to 1e-5 or so, and hides a radius that is wrong by 1e-6.
    """

    def __init__(self, uncertainty_set: UncertaintySet, size: int) -> None:
        self.plain = _plain(uncertainty_set, size)

    def between(self, losses: Array) -> tuple[float, float] | None:
        """(what a p in the set reaches, what none exceeds) for losses in [-1, 1]; None without such a p."""
        from uncertainty_sets.conic.membership import moved_inside

        try:
            answer = self.plain.worst_case(losses)
        except FdroError:
            return None
        p = moved_inside(self.plain, answer.p, enough=0.0)
        return (float(p @ losses), float(answer.upper_bound)) if self.plain.violation(p) == 0.0 else None


def _plain(uncertainty_set: UncertaintySet, size: int) -> UncertaintySet:
    """A set that has nothing but the other's constraints."""
    from uncertainty_sets.base import UncertaintySet

    class Plain(UncertaintySet):
        def constraints(self, p: cvxpy.Variable) -> list[cvxpy.Constraint]:
            return uncertainty_set.constraints(p)

    plain = Plain()
    plain.size = size
    return plain


NOTHING = 1e-7
"""A probability below this, from an interior-point solver, counts as 0."""


class Model:
    """maximise pᵀf over `constraints(p)` and the simplex, by cvxpy alone."""

    def __init__(self, uncertainty_set: UncertaintySet, size: int) -> None:
        import cvxpy as cp

        self.p, self.losses = cp.Variable(size), cp.Parameter(size)
        stated = [self.p >= 0, cp.sum(self.p) == 1, *uncertainty_set.constraints(self.p)]
        self.problem = cp.Problem(cp.Maximize(self.losses @ self.p), stated)

    def solve(self, losses: Array) -> tuple[float, Array] | None:
        """(the maximum, a p that has it) for losses in [-1, 1]; None if cvxpy has no good answer."""
        import cvxpy as cp

        self.losses.value = losses
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "may be inaccurate": then it is left out
            try:
                self.problem.solve(solver=cp.CLARABEL)
            except cp.error.SolverError:
                return None
        if self.problem.status != cp.OPTIMAL:
            return None
        best, found = float(self.problem.value), self.p.value
        p = np.where(found < NOTHING, 0.0, found)
        p = p / p.sum()
        if not self.holds(p):  # the set may ask for positive entries, however small
            p = np.maximum(found, 0.0)
            p = p / p.sum()
        return best, p

    def holds(self, p: Array) -> bool:
        """Whether the stated equations and inequalities hold at p, by cvxpy's own residuals."""
        from cvxpy.constraints import Equality, Inequality

        self.p.value = p
        plain = [each for each in self.problem.constraints if isinstance(each, Equality | Inequality)]
        return all(bool(np.max(each.violation(), initial=0.0) <= MODEL) for each in plain)


def in_units(f: Array) -> tuple[Array, float, float]:
    """(losses in [-1, 1], middle, scale) with f = middle + scale·losses, at any size without overflow."""
    low, high = float(f.min()), float(f.max())
    middle, scale = 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low
    return ((f - middle) / scale if scale > 0.0 else np.zeros_like(f)), middle, scale


def allowed_gap(f: Array, answer: Any) -> float:
    """The widest gap of an answer to f: the promise of its method, or rounding if that is more."""
    _, spread, rounding = expected_loss(f[None], np.zeros((1, f.size)))
    promise = PROMISE if answer.backend == "closed-form" else CONIC_GAP
    return float(max(promise * spread[0], rounding[0]))


def state(uncertainty_set: UncertaintySet) -> dict[str, Any]:
    """The set's attributes in a form that can be compared; by identity if their values cannot be."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.dtype.str, value.shape, value.tobytes()
        if isinstance(value, list | tuple):
            return [plain(each) for each in value]
        if isinstance(value, Mapping):
            return [(key, plain(each)) for key, each in value.items()]
        return value if isinstance(value, int | float | str | bytes | None) else id(value)

    kept = vars(uncertainty_set).items()
    return {name: plain(value) for name, value in kept if not name.startswith("_cache")}
