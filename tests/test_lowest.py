"""`make test-lowest` installs the lowest version of everything that pyproject.toml asks for."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
lowest = runpy.run_path(str(ROOT / ".ci" / "lowest.py"))["lowest"]

PROJECT = """
[project]
dependencies = ["numpy>=1.26", {more}]
[project.optional-dependencies]
scs = ["scs>=3.2.4.post1"]
plot = []
mdp = ["gymnasium>=1.0"]
test = ["fdro[scs]", "pytest>=8", "pandas>=2.2"]
"""


def test_every_dependency_has_a_lowest_version():
    found = lowest((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert {"numpy", "scipy", "numba", "cvxpy", "clarabel", "highspy", "pot", "scs", "pytest"} <= found.keys()


def test_extras_and_tools_are_among_them():
    found = {"numpy": "1.26", "scs": "3.2.4.post1", "gymnasium": "1.0", "pytest": "8"}
    assert lowest(PROJECT.format(more="")) == found


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ('"scipy"', r"'scipy' must be `name>=version`"),
        ('"scipy>=1.11,<2"', r"'scipy>=1.11,<2' must be `name>=version`"),
        ('"scs>=3"', "scs has two lowest versions"),
    ],
)
def test_what_has_no_lowest_version(more, match):
    with pytest.raises(SystemExit, match=match):
        lowest(PROJECT.format(more=more))
