"""The sets that the complexity table measures: the paper's first, then every other set of the registry.

A set is measured on its `example`. For sets that cover cases of different cost, more variants are added
here; a set that is not mentioned is measured on its example alone, and at small N only if it has no closed
form.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.complexity.paper import CLAIMS
from bench.measuring.cases import well_conditioned
from uncertainty_sets import Box, CDNorm, Ellipsoid, UncertaintySet, Wasserstein1, available_sets, get_set

Make = Callable[[int, np.random.Generator], UncertaintySet]


@dataclass(frozen=True)
class Variant:
    """A kind of set to measure.

    Attributes:
        name: the registry's name.
        label: what distinguishes it, "" if the set has one kind.
        make: a set of a given size.
        cost: our own claim.
        largest: the largest N that fits in memory.
        growth: the least power of N that any method's cost grows with, 2 for a dense matrix.
        closed_form: whether the set computes its worst case itself.
    """

    name: str
    label: str
    make: Make
    cost: str
    largest: int = 10**9
    growth: float = 0.0
    closed_form: bool = True

    @property
    def title(self) -> str:
        """Return the name and what distinguishes it."""
        return f"{self.name}, {self.label}" if self.label else self.name


def center(size: int, rng: np.random.Generator) -> Any:
    """Draw a centre from the whole simplex."""
    return rng.dirichlet(np.ones(size))


def _equal_spreads(size: int, rng: np.random.Generator) -> UncertaintySet:
    return CDNorm(center(size, rng), 0.5 / size, size / 4.0)


def _dense(size: int, rng: np.random.Generator) -> UncertaintySet:
    q = np.full(size, 1.0 / size)
    return Ellipsoid(q, well_conditioned(q, rng), 0.5)


def _cost_matrix(size: int, rng: np.random.Generator) -> UncertaintySet:
    points = rng.normal(size=(size, 2))
    squares = (points**2).sum(axis=1)
    apart = np.sqrt(np.maximum(squares[:, None] + squares - 2.0 * points @ points.T, 0.0))
    np.fill_diagonal(apart, 0.0)
    return Wasserstein1(center(size, rng), 0.1, apart)


def cvar(size: int, rng: np.random.Generator) -> UncertaintySet:
    """Return the set of CVaR at level 0.9, the mean of the worst tenth."""
    return Box(np.zeros(size), np.full(size, 10.0 / size))


def chi_square(size: int, rng: np.random.Generator) -> UncertaintySet:
    """Return the set of χ² distance at most 1/2 from the uniform distribution."""
    return Ellipsoid(np.full(size, 1.0 / size), 1.0 / size, 0.5)


EXAMPLES = {
    "cd-norm": ("any spreads", "O(N)"),
    "ellipsoid": ("diagonal", "O(N)"),
    "wasserstein-1": ("line", "O(N)"),
}
"""For sets with other variants: what their example is, and its cost."""

OTHERS: dict[str, tuple[Variant, ...]] = {
    "cd-norm": (Variant("cd-norm", "equal spreads", _equal_spreads, "O(N)"),),
    "ellipsoid": (Variant("ellipsoid", "dense", _dense, "O(N³)", largest=3_200, growth=2.0),),
    "wasserstein-1": (
        Variant("wasserstein-1", "cost matrix", _cost_matrix, "O(N²)", largest=3_200, growth=2.0),
    ),
}


def found(only: list[str] | None = None) -> tuple[list[Variant], dict[str, str]]:
    """Return the variants to measure, and why other sets of the registry, or those asked for, have none.

    Args:
        only: names of sets, or "module:Class" for one's own; all sets by default.

    >>> [each.title for each in found(["kl", "ellipsoid"])[0]]
    ['kl', 'ellipsoid, diagonal', 'ellipsoid, dense']
    """
    known = [*CLAIMS, *(name for name in available_sets() if name not in CLAIMS)]
    variants: list[Variant] = []
    without: dict[str, str] = {}
    for wanted in known if only is None else dict.fromkeys(only):
        cls = get_set(wanted)
        name = cls.name or wanted
        if ":" in wanted and cls.name and get_set(cls.name) is not cls:
            name = wanted  # a registered set of the same name is another set
        try:
            cls.example(2, np.random.default_rng(0))
        except Exception as error:  # another package's code may raise anything
            without[name] = f"no example: {type(error).__name__}: {error}"
            continue
        label, cost = EXAMPLES.get(name, ("", cls.complexity))
        variants.append(Variant(name, label, cls.example, cost, closed_form=cls.has_closed_form))
        variants.extend(OTHERS.get(name, ()))
    return variants, without


def parameter_count(variant: Variant) -> str:
    """Return how many numbers define the set, all of them counted, as a polynomial in N.

    >>> [parameter_count(each) for each in found()[0] if each.name == "box"]
    ['2N']
    """
    counts = [_count(variant.make(size, np.random.default_rng(0))) for size in (8, 16, 32)]
    square, linear, constant = np.linalg.solve(np.vander([8.0, 16.0, 32.0], 3), np.array(counts, dtype=float))
    terms = [(round(square), "N²"), (round(linear), "N"), (round(constant), "")]
    shown = [unit if factor == 1 and unit else f"{factor}{unit}" for factor, unit in terms if factor]
    return " + ".join(shown).replace("+ -", "- ") or "0"


def _count(uncertainty_set: UncertaintySet) -> int:
    total = 0
    for name in inspect.signature(type(uncertainty_set)).parameters:
        value = getattr(uncertainty_set, name, None)
        total += 0 if value is None else int(np.size(value))
    return total
