"""Modules that moved: their old names work until 0.3, with a DeprecationWarning."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any


def forward(old: str, new: str) -> Callable[[str], Any]:
    """A module `__getattr__` for `old` that finds every public name in the module `new`."""

    def get(name: str) -> Any:
        if name.startswith("__"):  # Python's own questions, such as whether a module is a package
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(new), name)
        warnings.warn(
            f"{old}.{name} is now {new}.{name}; the old name will be removed in 0.3",
            DeprecationWarning,
            stacklevel=2,
        )
        return found

    return get
