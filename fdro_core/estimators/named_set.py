"""The set over groups that an estimator's settings describe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fdro_core.errors import InvalidSetting
from uncertainty_sets import KL, UncertaintySet
from uncertainty_sets.arrays import Array
from uncertainty_sets.registry import make_set

KL_RADIUS = 0.3
"""The estimators' radius of a KL ball.

Over the data of `python -m bench groups`, on other splits than those reported, the worst group gained the
most between 0.3 and 0.5 and never lost; beyond 0.5 it lost on Adult, whose small groups can then take over.
"""


def default_set(named: Mapping[str, Any]) -> str:
    """The name of the set if none was chosen: KL, or CD-norm if one of its own parameters is given."""
    return "cd-norm" if {"budget", "spread"} & {n for n, v in named.items() if v is not None} else KL.name


def build_set(
    wanted: Any, prior: Array, named: Mapping[str, Any], others: Mapping[str, Any] | None
) -> UncertaintySet:
    """The set over groups with that prior.

    Args:
        wanted: a registry name, a class, or a set itself, with an entry for each group or open to any number.
        prior: q, the centre of sets that have one.
        named: parameters that may be None, for "not given".
        others: parameters by name.

    >>> import numpy as np
    >>> build_set("kl", np.array([0.5, 0.5]), {"radius": 0.2, "budget": None}, None)
    KL(center=[0.5, 0.5], radius=0.2)
    """
    given = {name: value for name, value in named.items() if value is not None} | dict(others or {})
    if wanted in {KL.name, KL}:
        given.setdefault("radius", KL_RADIUS)
    made = make_set(wanted, given, prior.size, center=prior, fill=True)
    if made.size != prior.size:
        raise InvalidSetting(
            f"the uncertainty set has {made.size} entries and there are {prior.size} groups; give the set by "
            "its name if only the data tell how many groups there are"
        )
    return made
