"""A set or a backend is one file: copied into a copy of the project, it passes the shared suite as it is.

No list, doctest or other file is edited. The commands run in processes of their own, on the copy.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.copies import copy_package

ROOT = Path(__file__).resolve().parents[2]

CLOSED_FORM_SET = '''
"""Tail: no probability more than a multiple of the centre's."""

from typing import ClassVar

import numpy as np

from uncertainty_sets import UncertaintySet, WorstCase


class Tail(UncertaintySet):
    """The distributions behind CVaR.

    Args:
        center: probabilities, shape (N,).
        level: in [0, 1); 0 leaves the centre alone.
    """

    name: ClassVar[str] = "a-tail"
    summary: ClassVar[str] = "The distributions behind CVaR"
    formula: ClassVar[str] = "p <= q/(1 - level)"
    complexity: ClassVar[str] = "O(N log N)"

    def __init__(self, center, level):
        self.center, self.level = np.array(center, dtype=np.float64), float(level)
        self.size = self.center.size
        self._most = self.center / (1.0 - self.level)

    @classmethod
    def default_parameters(cls, center):
        """The worse half."""
        return super().default_parameters(center) | {"level": 0.5}

    def constraints(self, p):
        """p <= q/(1 - level)."""
        return [p <= self._most]

    def _residual(self, p):
        return float(max((p - self._most).max(), 0.0))

    def _closed_form(self, losses, warm_start):
        found = [self._row_answer(row) for row in np.atleast_2d(losses)]
        p, value, bound, nu = (np.array(column) for column in zip(*found, strict=True))
        violation = np.array([self.violation(row) for row in p])
        gap, once = bound - value, np.ones(len(p))
        answer = WorstCase(p, value, bound, gap, violation, {"nu": nu}, "closed-form", once)
        if losses.ndim == 1:
            numbers = ("value", "upper_bound", "gap", "violation", "iterations")
            for name in ("p", *numbers):
                setattr(answer, name, getattr(answer, name)[0])
            answer.dual = {"nu": nu[0]}
        return answer

    def _row_answer(self, f):
        order = np.argsort(-f, kind="stable")
        before = np.minimum(np.cumsum(self._most[order]), 1.0)
        p = np.zeros(f.size)
        p[order] = np.diff(before, prepend=0.0)
        nu = f[order[min(np.searchsorted(before, 1.0), f.size - 1)]]
        excess = f - nu
        value = nu + float(p @ excess)
        return p, value, nu + float(self._most @ np.maximum(excess, 0.0)), nu

    def __repr__(self):
        return f"Tail(N={self.size}, level={self.level:g})"
'''

DIVERGENCE = '''
"""Neyman: distributions within Neyman's divergence of a centre."""

from typing import ClassVar

import cvxpy
import numpy as np

from uncertainty_sets.sets._balls import PowerBall


class Neyman(PowerBall):
    """Distributions near a centre q in Neyman's divergence: {p : Σ (p-q)²/p <= radius}.

    Args:
        center: probabilities, shape (N,), or (B, N).
        radius: at least 0; a number, or shape (B,).
    """

    name: ClassVar[str] = "a-neyman"
    summary: ClassVar[str] = "Distributions near a centre q in Neyman's divergence"
    formula: ClassVar[str] = "Σ (p-q)²/p <= radius"
    complexity: ClassVar[str] = "O(N)"
    by_row: ClassVar[tuple[str, ...]] = ("center", "radius")
    power: float = -1.0
    unit: ClassVar[float] = 0.5

    def constraints(self, p):
        """Σ q²/p <= 1 + radius, over q > 0."""
        q, radius = self._center[0], self._radius[0]
        inside = np.flatnonzero(q > 0.0)
        parts = cvxpy.Variable(len(inside))
        cones = [cvxpy.quad_over_lin(q[i], p[i]) <= t for i, t in zip(inside, parts, strict=True)]
        return [*cones, cvxpy.sum(parts) <= 1.0 + radius]
'''

PENALTY = '''
"""Euclidean: distributions within a Euclidean distance of a centre, and the price of the square."""

import cvxpy as cp
import numpy as np

from uncertainty_sets import UncertaintySet
from uncertainty_sets.kernels.layout import BOUND, DUAL, GAP, ITERATIONS, STATUS, VALUE, VIOLATION
from uncertainty_sets.penalised import Penalty


class SquarePenalty(Penalty):
    """½·‖p - q‖² as a price: p = max(q + (f-ν)/τ, 0)."""

    keeps_support = False
    second_order = True

    def kernel(self):
        return rows

    def cost(self, p, q):
        return 0.5 * cp.sum_squares(p - q)

    def bound(self, nu, g, q, tau):
        p = np.maximum(q + (g - nu) / tau, 0.0)
        return float(nu + p @ (g - nu) - 0.5 * tau * (p - q) @ (p - q))

    def dual(self, losses, q, weight):
        nu, p, square = cp.Variable(), cp.Variable(q.size, nonneg=True), cp.Variable()
        cone = cp.SOC(square + 1, cp.hstack([2 * p, square - 1]))
        return nu + 0.5 * weight * (square - q @ q), [weight * (p - q) >= losses - nu, cone]


def rows(F, center, weight, warm, P, out):
    """By sorting, as a point is projected onto the simplex."""
    for b, f in enumerate(F):
        q, tau = center[b if len(center) > 1 else 0], max(weight[b if len(weight) > 1 else 0], 1e-300)
        x = q + f / tau
        down = np.sort(x)[::-1]
        cut = (np.cumsum(down) - 1.0) / np.arange(1.0, x.size + 1.0)
        shift = cut[np.flatnonzero(down > cut)[-1]]
        P[b] = np.maximum(x - shift, 0.0)
        value = P[b] @ f - 0.5 * tau * (P[b] - q) @ (P[b] - q)
        bound = SquarePenalty().bound(shift * tau, f, q, tau)
        out[b, [VALUE, BOUND, GAP, VIOLATION, ITERATIONS, STATUS, DUAL]] = (
            value, bound, bound - value, abs(P[b].sum() - 1.0), 1, 0, shift * tau
        )


class Euclidean(UncertaintySet):
    """A ball.

    Args:
        center: probabilities, shape (N,).
        radius: the largest distance.
    """

    name = "z-squares"
    formula = "‖p - q‖ <= radius"
    penalty = SquarePenalty()

    def __init__(self, center, radius):
        self.center, self.radius = np.array(center, dtype=np.float64), float(radius)
        self.size = self.center.size

    def constraints(self, p):
        """The norm."""
        return [cp.norm(p - self.center) <= self.radius]
'''

CONSTRAINTS_ONLY_SET = '''
"""Euclidean: distributions within a Euclidean distance of a centre."""

import cvxpy as cp
import numpy as np

from uncertainty_sets import UncertaintySet


class Euclidean(UncertaintySet):
    """A ball.

    Args:
        center: probabilities, shape (N,).
        radius: the largest distance.
    """

    name = "z-euclidean"
    formula = "‖p - q‖ <= radius"

    def __init__(self, center, radius):
        self.center, self.radius = np.array(center, dtype=np.float64), float(radius)
        self.size = self.center.size

    def constraints(self, p):
        """The norm."""
        return [cp.norm(p - self.center) <= self.radius]
'''

BACKEND = '''
"""scipy: the linear programs of scipy.optimize."""

from typing import ClassVar

import numpy as np

from uncertainty_sets.backends.base import Backend, Solution, Solver

OUTCOMES = {0: "solved", 1: "inaccurate", 2: "infeasible", 3: "failed", 4: "failed"}


class ScipySolver(Solver):
    """One program, solved anew each time."""

    def __init__(self, program):
        self.program = program

    def solve(self, cost):
        """Minimise costᵀx."""
        from scipy.optimize import linprog

        equal, less = self.program.rows("zero"), self.program.rows("nonneg")
        A, b = self.program.A.tocsr(), self.program.b
        found = linprog(
            cost, A_ub=A[less], b_ub=b[less], A_eq=A[equal], b_eq=b[equal], bounds=(None, None)
        )
        outcome = OUTCOMES[found.status]
        if found.x is None:
            return Solution(outcome, np.zeros(0), np.zeros(0), found.nit, found.message)
        y = np.zeros(b.size)
        y[less], y[equal] = -found.ineqlin.marginals, -found.eqlin.marginals
        return Solution(outcome, found.x, y, found.nit, found.message)


class Scipy(Backend):
    """Linear programs; after all others."""

    name: ClassVar[str] = "a-scipy"
    package: ClassVar[str] = "scipy"
    install: ClassVar[str] = "scipy"
    cones: ClassVar[frozenset[str]] = frozenset({"zero", "nonneg"})
    preference: ClassVar[int | None] = 10

    def compile(self, program):
        """The program in scipy."""
        return ScipySolver(program)
'''

FILES = {
    "uncertainty_sets/sets/tail.py": CLOSED_FORM_SET,
    "uncertainty_sets/sets/neyman.py": DIVERGENCE,
    "uncertainty_sets/sets/euclidean.py": CONSTRAINTS_ONLY_SET,
    "uncertainty_sets/sets/squares.py": PENALTY,
    "uncertainty_sets/backends/scipy_.py": BACKEND,
}
NAMES = ("a-tail", "a-neyman", "z-euclidean")
CLOSED = NAMES[:2]


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A copy of the project with a file more for each kind of extension."""
    folder = tmp_path_factory.mktemp("extended")
    for package in ("uncertainty_sets", "fdro_core", "bench", "tests"):
        copy_package(ROOT / package, folder, "results")
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "docs").mkdir()
    for each in ROOT.glob("docs/draw*.py"):
        shutil.copy(each, folder / "docs")
    for path, source in FILES.items():
        assert not (folder / path).exists()
        (folder / path).write_text(source.lstrip(), encoding="utf-8")
    return folder


def python(project: Path, *arguments: str) -> str:
    """What a Python process on the copy printed; it must have succeeded."""
    environment = {**os.environ, "PYTHONPATH": str(project), "HYPOTHESIS_PROFILE": "smoke"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def pytest_on(project: Path, *arguments: str) -> int:
    """How many tests passed on the copy; all must have."""
    all_cases = ("-m", "pytest", "-m", "", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    output = python(project, *all_cases, *arguments)
    summary = output.strip().splitlines()[-1]
    return int(summary.partition(" passed")[0].split()[-1])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.few(1)
def test_a_set_passes_the_shared_suite(project, name):
    folder = "tests/uncertainty_sets"
    files = [f"{folder}/{each}.py" for each in ("test_properties", "test_check_set", "test_robust_solvers")]
    assert pytest_on(project, *files, "-k", name) > 20


@pytest.mark.thorough
def test_nothing_else_that_finds_sets_or_backends_needs_an_edit(project):
    folder = "tests/uncertainty_sets"
    files = [f"{folder}/{each}.py" for each in ("test_errors", "test_plugin", "test_backends")]
    files[0] += "::test_everything_else"  # the others run kernels, which a copy has to compile
    found = ["uncertainty_sets/by_name.py", "uncertainty_sets/parameters.py", "uncertainty_sets/backends"]
    rule = "tests/test_import_rule.py::test_the_rule_holds"
    new = " or ".join(["not test_any_set_with_one_more", *NAMES])  # the other sets are as they were
    assert pytest_on(project, "--doctest-modules", *files, *found, rule, "-k", new) > 60


def test_capabilities_are_on_the_class(project):
    code = """
        from uncertainty_sets import available_backends, available_sets, get_set, worst_case
        from uncertainty_sets.backends import in_order
        from uncertainty_sets.conic.oracle import program
        assert {"a-tail", "z-euclidean"} <= set(available_sets())
        assert get_set("a-tail").has_closed_form and not get_set("z-euclidean").has_closed_form
        assert get_set("a-neyman").has_ragged and not get_set("a-tail").has_ragged
        assert "a-scipy" in available_backends()
        question = {"D": [[1.0, 0.0, 0.0]], "c": [0.5], "losses": [3.0, 2.0, 1.0]}
        answer = worst_case("polyhedron", backend="a-scipy", **question)
        assert answer.backend == "a-scipy" and abs(answer.value - 2.5) < 1e-9, answer
        assert in_order(program(get_set("polyhedron").example(4)))[-1] == "a-scipy"
        assert worst_case("a-tail", [1.0, 2.0], center=[0.5, 0.5], level=0.5).backend == "closed-form"
    """
    python(project, "-c", "\n".join(line.strip() for line in code.splitlines()))


def test_a_price_is_on_the_class(project):
    """Its worst case is the maximum that cvxpy finds, and `robust.support` takes it."""
    code = """
        import cvxpy as cp, numpy as np
        from uncertainty_sets import Penalised
        from uncertainty_sets.penalised import penalties
        from uncertainty_sets.robust import support
        assert "z-squares" in penalties()
        rng = np.random.default_rng(0)
        q, F = rng.dirichlet(np.ones(6)), rng.normal(size=(3, 6))
        answer = Penalised("z-squares", q, 2.0).worst_case(F)
        for f, value in zip(F, answer.value):
            p = cp.Variable(6, nonneg=True)
            price = cp.Maximize(f @ p - cp.sum_squares(p - q))
            best = cp.Problem(price, [cp.sum(p) == 1]).solve(solver="CLARABEL")
            assert abs(best - value) < 1e-6, (best, value)
            x = cp.Variable(6)
            least = cp.Problem(cp.Minimize(support(Penalised("z-squares", q, 2.0), x)), [x == f])
            assert abs(least.solve(solver="CLARABEL") - value) < 1e-6
            solved = Penalised("z-squares", q, 2.0)._by_solver(f)
            assert abs(solved.value - value) < 1e-6 and solved.gap < 1e-4
    """
    python(project, "-c", "\n".join(line[8:] for line in code.splitlines()))


def test_the_command_line(project):
    found = {
        each["name"]: each for each in json.loads(python(project, "-m", "fdro_core.cli", "sets", "--json"))
    }
    assert found["a-tail"]["formula"] == "p <= q/(1 - level)"
    assert found["a-tail"]["title"] == "The distributions behind CVaR"
    assert found["a-tail"]["backends"][:2] == ["closed-form", "a-scipy"]
    assert found["z-euclidean"]["backends"] == ["clarabel", "cvxpy", "scs"]
    assert found["z-euclidean"]["title"] == "A ball"
    assert "CVaR" in python(project, "-m", "fdro_core.cli", "sets", "a-tail")
    line = ("oracle", "--set", "a-tail", "--losses", "1,2,3,4", "--level", "0.5", "--json")
    assert json.loads(python(project, "-m", "fdro_core.cli", *line))["value"] == 3.5


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.thorough
def test_the_complexity_table(project, name, tmp_path):
    line = ("--quick", "--largest", "10", "--sets", name, "--out", str(tmp_path))
    python(project, "-m", "bench", "complexity", *line)
    cells = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["cells"]
    assert {cell["set"] for cell in cells} == {name}
    assert ("closed-form" in {cell["method"] for cell in cells}) == (name in CLOSED)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.thorough
def test_the_soak(project, name, tmp_path):
    file = tmp_path / "soak.json"
    python(project, "-m", "bench", "soak", "--set", name, "--batches", "3", "--json", str(file))
    document = json.loads(file.read_text(encoding="utf-8"))
    assert {cell["set"] for cell in document["cells"]} == {name}
    assert document["cases"] > 0
    assert document["wrong"] == 0


@pytest.mark.thorough
def test_the_tests_of_ragged_rows(project):
    """They read from `layout` how the parameters of a set lie."""
    assert pytest_on(project, "tests/uncertainty_sets/test_ragged.py", "-k", "a-neyman") > 5


@pytest.mark.thorough
def test_the_gallery_has_a_picture_and_the_words_of_the_class(project, tmp_path):
    pytest.importorskip("matplotlib")
    code = f"""
        import matplotlib; matplotlib.use("agg")
        from pathlib import Path
        from docs.draw import _set
        print(*(_set(name, Path({str(tmp_path)!r})) for name in {NAMES}))
    """
    gallery = python(project, "-c", "\n".join(line.strip() for line in code.splitlines()))
    for name in NAMES:
        assert f"## {name}\n" in gallery
        assert (tmp_path / f"set-{name}.svg").exists()
    assert "Distributions near a centre q in Neyman's divergence: `Σ (p-q)²/p <= radius`" in gallery
