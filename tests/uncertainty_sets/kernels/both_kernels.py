"""Run every kernel twice, from the library and by numba, and compare what they return and write.

A script of its own: kernels are chosen when their files are imported. Prints, as JSON, how often each entry
was called and every difference that was found.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from typing import Any

import numpy as np

from uncertainty_sets.kernels import jit
from uncertainty_sets.kernels.layout import BOUND, LOWER, RADIUS, RADIUS_STATUS, STATUS, VALUE
from uncertainty_sets.kernels.native import library

CLOSE = 1e-12
POINTS = {"P": 1e-9, "multipliers": 1e-9, "policy": 1e-6, "tilts": 1e-6}
"""Where a maximum is attained: near it, values differ by the square of what the points do."""
SINGLE = 1e-6
"""Of arrays of float32: a few of their rounding errors."""
JOINT = (".improve", ".evaluate")
"""The kernels of joint budgets, whose searches end at a gap of 1e-11: rounding decides the last step."""
ROUNDING = 2.0**-52
"""Times the condition of a matrix: what adding in another order may change of a system's solution. Libraries
add with vectors of another width than numba; with the same width they agree to the last bit."""
calls: Counter[str] = Counter()
wrong: list[str] = []


class Both:
    """Stands for an entry: calls both forms on copies of the arguments, and returns the library's result."""

    def __init__(self, name: str, fast: Any) -> None:
        self.name, self.fast = name, fast

    @property
    def _numba_type_(self) -> Any:
        return jit.ENTRIES[self.name].function._numba_type_

    def __call__(self, *arguments: Any) -> Any:
        entry = jit.ENTRIES[self.name]
        names = entry.function.__wrapped__.__code__.co_varnames
        before = [each.copy() if isinstance(each, np.ndarray) else each for each in arguments]
        twin = [each.copy() if isinstance(each, np.ndarray) else each for each in arguments]
        result, other = self.fast(*arguments), entry.function(*twin)
        calls[self.name] += 1
        self.compare("result", result, other)
        given = dict(zip(names, arguments, strict=False))
        written = [given[name] for name in entry.writes]
        least = ROUNDING * float(np.max(given.get("condition", 0.0)))
        for name, old, other_one in zip(given, before, twin, strict=True):
            ours = given[name]
            if name in entry.writes:
                self.compare(name, ours, other_one, least)
            elif any(np.shares_memory(ours, each) for each in written):
                continue  # `warm` may be a part of `out`
            elif not np.array_equal(old, ours, equal_nan=True):
                wrong.append(f"{self.name} writes {name}, which its entry does not name")
        return result

    def compare(self, name: str, ours: Any, theirs: Any, least: float = 0.0) -> None:
        """Record a difference; what counts iterations, which rounding decides, is left out."""
        if type(ours) is not type(theirs):
            wrong.append(f"{self.name}, {name}: {type(ours).__name__} and {type(theirs).__name__}")
        if ours is None or type(ours) is int:
            return
        a, b = np.asarray(ours, dtype=float), np.asarray(theirs, dtype=float)
        if name == "out" and "_radius." in self.name:
            a, b = a[:, [RADIUS, LOWER, RADIUS_STATUS]], b[:, [RADIUS, LOWER, RADIUS_STATUS]]
        elif name == "out" and self.name.endswith(".rows"):
            a, b = a[:, [VALUE, BOUND, STATUS]], b[:, [VALUE, BOUND, STATUS]]
        elif name == "out" and self.name.endswith((".ragged", *JOINT)):
            a, b = a[[VALUE, BOUND, STATUS]], b[[VALUE, BOUND, STATUS]]
        close = POINTS.get(name, 1e-9 if self.name.endswith(JOINT) else CLOSE)
        close = max(close, least)
        if getattr(ours, "dtype", None) == np.float32:
            close = SINGLE
        size = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
        scale = 1.0 if name == "out" else max(1.0, size)  # `out` may have cells that no kernel writes
        if not np.allclose(a, b, rtol=close, atol=close * scale, equal_nan=True):
            apart = float(np.nanmax(np.abs(a - b)))
            wrong.append(f"{self.name}, {name}: {apart:.1e} apart at a scale of {scale:.1e}")


class Twins:
    """Stands for a file's library, whose every function becomes a `Both`."""

    def __init__(self, module: str, made: Any) -> None:
        self.module, self.made = module, made

    def __getattr__(self, name: str) -> Both:
        return Both(f"{self.module}.{name}", getattr(self.made, name))


def watch() -> None:
    """From now on, every kernel file that is imported gets `Both`."""
    found = library.find

    def both(module: str, file: str) -> Any:
        made = found(module, file)
        return None if made is None else Twins(module, made)

    library.find = both


def ask_every_set(rng: np.random.Generator) -> None:
    """Single losses, batches, warm starts, parameters by row, projections, residuals: every closed form."""
    import uncertainty_sets as us

    for size in (1, 2, 10, 300):
        q = rng.dirichlet(np.ones(size))
        A = rng.normal(size=(size, size))
        positions = np.sort(rng.normal(size=size))
        sets = [each.example(size, rng) for each in map(us.get_set, us.available_sets())]
        sets += [
            us.CDNorm(q, 0.5 / size, 0.3 * size),
            us.Ellipsoid(q, A @ A.T / size + np.eye(size), 0.05),
            us.Ellipsoid(q, A @ A.T / size + 1e-7 * np.eye(size), 0.05),
            us.Wasserstein1(q, 0.1, positions),
            us.Wasserstein1(q, 0.1, np.abs(positions[:, None] - positions[None, :])),
            us.KL(rng.dirichlet(np.ones(size), size=3), [0.01, 0.1, 1.0]),
            us.Intersection(us.ChiSquare(q, 0.2), us.Box(0.5 * q, np.minimum(1.0, 1.5 * q + 0.01))),
        ]
        for each in sets:
            if not each.has_closed_form:
                continue
            rows = 3 if each.rows is None else each.rows
            F = rng.normal(size=(rows, size))
            answer = each.worst_case(F)
            each.worst_case(F + 0.01, warm_start=answer)
            if each.rows is None:
                first = each.worst_case(F[0])
                each.worst_case(F[1], warm_start=first)
                each.worst_case(np.round(F[2]))
                each.violation(first.p)
                if each.sized_by:
                    mean = float(each.reference() @ F[0])
                    each.radius_for(F[0], mean + 0.3 * (F[0].max() - mean))
                if (nearest := each._projection()) is not None:
                    nearest(rng.normal(size=size))


def ask_ragged_rows(rng: np.random.Generator) -> None:
    """Rows of different lengths, cold and from an earlier answer."""
    from tests.uncertainty_sets.ragged_cases import KINDS, VALUES, rows_of, structure

    for kind in KINDS:
        indptr, indices = structure(rng, 40)
        rows = rows_of(kind, rng, indptr, indices)
        before = rows.worst_case(rng.normal(size=VALUES))
        rows.worst_case(rng.normal(size=VALUES), warm_start=before)


def ask_joint_budgets(rng: np.random.Generator) -> None:
    """States whose actions share a budget: improve and evaluate, cold and from an earlier answer."""
    from uncertainty_sets.mdp.by_state import KINDS, ByState
    from uncertainty_sets.mdp.model import MDP

    model = MDP(rng.dirichlet(np.ones(9), size=(9, 3)), rng.normal(size=(9, 3)), 0.9)
    for kind in KINDS:
        updates = ByState(model, kind, 0.2)
        for v in rng.normal(size=(2, 9)):
            updates.evaluate(updates.improve(v).policy, v)


def solve_chains(rng: np.random.Generator) -> None:
    """The value of a policy in a chain too large for a dense system, with rewards of both kinds."""
    from uncertainty_sets.mdp.iterate import value_of_chain
    from uncertainty_sets.mdp.model import MDP

    P = rng.dirichlet(np.ones(300), size=(300, 2))
    for rewards in (rng.normal(size=(300, 2)), rng.normal(size=P.shape)):
        model = MDP(P, rewards, 0.9)
        value_of_chain(model, np.full(600, 0.5), model.probabilities, np.zeros(300), 1e-6)


def solve_badly_conditioned(rng: np.random.Generator) -> None:
    """An ellipsoid whose closed form has no proof: the solver's answer is made feasible by a kernel."""
    from uncertainty_sets import Ellipsoid

    steps = np.logspace(0, -13, 40)
    basis, _ = np.linalg.qr(rng.normal(size=(40, 40)))
    hard = Ellipsoid(rng.dirichlet(np.ones(40)), (basis * steps) @ basis.T, 0.05)
    hard._by_solver(rng.normal(size=40))


def train(rng: np.random.Generator) -> None:
    """Short runs of every algorithm and form, which between them call every kernel of the driver."""
    from fdro_core import (
        AspireEase,
        AspireModels,
        Crash,
        LogNormal,
        SoftmaxRegression,
        VirtualEngine,
        baselines,
        solve,
    )
    from fdro_core.problems import DenseNetwork
    from uncertainty_sets import Box, Ellipsoid

    X = [rng.normal(size=(12, 3)) for _ in range(4)]
    y = [rng.integers(0, 3, size=12) for _ in range(4)]
    problems = [SoftmaxRegression(a, b, 3, l2=1e-2, intercept=False) for a, b in zip(X, y, strict=True)]
    algorithms: list[Any] = [
        kind(iterations=60, active_workers=active, **more)
        for kind, active, more in (
            (AspireModels, 1, {}),
            (AspireModels, 2, {"batch_size": 4}),
            (AspireEase, 1, {}),
            (AspireEase, 2, {"parameter_bound": 5.0}),
            (AspireEase, 1, {"plane_dual_step": 0.1, "deadline": 5.0}),
        )
    ]
    algorithms += [getattr(baselines, name)(iterations=20) for name in baselines.__all__]
    for uncertainty_set in (
        Box(np.full(4, 0.05), np.full(4, 0.6)),
        Ellipsoid(np.full(4, 0.25), np.full(4, 0.25), 0.1),
    ):
        for algorithm in algorithms:
            lost = [Crash(0, 9.0, 14.0)] if algorithm.deadline else []
            engine = VirtualEngine(seed=2, delays=LogNormal(1.0, 0.5), crashes=lost)
            solve(problems, uncertainty_set, algorithm=algorithm, engine=engine)
    everyone = Box(np.zeros(12), np.ones(12))  # so many workers that the planes' sums are followed
    solve(problems * 3, everyone, algorithm=AspireModels(iterations=60, batch_size=4))
    for dtype in (np.float32, np.float64):
        network = DenseNetwork(X[0], y[0], 3, hidden=(5, 4), dropout=(0.1, 0.2, 0.3), dtype=dtype)
        network.loss_and_gradient(network.initial_point(rng), rng, 8)
    fit_groups(rng, np.vstack(X), np.concatenate(y))


def fit_groups(rng: np.random.Generator, X: Any, y: Any) -> None:
    """Losses and gradients of linear models over all groups, of every kind, dense and sparse."""
    from scipy.sparse import csr_array

    from fdro_core.estimators.groups import KINDS, GroupedRegression, GroupedSoftmax

    group = np.arange(y.size) % 4
    for samples in (X, csr_array(X)):
        GroupedSoftmax(samples, y, group, 3).evaluate(rng.normal(size=12))
        GroupedSoftmax(samples, y > 0, group, 2).evaluate(rng.normal(size=4))
        for loss in KINDS:
            model = GroupedRegression(samples, y - 0.5, group, loss, width=0.5, center=0.1 * y)
            model.evaluate(rng.normal(size=4))


def main() -> None:
    """Watch, run everything, and print what was seen."""
    watch()
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(3)
    ask_every_set(rng)
    ask_ragged_rows(rng)
    ask_joint_budgets(rng)
    solve_chains(rng)
    solve_badly_conditioned(rng)
    train(rng)
    print(json.dumps({"calls": dict(calls), "entries": sorted(jit.ENTRIES), "wrong": sorted(set(wrong))}))


if __name__ == "__main__":
    main()
