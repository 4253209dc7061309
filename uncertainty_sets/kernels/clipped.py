"""A divergence ball cut by a box: p = clip(P(x), lower, upper) with x = θ(g - ν).

    KL          P(x) = q·eˣ      D(p) = Σ p·log(p/q) - p + q
    quadratic   P(x) = q + s·x   D(p) = Σ (p - q)²/s

At θ = 0 that is the point p₀ of the box nearest to q, with x = -c, and everything is measured from there: an
entry has moved by δ = clip(θ(g - μ) - z₀, least, most), where z₀ is 0 for an entry between its bounds at p₀
and otherwise how far it is held at one. So p - p₀ and

    G = D(p) - D(p₀) + c·Σ(p - p₀)  (2c for a square),

a sum of terms >= 0, keep their digits however small they are. G rises with θ from 0 to that of the box's own
worst case (θ = ∞). If the latter is within the room that D(p₀) leaves, it is the answer. Otherwise Newton's
method finds θ as in kl.py, and for every θ another finds the μ that makes Σp = Σp₀, which lies between the
least and the largest loss. μ is kept as an anchor, a loss near it, and a shift of x: θ times a difference of
losses keeps its digits however large θ is.

A quadratic ball comes with a radius of 1: its shape has been multiplied by the radius (clipping.py).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from uncertainty_sets.arrays import Array, Matrix
from uncertainty_sets.kernels.clipped_balance import (
    KL,
    QUADRATIC,
    Ball,
    balance,
    exactness,
    fill,
    measure,
    moved,
    newton_shift,
    pull_in,
)
from uncertainty_sets.kernels.jit import entry, kernel, owned_by, summing
from uncertainty_sets.kernels.kl import AIM, OVER, newton
from uncertainty_sets.kernels.layout import DUAL, GAP, OK, STATUS
from uncertainty_sets.kernels.scan import copy, expectation, finish, larger, scan
from uncertainty_sets.kernels.selection import threshold, work_space

REST, SHIFT, ROOM, UNIT, EASE, OFF, KIND, RADIUS, WORTH = range(9)
"""The numbers of a row: 1 - Σlower; c; the radius less the divergence of p₀; by how much radius and shape
have been divided; the violation per unit of G; that of p₀; one of the codes below; the radius as given; what
a mass may count in G there."""

ORDINARY, POINT, STUCK, TOUCHING = range(4)
"""Whether p₀ is all there is: the centre, or where ball and box touch; and whether there are entries that the
ball does not let move at all."""

ROUNDS, PATIENCE = 90, 12  # values of θ at most, and those after which a gap of rounding size is enough
LOOSE = 1e-3  # how far Σp may be from 1 while G is far from the room
COUNTED = 100.0  # of what a mass may count in G
LITTLE, STEEPEST = 1e-6, 10.0  # of the room, and of Σ dp/dx
ROUNDED = 1e-13  # of Σp: what its rounding may be, at most
STEEP = 1e200  # of θ: only losses equal to the threshold are between the bounds
HIGHEST = 1e15  # of θ else: any gap is below rounding there
GUESSED_FROM, SAMPLED = 32_768, 8_192  # entries from which a sample says where to start, and of the sample
FARTHER = 1.1  # times the room: then the box's own answer is outside the ball, as far as a sample can tell


@summing
def box_bound(f: Array, lower: Array, width: Array, t: float) -> float:
    """Σ max(lower·(f-t), upper·(f-t)): the box's bound, from t."""
    bound = 0.0
    for i in range(f.size):
        h = f[i] - t
        bound += lower[i] * h + width[i] * larger(h, 0.0)
    return bound


@kernel
def settled(mode: int, shift: float, part: float) -> float:
    """Newton's next shift, or the same if there is none."""
    found: float = newton_shift(mode, shift, part)
    return found if abs(found) < np.inf else shift


@kernel
def search(
    mode: int, f: Array, ball: Ball, room: float, worth: float, farthest: float, bottom: float, top: float,
    anchor: float, theta: float, shift: float,
) -> tuple[float, float, float, float, float, float, int]:  # fmt: skip
    """θ with G = room, or one below with a gap of rounding size: (θ, anchor, pivot, shift, Σp - Σp₀, G,
    passes).

    `worth` is what a mass may count in G at p₀, and `farthest` G at θ = ∞; theta, anchor and shift are the
    start.
    """
    twice = 1.0 if mode == KL else 2.0  # η = 1/(twice·θ)
    scale, exact = 1.0 / (top - bottom), exactness(f.size)
    below, above, stride, before, off, pivot = 0.0, np.inf, 4.0, np.inf, room, 0.0
    rounds, passes, missed = 0, 0, np.inf
    ordinary = room >= LITTLE and (mode == KL or np.sum(ball.weight) <= STEEPEST)
    while True:
        rounds += 1
        # 1. μ for this θ, no more exact than Newton's step needs: in ordinary balls G at Σp = Σp₀ is known to
        #    first order, in others rounding counts, or entries go from bound to bound at once.
        count = worth + 2.0 * theta  # at most, of a mass in G
        linear, tolerance, nearness = ordinary and count <= COUNTED, LOOSE, 0.1 * min(1.0, theta)
        if not linear:
            tolerance = max(exact, min(LOOSE, 1e-4 * abs(off) / count))
            nearness = 1e-4 * theta * min(1.0, abs(off) / room)
        rate, unit = theta * scale, twice * theta  # a difference of G is `unit` times the gap it makes
        while True:
            anchor, pivot, shift, excess, divergence, m0, m1, m2, more = balance(
                mode, f, ball, anchor, pivot, rate, shift, rate * (bottom - anchor) + pivot,
                rate * (top - anchor) + pivot, scale, tolerance, nearness,
            )  # fmt: skip
            passes += more
            part, level = 0.0, divergence  # G at Σp = Σp₀
            if linear and m0 > 0.0 and abs(excess) > exact:
                part = excess / m0
                level -= twice * (theta * m1 - (shift - pivot) * m0) * part
            off = level - room
            # 2. Stop if G is the room, or if θ is feasible and good enough.
            done = abs(off) <= max(min(max(AIM, 16.0 * exact) * room, 1e-11 * unit), 3e-16 * room)
            done = done or (rounds > PATIENCE and off <= OVER * room and -off <= 1e-13 * unit)
            last = done or rounds >= ROUNDS or theta >= HIGHEST
            near = 1e-3 * theta * min(1.0, abs(off) / room)
            good = abs(excess) * count <= 1e-3 * abs(off) and abs(excess) <= near * m0
            if part != 0.0:
                near = 0.1 * min(1.0, theta) * np.sqrt(min(1.0, abs(off) / room))
                good = part * part * m0 * count <= 1e-2 * abs(off) and abs(part) <= near
            if tolerance == exact or (linear and abs(excess) <= exact) or (good and not last):
                break
            tolerance = exact if last else max(exact, min(0.1 * tolerance, 1e-4 * abs(off) / count))
            nearness = 0.1 * near
            shift = settled(mode, shift, part)
        if done:
            break
        # 3. Narrow the bracket.
        if off > 0.0:
            above = theta
        else:
            below = max(below, theta)
        # 4. Newton's step on the odds of G between its ends; strides or the middle of log θ if it fails.
        spread = m2 - m1 * (m1 / m0) if m0 > 0.0 else 0.0
        move = newton(level, unit * theta * spread, room, farthest)
        step = theta * np.exp(move) if abs(move) < 300.0 else np.nan
        if above == np.inf:
            if not (step > below and step < HIGHEST):
                step = min(theta * stride, HIGHEST)
                stride *= stride
        elif below == 0.0:
            if not (step > 0.0 and step < above):
                step = theta / stride
                stride *= 4.0
        elif not (step > below and step < above) or abs(move) > 0.5 * before or abs(off) > 0.5 * missed:
            step = np.sqrt(below) * np.sqrt(above)
            before = np.log(above / below)
        else:
            before = abs(move)
        missed = abs(off)
        # 5. No rounds or numbers left: finish on the feasible side.
        ended = rounds >= ROUNDS or not (step > below and step < above)
        if ended:
            step = theta if off <= OVER * room or below == 0.0 else below
        # 6. Move the anchor to where μ is expected.
        shift, pivot = settled(mode, shift, part) - pivot, 0.0
        shift += (step - theta) * (m1 / m0 if m0 > 0.0 else shift / theta)
        moved = min(max(anchor + shift / (step * scale), bottom), top)  # where it keeps its digits
        shift -= step * scale * (moved - anchor)
        anchor, theta = moved, step
        if ended:
            rate = theta * scale
            anchor, pivot, shift, excess, divergence, m0, m1, m2, more = balance(
                mode, f, ball, anchor, pivot, rate, shift, rate * (bottom - anchor) + pivot,
                rate * (top - anchor) + pivot, scale, exact, 0.0,
            )  # fmt: skip
            passes += more
            break
    return theta, anchor, pivot, shift, excess, divergence, passes


@kernel
def box_end(
    mode: int, f: Array, ball: Ball, width: Array, rest: float, keys: Array, weights: Array, sample: Array
) -> tuple[float, float, float, float, int]:
    """The box's own answer, of several the one nearest to q: (threshold, pivot, shift, G, passes).

    `keys` receives what `fill` takes for the losses.
    """
    t, _, _ = threshold(f, width, rest, keys, weights, sample)
    # Losses above, at and below t as 1, 0 and -1: those at t are the only ones between their bounds.
    low, high = np.inf, -np.inf
    for i in range(f.size):
        keys[i] = 1.0 if f[i] > t else (-1.0 if f[i] < t else 0.0)
    for i in range(f.size):
        if f[i] == t:
            low = min(low, -(ball.most[i] + ball.offset[i]))
            high = max(high, -(ball.least[i] + ball.offset[i]))
    _, pivot, shift, _, farthest, _, _, _, passes = balance(
        mode, keys[: f.size], ball, 0.0, 0.0, STEEP, 0.0, low, high, 1.0, exactness(f.size), 0.0
    )
    return t, pivot, shift, farthest, passes


@kernel
def solve_by_box(
    mode: int, f: Array, ball: Ball, lower: Array, width: Array, numbers: Array, top: float, spread: float,
    p: Array, out: Array, keys: Array, weights: Array, sample: Array,
) -> tuple[float, int, bool]:  # fmt: skip
    """The box's own answer: (G, passes, whether it is in the ball, and written)."""
    room = numbers[ROOM]
    t, pivot, shift, farthest, passes = box_end(mode, f, ball, width, numbers[REST], keys, weights, sample)
    over, inside = farthest - room, farthest <= room * (1.0 + 1e-12)
    if mode == QUADRATIC and farthest <= room * (1.0 + 1e-12) + ROUNDED * abs(ball.c):
        # Where one mass is worth a lot, the rounding of Σp decides: of p as it is written.
        fill(mode, keys, ball, lower, width, 0.0, pivot, STEEP, shift, p)
        divergence, excess = moved(ball.base, ball.weight, ball.offset, p)
        over = divergence - room - 2.0 * ball.c * excess
        inside = over <= 1e-12 * room + 1e-14
    elif inside:
        fill(mode, keys, ball, lower, width, 0.0, pivot, STEEP, shift, p)
    if inside:
        value, total = expectation(f, p, top)
        bound = (t - top) + box_bound(f, lower, width, t)
        violation = max(abs(total - 1.0), over * numbers[EASE])
        finish(out, top, value, bound, violation, passes, spread)
        # Entries that the ball holds could move if it had no price at all.
        least_price = spread / ((1.0 if mode == KL else 2.0) * HIGHEST) / numbers[UNIT]
        out[DUAL], out[DUAL + 1] = (least_price if numbers[KIND] == STUCK else 0.0), t
    return farthest, passes, inside


@kernel
def least_price(mode: int, f: Array, ball: Ball, numbers: Array, mean: float, spread: float) -> float:
    """The η at which a radius that is lost in the rounding of q counts least: half for it, half for what p
    could move.

    The bound exceeds the mean by η·radius + Σ weight·(f-mean)²/η (over 2 for KL, 4 for a square).
    """
    if numbers[RADIUS] <= 0.0:
        return np.inf
    moves, radius = 1e-26, numbers[RADIUS] / numbers[UNIT]
    for i in range(f.size):
        d = (f[i] - mean) / spread
        free = (d > 0.0 and ball.most[i] > 0.0) or (d < 0.0 and ball.least[i] < 0.0)
        moves += ball.weight[i] * d * d if free else 0.0
    price: float = spread * np.sqrt(moves) / np.sqrt((2.0 if mode == KL else 4.0) * radius) / numbers[UNIT]
    return price


@kernel
def first_theta(
    mode: int, f: Array, ball: Ball, room: float, anchor: float, spread: float
) -> tuple[float, float]:
    """θ and the shift to begin with, by the curvature at θ = 0; a shift of 0 if nothing moves there."""
    twice = 1.0 if mode == KL else 2.0
    _, _, m0, m1, m2 = measure(mode, f, ball, anchor, 0.0, 0.0, 0.0, 1.0 / spread)
    variance = m2 - m1 * (m1 / m0) if m0 > 0.0 else 0.0
    theta = 1.0
    if variance > 0.0:
        theta = min(np.sqrt(2.0 * room / twice) / np.sqrt(variance), HIGHEST)
    return theta, (theta * m1 / m0 if m0 > 0.0 else 0.0)


@kernel
def resume(
    mode: int, ball: Ball, numbers: Array, warm: Array, bottom: float, top: float, theta: float,
    anchor: float, shift: float,
) -> tuple[float, float, float]:  # fmt: skip
    """The start, or that of an earlier answer if its θ is of this size; `warm` is (η, ν) or NaN."""
    spread = top - bottom
    earlier = spread / ((1.0 if mode == KL else 2.0) * (warm[0] * numbers[UNIT]))
    if not (earlier > 1e-4 * theta and earlier < 1e4 * theta and abs(warm[1]) < np.inf):
        return theta, anchor, shift
    nu = warm[1] - ball.c * (spread / earlier)
    return earlier, (nu if nu >= bottom and nu <= top else anchor), 0.0


@kernel
def guess(
    mode: int, f: Array, ball: Ball, lower: Array, width: Array, numbers: Array, spread: float, keys: Array,
    weights: Array, sample: Array,
) -> tuple[bool, float, float, float, float]:  # fmt: skip
    """(whether the box's own answer is far outside the ball, θ, anchor, shift, G at θ = ∞) by a sample.

    Sums over all entries are so many times those over the sample.
    """
    stride = f.size // SAMPLED
    size = f.size // stride
    part = np.empty((7, size))
    rest = 0.0
    for k in range(size):
        i = k * stride
        part[0, k], part[1, k], part[2, k] = f[i], ball.base[i], ball.weight[i]
        part[3, k], part[4, k], part[5, k] = ball.offset[i], ball.least[i], ball.most[i]
        part[6, k] = width[i]
        rest += larger(0.0, ball.base[i] - lower[i])
    g, few = part[0], Ball(part[1], part[2], part[3], part[4], part[5], ball.c)
    bottom, top, _ = scan(g)
    room, scale = numbers[ROOM] * size / f.size, top - bottom
    if scale == 0.0:
        return False, 0.0, 0.0, 0.0, 0.0
    _, _, _, farthest, _ = box_end(mode, g, few, part[6], rest, keys, weights, sample)
    if not farthest > FARTHER * room:
        return False, 0.0, 0.0, 0.0, 0.0
    value, total = expectation(g, few.base, top)
    anchor = min(max(top + value / total, bottom), top)
    theta, shift = first_theta(mode, g, few, room, anchor, scale)
    theta, anchor, pivot, shift, _, _, _ = search(
        mode, g, few, room, numbers[WORTH], farthest, bottom, top, anchor, theta, shift
    )
    return True, theta * (spread / scale), anchor, shift - pivot, farthest * (f.size / size)


@kernel
def solve_by_search(
    mode: int, f: Array, ball: Ball, lower: Array, width: Array, numbers: Array, bottom: float, top: float,
    anchor: float, theta: float, shift: float, farthest: float, passes: int, p: Array, out: Array,
) -> None:  # fmt: skip
    """Search for θ, write p, and compute the certificate."""
    spread, room, twice = top - bottom, numbers[ROOM], 1.0 if mode == KL else 2.0
    scale = 1.0 / spread
    theta, anchor, pivot, shift, excess, divergence, more = search(
        mode, f, ball, room, numbers[WORTH], farthest, bottom, top, anchor, theta, shift
    )
    fill(mode, f, ball, lower, width, anchor, pivot, theta * scale, shift, p)
    value, total = expectation(f, p, top)
    mu = (anchor - top) * scale + (shift - pivot) / theta
    gap = (room - divergence) / (twice * theta) - mu * excess
    if mode == QUADRATIC:
        divergence, excess, less = pull_in(ball, lower, p, room)
        total -= less
    over = divergence - room - twice * ball.c * excess
    violation = max(abs(total - 1.0), over * numbers[EASE])
    finish(out, top, value, value + spread * gap, violation, passes + more, spread)
    out[GAP] = spread * gap
    out[DUAL] = spread / (twice * theta) / numbers[UNIT]
    out[DUAL + 1] = anchor + ((shift - pivot) + ball.c) * (spread / theta)


@kernel
def solve(
    mode: int, f: Array, ball: Ball, lower: Array, width: Array, numbers: Array, warm: Array, p: Array,
    out: Array, keys: Array, weights: Array, sample: Array,
) -> None:  # fmt: skip
    """Solve one row; `warm` is (η, ν) of a similar problem, or NaN."""
    # 1. Read the losses; answers that need no search: equal losses, and a set that is a point.
    bottom, top, status = scan(f)
    if status != OK:
        out[STATUS] = status
        return
    spread = top - bottom
    if spread == 0.0 or numbers[KIND] == POINT or numbers[KIND] == TOUCHING:
        copy(ball.base, p)
        value, total = expectation(f, p, top)
        price, lost = 0.0, 0.0
        if spread > 0.0:
            price = least_price(mode, f, ball, numbers, top + value, spread)
            lost = 2.0 * price * numbers[RADIUS] if numbers[KIND] == POINT and price < np.inf else 0.0
        violation = max(abs(total - 1.0), numbers[OFF])
        finish(out, top, value, value + lost, violation, 0, spread)
        out[DUAL], out[DUAL + 1] = price, top + value if spread > 0.0 else top
        return
    # 2. Among many entries a sample tells whether the box's own answer can be within the ball, and where to
    #    start; an earlier answer does if it is of this size.
    if f.size >= GUESSED_FROM:
        outside, theta, anchor, shift, farthest = guess(
            mode, f, ball, lower, width, numbers, spread, keys, weights, sample
        )
        if outside:
            theta, anchor, shift = resume(mode, ball, numbers, warm, bottom, top, theta, anchor, shift)
            solve_by_search(
                mode, f, ball, lower, width, numbers, bottom, top, anchor, theta, shift, farthest, 0, p, out
            )
            if out[STATUS] == OK:
                return
    # 3. The box's own answer, if it is within the ball.
    farthest, passes, inside = solve_by_box(
        mode, f, ball, lower, width, numbers, top, spread, p, out, keys, weights, sample
    )
    if inside:
        return
    # 4. Otherwise search.
    mean, _ = expectation(f, ball.base, top)  # near μ while θ is small, so that the variance keeps its digits
    theta, shift = first_theta(mode, f, ball, numbers[ROOM], top + mean, spread)
    theta, anchor, shift = resume(mode, ball, numbers, warm, bottom, top, theta, top + mean, shift)
    solve_by_search(
        mode, f, ball, lower, width, numbers, bottom, top, anchor, theta, shift, farthest, passes + 2, p, out
    )


def rows_of(mode: int, name: str) -> Callable[..., None]:
    """The entry of a mode."""

    @kernel
    @owned_by(__name__, name)
    def rows(
        F: Matrix, base: Matrix, weight: Matrix, offset: Matrix, least: Matrix, most: Matrix, lower: Matrix,
        width: Matrix, numbers: Matrix, warm: Matrix, P: Matrix, out: Matrix,
    ) -> None:  # fmt: skip
        """Solve every row of F; parameters with one row serve all rows."""
        keys, weights, sample = work_space(F.shape[1])
        many, started = base.shape[0] > 1, warm.shape[0] > 1
        for b in range(F.shape[0]):
            r = b if many else 0
            ball = Ball(base[r], weight[r], offset[r], least[r], most[r], numbers[r, SHIFT])
            solve(
                mode, F[b], ball, lower[r], width[r], numbers[r], warm[b if started else 0], P[b], out[b],
                keys, weights, sample,
            )  # fmt: skip

    return rows


kl_rows = entry("P", "out")(rows_of(KL, "kl_rows"))
quadratic_rows = entry("P", "out")(rows_of(QUADRATIC, "quadratic_rows"))
