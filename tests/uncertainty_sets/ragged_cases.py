"""Ragged rows of every kind, with edge cases of their parameters, for the tests.

The kinds are those of the registry, and how their parameters lie is in each class's `layout`: a new set is
drawn by its `example`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.uncertainty_sets import cases
from uncertainty_sets import Ragged, get_set

VALUES = 40


def _tail(size: int, rng: np.random.Generator) -> dict[str, Any]:
    return {"center": cases.center(rng, size), "tail": float(rng.choice([1e-6, 0.05, 0.25, 0.5, 0.9, 1.0]))}


def _spectral(size: int, rng: np.random.Generator) -> dict[str, Any]:
    steep = [(0.0, 0.0), (1e-6, 0.3), (0.2, 0.6), (1.0, 1.0)]
    given: list[Any] = [np.sqrt, steep, [(0.0, 0.0), (0.25, 1.0), (1.0, 1.0)], [(0.0, 0.0), (1.0, 1.0)]]
    return {"center": cases.center(rng, size), "distortion": given[rng.integers(4)]}


def _mixture(size: int, rng: np.random.Generator) -> dict[str, Any]:
    levels = int(rng.integers(1, 5))
    tails = rng.choice([1e-6, 0.05, 0.25, 0.5, 0.9, 1.0], levels)
    return {"center": cases.center(rng, size), "tails": tails, "weights": rng.dirichlet(np.ones(levels))}


PARAMETERS = {
    "cvar": _tail, "evar": _tail, "spectral": _spectral, "cvar-mixture": _mixture, **cases.PARAMETERS
}  # fmt: skip
"""With edge cases; of other sets those of their examples."""


def _drawn(name: str, size: int, rng: np.random.Generator) -> dict[str, Any]:
    if name in PARAMETERS:
        return PARAMETERS[name](size, rng)
    example = get_set(name).example(size, rng)
    return {each: getattr(example, each) for each in along(name)}


def along(name: str) -> dict[str, str]:
    """How each parameter of a set lies in ragged rows."""
    layout = get_set(name).layout
    assert layout is not None
    return {each: place.what for each, place in layout.parameters.items()}


def structure(rng: np.random.Generator, rows: int, longest: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Rows of 1 to `longest` entries, and a support for each without repetition, in any order."""
    lengths = rng.integers(1, longest + 1, rows)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = np.concatenate([rng.permutation(max(VALUES, longest))[:n] for n in lengths])
    return indptr, indices


def of_rows(name: str, rng: np.random.Generator, indptr: np.ndarray, indices: np.ndarray) -> Ragged:
    """Rows with edge cases of all parameters, each row with its own."""
    lie, drawn = along(name), []
    for n in np.diff(indptr):
        given = _drawn(name, int(n), rng)
        while np.ndim(given.get("shape")) == 2:
            given = _drawn(name, int(n), rng)
        drawn.append(given)
    whole = {
        "entries": lambda key: np.concatenate(
            [np.broadcast_to(each[key], n) for each, n in zip(drawn, np.diff(indptr), strict=True)]
        ),
        "rows": lambda key: np.array([each[key] for each in drawn]),
        "values": lambda key: None,
        "all": lambda key: drawn[-1][key],
    }
    flat = {key: whole[what](key) for key, what in lie.items()}
    return get_set(name).ragged(**flat, indptr=indptr, indices=indices)


def rows_of(kind: str, rng: np.random.Generator, indptr: np.ndarray, indices: np.ndarray) -> Ragged:
    """Rows of that kind; for transport with that cost."""
    name, _, cost = kind.partition(" ")
    if not cost:
        return of_rows(name, rng, indptr, indices)
    q = np.concatenate([cases.center(rng, int(n)) for n in np.diff(indptr)])
    radius = rng.choice([0.0, 1e-3, 0.1, 0.5, 2.0, 50.0], indptr.size - 1)
    size = int(indices.max()) + 1
    matrix = rng.random((size, size)) * (rng.random((size, size)) < 0.9) * (1.0 - np.eye(size))
    between: Any = {
        "places": None,
        "positions": rng.normal(size=size),
        "tied": rng.integers(0, 4, size) / 2.0,
        "matrix": matrix,
    }[cost]
    return get_set(name).ragged(q, radius, between, indptr=indptr, indices=indices)


def _kinds(name: str) -> list[str]:
    return [f"{name} {cost}" for cost in COSTS] if "values" in along(name).values() else [name]


COSTS = ("places", "positions", "tied", "matrix")
KINDS = [kind for name in cases.NAMES if get_set(name).has_ragged for kind in _kinds(name)]


def losses(kind: int, rng: np.random.Generator, size: int) -> np.ndarray:
    """Normal, tied, heavy-tailed or equal values."""
    return [
        rng.normal(size=size),
        rng.integers(-2, 3, size).astype(float),
        np.exp(3.0 * rng.normal(size=size)),
        np.full(size, 1.5),
    ][kind % 4]


def dyadic(rng: np.random.Generator, lengths: np.ndarray) -> np.ndarray:
    """Centres whose sums are exact in any order: nothing is divided, here or in a set of one row."""
    parts = [rng.multinomial(1024, np.full(n, 1.0 / n)) / 1024.0 for n in lengths]
    return np.concatenate(parts)
