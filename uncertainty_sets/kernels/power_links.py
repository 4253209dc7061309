"""The density of a power divergence's worst case, p/q = e(x) = (1 + (k-1)x)₊^{1/(k-1)}, by power k.

A function as an argument of a kernel would be called through a pointer and not be cached. With an integer
`mode` the compiler moves the choice out of the loop, and each loop runs on vector units, as long as all of
them are short: hence exp, log and series are in functions of their own.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.kernels.jit import kernel
from uncertainty_sets.kernels.scan import larger

BURG, HELLINGER, NEYMAN, PEARSON, ANY = range(5)
"""The powers 0, ½, -1 and 2, which need no exp; and any other."""


@kernel
def mode_of(power: float) -> int:
    """The mode that computes this power."""
    if power == 0.0:
        return BURG
    if power == 0.5:
        return HELLINGER
    if power == -1.0:
        return NEYMAN
    return PEARSON if power == 2.0 else ANY


@kernel
def link(x: float, mode: int) -> tuple[float, float, float]:
    """(e, e·b, e/b) with b = 1 + (k-1)x, for a mode with a power of its own."""
    if mode == BURG:
        i = 1.0 / (1.0 - x)
        return i, 1.0, i * i
    if mode == HELLINGER:
        i = 1.0 / (1.0 - 0.5 * x)
        return i * i, i, i * i * i
    if mode == NEYMAN:
        b = 1.0 - 2.0 * x
        i = 1.0 / b
        e = np.sqrt(i)
        return e, e * b, e * i
    b = larger(1.0 + x, 0.0)
    return b, b * b, 1.0 if b > 0.0 else 0.0


@kernel
def link_minus_line(x: float, mode: int) -> float:
    """e - 1 - x for |x| and |(k-1)x| <= 1/15, to a few ulp of itself; Burg, Hellinger or Pearson."""
    if mode == BURG:
        return x * x / (1.0 - x)
    if mode == HELLINGER:
        b = 1.0 - 0.5 * x
        return x * x * (0.75 - 0.25 * x) / (b * b)
    return 0.0


@kernel
def link_minus_line_any(x: float, slope: float) -> float:
    """e - 1 - x for |x| and |slope·x| <= 1/15 and any power, to a few ulp of itself."""
    # The series of e: the coefficient of x^{j+1} is that of x^j times (1 - j·slope)/(j+1).
    s = 1.0 + (1.0 - 14.0 * slope) / 15.0 * x
    s = 1.0 + (1.0 - 13.0 * slope) / 14.0 * x * s
    s = 1.0 + (1.0 - 12.0 * slope) / 13.0 * x * s
    s = 1.0 + (1.0 - 11.0 * slope) / 12.0 * x * s
    s = 1.0 + (1.0 - 10.0 * slope) / 11.0 * x * s
    s = 1.0 + (1.0 - 9.0 * slope) / 10.0 * x * s
    s = 1.0 + (1.0 - 8.0 * slope) / 9.0 * x * s
    s = 1.0 + (1.0 - 7.0 * slope) / 8.0 * x * s
    s = 1.0 + (1.0 - 6.0 * slope) / 7.0 * x * s
    s = 1.0 + (1.0 - 5.0 * slope) / 6.0 * x * s
    s = 1.0 + (1.0 - 4.0 * slope) / 5.0 * x * s
    s = 1.0 + (1.0 - 3.0 * slope) / 4.0 * x * s
    s = 1.0 + (1.0 - 2.0 * slope) / 3.0 * x * s
    return 0.5 * (1.0 - slope) * x * x * s
