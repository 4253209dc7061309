"""The public modules import, their names are those of the API page, and old names still work and warn."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "api.md"

PUBLIC = (
    "uncertainty_sets",
    "uncertainty_sets.audit",
    "uncertainty_sets.calibration",
    "uncertainty_sets.errors",
    "uncertainty_sets.mdp",
    "uncertainty_sets.pictures",
    "uncertainty_sets.robust",
    "uncertainty_sets.torch",
    "fdro_core",
    "fdro_core.baselines",
    "fdro_core.errors",
    "fdro_core.observers",
    "fdro_core.pictures",
    "fdro_core.problems.torch",
    "fdro_core.sklearn",
)
"""The modules that users import from: their paths do not change."""

DIRECTIVE = re.compile(r"^\.\. auto(\w+):: (\S+)\n((?:   :.*\n)*)", re.MULTILINE)
MEMBERS = re.compile(r"^   :members:(.*)$", re.MULTILINE)


def names_of(module: str) -> set[str]:
    """The public names of a module, dotted."""
    return {f"{module}.{name}" for name in importlib.import_module(module).__all__}


def documented(page: str) -> set[str]:
    """The dotted names on the page; a module's `:members:` without a list stands for its `__all__`."""
    found = set()
    for kind, target, options in DIRECTIVE.findall(page):
        members = MEMBERS.search(options)
        if kind != "module":
            found.add(target)
        elif members and members[1].strip():
            found |= {f"{target}.{name.strip()}" for name in members[1].split(",")}
        elif members:
            found |= names_of(target)
    return found


def answers() -> set[str]:
    """The names of the classes that public functions return."""
    modules = map(importlib.import_module, PUBLIC)
    public = [getattr(module, name) for module in modules for name in module.__all__]  # some load when used
    return {str(inspect.signature(each).return_annotation) for each in public if inspect.isfunction(each)}


def differences(page: str) -> dict[str, set[str]]:
    """Public names that the page lacks, and names on the page that are not public."""
    public, shown = set().union(*map(names_of, PUBLIC)), documented(page)
    returned = {name for name in shown - public if name.rpartition(".")[2] in answers()}
    return {"not on the page": public - shown, "not public": shown - public - returned}


def test_the_api_page_has_every_public_name_and_no_other():
    assert differences(PAGE.read_text(encoding="utf-8")) == {"not on the page": set(), "not public": set()}


def test_a_difference_would_be_seen():
    page = PAGE.read_text(encoding="utf-8")
    module = ".. automodule:: fdro_core.observers\n   :members:"
    assert module in page
    assert differences(page.replace(module, f"{module} Checkpoint"))["not on the page"] == names_of(
        "fdro_core.observers"
    ) - {"fdro_core.observers.Checkpoint"}
    more = page + "\n.. autoclass:: fdro_core.loop.Run\n   :members:\n"
    assert differences(more)["not public"] == {"fdro_core.loop.Run"}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_exist_and_are_documented(name):
    """A name without a docstring would be left out of the page without a warning."""
    module = importlib.import_module(name)
    for each in module.__all__:
        assert inspect.getdoc(getattr(module, each)), f"{name}.{each} has no docstring"
    assert len(set(module.__all__)) == len(module.__all__)


def test_every_public_module_imports_by_itself():
    """In a fresh interpreter, so that none relies on what another has imported."""
    for name in PUBLIC:
        script = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from {name} import *"
        answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert answer.returncode == 0, (name, answer.stderr)
