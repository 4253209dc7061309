"""Read the models of a snapshot, and check their shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fdro_core.aspire.planes import Planes


def arrays(shapes: Mapping[str, str], state: Mapping[str, Any], planes: Planes) -> dict[str, Any]:
    """The entries of a state that `shapes` names, each an array of finite numbers with that shape.

    A shape is the names of its sizes: N workers, p parameters, the active planes; "" is a number.
    """
    sizes = {"N": planes.table.shape[0], "planes": planes.size, "p": np.size(state["z"])}
    found = {}
    for name, shape in shapes.items():
        value = found[name] = state[name]
        wanted = tuple(sizes[letter] for letter in shape.split())
        if not isinstance(value, np.ndarray | float) or np.shape(value) != wanted:
            raise ValueError(f"models.{name} must be numbers of shape ({', '.join(shape.split())})")
        if not np.isfinite(value).all():
            raise ValueError(f"models.{name} holds NaN or infinity")
    return found
