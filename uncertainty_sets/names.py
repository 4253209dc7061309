"""Names in messages: joined, and suggested for one that is not known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

SHOWN = 20  # names in a message; more are cut short


def nearest(name: object, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" if one of the known names is close, else "".

    >>> nearest("radus", ["radius", "center"])
    "; did you mean 'radius'?"
    >>> nearest("Kl", ["Box", "KL"])
    "; did you mean 'KL'?"
    """
    written = {each.lower(): each for each in known}
    close = get_close_matches(str(name).lower(), written, n=1, cutoff=0.4)
    return f"; did you mean {written[close[0]]!r}?" if close else ""


def instead(name: object, known: Iterable[str], lead: str = "There are") -> str:
    """Finish a message about an unknown name: the nearest known one, then all of them.

    >>> instead("radus", ["radius", "center"], "It takes")
    "; did you mean 'radius'? It takes: radius, center"
    """
    known = list(known)
    shown = [*known[:SHOWN], "…"] if len(known) > SHOWN else known
    return f"{nearest(name, known) or '.'} {lead}: {', '.join(shown) or 'none'}"


def join_names(names: Sequence[str]) -> str:
    """Join names with commas and "and".

    >>> join_names(["a", "b", "c"])
    'a, b and c'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
