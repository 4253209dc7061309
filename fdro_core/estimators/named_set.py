"""A set from a name and what is known: the prior and the parameters that someone gave."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from fdro_core.errors import InvalidSetting
from uncertainty_sets import UncertaintySet, get_set
from uncertainty_sets.arrays import Array


def default_parameters(prior: Array) -> dict[str, Any]:
    """Parameters by name for a prior q, sensible whatever the number of groups.

    Known by the parameter and not by the set, so that a plug-in with a centre and a radius has them too.
    """
    return {
        "center": prior,
        "size": prior.size,
        "radius": 0.1,
        "spread": prior,
        "budget": 0.5 * prior.size,
        "shape": np.maximum(prior, 1e-9),
        "lower": 0.5 * prior,
        "upper": np.minimum(2.0 * prior, 1.0),
    }


def sized(uncertainty_set: Any, entries: int) -> Any:
    """The set over that many entries, where it leaves them open; an oracle of another kind as it is."""
    give = getattr(uncertainty_set, "with_size", None)
    leaves_open = getattr(uncertainty_set, "size", None) is None
    return give(entries) if leaves_open and callable(give) else uncertainty_set


def build_set(
    wanted: Any, prior: Array, named: Mapping[str, Any], others: Mapping[str, Any] | None
) -> UncertaintySet:
    """The set over groups with that prior.

    Args:
        wanted: a registry name, a class, or a set itself, with an entry for each group or open to any number.
        prior: q, the centre of sets that have one.
        named: parameters that may be None, for "not given".
        others: parameters by name.

    >>> build_set("kl", np.array([0.5, 0.5]), {"radius": 0.2, "budget": None}, None)
    KL(center=[0.5, 0.5], radius=0.2)
    """
    given = {name: value for name, value in named.items() if value is not None} | dict(others or {})
    if isinstance(wanted, UncertaintySet):
        if given:
            raise InvalidSetting(
                f"{', '.join(sorted(given))} cannot be given together with a finished set; put it into the "
                "set, or give the set's name"
            )
        if wanted.size is not None and wanted.size != prior.size:
            raise InvalidSetting(
                f"the uncertainty set has {wanted.size} entries and there are {prior.size} groups; give the "
                "set by its name where the number of groups is known only from the data"
            )
        return wanted.with_size(prior.size)
    if isinstance(wanted, type) and issubclass(wanted, UncertaintySet):
        cls = wanted
    elif isinstance(wanted, str):
        cls = get_set(wanted)
    else:
        raise InvalidSetting(
            "uncertainty_set must be a name from available_sets(), a subclass of UncertaintySet or a set, "
            f"got {type(wanted).__name__}"
        )
    return _make(cls, prior, given)


def _make(cls: type[UncertaintySet], prior: Array, given: Mapping[str, Any]) -> UncertaintySet:
    label = cls.name or cls.__name__
    takes = inspect.signature(cls).parameters
    unknown = [name for name in given if name not in takes]
    if unknown:
        raise InvalidSetting(f"{label} has no parameter {unknown[0]!r}; it takes {', '.join(takes)}")
    known = default_parameters(prior)
    chosen = {}
    for name, parameter in takes.items():
        if name in given:
            chosen[name] = given[name]
        elif parameter.default is parameter.empty:
            if name not in known:
                raise InvalidSetting(
                    f"{label} needs {name!r}, which has no default; give set_parameters={{{name!r}: …}}"
                )
            chosen[name] = known[name]
    made = cls(**chosen)
    if made.size is not None and made.size != prior.size:
        raise InvalidSetting(
            f"{label} with these parameters has {made.size} entries and there are {prior.size} groups"
        )
    return made.with_size(prior.size)
