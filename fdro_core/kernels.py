"""The driver's hot passes in numba: arrays in, arrays changed in place, nothing checked.

The diagonal metric D scales every step: a step size a means a/D_i in coordinate i, the penalty κ₁ means
κ₁D_i and the dual step ρ₂ means ρ₂D_i. D = 1 gives the paper's updates to the letter.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

FAST = {"contract", "reassoc", "nsz"}  # no "nnan", no "ninf": the kernels look for both


@njit(cache=True, fastmath=FAST, nogil=True)
def worker_dual(
    w: Array, phi: Array, z: Array, metric: Array, step: float, damping: float, bound: float
) -> None:
    """φ ← Π(φ + ρ₂D(z - w - c₂φ)), Eq. (16) with a single ∇."""
    for i in range(w.size):
        phi[i] = min(max(phi[i] + step * metric[i] * (z[i] - w[i] - damping * phi[i]), -bound), bound)


@njit(cache=True, fastmath=FAST, nogil=True)
def worker_primal(
    w: Array,
    phi: Array,
    z: Array,
    gradient: Array,
    metric: Array,
    out: Array,
    weight: float,
    penalty: float,
    step: float,
    bound: float,
) -> None:
    """Out ← Π(w - a/D·(s_j∇f_j - φ + κ₁D(w - z))), Eq. (11) with -φ_j where Eq. (12) prints -w_j."""
    for i in range(w.size):
        slope = weight * gradient[i] - phi[i] + penalty * metric[i] * (w[i] - z[i])
        out[i] = min(max(w[i] - step * slope / metric[i], -bound), bound)


@njit(cache=True, fastmath=FAST, nogil=True)
def worker_step(
    w: Array,
    phi: Array,
    z: Array,
    gradient: Array,
    metric: Array,
    out: Array,
    weight: float,
    penalty: float,
    step: float,
    dual_step: float,
    damping: float,
    bound: float,
    dual_bound: float,
) -> None:
    """`worker_dual` and `worker_primal` in one pass."""
    for i in range(w.size):
        d = metric[i]
        gap = z[i] - w[i]
        dual = min(max(phi[i] + dual_step * d * (gap - damping * phi[i]), -dual_bound), dual_bound)
        phi[i] = dual
        slope = weight * gradient[i] - dual - penalty * d * gap
        out[i] = min(max(w[i] - step * slope / d, -bound), bound)


@njit(cache=True, fastmath=FAST, nogil=True)
def curvature(
    w_old: Array, w_new: Array, g_old: Array, g_new: Array, metric: Array
) -> tuple[float, float, float, float]:
    """‖Δg‖², ‖Δw‖², ‖g‖² and ‖w‖², gradients in the metric 1/D and points in D."""
    change, moved, size, length = 0.0, 0.0, 0.0, 0.0
    for i in range(w_old.size):
        d = metric[i]
        inverse = 1.0 / d
        dg = g_new[i] - g_old[i]
        dw = w_new[i] - w_old[i]
        change += inverse * dg * dg
        moved += d * dw * dw
        size += inverse * g_new[i] * g_new[i]
        length += d * w_new[i] * w_new[i]
    return change, moved, size, length


@njit(cache=True, fastmath=FAST, nogil=True)
def finite(values: Array) -> bool:
    """Whether every entry is a number; 0·x is 0 for those and NaN for the others."""
    total = 0.0
    for i in range(values.size):
        total += 0.0 * values[i]
    return total == 0.0


@njit(cache=True, fastmath=FAST, nogil=True)
def absorb(w_old: Array, w_new: Array, total: Array) -> None:
    """Σ_j w_j follows one worker's move, and the master's copy of w_j becomes the new one."""
    for i in range(w_old.size):
        total[i] += w_new[i] - w_old[i]
        w_old[i] = w_new[i]


@njit(cache=True, fastmath=FAST, nogil=True)
def shift(total: Array, values: Array, sign: float) -> None:
    """Total += sign·values: a worker leaves the sums or joins them."""
    for i in range(total.size):
        total[i] += sign * values[i]


@njit(cache=True, fastmath=FAST, nogil=True)
def advance_consensus(
    rows: Indices,
    W: Array,
    Phi: Array,
    sum_w: Array,
    sum_phi: Array,
    metric: Array,
    z: Array,
    out: Array,
    live: float,
    penalty: float,
    step: float,
    dual_step: float,
    damping: float,
    bound: float,
    dual_bound: float,
) -> None:
    """The master's z and its copies of φ_j for the active workers, in one pass.

    z ← Π(z - a/D·(Σφ_j + κ₁D(nz - Σw_j))); a = 1/(nκ₁) is the exact minimiser Σw_j/n - Σφ_j/(nκ₁D).
    out is the new z, z the old one.
    """
    exact = step == 0.0
    scale = 1.0 / live
    for i in range(z.size):
        d = metric[i]
        if exact:
            new = (sum_w[i] - sum_phi[i] / (penalty * d)) * scale
        else:
            new = z[i] - step * (sum_phi[i] / d + penalty * (live * z[i] - sum_w[i]))
        new = min(max(new, -bound), bound)
        out[i] = new
        for r in range(rows.size):
            j = rows[r]
            old = Phi[j, i]
            dual = min(max(old + dual_step * d * (new - W[j, i] - damping * old), -dual_bound), dual_bound)
            Phi[j, i] = dual
            sum_phi[i] += dual - old


@njit(cache=True)
def simplex_threshold(values: Array) -> float:
    """The h with Σ max(0, values - h) = 1."""
    order = np.sort(values)[::-1]
    total = 0.0
    threshold = 0.0
    for i in range(order.size):
        total += order[i]
        candidate = (total - 1.0) / (i + 1)
        if order[i] > candidate:
            threshold = candidate
    return threshold


@njit(cache=True)
def advance_planes(
    plane_losses: Array,
    multipliers: Array,
    previous: Array,
    value: float,
    step: float,
    damping: float,
    value_step: float,
    value_low: float,
    value_high: float,
    bound: float,
) -> float:
    """h and λ, in place; the new h is returned and `previous` becomes the old λ.

    value_step > 0: h ← Π_H(h - η_h(1 - Σλ)), then λ_l ← Π_Λ(λ_l + ρ₁((Pf)_l - h - c₁λ_l)), Eq. (14), (15).
    value_step = 0: the same λ with the h that makes Σλ = 1, kept in H.
    """
    size = multipliers.size
    target = np.empty(size)
    base = plane_losses.max()  # losses far from zero must not cost digits
    total = 0.0
    for i in range(size):
        previous[i] = multipliers[i]
        total += multipliers[i]
        target[i] = multipliers[i] + step * (plane_losses[i] - base - damping * multipliers[i])
    if value_step > 0.0:
        value = value - value_step * (1.0 - total)
    else:
        value = base + simplex_threshold(target) / step
    value = min(max(value, value_low), value_high)
    for i in range(size):
        multipliers[i] = min(max(target[i] - step * (value - base), 0.0), bound)
    return value


@njit(cache=True)
def weights_of(rows: Indices, planes: Array, multipliers: Array, out: Array) -> None:
    """s_j = Σ_l λ_l p_{l,j} for the rows given; planes is (N, M), one plane a column."""
    for r in range(rows.size):
        j = rows[r]
        total = 0.0
        for i in range(multipliers.size):
            total += multipliers[i] * planes[j, i]
        out[j] = total


@njit(cache=True)
def move_loss(planes: Array, plane_losses: Array, j: int, change: float) -> None:
    """Pf follows one worker's loss: Pf += P[:, j]·Δf_j."""
    for i in range(plane_losses.size):
        plane_losses[i] += planes[j, i] * change
