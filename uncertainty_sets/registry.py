"""Finding sets by name: the files of sets/, other packages' entry points, and any named subclass.

A set reaches the registry in one of three ways, none of which edits a list:

- a file in `uncertainty_sets/sets/`;
- an entry point of another package in the group ``uncertainty_sets``;
- a subclass of `UncertaintySet` with a `name`, from the moment it is defined.
"""

from __future__ import annotations

import importlib
import pkgutil
import threading
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from uncertainty_sets.errors import InvalidParameter, UnknownName

if TYPE_CHECKING:
    from uncertainty_sets.answer import WorstCase
    from uncertainty_sets.base import UncertaintySet

ENTRY_POINTS = "uncertainty_sets"

_sets: dict[str, type[UncertaintySet]] = {}
_lock = threading.RLock()
_discovered = False


def register(cls: type[UncertaintySet]) -> None:
    """Take a class in under its name; a later class of the same name replaces an earlier one."""
    _sets[cls.name] = cls


def _discover() -> None:
    global _discovered  # noqa: PLW0603 - the registry is the one piece of module state here
    with _lock:
        if _discovered:
            return
        import uncertainty_sets.sets as package

        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
        for point in entry_points(group=ENTRY_POINTS):
            cls = point.load()
            _sets.setdefault(getattr(cls, "name", "") or point.name, cls)
        _discovered = True


def available_sets() -> list[str]:
    """The names of all sets, sorted.

    >>> available_sets()
    ['box', 'cd-norm', 'ellipsoid', 'kl', 'polyhedron', 'wasserstein-1'...]
    """
    _discover()
    return sorted(_sets)


def get_set(name: str) -> type[UncertaintySet]:
    """The class of that name.

    >>> get_set("kl")
    <class 'uncertainty_sets.sets.kl.KL'>
    """
    _discover()
    try:
        return _sets[name]
    except (KeyError, TypeError):
        close = get_close_matches(str(name).lower(), _sets, n=1, cutoff=0.4)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise UnknownName(
            f"no uncertainty set is called {name!r}{hint} There are: {', '.join(available_sets())}"
        ) from None


def worst_case(
    name: str,
    losses: ArrayLike,
    *,
    backend: str = "auto",
    warm_start: WorstCase | None = None,
    **parameters: Any,
) -> WorstCase:
    """The worst-case distribution of the set of that name with those parameters.

    >>> worst_case("kl", [1.0, 2.0, 4.0], center=[0.5, 0.3, 0.2], radius=0.1).value
    2.438...
    """
    cls = get_set(name)
    try:
        uncertainty_set = cls(**parameters)
    except TypeError as error:
        raise InvalidParameter(f"{name}: {error}") from error
    return uncertainty_set.worst_case(losses, backend=backend, warm_start=warm_start)
