"""All of an audit on a page: sentences with what holds them, a table of groups, the curve over the radius."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from uncertainty_sets.arrays import Array
from uncertainty_sets.audit.answers import (
    UNBOUNDED,
    Failure,
    GroupRow,
    Holds,
    Statement,
    World,
    grown,
    percent,
    wrapped,
)
from uncertainty_sets.audit.families import Family, family_of
from uncertainty_sets.audit.inputs import SMALL
from uncertainty_sets.errors import InvalidInput

if TYPE_CHECKING:
    from uncertainty_sets.audit.audit import Audit

POINTS = 41
"""Of the curve."""

PART = 0.1
"""The share of the data of which the worst part is looked for, and in which radii over rows are put."""

MOST_GROUPS = 30
"""In the text."""


@dataclass(frozen=True)
class Curve:
    """The worst mean loss over the radius: in this sample, and the population's proved bound (NaN: none)."""

    kind: str
    over: str
    radii: Array
    values: Array
    at_most: Array


@dataclass(frozen=True)
class Report:
    """What an audit found, for reading.

    Attributes:
        headline: two or three sentences for those who read no further.
        sections: titles and their statements.
        groups: the table of groups, the worst first; empty without groups.
        curve: over the radius.
        threshold: that counts as failure.
        failure: the least radius that reaches it.
        notes: what to keep in mind.
        unit: "error rate" of 0/1 losses, or "mean loss".
    """

    headline: list[Statement]
    sections: list[tuple[str, list[Statement]]]
    groups: list[GroupRow]
    curve: Curve
    threshold: float
    failure: Failure
    notes: list[str]
    unit: str

    @classmethod
    def of(cls, audit: Audit, threshold: float, kind: Any, radius: float | None) -> Report:
        """Answer `Audit.report`."""
        if audit.bounds is not None and threshold > audit.bounds[1]:
            meant = f"; did you mean {threshold / 100.0:g}?"
            raise InvalidInput(
                f"threshold {threshold:g} is above the largest possible loss, {audit.bounds[1]:g}"
                f"{meant if audit.bounds == (0.0, 1.0) and threshold <= 100.0 else ''}",
                parameter="threshold",
            )
        family = family_of(kind)
        over_groups = audit.groups is not None
        failure = (audit.group_radius_to_failure if over_groups else audit.radius_to_failure)(kind, threshold)
        rates = audit.two_valued and audit.bounds == (0.0, 1.0)
        size = _size(family, failure, radius)
        sections = [("How far until failure", failure.statements())]
        if radius is not None:
            found = (audit.worst_groups if over_groups else audit.worst)(kind, radius)
            sections.append((f"The worst case within {family.name} {radius:g}", found.statements()))
        if over_groups and not audit.two_valued:
            within = audit.radius_to_failure(kind, threshold)
            sections.append(("If the rows shift too, not only the groups", within.statements()))
        if audit.covariates is not None:
            sections += _by_covariates(audit, kind, size)
        rows = audit.group_table(kind, size) if over_groups and size is not None else []
        if over_groups and not rows:
            rows = audit.group_table()
        return cls(
            _headline(audit, family, failure, threshold, rates), sections, rows,
            _curve(audit, family, failure, radius), threshold, failure, _notes(audit),
            "error rate" if rates else "mean loss",
        )  # fmt: skip

    def shown(self, value: float | None) -> str:
        """A loss as it is shown: in per cent if losses are errors."""
        return _loss(value, self.unit == "error rate")

    def __str__(self) -> str:
        lines = [wrapped(each.text) for each in self.headline]
        for title, statements in self.sections:
            lines += [
                "",
                title,
                *(f"{wrapped(each.text, '  ')}\n      [{each.holds}]" for each in statements),
            ]
        if self.groups:
            lines += ["", *self._table()]
        lines += ["", "Keep in mind", *(wrapped(note, "  ") for note in self.notes)]
        return "\n".join(lines)

    def _table(self) -> list[str]:
        head = ["group", "rows", "share", self.unit, "at most", "doubles at"]
        cells = [
            [
                row.group, f"{row.rows:,}", percent(row.share), self.shown(row.mean), self.shown(row.at_most),
                "–" if not np.isfinite(row.doubling or np.inf) else f"{self.curve.kind} {row.doubling:.3g}",
            ]
            for row in self.groups[:MOST_GROUPS]
        ]  # fmt: skip
        widths = [max(len(row[k]) for row in [head, *cells]) for k in range(len(head))]
        lines = [
            "  ".join(
                cell.ljust(w) if k == 0 else cell.rjust(w)
                for k, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in [head, *cells]
        ]
        left = len(self.groups) - MOST_GROUPS
        return [f"  {line}" for line in lines] + ([f"  {left} more groups"] if left > 0 else [])


def _loss(value: float | None, as_rate: bool) -> str:
    if value is None or np.isnan(value):
        return "–"
    return percent(value) if as_rate else f"{value:.4g}"


def _size(family: Family, failure: Failure, radius: float | None) -> float | None:
    """The size at which the world is described: the one asked for, or where it fails."""
    if radius is not None:
        return radius
    return family.size_of(failure.radius) if 0.0 < failure.radius < np.inf else None


def _headline(
    audit: Audit, family: Family, failure: Failure, threshold: float, rates: bool
) -> list[Statement]:
    unit = "error rate" if rates else "mean loss"
    bound = audit.mean_at_most()
    found = [Statement(f"The {unit} is {_loss(audit.mean, rates)} of {audit.n:,} rows.", Holds.SAMPLE)]
    if bound is not None:
        sure = f"with {percent(audit.confidence)} confidence"
        text = f"In the population it is at most {_loss(bound, rates)}, {sure}."
        found.append(Statement(text, Holds.PROVED))
    target = _loss(threshold, rates)
    if failure.radius == 0.0:
        found.append(Statement(f"That is {target} or more as things are: no shift is needed.", Holds.SAMPLE))
        return found
    if not failure.reached:
        what = "no other mix of the groups" if failure.shares else "no other weights of these rows"
        found.append(Statement(f"It stays below {target}: {what} reaches it.", Holds.SAMPLE))
    elif failure.shares:
        names = " and ".join(
            f"{each.group} grew from {percent(each.now)} to {percent(each.then)}"
            for each in grown(failure.shares)
        )
        text = f"It reaches {target} if {names} of the cases ({family.name} {failure.radius:.3g})."
        found.append(Statement(text, Holds.SAMPLE))
    else:
        found.append(Statement(_over_rows(audit, family, failure, target), Holds.SAMPLE))
    if failure.at_least is not None:
        found.append(_sure(audit, family, failure, target, threshold))
    return found


def _over_rows(audit: Audit, family: Family, failure: Failure, target: str) -> str:
    where = f"{family.name} {failure.radius:.3g}"
    if audit.two_valued:
        return f"It reaches {target} at {where}; groups or covariates tell which cases would have to grow."
    two = np.array([1.0 - PART, PART])
    share = float(family.around(two, family.size_of(failure.radius)).worst_case([0.0, 1.0]).value)
    return (
        f"It reaches {target} at {where}: a shift in which the worst {percent(PART)} of the cases can "
        f"become at most {percent(share)}."
    )


def _sure(audit: Audit, family: Family, failure: Failure, target: str, threshold: float) -> Statement:
    """What is excluded for the population, with the group that gains most as the example."""
    confidence = f"With {percent(audit.confidence)} confidence"
    if failure.at_least == np.inf:
        return Statement(f"{confidence} it stays below {target} in every such shift.", Holds.PROVED)
    if not failure.at_least:
        mean = audit.mean_at_most()
        text = f"The data are too few to be sure that it is below {target} today."
        if mean is not None and mean < threshold:  # by a bound of its own
            text = f"{UNBOUNDED[0].upper()}{UNBOUNDED[1:]}."
        return Statement(text, Holds.PROVED)
    text = f"{confidence} it stays below {target} in every shift below {family.name} {failure.at_least:.3g}"
    most = grown(failure.shares, 1) if failure.reached else []
    if most:
        share = most[0].now
        two = np.array([1.0 - share, share])
        then = float(family.around(two, family.size_of(failure.at_least)).worst_case([0.0, 1.0]).value)
        text += f", for instance while {most[0].group} is below {percent(then)} and the others keep their "
        text += "proportions"
    return Statement(f"{text}.", Holds.PROVED)


def _by_covariates(audit: Audit, kind: Any, size: float | None) -> list[tuple[str, list[Statement]]]:
    found = [
        (f"The worst {percent(PART)} that the covariates tell", audit.worst_subpopulation(PART).statements())
    ]
    if size is not None:
        world: World = audit.world(kind, size)
        found.append((f"A world that hurts, within {world.kind} {size:.3g}", world.statements()))
    return found


def _curve(audit: Audit, family: Family, failure: Failure, radius: float | None) -> Curve:
    groups, evidence = audit.groups, audit._evidence
    center = audit.weight if groups is None else groups.share
    losses = audit.losses if groups is None else groups.means
    if family.size == "tail":
        last = min(8.0, 2.0 * failure.radius) if 0.0 < failure.radius < np.inf else 8.0
        last = max(last, 2.0 * (1.0 / radius - 1.0) if radius else 0.0)
    elif 0.0 < failure.radius < np.inf or radius:
        last = 2.0 * max(failure.radius if np.isfinite(failure.radius) else 0.0, radius or 0.0)
    else:
        mean, top = float(center @ losses), float(losses.max())
        target = mean + 0.95 * (top - mean)
        last = float(family.around(center, 1.0).radius_for(losses, target).radius) if top > mean else 1.0
    radii = (last or 1.0) * np.linspace(0.0, 1.0, POINTS) ** 2  # on this scale a curve starts as a line
    sizes = [family.size_of(each) for each in radii.tolist()]
    values = np.array([float(family.around(center, each).worst_case(losses).value) for each in sizes])
    at_most = np.full(POINTS, np.nan)
    if evidence is not None and groups is not None:
        bounds = audit._group_bounds()
        assert bounds is not None  # there is evidence
        at_most = np.array(
            [float(family.around(center, each).worst_case(bounds).upper_bound) for each in sizes]
        )
    elif evidence is not None and family.is_known:
        at_most = np.array([audit._back(evidence.worst_at_most(family, each, audit.miss)) for each in sizes])
    return Curve(family.name, "rows" if groups is None else "groups", radii, values, at_most)


def _notes(audit: Audit) -> list[str]:
    found = []
    if audit.unproved:
        found.append(f"Nothing is proved for the population: {audit.unproved}.")
    if audit.two_valued and audit.groups is None and audit.covariates is None:
        found.append(
            "Of losses that are 0 and 1, shifts of the rows say no more than the rate: give groups or "
            "covariates."
        )
    if audit.cluster is None:
        found.append(
            "Rows are taken as independent. If several come from one person, device or day, give clusters."
        )
    else:
        found.append(f"{int(audit.cluster.max()) + 1:,} clusters are independent; each counts once.")
    if not audit._enough() and audit.bounds is not None:
        found.append(
            "Under 200 independent rows, or under ten with a loss and ten without: no asymptotic numbers."
        )
    if audit.groups is not None:
        small = [
            name for name, size in zip(audit.groups.names, audit.groups.sizes, strict=True) if size < SMALL
        ]
        if small:
            found.append(f"Under {SMALL} rows: {', '.join(small)}.")
        if not audit.groups.disjoint:
            found.append("Groups overlap: shares are divided by their sum, so their mix is not the data's.")
        found.append("Over groups: the cases within each group stay as they are, and their labels are right.")
    found.append(f"Each statement about the population has {percent(audit.confidence)} confidence by itself.")
    return found
