"""Finding data sets by name: every file of this folder whose function carries `@dataset(name)`.

A new data set is one new file; nothing lists it.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, TypeVar

from bench.datasets.errors import InvalidData
from bench.datasets.federation import Federation
from uncertainty_sets.errors import UnknownName

Loader = Callable[..., Federation]
Given = TypeVar("Given", bound=Loader)

_loaders: dict[str, Loader] = {}


def dataset(name: str) -> Callable[[Given], Given]:
    """Take a loader in under that name; a later one of the same name replaces an earlier one."""

    def register(loader: Given) -> Given:
        _loaders[name] = loader
        return loader

    return register


def _discover() -> None:
    import bench.datasets as package

    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)


def names() -> list[str]:
    """The names of all data sets, sorted.

    >>> "digits" in names()
    True
    """
    _discover()
    return sorted(_loaders)


def get(name: str) -> Loader:
    """The loader of that name."""
    known = names()
    if name not in _loaders:
        close = get_close_matches(str(name).lower(), known, n=1, cutoff=0.4)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise UnknownName(f"no data set is called {name!r}{hint} There are: {', '.join(known)}")
    return _loaders[name]


def load(name: str, **options: Any) -> Federation:
    """The data set of that name, cut into clients; the options are its loader's.

    Files come from the folder FDRO_DATA, else by download where the address and checksum are public.

    >>> load("digits", digits=(3, 8)).summary()
    'digits: 2 clients, 250 training and 107 test samples, 64 features, 2 classes'
    """
    loader = get(name)
    try:
        inspect.signature(loader).bind(**options)
    except TypeError as error:
        takes = ", ".join(str(p) for p in inspect.signature(loader).parameters.values()) or "no options"
        raise InvalidData(f"{name}: {error}; it takes {takes}") from None
    return loader(**options)
