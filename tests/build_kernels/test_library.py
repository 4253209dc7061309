"""A package of tiny kernels, built from its sources to a library that Python loads."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from build_kernels import library
from build_kernels.library import CannotBuild, build
from build_kernels.types import UnsuitableEntry, parameters, results
from uncertainty_sets.arrays import Array, Matrix, Vector

needs_compiler = pytest.mark.skipif(
    sys.platform != "linux"
    or platform.machine() not in library.LEVELS
    or shutil.which(os.environ.get("CC", "cc")) is None
    or not Path(sysconfig.get_path("include"), "Python.h").exists(),
    reason="needs Linux, a C compiler and Python's headers",
)

KERNELS = """
from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Cube, Indices, Matrix, Vector
from uncertainty_sets.kernels.jit import entry, kernel


@entry()
@kernel
def pick(cube: Cube, places: Indices, scale: float, turn: bool) -> tuple[float, int]:
    best = np.empty(places.size)
    for i in range(places.size):
        best[i] = scale * cube[0, 0, places[i]]
    return (-best.sum() if turn else best.sum()), places.size


@entry("out")
@kernel
def double(matrix: Matrix, out: Matrix) -> None:
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            out[i, j] = 2.0 * matrix[i, j]


@entry()
@kernel
def is_long(x: Vector, limit: int) -> bool:
    return x.size > limit
"""
CALL = """
import sys
import numpy as np
from tiny.kernels import double, is_long, pick
out = np.empty((2, 3))
double(np.arange(6.0).reshape(2, 3), out)
print(out.tolist(), pick(np.arange(8.0).reshape(2, 2, 2), np.array([1, 0]), 3.0, True))
print(is_long(np.ones(3), 2), is_long(np.ones(0), 2), type(double).__name__, "numba" in sys.modules)
"""
WANTED = """[[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]] (-3.0, 2)
True False builtin_function_or_method False"""


def tiny(folder: Path, text: str) -> Path:
    """A package with one file of kernels."""
    package = folder / "tiny"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "kernels.py").write_text(text)
    return folder


def called(folder: Path, **more: str) -> str:
    paths = os.pathsep.join([str(folder), str(library.ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", CALL],
        env={**os.environ, "PYTHONPATH": paths, **more},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@needs_compiler
def test_a_package_is_built_loaded_and_called(tmp_path):
    sources = tiny(tmp_path, KERNELS)
    made = build(sources, ["tiny"], sources)
    assert list(made) == ["tiny"]
    if "FDRO_JIT" not in os.environ:
        # uncertainty_sets' own kernels may be without a library here; it is not asked for any.
        assert called(sources) == WANTED
        if platform.machine() == "x86_64":
            assert called(sources, FDRO_CPU_LEVEL="v2") == WANTED
    by_numba = called(sources, FDRO_JIT="1")
    assert by_numba.splitlines()[0] == WANTED.splitlines()[0]
    assert by_numba.endswith("CPUDispatcher True")


@needs_compiler
def test_a_kernel_that_needs_numba_at_run_time_fails_the_build(tmp_path):
    text = KERNELS.replace("best.sum() if turn else best.sum()", "best.max() if turn else best @ best")
    with pytest.raises(CannotBuild, match=r"tiny\.kernels\.pick calls .*numba_.* Usual causes"):
        build(tmp_path, ["tiny"], tiny(tmp_path, text))


@needs_compiler
def test_a_missing_compiler_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(CannotBuild, match="there is no no-such-compiler; install a C compiler or set CC"):
        build(tmp_path, ["tiny"], tiny(tmp_path, KERNELS))


def test_another_machine_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "s390x")
    with pytest.raises(CannotBuild, match="s390x"):
        build(tmp_path)


def test_parameters_come_from_annotations():
    def entry(F: Matrix, radius: Vector, limit: float, most: int, out: Matrix) -> None: ...

    found = parameters("entry", entry, ("out",))
    types = ["float64[:, ::1]", "float64[::1]", "float64", "int64", "float64[:, ::1]"]
    assert [each.numba for each in found] == types
    assert [each.written for each in found] == [False] * 4 + [True]


def test_a_parameter_without_dimensions_is_refused():
    def entry(F: Array) -> None: ...

    with pytest.raises(UnsuitableEntry, match=r"entry: parameter F .* takes Vector, Matrix"):
        parameters("entry", entry, ())


def test_a_written_parameter_must_exist():
    def entry(F: Matrix) -> None: ...

    with pytest.raises(UnsuitableEntry, match="entry names P, not among its parameters"):
        parameters("entry", entry, ("P",))


def test_a_result_must_be_numbers():
    assert results("entry", "float64") == "float64"
    with pytest.raises(UnsuitableEntry, match="entry returns array"):
        results("entry", "array(float64, 1d, C)")
