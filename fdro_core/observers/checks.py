"""Validate the settings of observers."""

from __future__ import annotations

import os
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np

from fdro_core.errors import InvalidSetting


def whole(name: str, value: Any) -> int:
    """A whole number >= 1."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InvalidSetting(f"{name} must be a whole number >= 1, got {value!r:.80}")
    return int(value)


def number(name: str, value: Any) -> float:
    """A number; infinity is allowed."""
    try:
        found = np.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:  # a whole number of more than 308 digits
        found = np.nan
    if np.isnan(found):
        raise InvalidSetting(f"{name} must be a number, got {value!r:.80}")
    return found


def positive(name: str, value: Any) -> float:
    """A number > 0; infinity is allowed."""
    if not number(name, value) > 0:
        raise InvalidSetting(f"{name} must be > 0, got {value}")
    return float(value)


def file_path(name: str, value: Any) -> Path:
    """The path of a file."""
    if not isinstance(value, str | os.PathLike) or "\0" in os.fspath(value):
        raise InvalidSetting(f"{name} must be the path of a file, got {value!r:.80}")
    return Path(value)
