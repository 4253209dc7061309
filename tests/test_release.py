"""`make release` finds what stands in the way of a release, before anything is built."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
release = runpy.run_path(str(ROOT / ".ci" / "release.py"))
changelog_obstacles, main = release["changelog_obstacles"], release["main"]
project_version, version_obstacles = release["project_version"], release["version_obstacles"]

PROJECT = """[project]
version = "0.2.0"
requires-python = ">=3.11"
dependencies = ["numpy>=1.26", "cvxpy>=1.6.7"]
"""
RECIPE = """context:
  version: "0.2.0"

requirements:
  run:
    - python >=3.11
    - numpy >=1.26
    - cvxpy-base >=1.6.7

tests:
"""
READY = "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-11-20\n\n### Added\n\n- A set.\n"


def git(folder, *arguments):
    name = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
    subprocess.run(["git", *name, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path):
    """A committed project that is ready for 0.2.0."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    (tmp_path / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    (tmp_path / ".ci" / "conda-forge").mkdir(parents=True)
    (tmp_path / release["RECIPE"]).write_text(RECIPE, encoding="utf-8")
    (tmp_path / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 0.2.0\n", encoding="utf-8")
    (tmp_path / "CHANGELOG.md").write_text(READY, encoding="utf-8")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "Release")
    return tmp_path


def test_a_project_that_is_ready(project, capsys):
    assert main(project) == 0
    assert capsys.readouterr().out.startswith("0.2.0: version, changelog, working tree and tag are ready")


def test_all_obstacles_are_told_at_once(project, capsys):
    git(project, "tag", "v0.2.0")
    (project / "CITATION.cff").write_text("version: 0.1.0\n", encoding="utf-8")
    assert main(project) == 1
    assert capsys.readouterr().err.splitlines() == [
        "not ready: CITATION.cff must have the version of pyproject.toml, 0.2.0; it has 0.1.0",
        "not ready: the working tree has changes that are not committed: CITATION.cff",
        "not ready: the tag v0.2.0 exists; raise the version in pyproject.toml and CITATION.cff",
    ]


@pytest.mark.parametrize(
    ("changelog", "message"),
    [
        (READY.replace(" - 2026-11-20", ""), "needs the heading `## [0.2.0] - YYYY-MM-DD`"),
        (READY.replace("- A set.\n", ""), "no entries under [0.2.0]"),
        (READY.replace("## [0.2.0]", "- B.\n\n## [0.2.0]"), "entries under [Unreleased]; move them"),
        (READY.replace("0.2.0", "0x2.0"), "needs the heading"),
    ],
)
def test_the_changelog(changelog, message):
    [found] = changelog_obstacles(changelog, "0.2.0")
    assert message in found
    assert changelog_obstacles(READY, "0.2.0") == []


def test_the_version():
    [form] = version_obstacles("version: 0.2\n", "0.2")
    assert "must be like 0.2.0" in form
    assert version_obstacles("version: 0.2.0rc1\n", "0.2.0rc1") == []
    [none] = version_obstacles("title: fdro\n", "0.2.0")
    assert none.endswith("it has none")


def test_the_recipe(project, capsys):
    recipe = project / release["RECIPE"]
    recipe.write_text(RECIPE.replace('"0.2.0"', '"0.1.9"').replace("numpy >=1.26", "numpy >=1.25"))
    git(project, "commit", "-qam", "Recipe")
    assert main(project) == 1
    assert capsys.readouterr().err.splitlines() == [
        "not ready: .ci/conda-forge/recipe.yaml must have version 0.2.0, it has 0.1.9",
        "not ready: .ci/conda-forge/recipe.yaml: under `run` missing: numpy >=1.26; too much: numpy >=1.25",
    ]


def test_the_recipe_is_that_of_the_project():
    assert release["recipe_obstacles"](ROOT / release["RECIPE"], ROOT / "pyproject.toml") == []


def test_the_workflow_publishes_what_is_tagged(project, capsys):
    assert main(project, tagged=True) == 1
    assert "this commit has no tag v0.2.0" in capsys.readouterr().err
    git(project, "tag", "v0.2.0")
    assert main(project, tagged=True) == 0


def test_the_workflow_runs_targets_that_exist():
    yaml = pytest.importorskip("yaml")
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    lines = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    made = [word for line in lines if line.startswith("make") for word in line.split()[1:] if word.isalpha()]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert sorted(made) == ["check", "test"]
    assert all(f"\n{target}:" in makefile for target in made)
    assert jobs["publish"]["needs"] == ["check", "test", "wheels"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}


def test_the_constraints_fit_what_the_project_requires():
    lines = (ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8").splitlines()[1:]
    fixed = dict(line.split("==") for line in lines)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [Requirement(each) for each in [*project["dependencies"], *extras["test"], *extras["dev"]]]
    for each in wanted:
        assert each.name == "fdro" or fixed[canonicalize_name(each.name)] in each.specifier, each


def test_the_citation_has_the_version_of_the_project():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert version_obstacles(citation, project_version(ROOT)) == []
