"""Try a wheel: install it in an environment of its own, away from the checkout, and run tests on it.

`python .ci/trial.py dist/fdro-….whl` (`make wheel`). The tests are copied out, so that the packages can only
come from the wheel. Its kernels alone may be used: the cache is an empty folder, and no compiler is found.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEEDED = ("pytest>=8", "pytest-xdist>=3.5", "hypothesis>=6.100")
FORGOTTEN = {"PYTHONPATH", "FDRO_JIT"}
"""Variables that would let other packages or kernels than the wheel's be used."""
TESTS = ("tests/uncertainty_sets/test_values.py", "tests/uncertainty_sets/kernels/test_library.py")
WHERE = """
import fdro_core, sys, uncertainty_sets
from uncertainty_sets.kernels.native import library
status = library.status()
print(status)
assert status.startswith("kernels: ") and "first used" not in status, "not all kernels are in the wheel"
for package in (uncertainty_sets, fdro_core):
    assert sys.prefix in package.__file__, f"{package.__file__} is not the wheel's"
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
            **{name: value for name, value in os.environ.items() if name not in FORGOTTEN},
            "FDRO_CACHE": str(here / "cache"),
            "CC": "no-compiler-here",
        }
        tests = [python, "-m", "pytest", "-q", "-n", str(os.cpu_count() or 1), *TESTS]
        for command in ([python, "-c", WHERE], tests):
            code = subprocess.run(command, cwd=here, env=environment, check=False).returncode
            if code:
                return code
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
