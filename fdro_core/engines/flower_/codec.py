"""Messages as Flower's records, and back: arrays in an ArrayRecord, everything else in a ConfigRecord.

A message `x` becomes two records of a RecordDict, "x" and "x.arrays". Reading checks every declaration before
the content: the type and shape that an array claims to have, then its length in bytes, then the header in
it. Nothing here can run code that a sender chose; what is malformed raises `MalformedMessage`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.lib import format as npy

from fdro_core.engines.flower_ import package
from fdro_core.errors import CheckpointMismatch, MalformedMessage
from fdro_core.protocol.messages import Message, from_fields, to_fields

# -- plain values --------------------------------------------------------------------------------------
# JSON alone turns a tuple into a list and has no place for arrays. Here a container is an object with one key
# that names its type: `{"tuple": [1, 2]}`, `{"array": "0"}`. Reading it makes plain values only.


SCALARS = (str, bool, int, float, type(None))
DEEPEST = 32  # containers in containers


def dump_plain(value: Any, arrays: dict[str, Any] | None = None) -> str:
    """Return a value as text; its arrays go into `arrays`, without which they are refused.

    >>> dump_plain({"bounds": (0.5, None)})
    '{"dict": [["bounds", {"tuple": [0.5, null]}]]}'
    """
    return json.dumps(_tagged(value, arrays, 0))


def load_plain(text: str, array: Callable[[str], Any] | None = None) -> Any:
    """Return what `dump_plain` wrote; `array` gives the array of a name. `ValueError` for other text.

    >>> load_plain(dump_plain({"bounds": (0.5, None)}))
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


# -- messages ------------------------------------------------------------------------------------------


ARRAYS = ".arrays"
NESTED = "/nested "  # before the name of a field that holds a container; fields are Python names, without "/"
NONE = "/none"  # the names of fields that are None, which a ConfigRecord cannot hold
KIND = "/kind"
TYPES = ("float64", "float32", "int64", "int32", "uint8", "bool")
STYPE = "numpy.ndarray"
HEADER = 512  # bytes before the numbers of an array in NumPy's format; 128 for a vector
MOST_AXES = 8
MOST_FIELDS = 256
LARGEST_TEXT = 1 << 20
LARGEST = 1 << 30  # bytes of one message, by default


def pack(records: Any, name: str, fields: Mapping[str, Any]) -> None:
    """Write plain values and arrays into a RecordDict under a name.

    Costs O(bytes). A value that has no place in a record raises `TypeError` with the field's name.
    """
    app = package.load()
    values: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    absent = []
    for field, value in fields.items():
        if isinstance(value, np.ndarray):
            arrays[field] = _array(app, field, value)
        elif value is None:
            absent.append(field)
        elif isinstance(value, list | tuple | Mapping):
            inner: dict[str, Any] = {}
            values[NESTED + field] = _dumped(field, value, inner)
            arrays |= {f"{field}/{place}": _array(app, field, each) for place, each in inner.items()}
        elif isinstance(value, bool | str | bytes):
            values[field] = value
        elif isinstance(value, int):
            if not -(2**63) <= value < 2**63:
                raise TypeError(f"{field} = {value}, which has more than 64 bits")
            values[field] = int(value)
        elif isinstance(value, float):
            values[field] = float(value)
        else:
            raise TypeError(
                f"{field} of type {type(value).__name__}; Flower's records hold plain values and arrays"
            )
    if absent:
        values[NONE] = absent
    records[name] = app.ConfigRecord(values)
    if arrays:
        records[name + ARRAYS] = app.ArrayRecord(arrays)


def unpack(records: Any, name: str, largest: int = LARGEST) -> dict[str, Any]:
    """Return what `pack` wrote under a name; arrays are new and can be written to.

    Args:
        records: the RecordDict.
        name: of the values in it.
        largest: bytes of its arrays together.
    """
    app = package.load()
    values, arrays = records.get(name), records.get(name + ARRAYS, {})
    if not isinstance(values, app.ConfigRecord) or not (arrays == {} or isinstance(arrays, app.ArrayRecord)):
        raise MalformedMessage(f"no records {name!r} of the right kind")
    if len(values) + len(arrays) > MOST_FIELDS:
        raise MalformedMessage(
            f"{len(values) + len(arrays)} fields in {name!r}; at most {MOST_FIELDS} are read"
        )
    declared = sum(_declared_bytes(key, array) for key, array in arrays.items())
    if declared > largest:
        raise MalformedMessage(f"arrays of {declared} bytes in {name!r}; at most {largest} are read")
    found = {key: _read(key, array) for key, array in arrays.items() if "/" not in key}
    for key, value in values.items():
        if isinstance(value, str | bytes) and len(value) > LARGEST_TEXT:
            raise MalformedMessage(f"{key!r:.40} of {len(value)} characters; at most {LARGEST_TEXT} are read")
        if key == NONE:
            found |= dict.fromkeys(_names(value))
        elif key.startswith(NESTED):
            field = key.removeprefix(NESTED)
            found[field] = _loaded(field, value, arrays)
        elif isinstance(value, list):
            raise MalformedMessage(f"{key!r:.40} holds a bare list")
        else:
            found[key] = value
    return found


def pack_message(records: Any, name: str, message: Message) -> None:
    """Write a message into a RecordDict under a name."""
    fields = to_fields(message)
    pack(records, name, {KIND: fields.pop("kind"), **fields})


def unpack_message(records: Any, name: str, largest: int = LARGEST) -> Any:
    """Return the message under a name, of a class that an imported module defines, with its fields only."""
    fields = unpack(records, name, largest)
    kind = fields.pop(KIND, None)
    if not isinstance(kind, str):
        raise MalformedMessage(f"{name!r} does not say what kind of message it is")
    try:
        message = from_fields({"kind": kind, **fields})
    except CheckpointMismatch:
        raise MalformedMessage(f"a message of kind {kind!r:.80}, which no imported module defines") from None
    except AttributeError:
        raise MalformedMessage(f"a message of kind {kind!r:.80} with fields that it does not have") from None
    free = hasattr(message, "__dict__")  # a class without slots takes any field, though no method's name
    for field in set(fields) - set(type(message)._slots):
        if not free or not field.isidentifier() or hasattr(type(message), field):
            raise MalformedMessage(f"a message of kind {kind!r:.80} with a field {field!r:.40}")
    return message


def _array(app: Any, field: str, value: Any) -> Any:
    if value.dtype.name not in TYPES:
        raise TypeError(f"{field} of {value.dtype}; arrays of {', '.join(TYPES)} can be sent")
    return app.Array(np.ascontiguousarray(value).reshape(value.shape))


def _dumped(field: str, value: Any, inner: dict[str, Any]) -> str:
    try:
        return dump_plain(value, inner)
    except TypeError as error:
        raise TypeError(
            f"{field} with {error} in it; Flower's records hold plain values and arrays"
        ) from None


def _loaded(field: str, text: Any, arrays: Mapping[str, Any]) -> Any:
    def array(place: str) -> Any:
        key = f"{field}/{place}"
        if key not in arrays:
            raise MalformedMessage(f"{field!r:.40} names an array that is not there")
        return _read(key, arrays[key])

    if not isinstance(text, str):
        raise MalformedMessage(f"{field!r:.40} is no text")
    try:
        return load_plain(text, array)
    except ValueError as error:
        raise MalformedMessage(f"{field!r:.40} cannot be read: {error!s:.200}") from None


def _names(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise MalformedMessage("the list of fields that are None is no list of names")
    return value


def _declared_bytes(key: str, array: Any) -> int:
    """Check what an array says of itself; return the bytes that its numbers need."""
    if array.stype != STYPE or array.dtype not in TYPES:
        raise MalformedMessage(f"{key!r:.40} of type {array.dtype!r:.40} in the format {array.stype!r:.40}")
    shape = array.shape
    if len(shape) > MOST_AXES or not all(type(length) is int and length >= 0 for length in shape):
        raise MalformedMessage(f"{key!r:.40} of shape {shape!r:.80}")
    size: int = prod(shape) * np.dtype(array.dtype).itemsize
    if not size < len(array.data) <= size + HEADER:
        raise MalformedMessage(
            f"{key!r:.40} of shape {shape!r:.80} and {array.dtype} in {len(array.data)} bytes; "
            f"its numbers need {size}"
        )
    return size


def _read(key: str, array: Any) -> Any:
    """Return the numbers of an array whose declaration was checked, if the header inside says the same."""
    stream = io.BytesIO(array.data)
    try:
        if npy.read_magic(stream) != (1, 0):
            raise ValueError("another version of the format")
        shape, fortran, dtype = npy.read_array_header_1_0(stream, max_header_size=HEADER)
    except Exception as error:  # NumPy parses the header as a Python literal, which can fail in many ways
        raise MalformedMessage(f"{key!r:.40} is no array: {type(error).__name__}: {error!s:.80}") from None
    rest = len(array.data) - stream.tell()
    wanted = np.dtype(array.dtype)
    if dtype != wanted or shape != tuple(array.shape) or rest != prod(shape) * wanted.itemsize:
        raise MalformedMessage(f"{key!r:.40} is not what it says: {shape!r:.80} of {dtype}, {rest} bytes")
    if fortran and len(shape) > 1:
        raise MalformedMessage(f"{key!r:.40} is stored by columns")
    return np.frombuffer(array.data, wanted, offset=stream.tell()).reshape(shape).copy()
