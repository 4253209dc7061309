"""Try a wheel: install it in environments of its own, away from the checkout, and run tests on it.

`python .ci/trial.py dist/fdro-….whl` (`make wheel`). The tests are copied out, so that the packages can only
come from the wheel. Its kernels alone may be used: the cache is an empty folder, and no compiler is found.

Two sizes are tried: the oracles alone, with NumPy, and the default. Everything (`fdro[all]`) is a gigabyte to
download; tests/test_sizes.py tries it with what is installed.
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
    """Return 0 if both sizes find the wheel's packages, use their compiled kernels, and pass the tests."""
    with tempfile.TemporaryDirectory(prefix="fdro-trial-") as folder:
        here, file = Path(folder), str(wheel.resolve())
        shutil.copytree(ROOT / "tests", here / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", here)  # how pytest is set up
        alone = installed(here / "alone", "--no-deps", file, "numpy")
        default = installed(here / "default", file, *NEEDED)
        environment = {
            **{name: value for name, value in os.environ.items() if name not in FORGOTTEN},
            "FDRO_CACHE": str(here / "cache"),
            "CC": "no-compiler-here",
        }
        for command in (
            [alone, "-c", WHERE],
            [alone, "tests/slim_check.py"],
            [default, "-c", WHERE],
            [default, "-m", "pytest", "-q", "-n", str(os.cpu_count() or 1), *TESTS],
        ):
            code = subprocess.run(command, cwd=here, env=environment, check=False).returncode
            if code:
                return code
    return 0


def installed(folder: Path, *wanted: str) -> str:
    """The Python of a new environment into which pip has installed this."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *wanted], check=True)
    return python


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
