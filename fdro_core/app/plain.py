"""Values as JSON has them, and numbers as tables do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """The value in JSON's terms; NaN and infinity, which JSON lacks, as null.

    >>> plain({"gap": np.float64("inf"), "p": np.array([0.5, 0.5])})
    {'gap': None, 'p': [0.5, 0.5]}
    """
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def number(value: float | None, digits: int = 6) -> str:
    """A number for a table; a dash where there is none."""
    return "–" if value is None or math.isnan(value) else f"{value:.{digits}g}"


def percent(value: float | None, digits: int = 1) -> str:
    """A share as a percentage; a dash where there is none."""
    return "–" if value is None or math.isnan(value) else f"{100 * value:.{digits}f} %"
