"""Sets by their names: which there are, and made from a name and parameters (registry.py finds them)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import ArrayLike

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.base import SETS, UncertaintySet
from uncertainty_sets.errors import InvalidInput, InvalidParameter
from uncertainty_sets.parameters import build
from uncertainty_sets.registry import join_names
from uncertainty_sets.verdict import OnFailure


def available_sets() -> list[str]:
    """The names of all sets, sorted.

    >>> {"box", "kl", "wasserstein-1"} <= set(available_sets())
    True
    """
    return sorted(SETS.classes())


def get_set(name: str) -> type[UncertaintySet]:
    """The class of that name.

    >>> get_set("kl")
    <class 'uncertainty_sets.sets.kl.KL'>
    """
    return SETS.get(name)


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
