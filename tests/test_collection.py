"""The suite needs nothing but what `make test` installs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("torch", "jax", "ray", "flwr", "sphinx", "nbformat", "docutils", "myst_parser", "mypy")
"""What people may have, and a fresh clone after `make test` has not."""


@pytest.mark.thorough
def test_the_suite_is_collected_without_any_extra():
    options = ["-q", "--collect-only", "-n", "0", "-p", "no:cacheprovider", "-m", ""]
    hidden = [sys.executable, str(ROOT / "tests" / "missing.py"), " ".join(EXTRAS)]
    done = subprocess.run(
        [*hidden, str(Path(pytest.__file__).parent / "__main__.py"), *options],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert " tests collected" in done.stdout
