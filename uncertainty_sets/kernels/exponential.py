"""exp, log, q·e^x, e^x - 1 - x, growth and log(1 + x) - x in forms that run on vector units."""

from __future__ import annotations

import numpy as np

from uncertainty_sets.kernels.jit import kernel
from uncertainty_sets.kernels.scan import larger, smaller

LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10
ROUND = 6755399441055744.0  # 1.5·2^52: adding it rounds to an integer, which stands in the low bits
LEAST = -708.0

ONE = 0x3FF0000000000000  # the bits of 1
ROOT_HALF = 0x3FE6A09E667F3BCD  # the bits of √½
FRACTION = 0x000FFFFFFFFFFFFF
INTEGER = 0x4330000000000000  # the bits of 2^52: an integer in the low bits is then added to 2^52
BIAS = 4503599627370496.0 + 1023.0


@kernel
def series(r: float) -> float:
    """(e^r - 1 - r)/r² for |r| <= ln 2 / 2."""
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
    return s * r + 0.5


@kernel
def exp(x: float) -> float:
    """e^x for x <= 700, to 1 ulp or so; 0 below -708.

    x = k·ln 2 + r with |r| <= ln 2 / 2; e^r by its series; 2^k written into the exponent bits.
    """
    y = max(x, LEAST)
    shifted = y * LOG2_E + ROUND
    k = shifted - ROUND
    r = (y - k * LN2_HIGH) - k * LN2_LOW
    s = (series(r) * r + 1.0) * r + 1.0
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
    line = series(r) * r * r  # e^r - 1 - r
    halved = 0.5 * k + ROUND
    half, rest = power_of_two(halved), power_of_two((k - (halved - ROUND)) + ROUND)  # 2^k may overflow
    two = half * rest if close else 1.0
    bent = two * line + ((two * r + (two - 1.0)) - z)  # e^d - 1 - d, which is `line` itself if k = 0
    far = (w * half) * rest * (1.0 + (line + r))
    moved = base * (bent + d) if close else far - base
    return moved, (base * (d * (bent + d) - bent) if close else far * d - moved)


@kernel
def log(x: float) -> float:
    """log x for normal x > 0, to 1 ulp or so.

    x = m·2^k with m in [√½, √2); log m = 2·artanh((m-1)/(m+1)) by its series.
    """
    bits = np.float64(x).view(np.uint64) + np.uint64(ONE - ROOT_HALF)
    k = np.uint64((bits >> np.uint64(52)) | np.uint64(INTEGER)).view(np.float64) - BIAS
    m = np.uint64((bits & np.uint64(FRACTION)) + np.uint64(ROOT_HALF)).view(np.float64)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    r = 1.0 / 21.0
    r = r * z + 1.0 / 19.0
    r = r * z + 1.0 / 17.0
    r = r * z + 1.0 / 15.0
    r = r * z + 1.0 / 13.0
    r = r * z + 1.0 / 11.0
    r = r * z + 1.0 / 9.0
    r = r * z + 1.0 / 7.0
    r = r * z + 1.0 / 5.0
    r = r * z + 1.0 / 3.0
    rest = m - 1.0  # exact; the correction to it is small, so that log m keeps its digits near m = 1
    return k * LN2_HIGH + ((rest - s * (rest - 2.0 * z * r)) + k * LN2_LOW)


@kernel
def log1p_minus_line(x: float) -> float:
    """log(1 + x) - x for |x| <= 1/10, to a few ulp of itself: its series from -x²/2 on."""
    s = -1.0 / 16.0
    s = s * x + 1.0 / 15.0
    s = s * x - 1.0 / 14.0
    s = s * x + 1.0 / 13.0
    s = s * x - 1.0 / 12.0
    s = s * x + 1.0 / 11.0
    s = s * x - 1.0 / 10.0
    s = s * x + 1.0 / 9.0
    s = s * x - 1.0 / 8.0
    s = s * x + 1.0 / 7.0
    s = s * x - 1.0 / 6.0
    s = s * x + 1.0 / 5.0
    s = s * x - 1.0 / 4.0
    s = s * x + 1.0 / 3.0
    s = s * x - 1.0 / 2.0
    return s * x * x
