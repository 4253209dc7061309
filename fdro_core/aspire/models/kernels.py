"""The hot passes of the model steps in numba: arrays in, arrays changed in place, nothing checked."""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Matrix, Vector
from uncertainty_sets.kernels.jit import entry, kernel, summing

DUST = 1e-12  # a move that takes all but this share of a plane's weight takes all of it: EASE drops by λ = 0
FLAT = 1e-15  # of the largest value: two planes that differ by less are equal


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


@entry("old_x", "old_g", "difference")
@summing
def replace_model(
    x: Vector, g: Vector, c: float, old_x: Vector, old_g: Vector, old_c: float, origin: Vector,
    metric: Vector, difference: Vector,
) -> tuple[float, float]:  # fmt: skip
    """Put (x, g) in the place of (x_j, g_j); how m_j changes at the origin o.

    difference ← Δ∇m_j(o) = Δ(g_j - c_jD(x_j - o)); returns m_j(o) - f_j = -g_jᵀ(x_j - o) + ½c_j‖x_j - o‖²_D
    after and before.
    """
    after, before = 0.0, 0.0
    for i in range(x.size):
        new, old = x[i] - origin[i], old_x[i] - origin[i]
        difference[i] = (g[i] - old_g[i]) - metric[i] * (c * new - old_c * old)
        after += new * (0.5 * c * metric[i] * new - g[i])
        before += old * (0.5 * old_c * metric[i] * old - old_g[i])
        old_x[i] = x[i]
        old_g[i] = g[i]
    return after, before


@entry("planes", "gram", "image")
@summing
def follow(
    planes: Matrix, gram: Matrix, share: Vector, difference: Vector, inverse: Vector, image: Vector
) -> None:
    """E_l += p_lj·Δ for every plane, and Γ = ED⁻¹Eᵀ with it; image is room for ED⁻¹Δ."""
    size = 0.0
    for i in range(difference.size):
        size += inverse[i] * difference[i] * difference[i]
    for k in range(share.size):
        part, row = share[k], planes[k]
        total = 0.0
        for i in range(difference.size):
            step = difference[i]
            total += row[i] * inverse[i] * step
            row[i] += part * step
        image[k] = total
    for k in range(share.size):
        for n in range(share.size):
            cross = share[k] * image[n] + share[n] * image[k]
            gram[k, n] += cross + size * (share[k] * share[n])


@entry("out")
@summing
def mix(planes: Matrix, multipliers: Vector, out: Vector) -> None:
    """out ← Σ_l λ_l·row_l; planes without weight cost nothing."""
    out[:] = 0.0
    for k in range(multipliers.size):
        part, row = multipliers[k], planes[k]
        if part != 0.0:
            for i in range(out.size):
                out[i] += part * row[i]


@entry("slope")
@summing
def descend(origin: Vector, inverse: Vector, slope: Vector, total: float) -> None:
    """slope ← o - D⁻¹slope/total, in place: the least point of a model around o."""
    for i in range(slope.size):
        slope[i] = origin[i] - inverse[i] * slope[i] / total


@entry("slopes", "points", "old_g", "old_x")
@summing
def replace_sums(
    slopes: Matrix, points: Matrix, share: Vector, g: Vector, old_g: Vector, x: Vector, now: float,
    old_x: Vector, before: float,
) -> None:  # fmt: skip
    """Put (x, g) for (x_j, g_j) in the planes' sums Σp_ljg_j and Σp_lja_jx_j, then in the tables."""
    for k in range(share.size):
        part, slope, point = share[k], slopes[k], points[k]
        if part != 0.0:
            for i in range(x.size):
                slope[i] += part * (g[i] - old_g[i])
                point[i] += part * (now * x[i] - before * old_x[i])
    for i in range(x.size):
        old_g[i] = g[i]
        old_x[i] = x[i]


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
