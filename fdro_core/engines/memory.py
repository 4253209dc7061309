"""Deprecated names of `fdro_core.engines.wall_clock.records` and `fdro_core.contracts.messages`."""

from __future__ import annotations

import warnings
from typing import Any

from fdro_core.contracts import messages
from fdro_core.engines.wall_clock import records

NEW = {
    "Memory": (records, "Records"),
    "Past": (records, "WorkerRecord"),
    "make": (records, "make_worker"),
    "own_copy": (messages, "copied"),
    "recall": (records, "restore_worker"),
}


def __getattr__(name: str) -> Any:
    if name not in NEW:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, new = NEW[name]
    warnings.warn(
        f"{__name__}.{name} is now {module.__name__}.{new}; the old name goes in 0.3",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(module, new)
