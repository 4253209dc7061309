"""Which fdro this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed


def version() -> str:
    """The installed distribution's version; "unknown" where the source is used without installing it."""
    try:
        return installed("fdro")
    except PackageNotFoundError:
        return "unknown"
