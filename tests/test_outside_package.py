"""A package outside of the tree: its set, closed form, backend, baseline and engine work without an edit."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest

from tests.fdro_core.command import furnish
from tests.outside_package import build_backend
from uncertainty_sets import available_backends, available_sets, get_set, worst_case
from uncertainty_sets.backends.base import BACKENDS
from uncertainty_sets.base import SETS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tests" / "outside_package"
LOSSES = [1.0, 4.0, 2.0, 3.0]


@pytest.fixture
def on_path(tmp_path, monkeypatch):
    """The package as an installer would have left it on the path; forgotten after the test."""
    build_backend.prepare_metadata_for_build_wheel(tmp_path)
    (tmp_path / "outside_package").symlink_to(PACKAGE / "outside_package", target_is_directory=True)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for registry, names in ((SETS, ("descending", "half")), (BACKENDS, ("linprog",))):
        for name in names:
            registry.forget(name)
    for module in [each for each in sys.modules if each.split(".")[0] == "outside_package"]:
        del sys.modules[module]


def test_entry_points_are_found_in_a_running_process(on_path):
    assert importlib.metadata.version("outside-package") == "1.0"
    # By hand: p is a mix of uniform distributions on the first k entries, with means 1, 2.5, 7/3, 2.5.
    assert worst_case("descending", LOSSES).value == pytest.approx(2.5)
    assert worst_case("half", LOSSES).backend == "closed-form"
    assert worst_case("half", LOSSES).value == pytest.approx(3.5)
    assert get_set("half").__module__ == "outside_package.sets"
    assert {"descending", "half"} <= set(available_sets())
    answer = worst_case("descending", LOSSES, backend="linprog")
    assert answer.backend == "linprog"
    assert answer.value == pytest.approx(2.5)
    assert answer.gap < 1e-9
    assert "linprog" in available_backends()


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """Runs Python in a new environment: the package installed by pip, fdro and its packages laid below."""
    home = tmp_path_factory.mktemp("clean")
    venv.create(home / "env", with_pip=True, symlinks=True)
    python = home / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
    bare = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME"}}
    bare["PYTHONDONTWRITEBYTECODE"] = "1"

    def run(*arguments, cwd=home):
        done = subprocess.run(
            [python, *map(str, arguments)], cwd=cwd, env=bare, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    site = Path(run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    below = [ROOT, *(Path(each) for each in sys.path if each.endswith("site-packages"))]
    (site / "below.pth").write_text("".join(f"{each}\n" for each in below), encoding="utf-8")
    run("-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation", "--quiet", PACKAGE)
    return run


IN_PYTHON = """
import cvxpy as cp
import numpy as np
from fdro_core import LeastSquares, solve
from fdro_core.protocol.algorithm import ALGORITHMS
from fdro_core.protocol.engine import ENGINES
from fdro_core.sklearn import RobustClassifier
from uncertainty_sets import available_backends, check_set, get_set, worst_case
from uncertainty_sets.robust import support

f = [1.0, 4.0, 2.0, 3.0]
# 1, 2: the oracle, by constraints and by closed form
assert abs(worst_case("descending", f).value - 2.5) < 1e-9
assert worst_case("half", f).backend == "closed-form" and abs(worst_case("half", f).value - 3.5) < 1e-12
# 3: the backend
answer = worst_case("descending", f, backend="linprog")
assert answer.backend == "linprog" and abs(answer.value - 2.5) < 1e-9 and "linprog" in available_backends()
# 4: the robust counterpart; half the mass on the two largest of |x - 1|, |x - 2|, |x - 5|, |x - 6|
x = cp.Variable()
worst = support(get_set("half")(), cp.abs(x - np.array([1.0, 2.0, 5.0, 6.0])))
assert abs(cp.Problem(cp.Minimize(worst)).solve() - 2.5) < 1e-6
# 5, 6: training over the set, with the baseline, on the engine
problems = [LeastSquares([[1.0]], [target], intercept=False) for target in (0.0, 1.0, 2.0, 9.0)]
robust = solve(problems, get_set("half")())
assert abs(robust.objective - (0.5 * 4.5**2)) < 2.0 and robust.w[0] > 3.5, robust
fair = solve(problems, get_set("half")(), algorithm=ALGORITHMS.get("q-fed-avg")(step=0.2, iterations=50),
             engine=ENGINES.get("queue")())
assert len(fair.history) and fair.w[0] > 3.0
# 7: an estimator, by "module:Class" and by name
rng = np.random.default_rng(0)
X, y, groups = rng.normal(size=(90, 2)), rng.integers(0, 2, 90), np.arange(90) % 3
for name in ("outside_package.sets:Half", "half"):
    RobustClassifier(uncertainty_set=name).fit(X, y, groups=groups).predict(X)
# 8: every property of a set
for cls in (get_set("half"), get_set("descending")):
    assert not check_set(cls(), 4).broken
print("used")
"""


@pytest.mark.thorough
def test_python_uses_it(clean):
    assert clean("-W", "error::RuntimeWarning", "-c", IN_PYTHON).endswith("used\n")


@pytest.mark.thorough
def test_the_command_line_uses_it(clean, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    furnish()
    text = Path("run.toml").read_text(encoding="utf-8")
    text = text.replace('name = "kl"\nradius = 0.1', 'name = "half"')
    text = text.replace(
        "[algorithm]\niterations = 120", '[algorithm]\nname = "q-fed-avg"\niterations = 9\nstep = 0.1'
    )
    text = text.partition("[engine]")[0] + '[engine]\nname = "queue"\n\n[output]\nfolder = "run"\n'
    Path("run.toml").write_text(text, encoding="utf-8")
    fdro = ("-m", "fdro_core.cli")
    # 9: a training run with set, algorithm and engine
    clean(*fdro, "train", "run.toml", cwd=tmp_path)
    result = json.loads(Path("run/result.json").read_text(encoding="utf-8"))
    assert (result["engine"]["name"], result["algorithm"]["name"]) == ("queue", "q-fed-avg"), result
    # 10: the lists
    listed = {each["name"]: each for each in json.loads(clean(*fdro, "sets", "--json"))}
    assert listed["half"]["class"] == "outside_package.sets.Half"
    assert listed["half"]["backends"][0] == "closed-form"
    assert "linprog" in listed["descending"]["backends"]
    backends = {each["name"]: each for each in json.loads(clean(*fdro, "sets", "--backends", "--json"))}
    assert backends["linprog"]["installed"]
    assert backends["linprog"]["cones"] == ["zero", "nonneg"]
    # 11: the oracle
    line = ("oracle", "--set", "descending", "--losses", ",".join(map(str, LOSSES)), "--json")
    assert json.loads(clean(*fdro, *line))["value"] == pytest.approx(2.5)


@pytest.mark.thorough
def test_the_complexity_table_has_it(clean, tmp_path):
    # 12: with a set of a module of one's own that no entry point names, beside those that are installed
    (tmp_path / "more.py").write_text(
        "from outside_package.sets import Half\n\nclass Quarter(Half):\n    name = 'quarter'\n\n"
        "    def constraints(self, p):\n        return [p <= 4 / p.size]\n",
        encoding="utf-8",
    )
    out = tmp_path / "out"
    line = ("--quick", "--largest", "10", "--with", tmp_path / "more.py", "outside_package.sets", "--sets")
    clean("-m", "bench", "complexity", *line, "half", "quarter", "--out", out, cwd=ROOT)
    cells = json.loads((out / "results.json").read_text(encoding="utf-8"))["cells"]
    methods = {(cell["set"], cell["method"]) for cell in cells}
    assert {("half", "closed-form"), ("quarter", "highs")} <= methods
    assert ("quarter", "closed-form") not in methods
    assert all(np.isfinite(cell["first"]) for cell in cells)
