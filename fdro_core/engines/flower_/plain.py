"""Lists, tuples and dicts as JSON text that gives back the same types; arrays are kept beside it.

JSON alone turns a tuple into a list and has no place for arrays. Here a container is an object with one key
that names its type: `{"tuple": [1, 2]}`, `{"array": "0"}`. Reading it makes plain values only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

SCALARS = (str, bool, int, float, type(None))
DEEPEST = 32  # containers in containers


def dump(value: Any, arrays: dict[str, Any] | None = None) -> str:
    """Return a value as text; its arrays go into `arrays`, without which they are refused.

    >>> dump({"bounds": (0.5, None)})
    '{"dict": [["bounds", {"tuple": [0.5, null]}]]}'
    """
    return json.dumps(_tagged(value, arrays, 0))


def load(text: str, array: Callable[[str], Any] | None = None) -> Any:
    """Return the value that `dump` wrote; `array` gives the array of a name. `ValueError` for other text.

    >>> load(dump({"bounds": (0.5, None)}))
    {'bounds': (0.5, None)}
    """
    try:
        return _untagged(json.loads(text), array, 0)
    except RecursionError:
        raise ValueError("containers that are nested too deep") from None


def _tagged(value: Any, arrays: dict[str, Any] | None, depth: int) -> Any:
    if depth > DEEPEST:
        raise TypeError("containers that are nested too deep")
    if isinstance(value, SCALARS):
        return float(value) if isinstance(value, float) else value
    if isinstance(value, np.ndarray) and arrays is not None:
        name = str(len(arrays))
        arrays[name] = value
        return {"array": name}
    for kind in (list, tuple):
        if type(value) is kind:
            return {kind.__name__: [_tagged(each, arrays, depth + 1) for each in value]}
    if isinstance(value, Mapping):
        pairs = [
            [_tagged(key, None, depth + 1), _tagged(each, arrays, depth + 1)] for key, each in value.items()
        ]
        return {"dict": pairs}
    raise TypeError(f"a {type(value).__name__}")


def _untagged(value: Any, array: Callable[[str], Any] | None, depth: int) -> Any:
    if depth > DEEPEST:
        raise ValueError("containers that are nested too deep")
    if isinstance(value, SCALARS):
        return value
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError("a container without its type")
    kind, inside = next(iter(value.items()))
    if kind == "array" and array is not None and isinstance(inside, str):
        return array(inside)
    if not isinstance(inside, list):
        raise ValueError(f"a {kind!r:.40} that is no container")
    if kind == "dict":
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in inside):
            raise ValueError("a dict without pairs")
        keys = [_untagged(pair[0], None, depth + 1) for pair in inside]
        if not all(isinstance(key, SCALARS) for key in keys):
            raise ValueError("a key that is no plain value")
        return dict(zip(keys, [_untagged(pair[1], array, depth + 1) for pair in inside], strict=True))
    if kind not in {"list", "tuple"}:
        raise ValueError(f"a container of type {kind!r:.40}")
    values = [_untagged(each, array, depth + 1) for each in inside]
    return tuple(values) if kind == "tuple" else values
