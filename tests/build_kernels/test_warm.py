"""Kernels that numba compiles before the tests are the ones that calls ask for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

ASK = """
import numpy as np
from build_kernels.warm import compile_file
from fdro_core.problems.kernels import ridge
compile_file(["fdro_core.problems.kernels.ridge"])
compiled = list(ridge.signatures)
assert ridge(np.ones(2), np.zeros(2), 1.0) == 1.0
assert len(compiled) == 1 and ridge.signatures == compiled, (compiled, ridge.signatures)
"""


def test_a_call_finds_what_was_compiled():
    environment = os.environ | {"PYTHONPATH": str(ROOT), "FDRO_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_kernels_as_plain_python_are_not_compiled():
    ask = "from build_kernels.warm import compile_file; compile_file(['fdro_core.problems.kernels.ridge'])"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ask], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
