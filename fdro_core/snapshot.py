"""A run's state in one file: arrays as npz, the rest as JSON inside it. No pickle.

`pack` turns nested dicts, lists, tuples, numbers, strings and arrays into a JSON tree that names its
arrays, and those arrays; `unpack` turns them back, float for float.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from fdro_core.errors import InvalidSetting

FORMAT = 1


def pack(value: Any, arrays: dict[str, np.ndarray[Any, Any]], names: dict[int, str]) -> Any:
    """A JSON tree for the value; an array met twice is stored once."""
    if isinstance(value, np.ndarray):
        if id(value) not in names:
            names[id(value)] = f"a{len(arrays)}"
            arrays[names[id(value)]] = value
        return {"__array__": names[id(value)]}
    if isinstance(value, dict):
        return {"__dict__": [[key, pack(part, arrays, names)] for key, part in value.items()]}
    if isinstance(value, tuple):
        return {"__tuple__": [pack(part, arrays, names) for part in value]}
    if isinstance(value, list):
        return [pack(part, arrays, names) for part in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a checkpoint cannot hold a {type(value).__name__}")


def unpack(tree: Any, arrays: Any) -> Any:
    """The value that `pack` made the tree from."""
    if isinstance(tree, list):
        return [unpack(part, arrays) for part in tree]
    if isinstance(tree, dict):
        if "__array__" in tree:
            return arrays[tree["__array__"]]
        if "__tuple__" in tree:
            return tuple(unpack(part, arrays) for part in tree["__tuple__"])
        return {key: unpack(part, arrays) for key, part in tree["__dict__"]}
    return tree


def write(path: str | Path, state: dict[str, Any]) -> None:
    """Write a state; the file is replaced as a whole, so an interrupted write leaves the old one."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    tree = pack({"format": FORMAT, **state}, arrays, {})
    text = np.frombuffer(json.dumps(tree).encode(), dtype=np.uint8)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    with part.open("wb") as file:
        np.savez(file, tree=text, **arrays)  # type: ignore[arg-type]  # savez's stub takes `allow_pickle` here
        file.flush()
        os.fsync(file.fileno())
    part.replace(target)


def read(path: str | Path) -> dict[str, Any]:
    """Read a state back."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        state = unpack(json.loads(arrays.pop("tree").tobytes()), arrays)
    except FileNotFoundError:
        raise InvalidSetting(f"there is no checkpoint at {path}") from None
    except (BadZipFile, KeyError, ValueError, OSError) as error:
        raise InvalidSetting(f"{path} is not a checkpoint of fdro, or is damaged: {error}") from error
    if state.get("format") != FORMAT:
        raise InvalidSetting(
            f"{path} has checkpoint format {state.get('format')}, this version reads {FORMAT}: "
            "resume with the version of fdro that wrote it"
        )
    result: dict[str, Any] = state
    return result
