"""A run's state in one file: arrays as npz, the rest as JSON inside it. No pickle.

`pack` turns nested dicts, lists, tuples, numbers, strings and arrays into a JSON tree that names its
arrays, and those arrays; `unpack` turns them back, float for float.

A SHA-256 digest of tree and arrays is stored beside them: it finds a file that was damaged or changed by
mistake. It is not a signature: a file that is changed on purpose can be given a new digest.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fdro_core import digests
from fdro_core.errors import CheckpointDamaged, CheckpointMismatch, InvalidSetting
from fdro_core.files import array_of, replacing
from fdro_core.history import History
from fdro_core.protocol.saved import Saved, numbers

FORMAT = 1
TREE, DIGEST = "tree", "digest"
KEYS = (str, int, float, bool, type(None))
HELP = "Resume from an older copy, or start the run again"

AnyArray = np.ndarray[Any, Any]


def pack(value: Any, arrays: dict[str, AnyArray], names: dict[int, str]) -> Any:
    """Turn a value into a JSON tree; an array that occurs twice is stored once."""
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError("a checkpoint cannot hold an array of objects")  # NumPy would pickle them
        if id(value) not in names:
            names[id(value)] = f"a{len(arrays)}"
            arrays[names[id(value)]] = value
        return {"__array__": names[id(value)]}
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, KEYS):
                raise TypeError(f"a checkpoint cannot hold a dict with a key of type {type(key).__name__}")
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


def unpack(tree: Any, arrays: Mapping[str, AnyArray]) -> Any:
    """Turn a tree of `pack` back into the value."""
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
    arrays: dict[str, AnyArray] = {}
    tree = pack({"format": FORMAT, **state}, arrays, {})
    arrays[TREE] = np.frombuffer(json.dumps(tree).encode(), dtype=np.uint8)
    arrays[DIGEST] = np.frombuffer(digests.of_arrays(arrays).encode(), dtype=np.uint8)
    with replacing(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # savez's stub takes `allow_pickle` here


def read(path: str | Path) -> dict[str, Any]:
    """Read a state back, and check that it is the one that was written."""
    try:
        file = Path(path).open("rb")  # noqa: SIM115 - closed below; only errors of opening are caught here
    except FileNotFoundError:
        raise InvalidSetting(f"there is no checkpoint at {path}") from None
    except IsADirectoryError:
        raise InvalidSetting(f"{path} is a folder; a checkpoint is a file, run.npz or the like") from None
    except (OSError, TypeError, ValueError) as error:  # a name too long, no permission, not a path at all
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidSetting(f"the checkpoint at {path} cannot be opened: {reason}") from error
    with file:
        try:
            arrays = _members(file)
            stored = arrays.pop(DIGEST, None)
            found = digests.of_arrays(arrays)
            state = unpack(json.loads(arrays.pop(TREE).tobytes()), arrays)
            if not isinstance(state, dict):
                raise ValueError(f"it holds a {type(state).__name__}, where a run's state is needed")
            version = state["format"]
        except Exception as error:  # zipfile, NumPy and json raise many kinds for files that are not theirs
            raise CheckpointDamaged(
                f"{path} is not a checkpoint of fdro, or is damaged: {_reason(error)}. {HELP}"
            ) from error
    if version != FORMAT:
        raise InvalidSetting(
            f"{path} has checkpoint format {version!r}, this version reads {FORMAT}: "
            "resume with the version of fdro that wrote it"
        )
    if stored is None or stored.tobytes() != found.encode():
        raise CheckpointDamaged(
            f"{path} is damaged or was changed: its content does not have the digest that was stored with "
            f"it. {HELP}"
        )
    result: dict[str, Any] = state
    return result


def look_over(
    path: str | Path,
    state: Mapping[str, Any],
    workers: int,
    dimensions: set[int],
    *,
    algorithm: Any,
    engine: Any,
    force: bool,
) -> None:
    """Refuse a state that does not fit the problems, or that contradicts itself (`protocol.saved`).

    Args:
        path: where it was read, for messages.
        state: what `read` returned.
        workers: how many problems there are.
        dimensions: how many parameters they have.
        algorithm: its `master_kind` says what a master keeps.
        engine: what runs the workers, which may say what it keeps.
        force: accept sums that do not agree, with a warning.
    """
    saved = Saved(path, state, {"N": workers}, force)
    for part in ("master", "engine"):
        if not isinstance(saved.of(part), Mapping):
            raise saved.error(part, "must be a dict")
    History.check_saved(saved, "history", saved.of("history"))
    kind: Any = getattr(algorithm, "master_kind", None)
    if getattr(kind, "mark", None) not in state["master"]:
        return  # of another algorithm, which its masters refuse, or of one that states nothing
    saved.floats("master", state["master"])
    model = f"master.{kind.model}"
    numbers("p")(saved, model, saved.of(model))
    if dimensions and dimensions != {saved.sizes["p"]}:
        here = ", ".join(map(str, sorted(dimensions)))
        raise CheckpointMismatch(
            f"the model of {path} has {saved.sizes['p']} parameters and the problems have {here}"
        )
    kind.check_saved(saved, "master", state["master"])
    if getattr(engine, "mark", None) in state["engine"]:
        engine.check_saved(saved, "engine", state["engine"])


def _reason(error: Exception) -> str:
    """What is wrong with a file, in words that do not need the code beside them."""
    if isinstance(error, KeyError):
        return f"it has no part {error}"
    if isinstance(error, RecursionError | MemoryError):
        return "what it holds is nested too deeply, or claims to be too large"
    if isinstance(error, ValueError | OSError | zipfile.BadZipFile):
        return str(error)
    return f"its parts do not fit together ({type(error).__name__}: {error})"


def _members(file: BinaryIO) -> dict[str, AnyArray]:
    """The arrays of an npz file; one that claims more than its own size is refused, to protect memory."""
    size = file.seek(0, 2)
    if size == 0:
        raise ValueError("the file is empty")
    file.seek(0)
    if not zipfile.is_zipfile(file):
        file.seek(0)
        kind = " but a .npy file, a single array" if file.read(6) == b"\x93NUMPY" else ""
        raise ValueError(f"it is not an npz file{kind}, or was cut short")
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > size:
            raise ValueError(
                "it claims to hold more than its own size; parts of a checkpoint are not compressed"
            )
        return {
            # In C order, which kernels take: a file may have any.
            member.filename.removesuffix(".npy"): np.asarray(
                array_of(archive.read(member), member.filename), order="C"
            )
            for member in members
        }
