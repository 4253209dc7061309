"""Algorithms, engines and delay laws by their names in run files; and functions by "module:function".

A class is found if it keeps the contract. Its name is its attribute `name`, or is made from the class's name.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from fdro_core.contracts.algorithm import Algorithm
from fdro_core.contracts.engine import Engine
from fdro_core.engines.delays import DelayLaw
from fdro_core.errors import InvalidSetting
from fdro_core.words import instead, nearest


def algorithms() -> dict[str, type]:
    """Every algorithm by its name in run files.

    >>> algorithms()["aspire-ease"].__name__
    'AspireEase'
    """
    return {**_keeping(Algorithm, "fdro_core.aspire"), **_keeping(Algorithm, "fdro_core.baselines")}


def engines() -> dict[str, type]:
    """Every engine by its name in run files.

    >>> engines()["virtual"].__name__
    'VirtualEngine'
    """
    return _keeping(Engine, "fdro_core.engines", suffix="-engine")


def delay_laws() -> dict[str, type]:
    """Every delay law by its name in run files; it is a dataclass, whose fields are its numbers there.

    >>> delay_laws()["log-normal"].__name__
    'LogNormal'
    """
    found = _keeping(DelayLaw, "fdro_core.engines")
    return {name: law for name, law in found.items() if is_dataclass(law)}


def _keeping(contract: type, package: str, suffix: str = "") -> dict[str, type]:
    """The public classes of a package that have every member of a contract, by name.

    A class without a `name` that another one derives from is a base class, and is left out.
    """
    members = [member for member in vars(contract) if not member.startswith("_")]
    found = [
        cls
        for module in _modules(package)
        for cls in vars(module).values()
        if inspect.isclass(cls)
        and cls.__module__ == module.__name__
        and not cls.__name__.startswith("_")
        and not inspect.isabstract(cls)
        and not getattr(cls, "_is_protocol", False)
        and all(hasattr(cls, member) for member in members)
    ]
    named = {}
    for cls in found:
        name = vars(cls).get("name")
        if isinstance(name, str):
            named[name] = cls
        elif not any(issubclass(other, cls) for other in found if other is not cls):
            named[kebab(cls.__name__).removesuffix(suffix)] = cls
    return named


def _modules(package: str) -> Iterator[ModuleType]:
    root = importlib.import_module(package)
    for module in pkgutil.walk_packages(root.__path__, f"{package}."):
        yield importlib.import_module(module.name)


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


def find(kind: str, name: str, known: dict[str, type]) -> tuple[str, type]:
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
