"""Algorithms, engines and delay laws by their names in run files."""

from __future__ import annotations

from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from fdro_core.cli.references import load_reference
from fdro_core.engines import delays
from fdro_core.errors import InvalidSetting
from uncertainty_sets.discovery import Registry, is_reference
from uncertainty_sets.errors import UnknownName
from uncertainty_sets.names import instead


def delay_laws() -> dict[str, type[Any]]:
    """Every delay law by its name in run files; it is a dataclass, whose fields are its numbers there.

    >>> delay_laws()["log-normal"].__name__
    'LogNormal'
    """
    found = [cls for cls in vars(delays).values() if isinstance(cls, type) and hasattr(cls, "draw")]
    return {kebab(cls.__name__): cls for cls in found if is_dataclass(cls)}


def kebab(name: str) -> str:
    """A class's name as run files spell it.

    >>> kebab("AspireEase"), kebab("FedAvg"), kebab("AFL"), kebab("DRFAProx")
    ('aspire-ease', 'fed-avg', 'afl', 'drfa-prox')
    """
    parts = []
    for place, letter in enumerate(name):
        after = name[place + 1 : place + 2]
        starts = letter.isupper() and place and (name[place - 1].islower() or after.islower())
        parts.append(f"-{letter}" if starts else letter)
    return "".join(parts).lower().replace("_", "-")


def find_class(registry: Registry[Any], name: str, folder: Path | None = None) -> tuple[str, type[Any]]:
    """The name of an algorithm or engine as its class has it, and the class.

    Hyphens and capitals do not matter. "module:Class" is a name too, of a module in `folder`, which is the
    current one by default, or of an installed package.

    >>> from fdro_core.protocol.engine import ENGINES
    >>> find_class(ENGINES, "Virtual")
    ('virtual', <class 'fdro_core.engines.virtual.VirtualEngine'>)
    """
    if is_reference(name):
        load_reference(name, Path.cwd() if folder is None else folder, "class")
    try:
        found = registry.get(name, exact=False)
    except UnknownName as error:
        raise InvalidSetting(str(error)) from error.__cause__
    return vars(found).get("name") or name, found


def find(kind: str, name: str, known: dict[str, type[Any]]) -> tuple[str, type[Any]]:
    """The name as the class has it, and the class; hyphens and capitals do not matter."""
    for each, cls in known.items():
        if _bare(each) == _bare(name):
            return each, cls
    raise InvalidSetting(f"no {kind} is called {name!r}{instead(name, sorted(known))}")


def _bare(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
