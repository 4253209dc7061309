"""How pytest runs the pages: each in a folder of its own, and only where what it needs is installed.

A page whose examples need an optional package says so in a comment, `<!-- needs: torch -->`; where one
section does, `<!-- this section needs: torch -->` leaves out its examples alone.
"""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

os.environ.setdefault("MPLBACKEND", "Agg")


def missing(page: Path) -> list[str]:
    """The packages that a page needs and that are not installed."""
    wanted = re.findall(r"<!-- needs: ([\w, ]+?) -->", page.read_text(encoding="utf-8"))
    return [name for names in wanted for name in names.split(", ") if find_spec(name) is None]


def unavailable(page: str) -> list[range]:
    """The lines, counted from 0, of sections whose package is not installed: up to the next heading."""
    lines, found, start = page.splitlines(), [], None
    for number, line in enumerate([*lines, "# end"]):
        wanted = re.fullmatch(r"<!-- this section needs: (\w+) -->", line)
        if line.startswith("#") and start is not None:
            found.append(range(start, number))
            start = None
        elif wanted and find_spec(wanted[1]) is None:
            start = number
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take the examples of such sections out of their pages."""
    for item in items:
        if isinstance(item, pytest.DoctestItem) and item.path.suffix == ".md":
            out = unavailable(item.path.read_text(encoding="utf-8"))
            test = item.dtest
            test.examples = [each for each in test.examples if not any(each.lineno in part for part in out)]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out generated pages, pages that cannot run here, and Sphinx's own file."""
    if collection_path.name in {"generated", "_build", "conf.py"}:
        return True
    return True if collection_path.suffix == ".md" and missing(collection_path) else None


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that a page writes do not stay."""
    monkeypatch.chdir(tmp_path)
