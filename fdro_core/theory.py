"""Deprecated name of `fdro_core.aspire.theory`: the paper's formulas."""

from __future__ import annotations

import importlib
import warnings
from typing import Any


def __getattr__(name: str) -> Any:
    found = getattr(importlib.import_module("fdro_core.aspire.theory"), name)
    warnings.warn(
        f"fdro_core.theory.{name} is now fdro_core.aspire.theory.{name}; the old name goes in 0.3",
        DeprecationWarning,
        stacklevel=2,
    )
    return found
