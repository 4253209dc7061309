"""Hypothesis strategies: a set of each kind with its parameters, and losses for it.

A set needs nothing here: it is drawn by its own `example`, so that a new file in sets/ is tested without an
edit. Those in `PARAMETERS` are drawn with more edge cases, and the tests know how each was made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from uncertainty_sets import UncertaintySet, available_sets, get_set
from uncertainty_sets.conic import oracle as conic

NAMES = [name for name in available_sets() if get_set(name).__module__.startswith("uncertainty_sets.")]
CLOSED = [name for name in NAMES if get_set(name).has_closed_form]
SMALL = st.integers(1, 12)


@dataclass
class Case:
    """A set, how it was made, and losses."""

    name: str
    set: UncertaintySet
    losses: np.ndarray
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def closed(self) -> bool:
        """Whether the set has a method of its own."""
        return self.set.has_closed_form

    @property
    def linear(self) -> bool:
        """Whether the default backend is exact: a closed form, or the simplex method."""
        return self.closed or conic.program(self.set, self.losses.size).kinds <= {"zero", "nonneg"}


def _generator(draw) -> np.random.Generator:
    return np.random.default_rng(draw(st.integers(0, 2**32 - 1)))


@st.composite
def losses(draw, size: int):
    """Continuous, tied, two-valued, sorted, shifted, scaled or constant."""
    rng = _generator(draw)
    kind = draw(st.sampled_from(["normal", "ties", "two", "sorted", "equal", "heavy"]))
    f = {
        "normal": lambda: rng.normal(size=size),
        "ties": lambda: rng.integers(-3, 4, size).astype(float),
        "two": lambda: rng.integers(0, 2, size).astype(float),
        "sorted": lambda: np.sort(rng.normal(size=size)),
        "equal": lambda: np.full(size, rng.normal()),
        "heavy": lambda: np.exp(3.0 * rng.normal(size=size)),
    }[kind]()
    f = f * 10.0 ** draw(st.sampled_from([0, 0, 0, -6, 6, -100, 100]))
    return f + draw(st.sampled_from([0.0, 0.0, 0.0, 1.0, -1.0])) * 1e6 * max(np.ptp(f), np.abs(f).max())


def center(rng: np.random.Generator, size: int) -> np.ndarray:
    """Uniform, spread out, concentrated or with zeros."""
    q = rng.dirichlet(np.full(size, rng.choice([0.3, 1.0, 10.0, 1e6])))
    if size > 1 and rng.random() < 0.3:
        q[rng.random(size) < 0.4] = 0.0
        q[rng.integers(size)] += 1e-3
    return q / q.sum()


def box(size: int, rng: np.random.Generator) -> dict[str, Any]:
    q = center(rng, size)
    lower = q * rng.choice([0.0, 0.5, 0.9, 1.0]) - (0.1 if rng.random() < 0.2 else 0.0)
    kind = rng.integers(4)
    upper = [q, 1.5 * q, 4.0 * q + 0.01, np.full(size, np.inf)][kind]
    return {"lower": lower, "upper": upper}


def kl(size: int, rng: np.random.Generator) -> dict[str, Any]:
    q = center(rng, size)
    return {"center": q, "radius": float(rng.choice([0.0, 1e-12, 1e-4, 0.01, 0.1, 1.0, 3.0, 100.0]))}


def chi_square(size: int, rng: np.random.Generator) -> dict[str, Any]:
    radii = [0.0, 1e-11, 1e-4, 0.01, 0.3, 2.0, 30.0, 1e6]
    return {"center": center(rng, size), "radius": float(rng.choice(radii))}


def hellinger(size: int, rng: np.random.Generator) -> dict[str, Any]:
    radii = [0.0, 1e-11, 1e-4, 0.01, 0.2, 0.7, 1.0, 3.0]
    return {"center": center(rng, size), "radius": float(rng.choice(radii))}


def burg(size: int, rng: np.random.Generator) -> dict[str, Any]:
    radii = [0.0, 1e-11, 1e-4, 0.01, 0.1, 1.0, 30.0, 1e3]
    return {"center": center(rng, size), "radius": float(rng.choice(radii))}


def cressie_read(size: int, rng: np.random.Generator) -> dict[str, Any]:
    radii = [0.0, 1e-11, 1e-4, 0.01, 0.1, 1.0, 30.0]
    return {"center": center(rng, size), "radius": float(rng.choice(radii)), "power": 1.5}


def cd_norm(size: int, rng: np.random.Generator) -> dict[str, Any]:
    q = center(rng, size)
    s = rng.random(size) * rng.choice([0.05, 0.5, 2.0])
    kind = rng.integers(4)
    if kind == 0:
        s = np.full(size, rng.random())
    elif kind == 1:
        s[rng.random(size) < 0.4] = 0.0
    elif kind == 2:
        s = rng.integers(0, 4, size) / 8.0
    budget = float(rng.choice([0.0, 0.3, 1.0, 2.5, size / 3, 3.0 * size]))
    return {"center": q, "spread": s, "budget": budget}


def ellipsoid(size: int, rng: np.random.Generator) -> dict[str, Any]:
    q = center(rng, size)
    kind = rng.integers(3)
    shape: Any = 10.0 ** rng.uniform(-2, 1)
    if kind == 1:
        shape = 10.0 ** rng.uniform(-2, 1, size)
    elif kind == 2:
        root = rng.normal(size=(size, size))
        shape = root @ root.T / size + 0.1 * np.eye(size)
    return {"center": q, "shape": shape, "radius": float(rng.choice([0.0, 1e-6, 1e-3, 0.05, 0.5, 50.0]))}


def wasserstein1(size: int, rng: np.random.Generator) -> dict[str, Any]:
    q = center(rng, size)
    kind = rng.integers(4)
    cost: Any = None
    if kind == 1:
        cost = rng.normal(size=size)
    elif kind == 2:
        cost = rng.integers(0, 4, size) / 2.0
    elif kind == 3:
        cost = rng.random((size, size)) * (rng.random((size, size)) < 0.9) * (1.0 - np.eye(size))
    return {"center": q, "radius": float(rng.choice([0.0, 1e-3, 0.1, 0.5, 2.0, 50.0])), "cost": cost}


def total_variation(size: int, rng: np.random.Generator) -> dict[str, Any]:
    q = center(rng, size)
    return {"center": q, "radius": float(rng.choice([0.0, 1e-20, 1e-3, 0.1, 0.5, 1.0, 50.0]))}


def weighted_l1(size: int, rng: np.random.Generator) -> dict[str, Any]:
    q = center(rng, size)
    kind = rng.integers(3)
    w = rng.uniform(0.1, 3.0, size)
    if kind == 1:
        w = rng.integers(1, 4, size) / 2.0
    elif kind == 2:
        w = 10.0 ** rng.uniform(-3.0, 1.0, size)
    return {"center": q, "weights": w, "radius": float(rng.choice([0.0, 1e-20, 1e-3, 0.1, 0.5, 2.0, 50.0]))}


def wasserstein(size: int, rng: np.random.Generator) -> dict[str, Any]:
    return wasserstein1(size, rng) | {"order": float(rng.choice([1.0, 1.5, 2.0, 2.0, 3.0]))}


def polyhedron(size: int, rng: np.random.Generator) -> dict[str, Any]:
    q = center(rng, size)
    D = rng.normal(size=(int(rng.integers(1, 6)), size))
    return {"D": D, "c": D @ q + rng.choice([0.0, 0.05, 0.5])}


PARAMETERS: dict[str, Callable[[int, np.random.Generator], dict[str, Any]]] = {
    "box": box,
    "burg": burg,
    "chi-square": chi_square,
    "cressie-read": cressie_read,
    "hellinger": hellinger,
    "kl": kl,
    "cd-norm": cd_norm,
    "ellipsoid": ellipsoid,
    "wasserstein-1": wasserstein1,
    "wasserstein": wasserstein,
    "polyhedron": polyhedron,
    "total-variation": total_variation,
    "weighted-l1": weighted_l1,
}
"""Parameters by name of set, edge cases included."""


@st.composite
def cases(draw, name: str, sizes=SMALL) -> Case:
    """A set of that name and losses of its size."""
    size = draw(sizes)
    rng = _generator(draw)
    if name in PARAMETERS:
        given = PARAMETERS[name](size, rng)
        return Case(name, get_set(name)(**given), draw(losses(size)), given)
    return Case(name, get_set(name).example(size, rng), draw(losses(size)))
