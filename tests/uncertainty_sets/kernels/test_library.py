"""Libraries of the packages' kernels: the same answers as by numba, without numba; bad calls are refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import typing
from pathlib import Path

import numpy as np
import pytest

import fdro_core
import uncertainty_sets
from uncertainty_sets.kernels import jit
from uncertainty_sets.kernels.dispatch import COLD
from uncertainty_sets.kernels.layout import COLUMNS
from uncertainty_sets.kernels.native import library

PACKAGES = [Path(module.__file__).parent for module in (uncertainty_sets, fdro_core)]
ROOT = Path(__file__).resolve().parents[3]
COMPILED = "first used" not in library.status()

needs_libraries = pytest.mark.skipif(not COMPILED, reason=f"needs `make kernels`; {library.status()}")

ANSWER = """
import sys
import numpy as np
import uncertainty_sets as us
from uncertainty_sets.kernels.native.library import status
values = []
for name in us.available_sets():
    each = us.get_set(name).example(7, np.random.default_rng(0))
    if each.has_closed_form:
        for losses in (np.cos(np.arange(7.0)), np.sin(np.arange(21.0)).reshape(3, 7)):
            values += np.ravel(each.worst_case(losses).value).tolist()
points = np.arange(7.0)
for each in (
    us.Wasserstein1(np.full(7, 1 / 7), 0.2, np.abs(points[:, None] - points)),
    us.CDNorm(np.full(7, 1 / 7), 0.05, 2.0),
):
    values.append(each.worst_case(np.cos(points)).value)
"""
SHOW = ANSWER + "import json; print(json.dumps([values, 'numba' in sys.modules, status()]))"
HELP = """
import sys
from fdro_core.cli.app import app
from fdro_core import AspireModels, LeastSquares, solve
from uncertainty_sets import Box
problems = [LeastSquares([[1.0]], [x], intercept=False) for x in (0.0, 1.0)]
solve(problems, Box([0, 0], [1, 1]), algorithm=AspireModels(iterations=9))
assert "numba" not in sys.modules
"""
STATUS = "from uncertainty_sets.kernels.native.library import status; print(status())"


def python(code: str, *, folder: Path | None = None, **environment: str) -> str:
    """What a new process prints, with the packages of `folder`, or of this process."""
    kept = {name: value for name, value in os.environ.items() if name not in ("FDRO_JIT", "FDRO_CPU_LEVEL")}
    if folder is not None:
        kept["PYTHONPATH"] = str(folder)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=kept | environment,
        cwd=folder or ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@needs_libraries
@pytest.mark.thorough
def test_every_kernel_computes_what_numba_computes():
    seen = json.loads(python("from tests.uncertainty_sets.kernels.both_kernels import main; main()"))
    assert seen["wrong"] == []
    assert sorted(seen["calls"]) == seen["entries"]  # a new entry needs a call in both_kernels.py


@needs_libraries
@pytest.mark.thorough
def test_answers_without_numba_and_with_it_agree():
    values, loaded, _ = json.loads(python(SHOW))
    assert not loaded
    by_numba, loaded, status = json.loads(python(SHOW, FDRO_JIT="1"))
    assert loaded
    assert "FDRO_JIT is set" in status
    assert values == pytest.approx(by_numba, rel=1e-12, abs=1e-12)


@needs_libraries
def test_training_and_the_command_start_without_numba():
    python(HELP)


@needs_libraries
@pytest.mark.thorough
def test_older_processors_have_code_of_their_own():
    if "v2" not in library._levels():
        pytest.skip("levels are for x86-64")
    values, _, _ = json.loads(python(SHOW))
    older, loaded, status = json.loads(python(SHOW, FDRO_CPU_LEVEL="v2"))
    assert "for v2" in status
    assert not loaded
    assert older == pytest.approx(values, rel=1e-12, abs=1e-12)


@needs_libraries
def test_an_unknown_level_is_an_error():
    made = library.find("uncertainty_sets.kernels.box", str(PACKAGES[0] / "kernels" / "box.py"))
    with pytest.raises(ValueError, match="no level 'v9'"):
        made.use("v9")


@needs_libraries
def test_only_what_depends_on_an_edited_file_is_out_of_date(tmp_path):
    for package in PACKAGES:
        shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    whole = python(STATUS, folder=tmp_path)
    count = int(whole.split()[1])
    assert f"{count} of {count} files" in whole
    driver = tmp_path / "fdro_core" / "problems" / "kernels.py"
    driver.write_text(driver.read_text() + "\n# edited\n")
    assert f"{count - 1} of {count} files" in python(STATUS, folder=tmp_path)
    shared = tmp_path / "uncertainty_sets" / "kernels" / "scan.py"
    shared.write_text(shared.read_text() + "\n# edited\n")
    left = int(python(STATUS, folder=tmp_path).split()[1])
    assert 1 <= left < count // 2


def test_a_library_in_the_package_that_cannot_be_loaded_is_not_used(tmp_path):
    for package in PACKAGES:
        shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    bad = tmp_path / "uncertainty_sets" / library.BUNDLED / "kernels.kl.abi3.so"
    bad.parent.mkdir(exist_ok=True)
    bad.write_bytes(b"not a library")
    others = sum(len(list((tmp_path / each.name / library.BUNDLED).glob("*.so"))) for each in PACKAGES) - 1
    empty = str(tmp_path / "cache")  # which has no library of this file either
    assert python(STATUS, folder=tmp_path, FDRO_CACHE=empty).split()[1] == str(others)


@pytest.fixture
def box():
    """The kernel of Box and arguments that it accepts, by name."""
    name = "uncertainty_sets.kernels.box.rows"
    from uncertainty_sets.kernels.box import rows

    given = {
        "F": np.array([[1.0, 2.0]]),
        "lower": np.zeros((1, 2)),
        "width": np.full((1, 2), 0.75),
        "rest": np.ones(1),
        "warm": COLD,
        "P": np.empty((1, 2)),
        "out": np.empty((1, COLUMNS)),
    }
    assert list(given) == list(typing.get_type_hints(jit.ENTRIES[name].function.__wrapped__))[:-1]
    return rows, given


def frozen(array):
    array = array.copy()
    array.flags.writeable = False
    return array


BAD = {
    "another type": ("F", np.array([[1, 2]]), "F must be .* float64 .* got another type of entries"),
    "narrow": ("F", np.array([[1, 2]], dtype=np.float32), "F must be .* got another type of entries"),
    "other byte order": ("F", np.array([[1.0, 2.0]]).astype(">f8"), "F must be .* another type of entries"),
    "one axis": ("F", np.array([1.0, 2.0]), "F must be .* 2 dimensions, got another number of dimensions"),
    "gaps": ("F", np.ones((1, 4))[:, ::2], "F must be .* C-contiguous .* got an array with gaps"),
    "columns first": (
        "F",
        np.asfortranarray(np.ones((3, 2))),
        "F must be .* C-contiguous .* in another order",
    ),
    "a list": ("F", [[1.0, 2.0]], "F must be .* array .* got no array"),
    "read-only result": (
        "P",
        frozen(np.empty((1, 2))),
        "P must be a writable .* read-only",
    ),
}


@needs_libraries
@pytest.mark.parametrize(("name", "value", "message"), BAD.values(), ids=BAD)
def test_wrong_arrays_are_refused(box, name, value, message):
    rows, given = box
    with pytest.raises(TypeError, match=message):
        rows(*(given | {name: value}).values())


@needs_libraries
def test_a_wrong_number_of_arguments_is_refused(box):
    rows, given = box
    with pytest.raises(TypeError, match=r"kernels\.box\.rows takes 7 arguments, got 6"):
        rows(*list(given.values())[1:])


@needs_libraries
def test_numbers_are_converted_or_refused():
    from fdro_core.problems.kernels import ridge

    assert ridge(np.ones(2), np.zeros(2), 1) == 1.0
    with pytest.raises(TypeError, match="must be real number"):
        ridge(np.ones(2), np.zeros(2), "1")


@needs_libraries
def test_arrays_that_are_only_read_may_be_read_only(box):
    rows, given = box
    read = {name: frozen(value) for name, value in given.items() if name not in {"P", "out"}}
    rows(*(given | read).values())
    assert given["P"].tolist() == [[0.25, 0.75]]


@needs_libraries
def test_kernels_of_other_packages_may_call_these():
    code = """
    import numpy as np
    from uncertainty_sets.kernels.jit import kernel
    from uncertainty_sets.kernels.quadratic_form import quadratic
    from uncertainty_sets.kernels.scan import largest

    @kernel
    def own(f, Q):
        return largest(f) + quadratic(Q, 1.0, f)

    print(own(np.array([1.0, 2.0]), np.eye(2)))
    """
    assert python(textwrap.dedent(code)) == "7.0"
