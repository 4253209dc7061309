"""Try a wheel: install it in an environment of its own, away from the checkout, and run tests on it.

`python -m build_kernels.trial dist/fdro-….whl` (`make wheel`). The tests are copied out, so that the packages
can only come from the wheel. Tests that need kernels compiled ahead of time fail here if there are none,
instead of being skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEEDED = ("pytest>=8", "hypothesis>=6.100", "scikit-learn>=1.6")
TESTS = (
    "tests/test_compiled.py",
    "tests/uncertainty_sets/test_values.py",
    "tests/uncertainty_sets/test_edges.py",
    "tests/uncertainty_sets/test_kl_hard.py",
    "tests/uncertainty_sets/test_projection.py",
    "tests/uncertainty_sets/test_promise.py",
)
WHERE = """
import fdro_core, sys, uncertainty_sets
from uncertainty_sets import compiled
print(compiled.status("uncertainty_sets", "fdro_core"))
for package in (uncertainty_sets, fdro_core):
    assert sys.prefix in package.__file__, f"{package.__file__} is not the wheel's"
    assert compiled.kernels(package.__name__).library, "the kernels are not compiled ahead of time"
assert "numba" not in sys.modules
"""


def main(wheel: Path) -> int:
    """Return 0 if the wheel's packages are found, use their compiled kernels, and pass the tests."""
    with tempfile.TemporaryDirectory(prefix="fdro-trial-") as folder:
        here = Path(folder)
        subprocess.run([sys.executable, "-m", "venv", str(here / "venv")], check=True)
        python = str(here / "venv" / "bin" / "python")
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, str(wheel.resolve()), *NEEDED], check=True)
        shutil.copytree(ROOT / "tests", here / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", here)  # how pytest is set up
        environment = {
            **{name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "FDRO_JIT"}},
            "FDRO_KERNELS": "require",
            "NUMBA_CACHE_DIR": str(here / "cache"),
        }
        for command in ([python, "-c", WHERE], [python, "-m", "pytest", "-q", *TESTS]):
            code = subprocess.run(command, cwd=here, env=environment, check=False).returncode
            if code:
                return code
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
