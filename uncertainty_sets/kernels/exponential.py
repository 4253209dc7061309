"""exp, q·e^x, e^x - 1 - x and growth in forms that run on vector units."""

from __future__ import annotations

import numpy as np

from uncertainty_sets.kernels.jit import kernel
from uncertainty_sets.kernels.scan import larger, smaller

LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10
ROUND = 6755399441055744.0  # 1.5·2^52: adding it rounds to an integer, which stands in the low bits
LEAST = -708.0


@kernel
def exp(x: float) -> float:
    """e^x for x <= 700, to 1 ulp or so; 0 below -708.

    x = k·ln 2 + r with |r| <= ln 2 / 2; e^r by its series; 2^k written into the exponent bits.
    """
    y = max(x, LEAST)
    shifted = y * LOG2_E + ROUND
    k = shifted - ROUND
    r = (y - k * LN2_HIGH) - k * LN2_LOW
    s = 1.0 / 6227020800.0
    s = s * r + 1.0 / 479001600.0
    s = s * r + 1.0 / 39916800.0
    s = s * r + 1.0 / 3628800.0
    s = s * r + 1.0 / 362880.0
    s = s * r + 1.0 / 40320.0
    s = s * r + 1.0 / 5040.0
    s = s * r + 1.0 / 720.0
    s = s * r + 1.0 / 120.0
    s = s * r + 1.0 / 24.0
    s = s * r + 1.0 / 6.0
    s = s * r + 0.5
    s = s * r + 1.0
    s = s * r + 1.0
    bits = (np.float64(shifted).view(np.int64) + np.int64(1023)) << np.int64(52)
    return s * np.int64(bits).view(np.float64) if x >= LEAST else 0.0


@kernel
def times_exp(q: float, x: float) -> float:
    """q·e^x for 0 <= q <= 1 and x <= 1400, for which e^x alone may overflow though the product does not.

    A separate function because callers may reorder products, and this one must be taken from the left.
    """
    half = exp(0.5 * x)
    return (q * half) * half


@kernel
def exp_minus_line(x: float) -> float:
    """e^x - 1 - x for |x| <= 1, to a few ulp of itself: its series from x²/2 on."""
    s = 1.0 / 6402373705728000.0
    s = s * x + 1.0 / 355687428096000.0
    s = s * x + 1.0 / 20922789888000.0
    s = s * x + 1.0 / 1307674368000.0
    s = s * x + 1.0 / 87178291200.0
    s = s * x + 1.0 / 6227020800.0
    s = s * x + 1.0 / 479001600.0
    s = s * x + 1.0 / 39916800.0
    s = s * x + 1.0 / 3628800.0
    s = s * x + 1.0 / 362880.0
    s = s * x + 1.0 / 40320.0
    s = s * x + 1.0 / 5040.0
    s = s * x + 1.0 / 720.0
    s = s * x + 1.0 / 120.0
    s = s * x + 1.0 / 24.0
    s = s * x + 1.0 / 6.0
    s = s * x + 0.5
    return s * x * x


@kernel
def power_of_two(shifted: float) -> float:
    """2^k for a whole number k + ROUND, of which k stands in the low bits."""
    bits = (np.float64(shifted).view(np.int64) + np.int64(1023)) << np.int64(52)
    return np.int64(bits).view(np.float64)


@kernel
def growth(q: float, x: float, base: float, d: float) -> tuple[float, float]:
    """p - base and p·d - p + base of one entry, for p = q·e^x = base·e^d.

    With one exponential: of d up to 1, of which both are then as exact as they can be; of x beyond, where
    base may be 0 or without digits. x is at most 1400.
    """
    close = abs(d) <= 1.0
    z = d if close else smaller(larger(x, 2.0 * LEAST), -2.0 * LEAST)
    w = base if close else q
    shifted = z * LOG2_E + ROUND
    k = shifted - ROUND
    r = (z - k * LN2_HIGH) - k * LN2_LOW
    s = 1.0 / 6227020800.0
    s = s * r + 1.0 / 479001600.0
    s = s * r + 1.0 / 39916800.0
    s = s * r + 1.0 / 3628800.0
    s = s * r + 1.0 / 362880.0
    s = s * r + 1.0 / 40320.0
    s = s * r + 1.0 / 5040.0
    s = s * r + 1.0 / 720.0
    s = s * r + 1.0 / 120.0
    s = s * r + 1.0 / 24.0
    s = s * r + 1.0 / 6.0
    s = s * r + 0.5
    line = s * r * r  # e^r - 1 - r
    halved = 0.5 * k + ROUND
    half, rest = power_of_two(halved), power_of_two((k - (halved - ROUND)) + ROUND)  # 2^k may overflow
    two = half * rest if close else 1.0
    bent = two * line + ((two * r + (two - 1.0)) - z)  # e^d - 1 - d, which is `line` itself if k = 0
    far = (w * half) * rest * (1.0 + (line + r))
    moved = base * (bent + d) if close else far - base
    return moved, (base * (d * (bent + d) - bent) if close else far * d - moved)
