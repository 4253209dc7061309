"""Names in messages: the nearest known one, and lists of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


def instead(name: object, known: Iterable[str], lead: str = "There are") -> str:
    """Finish a message about an unknown name: the nearest known one, then all of them.

    >>> instead("radus", ["radius", "center"], "It takes")
    "; did you mean 'radius'? It takes: radius, center"
    """
    known = list(known)
    close = get_close_matches(str(name).lower(), known, n=1, cutoff=0.4)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    return f"{hint} {lead}: {', '.join(known) or 'none'}"


def join_names(names: Sequence[str]) -> str:
    """Join names with commas and "and".

    >>> join_names(["a", "b", "c"])
    'a, b and c'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
