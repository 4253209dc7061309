"""Names in sentences: joined, and suggested for one that is not known."""

from __future__ import annotations

from difflib import get_close_matches


def nearest(name: str, known: list[str]) -> str:
    """ "; did you mean 'x'?" where one of the known names is close, else "".

    >>> nearest("radus", ["radius", "center"])
    "; did you mean 'radius'?"
    """
    close = get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def instead(name: str, known: list[str], lead: str = "There are") -> str:
    """What to say after a name that is not known: the nearest one, and all of them.

    >>> instead("radus", ["radius", "center"], "It takes")
    "; did you mean 'radius'? It takes: radius, center"
    """
    shown = [*known[:20], "…"] if len(known) > 20 else known
    return f"{nearest(name, known) or '.'} {lead}: {', '.join(shown)}"


def one_or_more(names: list[str]) -> str:
    """Join names with commas and "and".

    >>> one_or_more(["a", "b", "c"])
    'a, b and c'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
