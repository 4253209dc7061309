"""Check that a release can be made: version, changelog, working tree, tag. Changes and uploads nothing.

`python .ci/release.py` prints every obstacle (`make release` then builds and tries the wheel). With
`--tagged`, for the workflow that publishes, the tag must exist instead, on this commit.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECIPE = ".ci/conda-forge/recipe.yaml"
CONDA_NAMES = {"cvxpy": "cvxpy-base"}
"""Packages that conda-forge names differently; cvxpy itself would bring solvers that fdro does not need."""


def main(root: Path = ROOT, *, tagged: bool = False) -> int:
    """Return 0 if nothing stands in the way, else print what does and return 1."""
    version = project_version(root)
    found = obstacles(root, version, tagged=tagged)
    for each in found:
        print(f"not ready: {each}", file=sys.stderr)
    if not found:
        print(f"{version}: version, changelog, working tree and tag are ready")
    return 1 if found else 0


def project_version(root: Path) -> str:
    """Return the version in pyproject.toml."""
    version: str = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return version


def obstacles(root: Path, version: str, *, tagged: bool) -> list[str]:
    """Return what stands in the way of releasing this version, one sentence each."""
    return [
        *version_obstacles((root / "CITATION.cff").read_text(encoding="utf-8"), version),
        *changelog_obstacles((root / "CHANGELOG.md").read_text(encoding="utf-8"), version),
        *recipe_obstacles(root / RECIPE, root / "pyproject.toml"),
        *git_obstacles(root, version, tagged=tagged),
    ]


def version_obstacles(citation: str, version: str) -> list[str]:
    """Check the form of the version, and that CITATION.cff has the same."""
    found = []
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        found.append(f"the version in pyproject.toml must be like 0.2.0 or 0.2.0rc1, got {version}")
    cited = re.search(r"^version: *\"?([^\s\"]+)", citation, re.MULTILINE)
    if cited is None or cited[1] != version:
        given = cited[1] if cited else "none"
        found.append(f"CITATION.cff must have the version of pyproject.toml, {version}; it has {given}")
    return found


def changelog_obstacles(changelog: str, version: str) -> list[str]:
    """Check that the version has a dated heading with entries, below an empty [Unreleased]."""
    parts = re.split(r"^## (.+)$", changelog, flags=re.MULTILINE)
    sections = {heading.strip(): text for heading, text in zip(parts[1::2], parts[2::2], strict=True)}
    found = []
    if "- " in sections.get("[Unreleased]", ""):
        found.append(f"CHANGELOG.md has entries under [Unreleased]; move them under [{version}]")
    form = re.compile(rf"\[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d")
    dated = [heading for heading in sections if form.fullmatch(heading)]
    if not dated:
        found.append(f"CHANGELOG.md needs the heading `## [{version}] - YYYY-MM-DD`")
    elif "- " not in sections[dated[0]]:
        found.append(f"CHANGELOG.md has no entries under [{version}]")
    return found


def recipe_obstacles(recipe: Path, project: Path) -> list[str]:
    """Check that the conda-forge recipe has version, Python and packages of pyproject.toml."""
    about = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    text = recipe.read_text(encoding="utf-8")
    given = re.search(r'^  version: "([^"]+)"', text, re.MULTILINE)
    found = []
    if given is None or given[1] != about["version"]:
        found.append(f"{RECIPE} must have version {about['version']}, it has {given[1] if given else 'none'}")
    run = text.partition("\n  run:\n")[2].partition("\n\n")[0]
    listed = {line.strip().removeprefix("- ") for line in run.splitlines()}
    parts = [re.fullmatch(r"([\w.-]+)(.*)", each) for each in about["dependencies"]]
    wanted = {f"{CONDA_NAMES.get(each[1], each[1])} {each[2]}".strip() for each in parts if each}
    wanted.add(f"python {about['requires-python']}")
    if listed != wanted:
        found.append(f"{RECIPE}: under `run` {_differences(wanted, listed)}")
    return found


def _differences(wanted: set[str], listed: set[str]) -> str:
    parts = {"missing": wanted - listed, "too much": listed - wanted}
    return "; ".join(f"{what}: {', '.join(sorted(lines))}" for what, lines in parts.items() if lines)


def git_obstacles(root: Path, version: str, *, tagged: bool) -> list[str]:
    """Check that everything is committed and that the tag is not taken, or with `tagged` that it is here."""
    found = []
    changed = git(root, "status", "--porcelain").splitlines()
    if changed:
        listed = ", ".join(line[3:] for line in changed[:5]) + (", …" if len(changed) > 5 else "")
        found.append(f"the working tree has changes that are not committed: {listed}")
    if tagged:
        if f"v{version}" not in git(root, "tag", "--points-at", "HEAD").splitlines():
            found.append(f"this commit has no tag v{version}")
    elif git(root, "tag", "--list", f"v{version}"):
        found.append(f"the tag v{version} exists; raise the version in pyproject.toml and CITATION.cff")
    return found


def git(root: Path, *arguments: str) -> str:
    """Return what a git command prints; its failure is raised, with its own message on stderr."""
    return subprocess.run(
        ["git", *arguments], cwd=root, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.rstrip("\n")


if __name__ == "__main__":
    raise SystemExit(main(tagged="--tagged" in sys.argv[1:]))
