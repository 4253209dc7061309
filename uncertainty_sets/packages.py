"""Imports that wait: of packages that only some functions need, and of the names of a package."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from uncertainty_sets.errors import BackendMissing

SOURCES = {
    "cvxpy": ("cvxpy", "conic"),
    "scipy": ("scipy", "conic"),
    "ot": ("pot", "transport"),
    "numba": ("numba", "jit"),
    "sklearn": ("scikit-learn", "sklearn"),
}
"""By module: the name that pip knows, and the extra of fdro that has it. Solvers say so on their backends."""


def load(module: str, purpose: str) -> Any:
    """Import a module and return it.

    Args:
        module: its dotted name; the package must be in `SOURCES`.
        purpose: what needs it, for the error, as in "Wasserstein1.violation with a cost matrix".

    Raises:
        BackendMissing: the package is not installed. If it is and does not work, its own error is raised.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != package:  # it is there, and something that it needs is not
            raise
        name, extra = SOURCES[package]
        raise BackendMissing(
            f'{purpose} needs the package {package}: pip install {name}, or pip install "fdro[{extra}]"'
        ) from error


def lazily(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return what a package's `__getattr__` calls to import a name from where it is defined.

    Args:
        package: its dotted name.
        names: by module in the package, its names, with spaces between them.
    """
    places = {name: module for module, defined in names.items() for name in defined.split()}

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{places[name]}"), name)
        setattr(sys.modules[package], name, value)  # the next time Python finds it by itself
        return value

    return find
