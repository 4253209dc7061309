"""The three sizes of an install, each in an environment that has what pyproject.toml declares and no more.

An environment gets the packages that the size requires, and what those require, from the one that runs the
tests. So a package that is used and not declared is missing there.
"""

from __future__ import annotations

import os
import subprocess
import tomllib
import venv
from collections.abc import Callable, Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from uncertainty_sets.kernels.native import library

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]

Run = Callable[..., str]


def required(lines: Iterable[str], extra: str = "") -> dict[str, Distribution]:
    """The distributions that these requirements bring, directly or not; the project's own extras resolved."""
    found: dict[str, Distribution] = {}
    waiting = [(Requirement(line), extra) for line in lines]
    seen = set()
    while waiting:
        wanted, of = waiting.pop()
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": of}):
            continue
        name = canonicalize_name(wanted.name)
        for each in ("", *sorted(wanted.extras)):
            if (name, each) in seen:
                continue
            seen.add((name, each))
            if name == "fdro":
                waiting += [(Requirement(line), "") for line in (EXTRAS[each] if each else [])]
                continue
            found[name] = distribution(name)
            waiting += [(Requirement(line), each) for line in found[name].requires or []]
    return found


def environment(folder: Path, packages: Iterable[Distribution]) -> Run:
    """Runs Python in a new environment with these packages and this project."""
    venv.create(folder / "env", symlinks=True)
    python = folder / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
    bare = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME"}}

    def run(*arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [python, *arguments], cwd=folder, env=bare, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stderr if code else done.stdout

    site = Path(run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    for package in packages:
        tops = {file.parts[0] for file in package.files or [] if file.parts[0] not in {"..", "__pycache__"}}
        for top in tops:
            source = Path(str(package.locate_file(top)))
            if source.exists() and not (site / top).exists():  # several packages may share a namespace
                (site / top).symlink_to(source, target_is_directory=source.is_dir())
    (site / "project.pth").write_text(f"{ROOT}\n", encoding="utf-8")
    return run


@pytest.mark.skipif("first used" in library.status(), reason="kernels are not compiled, and need numba")
def test_the_oracles_alone_need_numpy(tmp_path: Path) -> None:
    run = environment(tmp_path, required(["numpy"]).values())
    assert "closed forms answer" in run(str(ROOT / "tests" / "slim_check.py"))
    run("-c", "import fdro_core; from fdro_core import *; from fdro_core.errors import FdroError")
    message = run("-m", "fdro_core.cli", "--help", code=3)
    assert message == 'error: the command fdro needs typer: pip install "fdro[cli]"\n'


CONIC = """
import numpy as np
from fdro_core import LeastSquares, solve
from uncertainty_sets import KL, available_backends, available_sets, calibration, check_set, get_set
from uncertainty_sets.errors import BackendError

losses = np.array([1.0, 3.0, 2.0, 4.0])
solved = set()
for name in available_sets():
    made = get_set(name).example(4)
    values = []
    for backend in ("clarabel", "highs", "cvxpy", "auto"):
        try:
            answer = made.worst_case(losses, backend=backend)
        except BackendError:  # it lacks a cone that the set needs
            continue
        solved.add(backend)
        values.append(answer.value)
    assert len(values) > 1 and np.ptp(values) < 1e-5, (name, values)
assert solved == {"clarabel", "highs", "cvxpy", "auto"}, solved
assert {"clarabel", "highs"} <= set(available_backends())
assert calibration.kl_radius(100, 4, 0.95) > 0
cost = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0))) ** 1.5
line = get_set("wasserstein-1")(np.full(4, 0.25), 0.1, cost)
assert line.violation(line.worst_case(losses).p) < 1e-6  # asks for a transport plan
problems = [LeastSquares([[1.0]], [target], intercept=False) for target in (0.0, 1.0, 2.0)]
assert abs(solve(problems, KL(np.full(3, 1 / 3), 0.1)).w[0] - 1.0) < 0.1
print("solved")
"""


@pytest.mark.thorough
def test_the_default_solves_and_has_the_command(tmp_path: Path) -> None:
    run = environment(tmp_path, required(PROJECT["dependencies"]).values())
    assert run("-c", CONIC) == "solved\n"
    assert "cd-norm" in run("-m", "fdro_core.cli", "sets")
    line = ("oracle", "--set", "polyhedron", "--losses", "1,2,3", "--D", "1,0,0;0,1,0", "--c", "0.5,0.5")
    assert "proved upper bound" in run("-m", "fdro_core.cli", *line)


USES = {
    "scs": "from uncertainty_sets import KL; KL([0.5, 0.5], 0.1).worst_case([1.0, 2.0], backend='scs')",
    "torch": "import torch; from uncertainty_sets.torch import robust_loss",
    "ray": "from fdro_core.engines.ray_ import cluster; cluster.load()",
    "demo": "from fdro_core.problems.samples import load_digits; load_digits()",
    "sklearn": "from fdro_core.sklearn import RobustClassifier; "
    "RobustClassifier().fit([[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1], groups=[0, 0, 1, 1])",
    "plot": "from uncertainty_sets import KL; from uncertainty_sets.pictures import draw_simplex; "
    "draw_simplex(KL([0.4, 0.3, 0.3], 0.1))",
    "data": "import pooch",
    "mdp": "import gymnasium; from uncertainty_sets import mdp",
    "privacy": "from fdro_core.privacy import accounting; import dp_accounting",
}
"""A use of each extra in `all`."""


@pytest.mark.thorough
def test_everything_has_every_extra(tmp_path: Path) -> None:
    assert set(USES) == set(Requirement(EXTRAS["all"][0]).extras)
    assert set(EXTRAS) - set(USES) == {
        *("conic", "transport", "jit", "cli"),  # the default has these
        *("flower", "mlflow", "docs", "test", "dev", "all"),
    }
    there = []
    for extra in USES:
        try:
            required(EXTRAS[extra])
        except PackageNotFoundError:  # it may be installed without PyTorch or Ray
            continue
        there.append(extra)
    lines = [*PROJECT["dependencies"], *(line for extra in there for line in EXTRAS[extra])]
    run = environment(tmp_path, required(lines).values())
    for extra in there:
        run("-W", "ignore", "-c", USES[extra])


def test_the_default_has_what_errors_name() -> None:
    """An extra that the default install repeats is wholly in it."""
    for extra in ("conic", "transport", "jit", "cli"):
        assert set(EXTRAS[extra]) <= set(PROJECT["dependencies"]), extra
