"""The faces of polyhedral sets: p is a vertex, which does not move with the losses until another takes over.

Entries are at a bound, at the centre, or *basic*: between, which one or two are for losses without ties. The
basic entries take what the moves of parameters leave over. Tied entries are basic together and share by
weights, those by which the kernels share: the width between the bounds, or the distance from the centre.

| | g | m of q | k of q |
|---|---|---|---|
| total variation, weighted L1, CD-norm: a = ½, weights, 1/spread | a·sign(p - q) | 1; 0 where p = 0 | -g |

Box and CVaR have no D: an entry at a bound moves with the bound (CVaR: q/tail). If no entry is basic, which
is so for CVaR whenever N·tail is a whole number and the centre uniform, the entries of the smallest loss at
an upper bound are taken as basic: the derivative for upper bounds that grow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from uncertainty_sets.face import Effect, Face, Rows
from uncertainty_sets.sets._tilt_face import share

ALIKE = 1e-13
"""An entry this close to a bound is at the bound."""

UNMOVED = 8.0 * 2.0**-52
"""By how much rounding moves an entry, relative to it."""


def selection_face(rows: Rows, f: Any, p: Any, low: Any, high: Any) -> tuple[Any, Any, Any, Any]:
    """Where p is at the upper and at the lower bound, the basic entries' weights, and the bounds' force."""
    where, zero = rows.where, 0.0 * p
    at_high = p >= high - ALIKE * high
    at_low = (p <= low + ALIKE * low) & ~at_high
    free = ~(at_high | at_low)
    basic = where(free, high - low, zero)
    # No entry between its bounds: those of the smallest loss that is at its upper one.
    threshold = -rows.most(where(at_high, -f, zero - np.inf))
    basic = where(rows.sum(basic) > 0.0, basic, where(at_high & (f == threshold), high - low, zero))
    w = share(rows, basic)
    force = where(free, zero, f - rows.sum(w * where(w > 0.0, f, zero)))
    return at_high, at_low, w, force


def distance_face(
    rows: Rows,
    f: Any,
    p: Any,
    eta: Any,
    q: Any,
    rate: Any,
    limits: dict[str, Effect],
    *,
    spread: Any = None,
    priced: bool = False,
) -> Face:
    """The face of Σ rate·|p - q| <= radius, perhaps with |p - q| <= spread.

    Args:
        rows: what sums over rows.
        f: losses.
        p: the worst case.
        eta: the multiplier of the radius, to combine with entries.
        q: the centre.
        rate: what a unit of distance costs, per entry.
        limits: the effects of the radius and the rates.
        spread: the largest distance of each entry; None if there is none.
        priced: whether η is a price, which does not move.
    """
    where, zero = rows.where, 0.0 * p
    one = 1.0 + zero
    far = abs(p - q)
    moved = far > UNMOVED * where(p > q, p, q)
    sign = where(moved, where(p > q, one, -one), zero)
    gone = (p <= 0.0) & (q > 0.0)
    at_spread = gone & ~gone if spread is None else moved & ~gone & (far >= spread - ALIKE * spread)
    basic = moved & ~gone & ~at_spread
    g = sign * rate
    active = (eta > 0.0) & (eta < 0.0 if priced else eta < np.inf)
    eta = where(eta < np.inf, eta, 0.0 * eta)
    weights = where(basic, far, zero)
    w = share(rows, weights)
    nu = rows.sum(where(rows.sum(weights) > 0.0, w, p) * (f - eta * g))
    force = where(basic, zero, f - nu - eta * g)
    raw = where(gone, zero, one)
    effects = {"center": Effect(raw, -g, force * raw + eta * g, center=q), **limits}
    if spread is not None:
        along = where(at_spread, sign, zero)
        slope = where(spread > 0.0, -far * rate * rate, zero)
        effects["spread"] = Effect(along, slope, force * along - eta * slope, bend=-g * rate)
    return Face(rows, p, eta, weights, w, g, active, effects, stiff=True)
