"""`make release` finds what stands in the way of a release, before anything is built."""

from __future__ import annotations

import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
release = runpy.run_path(str(ROOT / ".ci" / "release.py"))
changelog_obstacles, main = release["changelog_obstacles"], release["main"]
project_version, version_obstacles = release["project_version"], release["version_obstacles"]

READY = "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-11-20\n\n### Added\n\n- A set.\n"


def git(folder, *arguments):
    name = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
    subprocess.run(["git", *name, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path):
    """A committed project that is ready for 0.2.0."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.2.0"\n', encoding="utf-8")
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


def test_the_citation_has_the_version_of_the_project():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert version_obstacles(citation, project_version(ROOT)) == []
