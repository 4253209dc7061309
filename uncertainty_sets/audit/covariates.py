"""Bad worlds that covariates tell: the worst part of the data, and a shift in words. Needs scikit-learn.

The losses are predicted from the covariates, each fold by a model of the others. The worst case of what is
predicted gives weights that depend on covariates only; with the losses themselves in place of predictions
they are the mean of a world that exists, so a poor prediction errs downward. All else here is a description.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.arrays import Array
from uncertainty_sets.audit.answers import Cell, Interval, Subpopulation, World
from uncertainty_sets.audit.bounds import ORDER, Evidence, evenly
from uncertainty_sets.audit.families import Family, family_of
from uncertainty_sets.errors import InvalidInput
from uncertainty_sets.packages import load

if TYPE_CHECKING:
    from uncertainty_sets.audit.audit import Audit

LEAST_LEAF = 30


def sklearn(name: str) -> Any:
    """A module of scikit-learn, or an error that says what to install."""
    return load(f"sklearn.{name}", "what an audit finds in covariates")


def predicted(audit: Audit, model: Any, folds: int) -> tuple[Array, NDArray[np.intp]]:
    """The loss of each row as the covariates predict it, by a model that has not seen its fold; the folds.

    Rows of one cluster are in one fold.
    """
    if audit.covariates is None:
        raise InvalidInput(
            "this audit has no covariates: Audit(losses, covariates=…)", parameter="covariates"
        )
    units = audit.n if audit.cluster is None else int(audit.cluster.max()) + 1
    if not 2 <= folds <= units // 20:
        raise InvalidInput(
            f"folds must be at least 2, with 20 independent rows or more in each, got folds={folds} and "
            f"{units} rows",
            parameter="folds",
        )
    if model is None:
        model = sklearn("ensemble").HistGradientBoostingRegressor(
            max_iter=100, min_samples_leaf=min(40, max(5, audit.n // 50)), learning_rate=0.05, random_state=0
        )
    of_unit = np.random.default_rng(ORDER).permutation(units) % folds
    fold = of_unit if audit.cluster is None else of_unit[audit.cluster]
    found = np.empty(audit.n)
    Z = audit.covariates
    for k in range(folds):
        held = fold == k
        own = sklearn("base").clone(model)
        if np.ptp(audit.weight) > 0.0:
            own.fit(Z[~held], audit.losses[~held], sample_weight=audit.weight[~held] * audit.n)
        else:
            own.fit(Z[~held], audit.losses[~held])
        found[held] = own.predict(Z[held])
    return found, fold


def worst_subpopulation(audit: Audit, share: float, model: Any, folds: int) -> Subpopulation:
    """Answer `Audit.worst_subpopulation`."""
    if not 0.0 < share < 1.0:
        raise InvalidInput(f"share must be above 0 and below 1, got {share}", parameter="share", value=share)
    family = family_of("cvar")
    guess, fold = predicted(audit, model, folds)
    tie = 1e-9 * np.random.default_rng(ORDER).random(audit.n)  # ties are broken at random, not by order
    total, parts = 0.0, np.zeros(audit.n)
    for k in range(folds):
        held = np.flatnonzero(fold == k)
        mass = float(audit.weight[held].sum())
        p = family.around(audit.weight[held] / mass, share).worst_case(guess[held] + tie[held]).p
        mean = float(p @ audit.losses[held])
        total += mass * mean
        parts[held] = mass * p * (audit.losses[held] - mean)
    at_least = None
    if audit._enough():
        ndtri = load("scipy.special", "an audit").ndtri
        at_least = total - float(ndtri(audit.confidence)) * audit._deviation(parts)
        at_least = max(at_least, audit._low)
    at_most = audit.worst(family.kind, share).at_most
    if at_most is not None and at_most >= audit._back(1.0):  # which is known beforehand
        at_most = None
    return Subpopulation(share, audit.confidence, total, at_least, at_most)


def world(audit: Audit, family: Family, size: float, model: Any, depth: int) -> World:
    """Answer `Audit.world`."""
    guess, _ = predicted(audit, model, 5)
    Z = audit.covariates
    assert Z is not None  # `predicted` has seen to it
    p = family.around(audit.weight, family.check(size)).worst_case(guess).p
    deviation = np.sqrt(np.maximum(audit.weight @ (Z - audit.weight @ Z) ** 2, 0.0))
    moved = np.divide(p @ Z - audit.weight @ Z, deviation, out=np.zeros(Z.shape[1]), where=deviation > 0.0)
    order = np.argsort(-np.abs(moved), kind="stable")
    shifts = tuple((audit.names[j], float(moved[j])) for j in order.tolist())
    units = audit.n if audit.cluster is None else int(audit.cluster.max()) + 1
    side = np.random.default_rng(ORDER + 1).permutation(units) % 2 == 0
    half = side if audit.cluster is None else side[audit.cluster]
    tree = sklearn("tree").DecisionTreeRegressor(
        max_depth=depth, min_samples_leaf=max(LEAST_LEAF, audit.n // 200), random_state=0
    )
    tree.fit(Z[half], (p / audit.weight)[half])
    leaf = tree.apply(Z)
    kept, rules = ~half, _rules(tree.tree_, audit.names)
    cells = []
    for node, rule in rules.items():
        here = np.flatnonzero(kept & (leaf == node))
        if not here.size:
            continue
        weight = audit.weight[here] / audit.weight[here].sum()
        if audit.cluster is not None and audit._evidence is not None:
            weight = evenly(audit.cluster[here])
        now = float(audit.weight[here].sum() / audit.weight[kept].sum())
        then, mean = float(p[here].sum() / p[kept].sum()), float(weight @ audit.losses[here])
        cells.append(Cell(rule, now, then, mean, _interval(audit, here, len(rules))))
    cells.sort(key=lambda cell: -cell.weight / max(cell.share, 1e-12))
    return World(family.name, size, tuple(cells), shifts, p)


def _interval(audit: Audit, here: NDArray[np.intp], cells: int) -> Interval | None:
    """Of a cell's mean, proved given the tree, simultaneous over the cells."""
    evidence = audit._evidence
    if evidence is None:
        return None
    cluster = None
    if evidence.cluster is not None:
        cluster = np.unique(evidence.cluster[here], return_inverse=True)[1]
    miss = audit.miss / (2 * cells)
    scaled = evidence.losses[here]
    top = Evidence(scaled, evidence.two_valued, cluster).mean_at_most(miss)
    bottom = 1.0 - Evidence(1.0 - scaled, evidence.two_valued, cluster).mean_at_most(miss)
    return audit._back(bottom), audit._back(top)


def _rules(tree: Any, names: list[str]) -> dict[int, str]:
    """For each leaf the conditions on the way to it, those on one covariate joined."""
    found: dict[int, str] = {}
    waiting: list[tuple[int, dict[int, Interval]]] = [(0, {})]
    while waiting:
        node, rule = waiting.pop()
        if tree.children_left[node] < 0:
            found[node] = (
                " and ".join(_condition(names[j], *limits) for j, limits in rule.items()) or "everything"
            )
            continue
        j, cut = int(tree.feature[node]), float(tree.threshold[node])
        low, high = rule.get(j, (-math.inf, math.inf))
        waiting.append((tree.children_left[node], rule | {j: (low, min(high, cut))}))
        waiting.append((tree.children_right[node], rule | {j: (max(low, cut), high)}))
    return found


def _condition(name: str, low: float, high: float) -> str:
    if " = " in name and 0.5 in (low, high):  # a word: 0 or 1
        return name if low == 0.5 else name.replace(" = ", " ≠ ")
    if low == -math.inf:
        return f"{name} ≤ {high:.3g}"
    return f"{name} > {low:.3g}" if high == math.inf else f"{low:.3g} < {name} ≤ {high:.3g}"
