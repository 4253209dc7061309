"""What a checkpoint keeps of an object: stated once, by name and kind, in the object's own class.

A class that derives from `Kept` says in `saved` what its snapshot holds, of which kind: its shape and its
range. From that follow the snapshot, how it is taken up again, and the check before that. What entries must
have in common, such as a sum, a class adds in `check_saved`.

The digest finds damage to a file as it was written. These checks find what was wrong before, or was changed
on purpose. States of algorithms and engines that state no kinds are not checked.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from math import inf, isnan, nan
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from fdro_core.errors import CheckpointDamaged, CheckpointWarning
from fdro_core.protocol.forms import LARGEST, LARGEST_INT, LARGEST_SQ

AGREE = 1e-6  # of what was summed: running sums lose a few digits to rounding in a long run, not ten
TINY = float(np.finfo(np.float64).tiny)


class Saved:
    """A state that was read, with errors that name the file and the entry.

    Attributes:
        state: all of it.
        sizes: what the letters of shapes stand for: N, the number of workers, is given; any other letter
            gets the first size that is found for it.
    """

    def __init__(
        self, path: str | Path, state: Mapping[str, Any], sizes: dict[str, int], force: bool
    ) -> None:
        self.path = path
        self.state = state
        self.sizes = sizes
        self.force = force

    def error(self, name: str, words: str) -> CheckpointDamaged:
        """The error for a wrong entry."""
        return CheckpointDamaged(f"{self.path} is not a sound checkpoint: {name} {words}")

    def agree(self, name: str, off: float, scale: float, words: str) -> None:
        """Refuse a sum that is off by more than rounding; with `force`, warn."""
        if off <= AGREE * scale:
            return
        error = self.error(name, words)
        if not self.force:
            raise error
        warnings.warn(str(error), CheckpointWarning, stacklevel=6)

    def of(self, name: str) -> Any:
        """An entry by its dotted name."""
        value: Any = self.state
        for key in name.split("."):
            if not isinstance(value, Mapping) or key not in value:
                raise self.error(name, "is missing")
            value = value[key]
        return value

    def entries(self, form: Form, name: str, value: Any) -> None:
        """Check every entry of a dict."""
        if not isinstance(value, Mapping):
            raise self.error(name, "must be a dict")
        for key, check in form.items():
            if key not in value:
                raise self.error(f"{name}.{key}", "is missing")
            check(self, f"{name}.{key}", value[key])

    def floats(self, name: str, value: Any) -> None:
        """Check that every array in a part is of float64, as kernels take them."""
        if isinstance(value, np.ndarray) and value.dtype != np.float64:
            raise self.error(name, f"holds an array of {value.dtype}, and float64 is needed")
        for part in value.values() if isinstance(value, Mapping) else []:
            self.floats(name, part)
        for part in value if isinstance(value, list | tuple) else []:
            self.floats(name, part)


Check = Callable[[Saved, str, Any], Any]
"""Raises `CheckpointDamaged` unless the entry of that name may have the value."""

Form = dict[str, Check]
"""What a state holds: the name and the kind of every entry."""


class Kept:
    """An object whose state a checkpoint keeps.

    Attributes:
        saved: what the snapshot holds; each is an attribute of that name, unless `snapshot` says otherwise.
    """

    __slots__ = ()

    saved: ClassVar[Form]

    def snapshot(self) -> dict[str, Any]:
        """The state as plain values and arrays."""
        return {name: getattr(self, name) for name in self.saved}

    def take(self, state: Mapping[str, Any]) -> None:
        """Set every attribute that a snapshot holds."""
        for name in self.saved:
            setattr(self, name, state[name])

    @classmethod
    def check_saved(cls, saved: Saved, name: str, value: Any) -> None:
        """Check the entry that holds such a snapshot: the kind of an entry of a larger one."""
        saved.entries(cls.saved, name, value)


# -- numbers ----------------------------------------------------------------------------------------


def whole(least: int = 0) -> Check:
    """A whole number."""

    def check(saved: Saved, name: str, value: Any) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise saved.error(name, f"must be a whole number >= {least}, got {value!r:.80}")
        if value > LARGEST_INT:
            raise saved.error(name, f"is a number of {value.bit_length()} bits, which no count is")

    return check


def real(*, above: float = -inf, least: float = -inf, infinite: bool = False) -> Check:
    """A finite number; `infinite` allows infinity too."""

    def check(saved: Saved, name: str, value: Any) -> None:
        found = nan
        if isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool)):
            found = value if abs(value) <= LARGEST_SQ or (infinite and isinstance(value, float)) else nan
        if isnan(found) or not found >= least or (above > -inf and not found > above):
            bound = f" > {above:g}" if above > -inf else f" >= {least:g}" if least > -inf else ""
            kind = "a number" if infinite else "a finite number"
            raise saved.error(name, f"must be {kind}{bound}, got {value!r:.80}")

    return check


def numbers(
    shape: str,
    *,
    above: float = -inf,
    least: float = -inf,
    most: float = LARGEST,
    infinite: bool = False,
    unknown: bool = False,
) -> Check:
    """An array of finite numbers, whose shape is the letters of its sizes: "N p".

    Args:
        shape: one word for every axis: a letter, or a number.
        above, least: bounds of every number.
        most: of their magnitudes.
        infinite: whether infinity is allowed.
        unknown: whether NaN is allowed.
    """
    axes = shape.split()

    def check(saved: Saved, name: str, value: Any) -> NDArray[np.float64]:
        form = f"must be an array ({', '.join(axes)}) of float64"
        if not isinstance(value, np.ndarray) or value.dtype != np.float64 or value.ndim != len(axes):
            raise saved.error(name, form)
        for letter, size in zip(axes, value.shape, strict=True):
            wanted = int(letter) if letter.isdigit() else saved.sizes.setdefault(letter, size)
            if wanted != size:
                raise saved.error(name, f"{form}, and has {size} entries where {letter} is {wanted}")
        if not ((np.isfinite(value) | (infinite & np.isinf(value))) | (unknown & np.isnan(value))).all():
            raise saved.error(name, "holds NaN or infinity")
        known = value[np.isfinite(value)]
        if known.size and np.abs(known).max() > most:
            raise saved.error(name, f"holds numbers beyond {most:g}, with which no run can go on")
        if known.size and not (known.min() >= least and (above == -inf or known.min() > above)):
            raise saved.error(name, f"must be > {above:g}" if above > -inf else f"must be >= {least:g}")
        return value

    return check


def distribution(shape: str) -> Check:
    """Numbers >= 0 that sum to 1."""
    array = numbers(shape)

    def check(saved: Saved, name: str, value: Any) -> None:
        array(saved, name, value)
        if abs(value.sum() - 1.0) > AGREE or value.min() < -AGREE:
            raise saved.error(name, "is not a distribution")

    return check


# -- lists ------------------------------------------------------------------------------------------


def listing(length: str = "", every: Check | None = None) -> Check:
    """A list, of a length if one is given by its letter, of entries of one kind if one is given."""

    def check(saved: Saved, name: str, value: Any) -> None:
        if not isinstance(value, list):
            raise saved.error(name, f"must be a list, got a {type(value).__name__}")
        if length and len(value) != saved.sizes[length]:
            raise saved.error(name, f"has {len(value)} entries where {length} is {saved.sizes[length]}")
        if every is not None:
            for entry in value:
                every(saved, name, entry)

    return check


def plain(kind: type) -> Check:
    """One entry of a list: a bool, an int, or for float a number that is not NaN."""

    def check(saved: Saved, name: str, value: Any) -> None:
        good = type(value) is kind or (kind is float and type(value) is int)
        if not good or (type(value) is int and abs(value) > LARGEST_INT) or isnan(value):
            raise saved.error(name, f"holds {value!r:.40}, where every entry is a {kind.__name__}")

    return check


def worker_index(saved: Saved, name: str, value: Any) -> None:
    """The index of an existing worker."""
    if type(value) is not int or not 0 <= value < saved.sizes["N"]:
        raise saved.error(name, f"names a worker {value!r}; there are 0..{saved.sizes['N'] - 1}")


def row(*kinds: Check) -> Check:
    """One entry of a list: a list with an entry of each kind."""

    def check(saved: Saved, name: str, value: Any) -> None:
        if not isinstance(value, list | tuple) or len(value) != len(kinds):
            raise saved.error(name, f"must hold lists of {len(kinds)}, got {value!r:.80}")
        for kind, entry in zip(kinds, value, strict=True):
            kind(saved, name, entry)

    return check


# -- others -----------------------------------------------------------------------------------------


def flag(saved: Saved, name: str, value: Any) -> None:
    """True or false."""
    if not isinstance(value, bool):
        raise saved.error(name, "must be true or false")


def anything(saved: Saved, name: str, value: Any) -> None:
    """A value that is not looked at, or that is looked at elsewhere."""


def or_none(kind: Check) -> Check:
    """That kind, or None."""

    def check(saved: Saved, name: str, value: Any) -> None:
        if value is not None:
            kind(saved, name, value)

    return check


# -- dataclasses ------------------------------------------------------------------------------------

Class = TypeVar("Class", bound=type[Kept])


def kept(kind: Check, **default: Any) -> Any:
    """Make a dataclass field that a snapshot holds."""
    return field(metadata={"kind": kind}, **default)


def keeping(cls: Class) -> Class:
    """Let a dataclass whose fields are made by `kept` state them in `saved`."""
    cls.saved = {item.name: item.metadata["kind"] for item in fields(cls)}  # type: ignore[arg-type]
    return cls
