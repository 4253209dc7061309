"""Fix the size of a set that takes it from the losses."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from uncertainty_sets.conic.compile import set_constraints
from uncertainty_sets.errors import InvalidInput
from uncertainty_sets.packages import load

if TYPE_CHECKING:
    from uncertainty_sets.base import UncertaintySet

SomeSet = TypeVar("SomeSet", bound="UncertaintySet")


def with_size(uncertainty_set: SomeSet, size: int) -> SomeSet:
    """The set itself if it has that size, else a copy that does, made once for each size.

    The constraints are stated once, so that parameters of another length are reported here.
    """
    name, own = type(uncertainty_set).__name__, uncertainty_set.size
    if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 1:
        raise InvalidInput(f"size must be a whole number, at least 1, got {size!r}")
    if own is not None:
        if own != size:
            raise InvalidInput(f"{name} has {own} entries, and {size} are needed")
        return uncertainty_set
    kept: dict[int, SomeSet] = uncertainty_set.__dict__.setdefault("_cache_sized", {})
    if size not in kept:
        cp = load("cvxpy", f"{name}.with_size")
        twin = copy.copy(uncertainty_set)
        twin.__dict__["size"] = int(size)  # past a __setattr__ of a frozen class
        if twin.size != size:
            raise InvalidInput(
                f"{name} cannot be given a size: its `size` stays {twin.size!r}; make it a plain attribute"
            )
        set_constraints(twin, cp.Variable(int(size)))
        kept.setdefault(int(size), twin)
    return kept[size]
