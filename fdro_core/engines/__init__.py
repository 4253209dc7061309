"""Engines carry messages between the master and the workers, and keep time.

One file or folder per engine: `virtual`, `threads`, `ray_`, `flower_`. The parts: `delays` of the virtual
engine, and `wall_clock`, which engines on a wall clock share.
"""

from __future__ import annotations

import importlib
import pkgutil

from fdro_core.contracts.engine import EngineTraits


def engines_by_name() -> dict[str, type[EngineTraits]]:
    """Return every engine by the `name` of its class; every file of this folder is searched.

    An engine is a subclass of `EngineTraits` that sets `name` itself.

    >>> engines_by_name()["virtual"]
    <class 'fdro_core.engines.virtual.VirtualEngine'>
    """
    found: dict[str, type[EngineTraits]] = {}
    for file in pkgutil.iter_modules(__path__, f"{__name__}."):
        for value in vars(importlib.import_module(file.name)).values():
            if isinstance(value, type) and issubclass(value, EngineTraits) and vars(value).get("name"):
                other = found.setdefault(value.name, value)
                if other is not value:
                    raise TypeError(
                        f"two engines have the name {value.name!r}, {other.__module__}.{other.__name__} and "
                        f"{value.__module__}.{value.__name__}: rename one"
                    )
    return found
