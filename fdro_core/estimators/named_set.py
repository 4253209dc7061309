"""The set over groups that an estimator's settings describe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fdro_core.errors import InvalidSetting
from uncertainty_sets import UncertaintySet
from uncertainty_sets.arrays import Array
from uncertainty_sets.registry import make_set


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
    made = make_set(wanted, given, prior.size, center=prior, fill=True)
    if made.size != prior.size:
        raise InvalidSetting(
            f"the uncertainty set has {made.size} entries and there are {prior.size} groups; give the set by "
            "its name if only the data tell how many groups there are"
        )
    return made
