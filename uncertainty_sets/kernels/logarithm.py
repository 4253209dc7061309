"""log x and log(1 + x) - x in forms that run on vector units."""

from __future__ import annotations

import numpy as np

from uncertainty_sets.kernels.exponential import LN2_HIGH, LN2_LOW
from uncertainty_sets.kernels.jit import kernel

ONE = 0x3FF0000000000000  # the bits of 1
ROOT_HALF = 0x3FE6A09E667F3BCD  # the bits of √½
FRACTION = 0x000FFFFFFFFFFFFF
INTEGER = 0x4330000000000000  # the bits of 2^52: an integer in the low bits is then added to 2^52
BIAS = 4503599627370496.0 + 1023.0


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
