"""Check that a release can be made: version, changelog, working tree, tag. Changes and uploads nothing.

`python .ci/release.py` prints every obstacle (`make release` then builds and tries the wheel).
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(root: Path = ROOT) -> int:
    """Return 0 if nothing stands in the way, else print what does and return 1."""
    version = project_version(root)
    found = obstacles(root, version)
    for each in found:
        print(f"not ready: {each}", file=sys.stderr)
    if not found:
        print(f"{version}: version, changelog, working tree and tag are ready")
    return 1 if found else 0


def project_version(root: Path) -> str:
    """Return the version in pyproject.toml."""
    version: str = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return version


def obstacles(root: Path, version: str) -> list[str]:
    """Return what stands in the way of releasing this version, one sentence each."""
    return [
        *version_obstacles((root / "CITATION.cff").read_text(encoding="utf-8"), version),
        *changelog_obstacles((root / "CHANGELOG.md").read_text(encoding="utf-8"), version),
        *git_obstacles(root, version),
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


def git_obstacles(root: Path, version: str) -> list[str]:
    """Check that everything is committed and that the tag is not taken."""
    found = []
    changed = git(root, "status", "--porcelain").splitlines()
    if changed:
        listed = ", ".join(line[3:] for line in changed[:5]) + (", …" if len(changed) > 5 else "")
        found.append(f"the working tree has changes that are not committed: {listed}")
    if git(root, "tag", "--list", f"v{version}"):
        found.append(f"the tag v{version} exists; raise the version in pyproject.toml and CITATION.cff")
    return found


def git(root: Path, *arguments: str) -> str:
    """Return what a git command prints; its failure is raised, with its own message on stderr."""
    return subprocess.run(
        ["git", *arguments], cwd=root, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.rstrip("\n")


if __name__ == "__main__":
    raise SystemExit(main())
