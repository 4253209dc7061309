"""Find data sets by name: every function of this folder that carries `@dataset(name, …)`.

A new data set is one new file; nothing lists it. What the page of data sets shows of it stands in the
decorator.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from bench.datasets.federation import Federation
from bench.datasets.files import File
from fdro_core.errors import InvalidData
from uncertainty_sets.errors import UnknownName

Loader = Callable[..., Federation]
Given = TypeVar("Given", bound=Loader)

LAST = 1000


@dataclass(frozen=True)
class Dataset:
    """A data set as it is registered.

    Attributes:
        name: as `load` knows it.
        loader: the function that loads it.
        clients, features, split: what the page's table says of it.
        folders: the folders in FDRO_DATA that its files are in; none if it needs no files.
        order: its place on the page; those with the same are sorted by name.
    """

    name: str
    loader: Loader
    clients: str = ""
    features: str = ""
    split: str = ""
    folders: tuple[str, ...] = ()
    order: int = LAST


_known: dict[str, Dataset] = {}


def dataset(
    name: str,
    *,
    clients: str = "",
    features: str = "",
    split: str = "",
    files: Sequence[File | str] = (),
    order: int = LAST,
) -> Callable[[Given], Given]:
    """Register a loader under a name; a later one of the same name replaces an earlier one.

    Args:
        name: for `load` and the options `--data`.
        clients: who the clients are, "15 participants".
        features: what the features are, "64 pixels".
        split: how training and test data are split.
        files: the files it reads, or the folder in FDRO_DATA that they are in.
        order: its place on the page; by default after all that give one, sorted by name.
    """
    paths = [file.path if isinstance(file, File) else file for file in files]
    folders = tuple(dict.fromkeys(path.partition("/")[0] for path in paths))

    def register(loader: Given) -> Given:
        _known[name] = Dataset(name, loader, clients, features, split, folders, order)
        return loader

    return register


def registered() -> list[Dataset]:
    """Return all data sets in the order of the page."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if not module.name.startswith("_"):
            importlib.import_module(f"{__package__}.{module.name}")
    return sorted(_known.values(), key=lambda each: (each.order, each.name))


def names() -> list[str]:
    """Return the names of all data sets in the order of the page.

    >>> "digits" in names()
    True
    """
    return [each.name for each in registered()]


def get(name: str) -> Dataset:
    """Return the data set of that name."""
    known = names()
    if name not in _known:
        close = get_close_matches(str(name).lower(), known, n=1, cutoff=0.4)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise UnknownName(f"no data set is called {name!r}{hint} There are: {', '.join(known)}")
    return _known[name]


def load(name: str, **options: Any) -> Federation:
    """Load the data set of that name, split into clients; the options are its loader's.

    Files come from the folder FDRO_DATA, else by download if the address and checksum are public.

    >>> load("digits", digits=(3, 8)).summary()
    'digits: 2 clients, 250 training and 107 test samples, 64 features, 2 classes'
    """
    loader = get(name).loader
    try:
        inspect.signature(loader).bind(**options)
    except TypeError as error:
        takes = ", ".join(str(p) for p in inspect.signature(loader).parameters.values()) or "no options"
        raise InvalidData(f"{name}: {error}; it takes {takes}") from None
    return loader(**options)
