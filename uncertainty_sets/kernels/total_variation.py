"""Total variation: the mass `radius` moves from the smallest losses to the largest. One selection, O(N).

The entries below a threshold t lose all of their mass, those at t a share of it, and the largest losses gain
it in proportion to the mass that they have, or evenly if they have none. Losses are measured from their
maximum `top`.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Indices, Matrix, Vector
from uncertainty_sets.kernels.jit import entry, kernel, summing
from uncertainty_sets.kernels.layout import COLUMNS, DUAL, OK, STATUS
from uncertainty_sets.kernels.scan import finish, larger, longest_row, losses_of, put, scan
from uncertainty_sets.kernels.selection import share_of, threshold, work_space

LIGHT = 1e-290  # a mass at the top below which 1/mass could overflow: it counts as none


@summing
def top_mass(f: Array, q: Array, top: float, v: Array) -> tuple[float, float]:
    """Write v = -f, for a selection from the bottom; return the mass and the number of the largest losses."""
    mass, count = 0.0, 0.0
    for i in range(f.size):
        x = q[i]
        mass += x if f[i] == top else 0.0
        count += 1.0 if f[i] == top else 0.0
        v[i] = -f[i]
    return mass, count


@summing
def fill(
    f: Array, q: Array, t: float, stay: float, top: float, each: float, rate: float, p: Array
) -> tuple[float, float, float, float]:
    """Write p: q above t, `stay`·q at t, 0 below; the largest losses gain each + rate·q.

    Returns value and Σ q·max(f, t) from `top`, Σp and Σ|p - q|.
    """
    value, bound, total, far = 0.0, 0.0, 0.0, 0.0
    for i in range(f.size):
        g, old = f[i] - top, q[i]
        part = 1.0 if f[i] > t else (stay if f[i] == t else 0.0)
        x = old * part
        more = x + (each + rate * old)
        x = more if f[i] == top else x
        p[i] = x
        total += x
        value += x * g
        bound += old * larger(g, t - top)
        far += abs(x - old)
    return value, bound, total, far


@kernel
def solve(
    f: Array, q: Array, radius: float, p: Array, out: Array, v: Array, keys: Array, weights: Array,
    sample: Array,
) -> None:  # fmt: skip
    """Solve one row; v, keys and weights are work space of f's length."""
    # 1. Read the losses; those that are not finite or must be scaled first go back to the caller.
    least, top, status = scan(f)
    if status != OK:
        out[STATUS] = status
        return
    mass, count = top_mass(f, q, top, v)
    if mass + radius >= 1.0:
        # 2a. The radius pays for everything below the top.
        t, stay, moved = top, 1.0, 1.0 - mass
    else:
        # 2b. The threshold below which the mass is the radius.
        t, below, at = threshold(v, q, radius, keys, weights, sample)
        t, share = -t, share_of(radius - below, at)
        stay, moved = 1.0 - share, min(radius, below + share * at)
    # 3. Write p and judge it.
    heavy = mass > LIGHT
    each, rate = (0.0, moved / mass) if heavy else (moved / count, 0.0)
    value, bound, total, far = fill(f, q, t, stay, top, each, rate, p)
    violation = max(abs(total - 1.0), (0.5 * far - radius) / max(1.0, radius))
    finish(out, top, value, bound + radius * (top - t), violation, 1, top - least)
    out[DUAL] = t


@entry("P", "out")
@kernel
def rows(F: Matrix, center: Matrix, radius: Vector, warm: Matrix, P: Matrix, out: Matrix) -> None:
    """Solve every row of F; parameters with one row serve all rows."""
    n = F.shape[1]
    v = np.empty(n)
    keys, weights, sample = work_space(n)
    many = center.shape[0] > 1
    for b in range(F.shape[0]):
        r = b if many else 0
        solve(F[b], center[r], radius[r], P[b], out[b], v, keys, weights, sample)


@entry("P", "out")
@kernel
def ragged(
    values: Vector, indices: Indices, offsets: Vector, scale: float, unit: float, indptr: Indices, first: int,
    after: int, center: Vector, radius: Vector, warm: Matrix, P: Vector, out: Matrix,
) -> None:  # fmt: skip
    """Solve the rows from `first` to `after`, each with its own entries (scan.py)."""
    most = longest_row(indptr, first, after)
    scratch, v, one = np.empty(most), np.empty(most), np.full(COLUMNS, np.nan)
    keys, weights, sample = work_space(most)
    many = radius.size > 1
    for b in range(first, after):
        i, j = indptr[b], indptr[b + 1]
        f = losses_of(values, indices, offsets, scale, unit, i, j, scratch)
        limit = radius[b if many else 0]
        solve(f, center[i:j], limit, P[i:j], one, v[: j - i], keys, weights, sample)
        put(one, out, b)
