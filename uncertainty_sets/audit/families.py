"""What is known about each kind of set over samples: its size, influence function, dual at a multiplier.

Write L = p/q for the likelihood ratio of the worst case, and R(ρ) for the largest mean loss within ρ of the
law P of the losses. For a φ-divergence,

    R(ρ) = min over a > 0 and ν of  a·ρ + ν + a·E φ*((ℓ - ν)/a)

so by the envelope theorem a sample moves R by a·I(L), and the least radius that reaches a threshold by
-I(L), with I(L) = φ*(φ'(L)), up to a constant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.by_name import get_set
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.parameters import parameters_of
from uncertainty_sets.sets.burg import Burg
from uncertainty_sets.sets.chi_square import ChiSquare
from uncertainty_sets.sets.cressie_read import CressieRead
from uncertainty_sets.sets.cvar import CVaR
from uncertainty_sets.sets.evar import EVaR
from uncertainty_sets.sets.hellinger import Hellinger
from uncertainty_sets.sets.kl import KL
from uncertainty_sets.sets.total_variation import TotalVariation

KNOWN = (KL, EVaR, ChiSquare, CVaR, Hellinger, Burg, CressieRead, TotalVariation)
"""Sets whose worst case depends on the law of the losses alone, and grows with it."""


@dataclass(frozen=True)
class Family:
    """Sets of one kind around any centre.

    Attributes:
        kind: the class.
        options: parameters other than centre and size, such as the power of `CressieRead`.
        size: what its size is called, "radius" or "tail".
    """

    kind: type[UncertaintySet]
    options: tuple[tuple[str, Any], ...]
    size: str

    @property
    def name(self) -> str:
        """The class's name, with its options."""
        more = "".join(f", {name} {value:g}" for name, value in self.options)
        return f"{self.kind.__name__}{more}"

    def around(self, center: Array, size: float) -> Any:
        """The set of that size around a centre."""
        return self.kind(**{"center": center, self.size: size}, **dict(self.options))

    def check(self, size: float) -> float:
        """Return a size, or refuse it."""
        self.around(np.ones(1), size)
        return float(size)

    def size_of(self, radius: float) -> float:
        """The radius or tail that stands for what `radius_for` calls a radius."""
        if self.size == "radius":
            return radius
        return float(np.exp(-radius)) if self.kind is EVaR else 1.0 / (1.0 + radius)

    @property
    def is_known(self) -> bool:
        """Whether statements about the population are possible: the worst case is a function of the law."""
        return self.kind in KNOWN

    @property
    def has_dual(self) -> bool:
        """Whether the tighter finite-sample bound is there: `dual` and `transformed`."""
        return self.kind in {KL, EVaR, ChiSquare, CVaR}

    def influence(self, ratio: Array) -> Array | None:
        """I(L); None if it is not known here, or not a function of L (CVaR)."""
        if self.kind in {KL, EVaR}:
            return ratio
        if self.kind is ChiSquare:
            return np.asarray(ratio**2)
        if self.kind is Hellinger:
            return np.asarray(0.5 * np.sqrt(ratio))
        if self.kind is Burg:
            return np.log(np.maximum(ratio, 1e-300))
        if self.kind is CressieRead:
            power = float(dict(self.options)["power"])
            safe = np.maximum(ratio, 1e-300)
            return np.asarray(np.log(safe) if power == 0.0 else safe**power / power)
        return None

    # -- finite samples: the dual at a multiplier that was fixed beforehand, for losses in [0, 1] -----------

    def multipliers(self, sample: Array, points: int) -> Array:
        """Multipliers that are best at sizes from 1/n to the largest of interest, by a sample of its own."""
        q = np.full(sample.size, 1.0 / sample.size)
        if self.kind is CVaR:
            sizes = np.geomspace(1.0, 5.0 / sample.size, points)
            found = np.quantile(sample, 1.0 - sizes)
        elif self.kind is ChiSquare:
            sizes = np.geomspace(1.0 / sample.size, sample.size / 10.0, points)
            margins = ChiSquare(q, 0.0).worst_case_path(sample, sizes).dual["margin"]
            found = float(sample.max()) - np.minimum(margins, 1e3)
        else:
            sizes = np.geomspace(1.0 / sample.size, np.log(sample.size), points)
            found = np.clip(KL(q, 0.0).worst_case_path(sample, sizes).dual["eta"], 0.02, 1e3)
        return np.unique(np.minimum(found, 0.999) if self.kind in {CVaR, ChiSquare} else found)

    def usual_multipliers(self) -> Array:
        """Multipliers without a sample to choose them by."""
        if self.kind is CVaR:
            return np.linspace(0.0, 0.95, 12)
        if self.kind is ChiSquare:
            return 1.0 - np.geomspace(0.1, 20.0, 12)
        return np.geomspace(0.05, 5.0, 12)

    def transformed(self, losses: Array, a: float) -> Array:
        """The term whose mean the dual at a needs; it grows with the loss."""
        if self.kind is CVaR:
            return np.maximum(losses - a, 0.0)
        if self.kind is ChiSquare:
            return np.asarray(np.maximum(losses - a, 0.0) ** 2)
        return np.exp((losses - 1.0) / a)

    def dual(self, size: float, a: Array, means: Array) -> Array:
        """An upper bound of R(size) for each multiplier, by the mean of its term.

        KL: a·ρ + 1 + a·log E exp((ℓ-1)/a). CVaR: a + E(ℓ-a)₊/tail. χ²: a + √((1+ρ)·E(ℓ-a)₊²), by
        Cauchy and Schwarz.
        """
        if self.kind is CVaR:
            return np.asarray(a + means / size)
        if self.kind is ChiSquare:
            return np.asarray(a + np.sqrt((1.0 + size) * means))
        radius = -np.log(size) if self.kind is EVaR else size
        return np.asarray(a * radius + 1.0 + a * np.log(means))


def family_of(given: Any) -> Family:
    """The family that a user names: a class, a name, or a class with options by `functools.partial`."""
    make: Callable[..., Any] = get_set(given) if isinstance(given, str) else given
    kind = getattr(make, "func", make)
    options = dict(getattr(make, "keywords", {}) or {})
    if not (isinstance(kind, type) and issubclass(kind, UncertaintySet)):
        raise InvalidParameter(
            f"a kind of set is needed, a class such as KL or its name, got {given!r}",
            parameter="kind",
            value=given,
        )
    names = parameters_of(kind)
    size = next((name for name in ("radius", "tail") if name in names), "")
    if "center" not in names or not size:
        raise InvalidParameter(
            f"the audit needs sets of one size around a centre, such as KL or CVaR; {kind.__name__} has "
            f"{', '.join(names)}",
            parameter="kind",
            value=given,
        )
    lacking = [
        each
        for each, needed in names.items()  # no distances of a Wasserstein ball by default
        if (needed or each == "cost") and each not in {"center", size, *options}
    ]
    if lacking:
        raise InvalidParameter(
            f"{kind.__name__} also needs {lacking[0]}: functools.partial({kind.__name__}, {lacking[0]}=…)",
            parameter="kind",
            value=given,
        )
    return Family(kind, tuple(sorted(options.items())), size)
