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
    if value is None or math.isnan(value):
        return "–"
    return f"{round(100 * value, digits) + 0.0:.{digits}f} %"  # + 0.0: no "-0.0 %" for a weight of -1e-20


SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def for_people(value: float | None, digits: int = 4, *, smallest: float = 0.0) -> str:
    """Format a number for reading, not for copying: `digits` significant digits, no "e-07".

    A number of at most `smallest` in size is rounding noise.

    >>> for_people(12345.678), for_people(0.35), for_people(3.21e-7), for_people(-4.8e-20, smallest=1e-15)
    ('12,346', '0.35', '3.21 × 10⁻⁷', '≈ 0')
    """
    if value is None or math.isnan(value):
        return "–"
    if value == 0 or math.isinf(value):
        return "0" if value == 0 else "∞" if value > 0 else "-∞"
    if abs(value) <= smallest:
        return "≈ 0"
    if not 1e-3 <= abs(value) < 1e9:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{_trimmed(mantissa)} × 10{str(int(exponent)).translate(SUPERSCRIPTS)}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return _trimmed(f"{value:,.{decimals}f}")


def _trimmed(text: str) -> str:
    """Without zeros at the end of the decimals."""
    return text.rstrip("0").rstrip(".") if "." in text else text
