"""Algorithms, engines and delay laws by their names in run files; and functions by "module:function"."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from fdro_core.engines import delays, engines_by_name
from fdro_core.errors import InvalidSetting
from uncertainty_sets.names import instead, nearest


def algorithms() -> dict[str, type[Any]]:
    """Every algorithm by its name in run files.

    >>> algorithms()["aspire-ease"].__name__
    'AspireEase'
    """
    from fdro_core import AspireEase, baselines

    found = [AspireEase, *(getattr(baselines, name) for name in baselines.__all__)]
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


def is_reference(text: str) -> bool:
    """Whether a text is "module:function".

    >>> is_reference("hospital.data:load"), is_reference("digits")
    (True, False)
    """
    module, colon, function = text.partition(":")
    return bool(colon) and function.isidentifier() and all(part.isidentifier() for part in module.split("."))


def load_reference(text: str, folder: Path) -> Callable[..., Any]:
    """The function of "module:function"; the run file's folder is searched first."""
    module_name, _, name = text.partition(":")
    sys.path.insert(0, str(folder))
    try:
        importlib.invalidate_caches()
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.split(".")[0] and error.name != module_name:
            raise InvalidSetting(
                f"{module_name} needs the package {error.name!r}: pip install {error.name}"
            ) from error
        raise InvalidSetting(
            f"there is no module {module_name!r}: put {module_name.split('.')[0]}.py beside the run file, "
            f"in {folder}, or install its package"
        ) from error
    finally:
        sys.path.remove(str(folder))
    function = getattr(module, name, None)
    if not callable(function):
        public = [
            each for each, value in vars(module).items() if callable(value) and not each.startswith("_")
        ]
        raise InvalidSetting(f"{module_name} has no function {name!r}{nearest(name, public)}")
    found: Callable[..., Any] = function
    return found
