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
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from uncertainty_sets import sets
from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.base import NAMED, UncertaintySet
from uncertainty_sets.building import build
from uncertainty_sets.errors import InvalidInput, InvalidParameter, UnknownName
from uncertainty_sets.failures import OnFailure
from uncertainty_sets.names import instead, join_names

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "uncertainty_sets"

_sets = NAMED  # a later class of the same name replaces an earlier one
_failed: dict[str, Exception] = {}  # what entry points raised, by their name
_lock = threading.RLock()
_discovered = False


def _discover() -> None:
    from importlib.metadata import entry_points  # a third of the time that `import uncertainty_sets` took

    global _discovered  # noqa: PLW0603 - whether discovery has run is the one piece of module state here
    with _lock:
        if _discovered:
            return
        for module in pkgutil.iter_modules(sets.__path__, f"{sets.__name__}."):
            importlib.import_module(module.name)
        for point in entry_points(group=ENTRY_POINTS):
            _load(point)
        _discovered = True


def _load(point: EntryPoint) -> None:
    """Register another package's set; one that cannot be loaded must not take the other sets with it."""
    try:
        cls = point.load()
        if not (isinstance(cls, type) and issubclass(cls, UncertaintySet)):
            raise TypeError(f"{point.value} is not a subclass of UncertaintySet")
    except Exception as error:  # another package's code may raise anything
        _failed[point.name] = error
        package = point.dist.name if point.dist else "another package"
        warnings.warn(
            f"the uncertainty set {point.name!r} of {package} cannot be loaded: "
            f"{type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
    else:
        _sets.setdefault(cls.name or point.name, cls)


def available_sets() -> list[str]:
    """The names of all sets, sorted.

    >>> {"box", "kl", "wasserstein-1"} <= set(available_sets())
    True
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
        raise UnknownName(
            f"no uncertainty set is called {name!r}{instead(name, available_sets())}",
            parameter="name",
            value=name,
        ) from (_failed.get(name) if isinstance(name, str) else None)


def make_set(
    wanted: str | type[UncertaintySet] | UncertaintySet,
    given: Mapping[str, Any],
    size: int | None,
    *,
    center: Array | None = None,
    fill: bool = False,
) -> UncertaintySet:
    """Build a set from a name and parameters, as estimators, run files and the command line do.

    Args:
        wanted: a registry name, a class, or a set itself, which then takes no more parameters.
        given: parameters by name. One number for a parameter that has an entry per probability stands for
            that number in every entry.
        size: N; a set that leaves its size open gets it. None if only the losses tell.
        center: the centre of sets that need one and are not given one; uniform by default.
        fill: whether other needed parameters that are not given come from the class's `default_parameters`;
            otherwise they are an error.

    >>> make_set("kl", {"radius": 0.1}, 4)
    KL(center=[0.25, 0.25, 0.25, 0.25], radius=0.1)
    >>> make_set("box", {"lower": 0.0, "upper": 0.5}, 3)
    Box(lower=[0, 0, 0], upper=[0.5, 0.5, 0.5])
    """
    if isinstance(wanted, UncertaintySet):
        if given:
            names = sorted(given)
            raise InvalidParameter(
                f"{join_names(names)} cannot be given together with a finished set; put it into the set, or "
                "give the set's name",
                parameter=names[0],
                value=given[names[0]],
            )
        return wanted if size is None or wanted.size is not None else wanted.with_size(size)
    if isinstance(wanted, str):
        cls = get_set(wanted)
    elif isinstance(wanted, type) and issubclass(wanted, UncertaintySet):
        cls = wanted
    else:
        raise InvalidInput(
            "uncertainty_set must be a name from available_sets(), a subclass of UncertaintySet or a set, "
            f"got {type(wanted).__name__}",
            parameter="uncertainty_set",
            value=wanted,
        )
    return build(cls, given, size, center=center, fill=fill)


def worst_case(
    name: str,
    losses: ArrayLike,
    *,
    backend: str = "auto",
    warm_start: WorstCase | None = None,
    on_failure: OnFailure = "raise",
    **parameters: Any,
) -> WorstCase:
    """The worst-case distribution of the set of that name with those parameters.

    >>> worst_case("kl", [1.0, 2.0, 4.0], center=[0.5, 0.3, 0.2], radius=0.1).value
    2.438...
    """
    uncertainty_set = make_set(get_set(name), parameters, None)
    return uncertainty_set.worst_case(losses, backend=backend, warm_start=warm_start, on_failure=on_failure)
