"""Algorithms, engines and delay laws by their names in run files."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

from fdro_core.engines import delays, engines_by_name
from fdro_core.errors import InvalidSetting
from uncertainty_sets.names import instead


def algorithms() -> dict[str, type[Any]]:
    """Every algorithm by its name in run files.

    >>> algorithms()["aspire-ease"].__name__
    'AspireEase'
    """
    from fdro_core import AspireEase, AspireModels, baselines

    found = [AspireModels, AspireEase, *(getattr(baselines, name) for name in baselines.__all__)]
    return {kebab(cls.__name__): cls for cls in found}


def engines() -> dict[str, type[Any]]:
    """Every engine by its name in run files, which is the `name` of its class.

    >>> engines()["virtual"].__name__
    'VirtualEngine'
    """
    return dict(engines_by_name())


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


def find(kind: str, name: str, known: dict[str, type[Any]]) -> tuple[str, type[Any]]:
    """The name as the class has it, and the class; hyphens and capitals do not matter."""
    for each, cls in known.items():
        if _bare(each) == _bare(name):
            return each, cls
    raise InvalidSetting(f"no {kind} is called {name!r}{instead(name, sorted(known))}")


def _bare(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
