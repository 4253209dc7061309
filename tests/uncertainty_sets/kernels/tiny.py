"""A package of tiny kernels in two files, which compile in a moment, and processes that use it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

STEP = """
from uncertainty_sets.kernels.jit import kernel, owned_by


@kernel
def step(x):
    return x + 1.0


def repeated(move, count, module, name):
    @kernel
    @owned_by(module, name)
    def repeat(x: float) -> float:
        for _ in range(count):
            x = move(x)
        return x

    return repeat
"""
TWICE = """
from __future__ import annotations

import numpy as np

from tiny.kernels.first import repeated, step
from uncertainty_sets.arrays import Cube, Indices, Matrix, Vector
from uncertainty_sets.kernels.jit import entry, kernel


@entry()
@kernel
def twice(x: float) -> float:
    return step(step(x))


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


@kernel
def back(x):
    return x - 1.0


forth = entry()(repeated(step, 3, __name__, "forth"))
moves = [repeated(move, count, __name__, "move") for move, count in ((step, 1), (step, 2), (back, 2))]
"""
ASK = "from tiny.kernels.second import twice; print(twice(1.0))"


def package(folder: Path, second: str = TWICE) -> Path:
    """Write the package into a folder, and return the folder."""
    kernels = folder / "tiny" / "kernels"
    kernels.mkdir(parents=True)
    for name, text in {"__init__": "", "first": STEP, "second": second}.items():
        (kernels / f"{name}.py").write_text(text)
    (kernels.parent / "__init__.py").write_text("")
    return folder


def edit(folder: Path, old: str = "x + 1.0", new: str = "x + 2.0") -> None:
    """Change the callee's file to another of the same size and time, as a copy that keeps times may."""
    path = folder / "tiny" / "kernels" / "first.py"
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    os.utime(path, ns=times)


def command(code: str) -> list[str]:
    """A new process that runs this code."""
    return [sys.executable, "-c", code]


def environment(*folders: Path, **more: str) -> dict[str, str]:
    """Nothing of this process's environment but the search paths."""
    path = os.pathsep.join(map(str, [*folders, ROOT]))
    kept = {name: os.environ[name] for name in ("PATH", "CC") if name in os.environ}
    return kept | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"} | more


def run(folder: Path, code: str = ASK, code_of_exit: int = 0, **more: str) -> tuple[str, str]:
    """What a process prints and reports that finds packages in `folder` and in the checkout."""
    done = subprocess.run(
        command(code),
        env=environment(folder, **more),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code_of_exit, done.stderr
    return done.stdout.strip(), done.stderr.strip()
