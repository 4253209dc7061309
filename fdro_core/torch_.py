"""Deprecated name of `fdro_core.problems.torch`: `TorchProblem`."""

from __future__ import annotations

import importlib
import warnings
from typing import Any


def __getattr__(name: str) -> Any:
    found = getattr(importlib.import_module("fdro_core.problems.torch"), name)
    warnings.warn(
        f"fdro_core.torch_.{name} is now fdro_core.problems.torch.{name}; the old name goes in 0.3",
        DeprecationWarning,
        stacklevel=2,
    )
    return found
