"""What a checkpoint belongs to: algorithm, set, engine and problems, described by words and numbers.

Each part is described by its `fingerprint()` if it has one, else by its class and the arguments of its
constructor as they are found on it. Large arrays are described by a digest.
"""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fdro_core import digests
from fdro_core.errors import CheckpointDamaged, CheckpointMismatch, CheckpointWarning
from fdro_core.protocol.algorithm import Ask
from fdro_core.protocol.messages import Introduction, Reply, Request

HARMLESS = {
    "algorithm.iterations",
    "algorithm.tolerance",
    "algorithm.report_interval",
}  # when to stop and to report
OPEN = {"set.size"}  # a size that is left open becomes the number of workers, which is compared
DEEPEST = 4
FEW = 8  # numbers of an array that are shown themselves
LISTED = 12  # differences that an error lists

Facts = dict[str, Any]


class RollCall:
    """An engine's `ask` that also keeps what every worker reports of its problem."""

    def __init__(self, ask: Ask, workers: int) -> None:
        self._ask = ask
        self.problems: list[str | None] = [None] * workers
        self.dimensions: set[int] = set()

    def __call__(self, messages: Mapping[int, Request]) -> dict[int, Reply | Exception]:
        """Ask, and keep what the introductions report."""
        replies = self._ask(messages)
        for j, reply in replies.items():
            if isinstance(reply, Introduction):
                samples = "" if reply.samples is None else f", {reply.samples} samples"
                self.problems[j] = f"{reply.identity}, {reply.dimension} parameters{samples}"
                self.dimensions.add(reply.dimension)
        return replies


def identify(algorithm: Any, uncertainty_set: Any, engine: Any, problems: Sequence[str | None]) -> Facts:
    """Describe a run as plain values, for its checkpoints."""
    facts: Facts = {}
    for name, part in (("algorithm", algorithm), ("set", uncertainty_set), ("engine", engine)):
        _flatten(name, describe(part), facts)
    for name in HARMLESS | OPEN:
        facts.pop(name, None)
    return {"facts": facts, "problems": list(problems)}


def check(path: str | Path, saved: Any, now: Facts, *, force: bool) -> None:
    """Refuse a checkpoint of another run, or warn of it if `force` is set."""
    try:
        found = differences(saved, now)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointDamaged(f"{path} is damaged: what it belongs to cannot be read") from error
    if not found:
        return
    rest = len(found) - LISTED
    shown = [*found[:LISTED], *([f"and {rest} more (the error's `.differences`)"] if rest > 0 else [])]
    lines = "".join(f"\n  {line}" for line in shown)
    if force and saved["facts"].get("algorithm") == now["facts"].get("algorithm"):
        warnings.warn(
            f"{path} belongs to another run, and `force` continues from it. "
            f"Differences, checkpoint → now:{lines}",
            CheckpointWarning,
            stacklevel=3,
        )
        return
    raise CheckpointMismatch(
        f"{path} belongs to another run. Differences, checkpoint → now:{lines}\nGive the same problems, "
        "set, algorithm and engine as the first time (iterations may differ), or resume(…, force=True)",
        found,
    )


def differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs, one line each. What only one side has is left out: versions add settings."""
    before, after = saved["facts"], now["facts"]
    other_kind = {name for name in ("algorithm", "set", "engine") if before.get(name) != after.get(name)}
    found = []
    for name, value in before.items():
        part = name.partition(".")[0]
        if name in after and (name == part or part not in other_kind) and not _same(value, after[name]):
            found.append(f"{name}: {_shown(value)} → {_shown(after[name])}")
    return found + _problem_differences(saved["problems"], now["problems"])


def _problem_differences(before: Sequence[str | None], after: Sequence[str | None]) -> list[str]:
    if len(before) != len(after):
        return [f"problems: {len(before)} workers → {len(after)} workers"]
    pairs = enumerate(zip(before, after, strict=True))
    moved = [(j, str(old), str(new)) for j, (old, new) in pairs if None not in {old, new} and old != new]
    if moved and sorted(old for _, old, _ in moved) == sorted(new for _, _, new in moved):
        names = ", ".join(str(j) for j, _, _ in moved[:LISTED]) + (", …" if len(moved) > LISTED else "")
        return [f"problems: the same ones in another order, at workers {names}"]
    return [f"problems[{j}]: {old} → {new}" for j, old, new in moved]


def describe(value: Any, depth: int = 0) -> Any:
    """Describe a value by nested dicts and lists of numbers and strings; the key "" holds a class.

    >>> from uncertainty_sets import KL
    >>> describe(KL([0.5, 0.5], 0.1))
    {'': 'KL', 'center': [0.5, 0.5], 'radius': 0.1}
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray | np.generic) or _is_long_list(value):
        return _array(np.asarray(value))
    if isinstance(value, Mapping):
        return {str(key): describe(part, depth + 1) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [describe(part, depth + 1) for part in value]
    return _describe_object(value, depth)


def _describe_object(value: Any, depth: int) -> Any:
    """An object by its `fingerprint()`, else by its class and arguments; a class or function by its name."""
    if inspect.isroutine(value) or inspect.isclass(value):
        return value.__qualname__
    kind = type(value).__name__
    if depth > DEEPEST:
        return kind
    own = getattr(value, "fingerprint", None)
    if callable(own):
        return describe(own(), depth + 1)
    return {"": kind} | {name: describe(part, depth + 1) for name, part in _arguments(value).items()}


def _is_long_list(value: Any) -> bool:
    """Whether it is a list of numbers that is too long to show."""
    if not isinstance(value, list | tuple) or len(value) <= FEW:
        return False
    return all(type(part) in {bool, int, float} for part in value)


def _array(array: np.ndarray[Any, Any]) -> Any:
    if array.dtype.kind in "biufU" and array.size <= FEW:
        return array.tolist()
    if array.dtype.hasobject:
        return f"objects {array.shape}"
    return f"{array.dtype} {array.shape} {digests.short(array=array)}"


def _arguments(value: Any) -> dict[str, Any]:
    """The arguments that an object was made with, as far as it still has them."""
    if dataclasses.is_dataclass(value):
        return {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
    if hasattr(value, "tocoo"):  # a sparse matrix
        parts = value.tocoo()
        return {"shape": value.shape, "row": parts.row, "col": parts.col, "data": parts.data}
    try:
        names = [name for name in inspect.signature(type(value)).parameters if name != "self"]
    except (TypeError, ValueError):  # compiled classes have no signature
        return {}
    found: dict[str, Any] = {}
    for name in names:
        for attribute in (name, f"_{name}"):
            if name not in found and hasattr(value, attribute):
                found[name] = getattr(value, attribute)
    if len(found) < len(names):  # some are kept under other names: then whatever plain values it has
        plain = (bool, int, float, str, np.ndarray, np.generic, list, tuple, Mapping)
        found |= {
            name: part
            for name, part in vars(value).items()
            if isinstance(part, plain) and not name.startswith("_cache")  # what was compiled on the way
        }
    return found


def _flatten(name: str, described: Any, facts: Facts) -> None:
    """Write nested descriptions under dotted names: "engine.delays[0].median"."""
    if isinstance(described, dict):
        for key, part in described.items():
            _flatten(f"{name}.{key}" if key else name, part, facts)
    elif isinstance(described, list) and any(isinstance(part, dict) for part in described):
        facts[name] = f"{len(described)} in all"
        for place, part in enumerate(described):
            _flatten(f"{name}[{place}]", part, facts)
    else:
        facts[name] = described


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) or repr(one) == repr(other)  # NaN is not NaN


def _shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, str) else value
    return text if len(text) <= 160 else f"{text[:157]}…"
