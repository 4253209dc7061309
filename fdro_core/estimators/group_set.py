"""The set over groups that an estimator's settings describe."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from fdro_core.errors import InvalidSetting
from uncertainty_sets import KL, UncertaintySet
from uncertainty_sets.arrays import Array
from uncertainty_sets.by_name import get_set, make_set
from uncertainty_sets.calibration import KL_RADIUS
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.parameters import parameters_of
from uncertainty_sets.registry import nearest

SHARES = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""The sizes that radius="cv" tries: shares of the radius that holds every distribution, so that one list fits
every set and number of groups; 0 is ordinary training."""


def default_set(given: Collection[str]) -> str:
    """The name of the set if none was chosen: KL, or CD-norm if one of its own parameters is given."""
    return "cd-norm" if {"budget", "spread"} & set(given) else KL.name


def build_set(
    wanted: Any, prior: Array, given: Mapping[str, Any], settings: Collection[str] = ()
) -> UncertaintySet:
    """The set over groups with that prior.

    Args:
        wanted: a registry name, a class, or a set itself, with an entry for each group or open to any number.
        prior: q, the centre of sets that have one.
        given: parameters by name.
        settings: the estimator's own names, for the message about a name that is neither.

    >>> import numpy as np
    >>> build_set("kl", np.array([0.5, 0.5]), {"radius": 0.2})
    KL(center=[0.5, 0.5], radius=0.2)
    """
    parameters = dict(given)
    if wanted in {KL.name, KL}:
        parameters.setdefault("radius", KL_RADIUS)
    try:
        made = make_set(wanted, parameters, prior.size, center=prior, fill=True)
    except InvalidParameter as error:
        name = error.parameter or ""
        if name == "radius" and "has no parameter" in str(error):
            cls = get_set(wanted) if isinstance(wanted, str) else wanted
            size = next((each for each in ("budget", "tail") if each in parameters_of(cls)), None)
            if size is not None:
                raise InvalidParameter(
                    f"{cls.name} has no radius; its size is {size}", parameter=name, value=parameters[name]
                ) from error
        meant = nearest(name, settings) if "has no parameter" in str(error) else ""
        if not meant:
            raise
        raise InvalidParameter(
            f"{name!r} is no setting of the estimator{meant} It was taken for a parameter of the "
            f"set: {error}",
            parameter=name,
            value=parameters[name],
        ) from error
    if made.size != prior.size:
        raise InvalidSetting(
            f"the uncertainty set has {made.size} entries and there are {prior.size} groups; give the set by "
            "its name if only the data tell how many groups there are"
        )
    return made


def not_given(wanted: Any, made: UncertaintySet, given: Collection[str]) -> dict[str, Any]:
    """The parameters that `build_set` filled in, but for the centre, which is the prior.

    >>> from uncertainty_sets import CVaR
    >>> not_given("cvar", CVaR([0.5, 0.5], 0.5), [])
    {'tail': 0.5}
    """
    if isinstance(wanted, UncertaintySet):
        return {}
    cls = get_set(wanted) if isinstance(wanted, str) else wanted
    names = [name for name, needed in parameters_of(cls).items() if needed or name == "radius"]
    return {
        name: getattr(made, name) for name in names if name not in {*given, "center"} and hasattr(made, name)
    }


def radii(whole: UncertaintySet) -> Array:
    """The sizes to try for a set with that centre; its own radius does not matter."""
    vertices = np.eye(int(whole.size or 0))[np.asarray(whole.reference()) > 0.0]
    largest = max(whole.radius_of(vertex) for vertex in vertices)
    sizes: Array = np.array(SHARES) * largest
    return sizes
