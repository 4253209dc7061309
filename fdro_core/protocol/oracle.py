"""What the algorithms ask of an uncertainty set: anything with `worst_case` and `reference` serves."""

from __future__ import annotations

from typing import Any


def sized(uncertainty_set: Any, entries: int) -> Any:
    """The set over that many entries, if it leaves them open; an oracle of another kind as it is."""
    give = getattr(uncertainty_set, "with_size", None)
    leaves_open = getattr(uncertainty_set, "size", None) is None
    return give(entries) if leaves_open and callable(give) else uncertainty_set
