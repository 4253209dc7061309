"""The version of fdro."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed


def version() -> str:
    """The installed distribution's version; "unknown" if fdro is not installed."""
    try:
        return installed("fdro")
    except PackageNotFoundError:
        return "unknown"
