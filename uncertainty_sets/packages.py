"""Packages that only some functions need: imported at first use, with an error that says what to install."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from uncertainty_sets.errors import BackendMissing

SOURCES = {
    "cvxpy": ("cvxpy", "conic"),
    "scipy": ("scipy", "conic"),
    "ot": ("pot", "transport"),
    "numba": ("numba", "jit"),
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
