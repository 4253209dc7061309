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
import sysconfig
import tempfile
from pathlib import Path

from build_kernels.library import PACKAGES

ROOT = Path(__file__).resolve().parent.parent
NEEDED = ("pytest>=8", "pytest-xdist>=3.5", "hypothesis>=6.100", "scikit-learn>=1.6")
FORGOTTEN = {"PYTHONPATH", "FDRO_JIT", "NUMBA_CACHE_DIR"}
"""Variables that would let other packages or kernels than the wheel's be used."""
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
        lend_kernels(Path(sysconfig.get_path("platlib", vars={"platbase": str(here / "venv")})))
        shutil.copytree(ROOT / "tests", here / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", here)  # how pytest is set up
        environment = {
            **{name: value for name, value in os.environ.items() if name not in FORGOTTEN},
            "FDRO_KERNELS": "require",
        }
        tests = [python, "-m", "pytest", "-q", "-n", str(os.cpu_count() or 1), *TESTS]
        for command in ([python, "-c", WHERE], tests):
            code = subprocess.run(command, cwd=here, env=environment, check=False).returncode
            if code:
                return code
    return 0


def lend_kernels(packages: Path) -> None:
    """Copy what numba has compiled in this checkout, to which the wheel's kernels are compared.

    numba finds these files by the contents of the sources, and compiles what is missing or of other sources.
    """
    for package in PACKAGES:
        for file in (ROOT / package).rglob("__pycache__/*.nbc"):
            to = packages / file.relative_to(ROOT)
            if to.parent.parent.is_dir():
                to.parent.mkdir(exist_ok=True)
                shutil.copy2(file, to)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
