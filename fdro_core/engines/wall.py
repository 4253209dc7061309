"""Deprecated names of `fdro_core.engines.wall_clock`."""

from __future__ import annotations

import warnings
from typing import Any

from fdro_core.engines import wall_clock

NEW = {
    "Answer": "Answer",
    "Arrival": "Arrival",
    "Gone": "WorkersLost",
    "Here": "WorkersReady",
    "WallEngine": "WallEngine",
}


def __getattr__(name: str) -> Any:
    if name not in NEW:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = f"{wall_clock.__name__}.{NEW[name]}"
    warnings.warn(
        f"{__name__}.{name} is now {new}; the old name goes in 0.3", DeprecationWarning, stacklevel=2
    )
    return getattr(wall_clock, NEW[name])
