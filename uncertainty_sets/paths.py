"""The same set at several sizes: scaled, and worst cases along a path of radii."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.answer import WorstCase, stack
from uncertainty_sets.errors import InvalidInput
from uncertainty_sets.inverse import Sized, required, resized
from uncertainty_sets.parameters import as_floats


def scaled(subject: Sized, factor: ArrayLike) -> Any:
    """Answer `UncertaintySet.scaled`."""
    times = as_floats("factor", factor, InvalidInput)
    if not (np.isfinite(times).all() and (times >= 0.0).all()):
        raise InvalidInput(
            f"factor must be finite and at least 0, got {factor!r}", parameter="factor", value=factor
        )
    return resized(subject, getattr(subject, required(subject)) * times)


def worst_case_path(subject: Sized, losses: ArrayLike, radii: ArrayLike) -> WorstCase:
    """Answer `UncertaintySet.worst_case_path`."""
    name = required(subject)
    f = subject._check_losses(losses)
    sizes = as_floats("radii", radii, InvalidInput)
    if f.ndim != 1 or sizes.ndim != 1 or sizes.size == 0:
        raise InvalidInput(
            f"a path needs one loss vector (N,) and a vector of one {name} or more, got losses of shape "
            f"{f.shape} and radii of shape {sizes.shape}; for a batch call it per row",
            parameter="radii",
            value=radii,
        )
    answers: dict[int, WorstCase] = {}
    last: WorstCase | None = None
    for k in map(int, np.argsort(sizes, kind="stable")):
        last = answers[k] = resized(subject, float(sizes[k])).worst_case(f, warm_start=last)
    return stack([answers[k] for k in range(sizes.size)])
