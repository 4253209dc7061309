"""Format values for output: numbers in tables, and anything as JSON."""

from __future__ import annotations

import math
from typing import Any


def to_json(value: Any) -> Any:
    """Convert to what JSON can hold; NaN and infinity, which it cannot, become null.

    >>> import numpy as np
    >>> to_json({"gap": np.float64("inf"), "p": np.array([0.5, 0.5])})
    {'gap': None, 'p': [0.5, 0.5]}
    """
    import numpy as np

    if isinstance(value, dict):
        return {str(key): to_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return to_json(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def number(value: float | None, digits: int = 6) -> str:
    """Format a number for a table; a dash if there is none."""
    return "–" if value is None or math.isnan(value) else f"{value:.{digits}g}"


def percent(value: float | None, digits: int = 1) -> str:
    """Format a share as a percentage; a dash if there is none."""
    return "–" if value is None or math.isnan(value) else f"{100 * value:.{digits}f} %"
