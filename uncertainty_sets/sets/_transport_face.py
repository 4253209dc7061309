"""The faces of balls in transport cost: the plan, which source sends its mass where.

With the multiplier λ of the cost, the mass of entry j goes to the i with the largest f_i - λ·cost_ij. At λ a
source has two such targets: the near one, which a slightly larger λ would choose, and the far one. A part of
its mass, the rest of the budget, goes to the far one; sources that tie split alike. So

    p = (1-s)·put(near, q) + s·put(far, q),     cost_near + s·(cost_far - cost_near) = radius^order

and moves of the radius, of q and of the costs shift s along one direction, put(far, q) - put(near, q).

The targets take O(N) for order 1 on a line and O(N²) otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.arrays import Array
from uncertainty_sets.derivatives import NUMPY
from uncertainty_sets.face import Effect, Face

Places = NDArray[np.intp]

NEXT = 1e-9
"""By how much λ is changed to tell the near targets from the far ones."""

PIECE = 4_000_000
"""Entries of the cost matrix that are looked at together."""


class Plan(NamedTuple):
    """Where the mass of each entry goes in one row."""

    near: Places
    far: Places
    share: float  # of the mass that goes to the far targets
    cost_near: Array
    cost_far: Array

    def put(self, q: Array) -> Array:
        """The distribution that these masses make."""
        return (1.0 - self.share) * self.put_at(self.near, q) + self.share * self.put_at(self.far, q)

    @staticmethod
    def put_at(places: Places, q: Array) -> Array:
        """The masses where they arrive."""
        return np.asarray(np.bincount(places, weights=q, minlength=places.size), np.float64)

    def pull(self, r: Array) -> Array:
        """The transpose of `put`."""
        found: Array = (1.0 - self.share) * r[self.near] + self.share * r[self.far]
        return found

    def spent(self) -> Array:
        """What a unit of mass of each entry costs."""
        return (1.0 - self.share) * self.cost_near + self.share * self.cost_far


def plan_of(f: Array, q: Array, lam: float, limit: float, x: Array, power: float) -> Plan:
    """The plan of one row.

    Args:
        f: losses.
        q: the centre.
        lam: the multiplier.
        limit: of the cost, radius^order.
        x: positions, or the matrix of distances between entries.
        power: the order.
    """
    near, far = (targets(f, lam * (1.0 + sign * NEXT), x, power) for sign in (1.0, -1.0))
    cost_near, cost_far = (distance(x, each) ** power for each in (near, far))
    low, high = float(q @ cost_near), float(q @ cost_far)
    share = min(max((limit - low) / (high - low), 0.0), 1.0) if high > low else 0.0
    return Plan(near, far, share, cost_near, cost_far)


def distance(x: Array, places: Places) -> Array:
    """From each entry to its target."""
    found: Array = x[places, np.arange(places.size)] if x.ndim == 2 else np.abs(x[places] - x)
    return found


def targets(f: Array, lam: float, x: Array, power: float) -> Places:
    """For each j the i with the largest f_i - λ·distance^power."""
    if x.ndim == 1 and power == 1.0:
        return _on_line(f, lam, x)
    found = np.empty(f.size, np.intp)
    length = max(1, PIECE // f.size)
    for first in range(0, f.size, length):
        part = slice(first, first + length)
        far = x[:, part] if x.ndim == 2 else np.abs(np.subtract.outer(x, x[part]))
        found[part] = (f[:, None] - lam * far**power).argmax(axis=0)
    return found


def _on_line(f: Array, lam: float, x: Array) -> Places:
    """By two sweeps: the best target to the left, and to the right."""
    order = np.argsort(x, kind="stable")
    y, g = x[order], f[order]

    def best(height: Array) -> tuple[Places, Array]:
        most = np.maximum.accumulate(height)
        return np.maximum.accumulate(np.where(height >= most, np.arange(y.size), 0)), most

    left, from_left = best(g + lam * y)
    right, from_right = (each[::-1] for each in best((g - lam * y)[::-1]))
    found = np.empty(y.size, np.intp)
    better = from_left - lam * y >= from_right + lam * y
    found[order] = order[np.where(better, left, y.size - 1 - right)]
    return found


class Balls(NamedTuple):
    """The parameters of all rows: centres (B, N), radii (B,), positions or distances, the order, the cost."""

    center: Array
    radius: Array
    x: Array
    power: float
    given: Array | None


def transport_face(balls: Balls, losses: Array, p: Array, lam: Array) -> Face:
    """The face of one loss vector, or of a batch."""
    single = losses.ndim == 1
    F = np.atleast_2d(losses)
    q = np.broadcast_to(balls.center, F.shape)
    radius, price = (np.broadcast_to(each, len(F)) for each in (balls.radius, lam))
    power = balls.power
    plans = [
        plan_of(f, center, float(each), float(r) ** power, balls.x, power)
        for f, center, each, r in zip(F, q, price, radius, strict=True)
    ]
    rows = list(zip(plans, q, strict=True))
    direction = [plan.put_at(plan.far, center) - plan.put_at(plan.near, center) for plan, center in rows]
    V = [float(center @ (plan.cost_far - plan.cost_near)) for plan, center in rows]
    reach = [f[plan.near] - each * plan.cost_near for f, each, (plan, _) in zip(F, price, rows, strict=True)]

    def shaped(array: Any) -> Array:
        stacked: Array = np.array(array)
        return stacked[0] if single else stacked

    def by_row(apply: Callable[[Plan, Array], Array]) -> Callable[[Array], Array]:
        def all_rows(given: Array) -> Array:
            each = np.broadcast_to(given, F.shape)
            return shaped([apply(plan, row) for plan, row in zip(plans, each, strict=True)])

        return all_rows

    move, pull = by_row(Plan.put), by_row(Plan.pull)
    eta = shaped(price)[..., None]
    effects = {
        "center": Effect(
            (move, pull), shaped([plan.spent() for plan in plans]), shaped(reach), center=balls.center
        ),
        "radius": Effect(room=NUMPY.each(power * shaped(radius) ** (power - 1.0)), per_row=True),
    }
    if balls.given is not None:
        effects["cost"] = _of_cost(balls, rows, shaped, eta)
    live = np.array(V)[:, None] * (price > 0.0)[:, None]
    return Face.along(NUMPY, p, eta, shaped(direction), shaped(live), effects)


def _of_cost(balls: Balls, rows: list[Any], shaped: Callable[[Any], Array], eta: Array) -> Effect:
    """What the distances do: the plan pays them, and nothing else changes at once."""
    matrix = balls.x.ndim == 2
    each = np.arange(balls.center.shape[-1])

    def paid(plan: Plan, q: Array) -> list[tuple[Places, Array]]:
        """Targets, and what they pay per unit of distance."""
        parts = ((plan.near, 1.0 - plan.share), (plan.far, plan.share))
        rate = balls.power
        return [
            (places, part * q * rate * distance(balls.x, places) ** (rate - 1.0)) for places, part in parts
        ]

    def along(move: Array, places: Places) -> Array:
        if matrix:
            found: Array = move[places, each]
        else:
            found = np.sign(balls.x[places] - balls.x) * (move[places] - move)
        return found

    def spent(move: Array) -> Array:
        return shaped(
            [
                sum(float(weights @ along(move, places)) for places, weights in paid(plan, q))
                for plan, q in rows
            ]
        )[..., None]

    def back(number: Array) -> Array:
        total = np.zeros(balls.x.shape)
        for (plan, q), part in zip(rows, np.atleast_2d(number), strict=True):
            for places, weights in paid(plan, q):
                if matrix:
                    np.add.at(total, (places, each), part * weights)
                else:
                    signed = part * weights * np.sign(balls.x[places] - balls.x)
                    total += np.bincount(places, weights=signed, minlength=each.size) - signed
        return total

    nothing = np.zeros(balls.center.shape[-1])
    raw = (lambda move: nothing, lambda r: np.zeros(balls.x.shape))
    return Effect(raw, (spent, back), (lambda move: -eta * spent(move), lambda number: back(-eta * number)))
