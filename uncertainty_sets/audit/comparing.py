"""Several models on the same rows: worst-case curves over the radius, and where one is surely better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.audit.answers import Holds, Statement, percent
from uncertainty_sets.audit.audit import Audit
from uncertainty_sets.audit.families import family_of
from uncertainty_sets.errors import InvalidInput
from uncertainty_sets.packages import load

CROSSING = 40
"""Halvings of the interval between two radii in which two curves cross."""


@dataclass(frozen=True)
class Pair:
    """Two models.

    Attributes:
        first, second: their names.
        difference: of the worst mean losses, first minus second, at each radius.
        interval: half the width of its asymptotic interval, pointwise; NaN where that is not to be trusted.
        crossings: the radii at which the curves of this sample cross.
    """

    first: str
    second: str
    difference: Array
    interval: Array
    crossings: tuple[float, ...]

    @property
    def first_is_better(self) -> Array:
        """At which radii the first is better, asymptotically, at each radius by itself."""
        return np.asarray(self.difference < -self.interval)

    @property
    def second_is_better(self) -> Array:
        """The same for the second."""
        return np.asarray(self.difference > self.interval)


@dataclass(frozen=True)
class Comparison:
    """The worst mean loss of each model over the radius, in this sample, and every pair of models.

    Attributes:
        kind: the set's name.
        over: "groups" or "rows".
        radii: at which curves are known.
        curves: by model, the worst means; proved, in this sample.
        pairs: two models each.
        confidence: of the pairs' intervals.
    """

    kind: str
    over: str
    radii: Array
    curves: dict[str, Array]
    pairs: tuple[Pair, ...]
    confidence: float

    def statements(self) -> list[Statement]:
        """For each pair which is better where."""
        found = []
        for pair in self.pairs:
            first, second = pair.first, pair.second
            better = first if pair.difference[0] < 0.0 else second
            if pair.crossings:
                places = ", ".join(f"{radius:.3g}" for radius in pair.crossings)
                text = f"{better} is better in small shifts; {first} and {second} cross at {places}"
            elif (pair.difference == 0.0).all():
                text = f"{first} and {second} have the same worst cases"
            else:
                text = f"{better} is better than {second if better == first else first} at every radius shown"
            found.append(Statement(text, Holds.SAMPLE))
            for name, where in ((first, pair.first_is_better), (second, pair.second_is_better)):
                if where.any():
                    text = f"{name} is better at {self.kind} {_ranges(self.radii, where)}"
                    text += f" ({percent(self.confidence)} at each)"
                    found.append(Statement(text, Holds.ASYMPTOTIC))
        return found

    def __str__(self) -> str:
        lines = [f"worst mean loss over {self.kind} balls of the {self.over}"]
        shown = np.unique(np.linspace(0, self.radii.size - 1, 6).astype(int))
        width = max(len(name) for name in self.curves) + 2
        lines.append(" " * width + "".join(f"{radius:10.3g}" for radius in self.radii[shown]))
        lines += [
            f"{name:<{width}}" + "".join(f"{v:10.4g}" for v in curve[shown])
            for name, curve in self.curves.items()
        ]
        return "\n".join(lines + [str(each) for each in self.statements()])


def compare(
    losses: Mapping[str, Any],
    kind: Any = "kl",
    *,
    radii: Any = None,
    groups: Any = None,
    confidence: float = 0.95,
    bounds: tuple[float, float] | None = (0.0, 1.0),
    clusters: Any = None,
    data: Any = None,
) -> Comparison:
    """Compare models on the same rows, over sets of worlds of every size.

    The difference of two worst cases has a paired standard error, by the influence of each row on both. With
    several pairs or radii divide 1 - confidence among those that were meant beforehand.

    >>> import numpy as np
    >>> from uncertainty_sets.audit import compare
    >>> region = np.repeat([0, 1], [900, 100])
    >>> even = np.arange(1000) % 12 == 0
    >>> uneven = np.r_[np.arange(900) % 15 == 0, np.arange(100) % 5 == 0]
    >>> print(compare({"even": even, "uneven": uneven}, radii=[0.001, 0.01, 0.1, 1], groups=region))
    worst mean loss over KL balls of the groups
                 0.001      0.01       0.1         1
    even       0.08409    0.0843   0.08505   0.08793
    uneven     0.08182   0.08599    0.1009    0.1586
    uneven is better in small shifts; even and uneven cross at 0.00509
      [in this sample, proved]
    even is better at KL 1 (95 % at each)
      [population, asymptotic]

    Args:
        losses: by the model's name, a loss for each row.
        kind: a class of sets with a radius, or its name.
        radii: at which to compare; None: 60 from 10⁻⁴ to 2.
        groups: the sets are over their mixes; None: over the rows.
        confidence: at each radius.
        bounds, clusters, data: as in `Audit`.
    """
    if len(losses) < 2:
        raise InvalidInput(f"two models or more are needed, got {len(losses)}", parameter="losses")
    family = family_of(kind)
    if family.size != "radius":
        raise InvalidInput(f"{family.name} has no radius to compare over: KL and χ² have", parameter="kind")
    sizes = np.geomspace(1e-4, 2.0, 60) if radii is None else np.sort(np.asarray(radii, dtype=np.float64))
    if sizes.ndim != 1 or not sizes.size or not (sizes > 0.0).all() or not np.isfinite(sizes).all():
        raise InvalidInput("radii must be finite numbers above 0", parameter="radii", value=radii)
    audits = {
        name: Audit(each, groups=groups, clusters=clusters, bounds=bounds, confidence=confidence, data=data)
        for name, each in losses.items()
    }
    first = next(iter(audits.values()))
    wrong = next((name for name, each in audits.items() if each.n != first.n), None)
    if wrong is not None:
        raise InvalidInput(
            f"{wrong} has {audits[wrong].n} rows, and the first model has {first.n}", parameter="losses"
        )
    center = first.weight if first.groups is None else first.groups.share
    means = {name: each.losses if each.groups is None else each.groups.means for name, each in audits.items()}

    def value(name: str, radius: float) -> float:
        return float(family.around(center, radius).worst_case(means[name]).value)

    curves = {name: np.empty(sizes.size) for name in audits}
    names = list(audits)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    halves = {pair: np.full(sizes.size, np.nan) for pair in pairs}
    z = float(load("scipy.special", "an audit").ndtri(0.5 + confidence / 2.0))
    warm: dict[str, Any] = dict.fromkeys(audits)
    for k, radius in enumerate(sizes.tolist()):
        effects: dict[str, Array | None] = {}
        for name, audit in audits.items():
            answer = family.around(center, radius).worst_case(means[name], warm_start=warm[name])
            warm[name], curves[name][k] = answer, float(answer.value)
            effects[name] = _effect(audit, family, answer, center)
        for pair in pairs:
            one, other = effects[pair[0]], effects[pair[1]]
            if one is not None and other is not None:
                halves[pair][k] = z * first._deviation(one - other, centre=True)
    found = []
    for a, b in pairs:
        difference = curves[a] - curves[b]
        found.append(Pair(a, b, difference, halves[a, b], _crossings(sizes, difference, a, b, value)))
    over = "rows" if first.groups is None else "groups"
    return Comparison(family.name, over, sizes, curves, tuple(found), confidence)


def _effect(audit: Audit, family: Any, answer: Any, center: Array) -> Array | None:
    """What each row adds to a worst case; None where the normal approximation is not to be trusted."""
    eta = answer.dual.get("eta", np.nan)
    if not audit._enough() or not np.isfinite(eta):
        return None
    if audit.groups is not None:
        return audit.groups.worst_effects(family, answer.p, float(eta))
    if not audit._asymptotic(answer.p):
        return None
    influence = family.influence(answer.p / center)
    return None if influence is None else np.asarray(float(eta) * influence * audit.weight)


def _crossings(radii: Array, d: Array, a: str, b: str, value: Any) -> tuple[float, ...]:
    found = []
    for k in np.flatnonzero(np.sign(d[1:]) * np.sign(d[:-1]) < 0.0).tolist():
        low, high = float(radii[k]), float(radii[k + 1])
        for _ in range(CROSSING):
            middle = 0.5 * (low + high)
            if not low < middle < high or high - low < 1e-6 * high:
                break
            same = (value(a, middle) - value(b, middle)) * d[k] > 0.0
            low, high = (middle, high) if same else (low, middle)
        found.append(0.5 * (low + high))
    return tuple(found)


def _ranges(radii: Array, where: Array) -> str:
    """Runs of radii in words."""
    runs, k = [], 0
    while k < radii.size:
        if where[k]:
            end = k
            while end + 1 < radii.size and where[end + 1]:
                end += 1
            runs.append(f"{radii[k]:.3g}" if end == k else f"{radii[k]:.3g} to {radii[end]:.3g}")
            k = end
        k += 1
    return " and ".join(runs)
