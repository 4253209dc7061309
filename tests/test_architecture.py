"""docs/architecture.md is true: each way enters the files that the page lists, in that order."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from tests.test_import_rule import imported

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"

FOLLOW = """
import inspect, json, sys, tempfile, warnings
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import cvxpy
import numpy as np

from fdro_core import AspireModels, LeastSquares, VirtualEngine, solve
from uncertainty_sets import KL, Box, UncertaintySet, available_sets

ROOT, PACKAGES = Path(sys.argv[1]), ("uncertainty_sets", "fdro_core", "bench")
warnings.simplefilter("ignore")


def followed(action):
    '''The project's files in the order in which an action first calls a function of theirs.'''
    files = {}
    names = {}

    def look(frame, event, argument):
        code = frame.f_code
        function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")  # no class body
        if event != "call" or not function or code.co_name == "wake_at":
            return
        if code.co_filename not in names:
            path = Path(code.co_filename)
            inside = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES
            names[code.co_filename] = path.relative_to(ROOT).as_posix() if inside else ""
        if names[code.co_filename]:
            files.setdefault(names[code.co_filename])

    sys.setprofile(look)
    try:
        action()
    finally:
        sys.setprofile(None)
    return list(files)


class Near(UncertaintySet):
    size = 4

    def constraints(self, p):
        return [cvxpy.norm(p - 0.25) <= 0.1]


def train(engine, *observers):
    problems = [LeastSquares([[1.0]], [target], intercept=False) for target in (0.0, 1.0, 2.0)]
    solve(problems, Box([0.0] * 3, [1.0] * 3), algorithm=AspireModels(iterations=20, report_interval=1),
          engine=engine, observers=observers)


def one_update():
    found = []

    def look(run, entry):
        def turn():
            for worker, message in run.master.handle(run.engine.receive(run.master.wake_at)):
                run.engine.send(worker, message)
        if run.master.iteration == 12 and not found:
            found.extend(followed(turn))

    train(VirtualEngine(), look)
    return found


def experiment():
    from bench.__main__ import run

    with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        run(["heterogeneity", "--quick", "--data", "digits", "--methods", "FedAvg", "--jobs", "1",
             "--out", folder])


available_sets()
rng = np.random.default_rng(0)
ball, engine = KL(np.full(6, 1 / 6), 0.1), VirtualEngine()
found = {
    "An oracle call": followed(lambda: ball.worst_case(rng.normal(size=6))),
    "A batch": followed(lambda: ball.worst_case(rng.normal(size=(3, 6)))),
    "A plug-in": followed(lambda: Near().worst_case(rng.normal(size=4))),
    "One asynchronous update": one_update(),
    "A training run": followed(lambda: train(engine)),
    "An experiment": followed(experiment),
}
print(json.dumps(found))
"""


def listed() -> dict[str, list[str]]:
    """The files of every way, as the page numbers them."""
    found = {}
    for section in PAGE.read_text(encoding="utf-8").split("\n### ")[1:]:
        title, _, text = section.partition("\n")
        found[title] = re.findall(r"^\d+\. `([\w/]+\.py)`", text, re.MULTILINE)
    return found


@pytest.fixture(scope="module")
def entered() -> dict[str, list[str]]:
    """The files that each way enters; kernels run as plain Python, so that they are seen too."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_DISABLE_JIT": "1"}
    answer = subprocess.run(
        [sys.executable, "-c", FOLLOW, str(ROOT)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout.splitlines()[-1])


def test_the_page_has_six_ways(entered):
    assert list(listed()) == list(entered)
    assert all(len(files) > 5 for files in listed().values())


@pytest.mark.parametrize("way", listed())
def test_a_way_enters_the_files_in_the_order_of_the_page(entered, way):
    files = listed()[way]
    assert [file for file in entered[way] if file in files] == files


@pytest.mark.parametrize("way", ["An oracle call", "A batch", "A plug-in"])
def test_an_oracle_call_enters_no_other_file_but_helpers(entered, way):
    helpers = {
        "uncertainty_sets/backends/base.py",
        "uncertainty_sets/sets/_balls.py",  # leaves out losses where the centre has no mass
        "uncertainty_sets/kernels/native/by_numba.py",  # kernels as plain Python
        "uncertainty_sets/kernels/native/library.py",
        "uncertainty_sets/kernels/dispatch.py",  # the check of the losses, on the conic way
        "uncertainty_sets/kernels/jit.py",
        "uncertainty_sets/packages.py",
        "uncertainty_sets/parameters.py",
    }
    assert set(entered[way]) - set(listed()[way]) <= helpers


LAYERS = (
    {"cli", "estimators"},
    {"solving", "loop"},
    {"aspire", "baselines", "engines", "observers", "problems"},
    {"master", "privacy"},
    {"protocol"},
)
"""The rows of fdro_core in the page's drawing, from the top."""


def test_a_part_imports_only_parts_below_it():
    row = {part: place for place, parts in enumerate(LAYERS) for part in parts}
    wrong = []
    for file in sorted((ROOT / "fdro_core").rglob("*.py")):
        path = PurePosixPath(file.relative_to(ROOT).as_posix())
        part = path.parts[1].removesuffix(".py")
        for line, name in imported(file.read_text(encoding="utf-8"), path):
            package, _, rest = name.partition(".")
            other = rest.partition(".")[0]
            if package == "fdro_core" and other != part and part in row and other in row:
                allowed = row[other] > row[part] or {part, other} == {"solving", "loop"}
                wrong += [] if allowed else [f"{path}:{line} imports {name}"]
    assert set(row) >= {
        each.name for each in (ROOT / "fdro_core").iterdir() if (each / "__init__.py").exists()
    }
    assert not wrong
