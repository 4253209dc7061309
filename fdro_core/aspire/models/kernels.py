"""The hot passes of the model steps in numba: arrays in, arrays changed in place, nothing checked."""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Matrix, Vector
from uncertainty_sets.kernels.jit import entry, kernel, summing

DUST = 1e-12  # a move that takes all but this share of a plane's weight takes all of it: EASE drops by λ = 0
FLAT = 1e-15  # of the largest value: two planes that differ by less are equal
# Entries at a time of passes that read several arrays more than once. Loops run from 0 over slices: with an
# offset in the index numba allows for negative ones, and the loop does not run on vector units.
BLOCK = 1024


@kernel
def _pair(gain: Array, multipliers: Array) -> tuple[int, int]:
    """The plane that gains most, and the used plane that gains least."""
    up, down = 0, -1
    for i in range(gain.size):
        if gain[i] > gain[up]:
            up = i
        if multipliers[i] > 0.0 and (down < 0 or gain[i] < gain[down]):
            down = i
    return up, down


@summing
def times(matrix: Array, x: Array) -> Array:
    """The product; @ would call BLAS through numba, which kernels compiled ahead of time are without."""
    product = np.empty(matrix.shape[0])
    for i in range(product.size):
        total = 0.0
        for j in range(x.size):
            total += matrix[i, j] * x[j]
        product[i] = total
    return product


@kernel
def _transfer(multipliers: Array, up: int, down: int, amount: float) -> float:
    """Move weight between two planes, all of it if hardly any would be left; what was moved."""
    if amount >= (1.0 - DUST) * multipliers[down]:
        amount = multipliers[down]
        multipliers[down] = 0.0
    else:
        multipliers[down] -= amount
    multipliers[up] += amount
    return amount


@entry("multipliers")
@kernel
def balance(values: Vector, gram: Matrix, curvature: Vector, multipliers: Vector, most: int) -> int:
    """λ ← argmax over the simplex of φ(λ) = eᵀλ - λᵀΓλ / (2Cᵀλ), in place; how many moves it took.

    φ(λ) = min over z of Σ_l λ_lM_l(z), with planes M_l(z) = e_l + E_lᵀz + ½C_l‖z‖²_D and Γ = ED⁻¹Eᵀ. Its
    gradient is M(z(λ)). Weight moves between two planes at a time, each move exactly as far as φ rises.
    """
    size = values.size
    image = times(gram, multipliers)
    gain = np.empty(size)
    for move in range(most):
        # 1. The planes' values at the z of the present λ.
        bend, total, top = 0.0, 0.0, 0.0
        for i in range(size):
            bend += multipliers[i] * image[i]
            total += multipliers[i] * curvature[i]
        for i in range(size):
            gain[i] = values[i] - image[i] / total + 0.5 * curvature[i] * (bend / total / total)
            top = max(top, abs(gain[i]), abs(values[i]))
        # 2. The pair between which weight moves; none if all used planes are level.
        up, down = _pair(gain, multipliers)
        if up == down or not gain[up] - gain[down] > FLAT * top:
            return move
        # 3. Along the move φ is a linear function less a quadratic over a linear one: its first maximum.
        rise = values[up] - values[down]
        square = gram[up, up] + gram[down, down] - 2.0 * gram[up, down]
        slope = curvature[up] - curvature[down]
        a = rise * slope * slope - 0.5 * square * slope
        b = 2.0 * rise * total * slope - square * total
        c = total * total * (gain[up] - gain[down])
        inside = b * b - 4.0 * a * c
        amount = multipliers[down]
        if b < 0.0 and inside >= 0.0:
            amount = min(amount, 2.0 * c / (np.sqrt(inside) - b))
        amount = _transfer(multipliers, up, down, amount)
        # 4. Γλ follows.
        for i in range(size):
            image[i] += amount * (gram[i, up] - gram[i, down])
    return most


@entry("multipliers")
@kernel
def climb(values: Vector, stiffness: Matrix, multipliers: Vector, most: int) -> int:
    """λ ← argmax over the simplex of vᵀλ - ½λᵀKλ by pair moves, in place; how many it took."""
    size = values.size
    gain = values - times(stiffness, multipliers)
    for move in range(most):
        up, down = _pair(gain, multipliers)
        if up == down or not gain[up] - gain[down] > FLAT * max(abs(gain[up]), abs(gain[down])):
            return move
        bend = stiffness[up, up] + stiffness[down, down] - 2.0 * stiffness[up, down]
        amount = multipliers[down]
        if bend > 0.0:
            amount = min(amount, (gain[up] - gain[down]) / bend)
        amount = _transfer(multipliers, up, down, amount)
        for i in range(size):
            gain[i] -= amount * (stiffness[i, up] - stiffness[i, down])
    return most


@entry()
@summing
def secant(x: Vector, old_x: Vector, g: Vector, old_g: Vector, metric: Vector) -> tuple[float, float, float]:
    """Δgᵀ Δx, ‖Δx‖²_D and ‖x‖²_D: what a worker's last two points say of its curvature."""
    along, moved, length = 0.0, 0.0, 0.0
    for i in range(x.size):
        dx = x[i] - old_x[i]
        along += (g[i] - old_g[i]) * dx
        moved += metric[i] * dx * dx
        length += metric[i] * x[i] * x[i]
    return along, moved, length


@entry()
@summing
def lengths(x: Vector, g: Vector, inverse: Vector) -> tuple[float, float]:
    """‖x‖ and ‖D⁻¹g‖."""
    point, slope = 0.0, 0.0
    for i in range(x.size):
        step = inverse[i] * g[i]
        point += x[i] * x[i]
        slope += step * step
    return np.sqrt(point), np.sqrt(slope)


@entry("old_x", "old_g", "planes", "gram")
@summing
def replace_model(
    x: Vector, g: Vector, c: float, old_x: Vector, old_g: Vector, old_c: float, origin: Vector,
    metric: Vector, inverse: Vector, share: Vector, planes: Matrix, gram: Matrix,
) -> tuple[float, float]:  # fmt: skip
    """Put (x, g) in the place of (x_j, g_j), and let the planes' models around the origin o follow.

    With Δ = Δ∇m_j(o) = Δ(g_j - c_jD(x_j - o)): E_l += p_lj·Δ for every plane, and Γ = ED⁻¹Eᵀ with it. Returns
    m_j(o) - f_j = -g_jᵀ(x_j - o) + ½c_j‖x_j - o‖²_D after and before. One pass, in blocks that stay in cache.
    """
    after, before, size = 0.0, 0.0, 0.0
    image = np.zeros(share.size)
    difference, scaled = np.empty(BLOCK), np.empty(BLOCK)
    for begin in range(0, x.size, BLOCK):
        end = min(begin + BLOCK, x.size)
        count = end - begin
        xs, gs, os, ds, rs = (
            x[begin:end],
            g[begin:end],
            origin[begin:end],
            metric[begin:end],
            inverse[begin:end],
        )
        old_xs, old_gs = old_x[begin:end], old_g[begin:end]
        for i in range(count):
            new, old = xs[i] - os[i], old_xs[i] - os[i]
            change = (gs[i] - old_gs[i]) - ds[i] * (c * new - old_c * old)
            after += new * (0.5 * c * ds[i] * new - gs[i])
            before += old * (0.5 * old_c * ds[i] * old - old_gs[i])
            size += rs[i] * change * change
            difference[i] = change
            scaled[i] = rs[i] * change
            old_xs[i] = xs[i]
            old_gs[i] = gs[i]
        for k in range(share.size):
            part, row, total = share[k], planes[k][begin:end], 0.0
            for i in range(count):
                total += row[i] * scaled[i]
            image[k] += total
            if part != 0.0:
                for i in range(count):
                    row[i] += part * difference[i]
    for k in range(share.size):
        for n in range(share.size):
            cross = share[k] * image[n] + share[n] * image[k]
            gram[k, n] += cross + size * (share[k] * share[n])
    return after, before


@entry("linear", "bend")
@summing
def model_values(
    z: Vector, X: Matrix, G: Matrix, metric: Vector, linear: Vector, bend: Vector
) -> None:  # fmt: skip
    """g_jᵀ(z - x_j) and ‖z - x_j‖²_D of every worker, in one pass over the tables."""
    linear[:] = 0.0
    bend[:] = 0.0
    for begin in range(0, z.size, BLOCK):
        end = min(begin + BLOCK, z.size)
        zs, ds = z[begin:end], metric[begin:end]
        for j in range(linear.size):
            along, length, xs, gs = 0.0, 0.0, X[j][begin:end], G[j][begin:end]
            for i in range(zs.size):
                away = zs[i] - xs[i]
                along += gs[i] * away
                length += ds[i] * away * away
            linear[j] += along
            bend[j] += length


@entry("planes", "gram")
@summing
def sum_models(
    z: Vector, X: Matrix, G: Matrix, curvature: Vector, metric: Vector, inverse: Vector, table: Matrix,
    planes: Matrix, gram: Matrix,
) -> None:  # fmt: skip
    """E_l = Σ_j p_lj(g_j + c_jD(z - x_j)) and Γ = ED⁻¹Eᵀ, in one pass over the tables."""
    gram[:] = 0.0
    slope = np.empty(BLOCK)
    for begin in range(0, z.size, BLOCK):
        end = min(begin + BLOCK, z.size)
        count = end - begin
        zs, ds, rs = z[begin:end], metric[begin:end], inverse[begin:end]
        for k in range(table.shape[1]):
            planes[k][begin:end] = 0.0
        for j in range(curvature.size):
            c, xs, gs = curvature[j], X[j][begin:end], G[j][begin:end]
            for i in range(count):
                slope[i] = gs[i] + c * ds[i] * (zs[i] - xs[i])
            for k in range(table.shape[1]):
                part, row = table[j, k], planes[k][begin:end]
                if part != 0.0:
                    for i in range(count):
                        row[i] += part * slope[i]
        for k in range(table.shape[1]):
            row = planes[k][begin:end]
            for i in range(count):
                slope[i] = rs[i] * row[i]
            for n in range(k + 1):
                other, total = planes[n][begin:end], 0.0
                for i in range(count):
                    total += slope[i] * other[i]
                gram[k, n] += total
    for k in range(table.shape[1]):
        for n in range(k):
            gram[n, k] = gram[k, n]


@entry("out")
@summing
def least_point(
    origin: Vector, inverse: Vector, planes: Matrix, multipliers: Vector, total: float, out: Vector
) -> None:  # fmt: skip
    """out ← o - D⁻¹Eᵀλ/total: the least point of the mixed model; planes without weight cost nothing."""
    for begin in range(0, out.size, BLOCK):
        end = min(begin + BLOCK, out.size)
        os, rs, to = origin[begin:end], inverse[begin:end], out[begin:end]
        to[:] = 0.0
        for k in range(multipliers.size):
            part, row = multipliers[k] / total, planes[k][begin:end]
            if part != 0.0:
                for i in range(to.size):
                    to[i] += part * row[i]
        for i in range(to.size):
            to[i] = os[i] - rs[i] * to[i]


@entry("out")
@summing
def mix(planes: Matrix, multipliers: Vector, out: Vector) -> None:
    """out ← Σ_l λ_l·row_l; planes without weight cost nothing."""
    for begin in range(0, out.size, BLOCK):
        end = min(begin + BLOCK, out.size)
        to = out[begin:end]
        to[:] = 0.0
        for k in range(multipliers.size):
            part, row = multipliers[k], planes[k][begin:end]
            if part != 0.0:
                for i in range(to.size):
                    to[i] += part * row[i]


@entry("slopes", "points", "old_g", "old_x")
@summing
def replace_sums(
    slopes: Matrix, points: Matrix, share: Vector, g: Vector, old_g: Vector, x: Vector, now: float,
    old_x: Vector, before: float,
) -> None:  # fmt: skip
    """Put (x, g) for (x_j, g_j) in the planes' sums Σp_ljg_j and Σp_lja_jx_j, then in the tables."""
    for begin in range(0, x.size, BLOCK):
        end = min(begin + BLOCK, x.size)
        xs, gs, old_xs, old_gs = x[begin:end], g[begin:end], old_x[begin:end], old_g[begin:end]
        for k in range(share.size):
            part, slope, point = share[k], slopes[k][begin:end], points[k][begin:end]
            if part != 0.0:
                for i in range(xs.size):
                    slope[i] += part * (gs[i] - old_gs[i])
                    point[i] += part * (now * xs[i] - before * old_xs[i])
        for i in range(xs.size):
            old_gs[i] = gs[i]
            old_xs[i] = xs[i]


@entry("z", "average")
@summing
def precondition(
    z: Vector,
    before: Vector,
    slope: Vector,
    squares: Vector,
    floor: float,
    step: float,
    total: float,
    pace: float,
    average: Vector,
) -> None:
    """z ← z/total - step·slope/(√v + floor), in place; the average moves from `before` to it by `pace`."""
    for i in range(slope.size):
        z[i] = z[i] / total - step * slope[i] / (np.sqrt(squares[i]) + floor)
        average[i] = before[i] + pace * (z[i] - before[i])
