"""Total variation, the other way round: the least radius at which pᵀf reaches a target. One selection, O(N).

Mass that moves from a loss f to the largest gains max f - f. So it comes from the smallest losses, as in
total_variation.py, until the gains are what the target lacks: a selection among weights q·(max f - f). With
h = (max f - f)/spread, aim = (target - max f)/spread and d the h of the threshold, any d > 0 proves
(aim + Σ q·min(h, d))/d as a lower bound.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Matrix, Vector
from uncertainty_sets.kernels.jit import entry, kernel, summing
from uncertainty_sets.kernels.layout import OK
from uncertainty_sets.kernels.least_radius import answered_at_once, conclude
from uncertainty_sets.kernels.radius_layout import STATUS
from uncertainty_sets.kernels.scan import scan, smaller
from uncertainty_sets.kernels.selection import FEW, SAMPLE, share_of, threshold
from uncertainty_sets.kernels.total_variation import LIGHT, fill, top_mass


@summing
def gains(f: Array, q: Array, top: float, scale: float, gain: Array) -> float:
    """Write q·h; return their sum."""
    total = 0.0
    for i in range(f.size):
        x = q[i] * ((top - f[i]) * scale)
        gain[i] = x
        total += x
    return total


@summing
def taken(f: Array, q: Array, top: float, scale: float, t: float) -> tuple[float, float, float]:
    """The mass below t and at t, and Σ q·min(h, d) with d the h of t."""
    below, at, cut = 0.0, 0.0, 0.0
    d = (top - t) * scale
    for i in range(f.size):
        x = q[i]
        below += x if f[i] < t else 0.0
        at += x if f[i] == t else 0.0
        cut += x * smaller((top - f[i]) * scale, d)
    return below, at, cut


@kernel
def solve(
    f: Array,
    q: Array,
    target: float,
    p: Array,
    out: Array,
    v: Array,
    gain: Array,
    keys: Array,
    weights: Array,
    sample: Array,
) -> None:
    """Solve one row; v, gain, keys and weights are work space of f's length."""
    # 1. Read the losses, and answer what needs no selection.
    least, top, status = scan(f)
    out[STATUS] = status
    if status != OK:
        return
    spread = top - least
    scale = 1.0 / spread if spread > 0.0 else 0.0
    aim = (target - top) * scale
    most = gains(f, q, top, scale, gain)
    if answered_at_once(q, target, top, spread, aim, -most, p, out):
        return
    # 2. The threshold below which all mass moves, and the share that moves at it.
    need = aim + most
    mass, count = top_mass(f, q, top, v)
    t, before, level = threshold(v, gain, need, keys, weights, sample)
    t, share = -t, share_of(need - before, level)
    below, at, cut = taken(f, q, top, scale, t)
    d, moved = (top - t) * scale, below + share * at
    # 3. Write p and judge it.
    heavy = mass > LIGHT
    each, rate = (0.0, moved / mass) if heavy else (moved / count, 0.0)
    value, _, total, _ = fill(f, q, t, 1.0 - share, top, each, rate, p)
    value *= scale
    lower = (aim + cut) / d
    conclude(out, top, spread, moved, lower, moved - lower, value, aim - value, total, 1.0 / d, 3)


@entry("P", "out")
@kernel
def rows(F: Matrix, center: Matrix, target: Vector, P: Matrix, out: Matrix) -> None:
    """Solve every row of F; a centre with one row serves all rows."""
    n = F.shape[1]
    v, gain, keys, weights = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    sample = np.empty((2, SAMPLE if n > FEW else 1))
    many = center.shape[0] > 1
    for b in range(F.shape[0]):
        q = center[b if many else 0]
        solve(F[b], q, target[b], P[b], out[b], v, gain, keys, weights, sample)
