"""Run the oracles' tests on the lowest versions that pyproject.toml allows.

`python .ci/lowest.py [PYTEST ARGUMENTS]` (`make test-lowest`). Every `name>=version` of the dependencies
and of the extras in EXTRAS becomes `name==version` in an environment of its own, `.venv-lowest`. What these
packages need themselves is the newest that they allow, as for a user who installs today.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-lowest"
EXTRAS = ("scs", "plot", "mdp")
"""The extras that the oracles' tests use."""
TOOLS = {"pytest", "hypothesis", "pytest-xdist", "psutil"}
"""What the extra `test` has besides, to run them."""
TESTS = ("tests/uncertainty_sets", "uncertainty_sets")
REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)>=(?P<version>[0-9][A-Za-z0-9.]*)")


def lowest(pyproject: str) -> dict[str, str]:
    """The lowest version of each dependency, by its name."""
    project = tomllib.loads(pyproject)["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(each for extra in EXTRAS for each in extras[extra])]
    wanted += [each for each in extras["test"] if re.split(r"[<>=\[]", each)[0] in TOOLS]
    found: dict[str, str] = {}
    for each in wanted:
        match = REQUIREMENT.fullmatch(each)
        if match is None:
            raise SystemExit(
                f"pyproject.toml: {each!r} must be `name>=version`, so that its lowest version is known"
            )
        if found.setdefault(match["name"], match["version"]) != match["version"]:
            raise SystemExit(f"pyproject.toml: {match['name']} has two lowest versions")
    return found


def main(arguments: list[str]) -> int:
    """Make the environment if pyproject.toml asks for another one, and run the tests; return their code."""
    pins = [
        f"{name}=={version}"
        for name, version in sorted(lowest((ROOT / "pyproject.toml").read_text("utf-8")).items())
    ]
    python, stamp = VENV / "bin" / "python", VENV / "pins.txt"
    if not stamp.exists() or stamp.read_text("utf-8").split() != pins:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *pins], check=True)
        stamp.write_text("\n".join(pins) + "\n", "utf-8")
    print(*pins, flush=True)
    environment = {**os.environ, "FDRO_CACHE": str(VENV / "kernels")}
    chosen = any((ROOT / each.split("::")[0]).exists() for each in arguments)
    tests = [*arguments, *(() if chosen else TESTS)]
    return subprocess.run(
        [str(python), "-m", "pytest", *tests], cwd=ROOT, env=environment, check=False
    ).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
