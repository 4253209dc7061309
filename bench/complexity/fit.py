"""The exponent of a power law from timings, with its uncertainty."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

TAIL = 10_000
"""The exponent is fitted from this N on if there are enough points: below, the fixed cost of a call shows."""

ENOUGH = 3

DECADES, ERROR = 1.5, 0.1
"""An exponent over a shorter range of N, or with a larger standard error, says nothing and is not shown."""


class Fit(NamedTuple):
    """seconds ≈ c·N^exponent between `first` and `last`; `error` is one standard error."""

    exponent: float
    error: float
    first: int
    last: int
    points: int

    @property
    def sure(self) -> bool:
        """Whether the exponent may be shown."""
        return bool(np.log10(self.last / self.first) >= DECADES and self.error <= ERROR)


def exponent(sizes: ArrayLike, seconds: ArrayLike, noise: ArrayLike | None = None) -> Fit | None:
    """Least squares on logarithms, over N >= TAIL, or else over the largest sizes that span `DECADES`.

    Args:
        sizes: N.
        seconds: the median time at each.
        noise: the standard error of log(seconds) at each. The error of the exponent is the larger of what
            the noise explains and what the points' distance from a line shows: a bend counts too.

    Returns None for fewer than three points.

    >>> exponent([10_000, 100_000, 1_000_000], [0.001, 0.01, 0.1])
    Fit(exponent=1.0..., error=..., first=10000, last=1000000, points=3)
    """
    n, t = np.asarray(sizes, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    spread = np.zeros_like(t) if noise is None else np.asarray(noise, dtype=np.float64)
    good = np.isfinite(t) & (t > 0.0) & np.isfinite(spread)
    order = np.argsort(n[good])
    n, t, spread = n[good][order], t[good][order], spread[good][order]
    if n.size < ENOUGH:
        return None
    chosen = n >= TAIL
    if chosen.sum() < ENOUGH or n[-1] < n[chosen][0] * 10.0**DECADES:
        far = np.flatnonzero(n <= n[-1] / 10.0**DECADES)
        chosen = np.arange(n.size) >= min(far[-1] if far.size else 0, n.size - ENOUGH)
    x, y, s = np.log(n[chosen]), np.log(t[chosen]), spread[chosen]
    centred = x - x.mean()
    room = float(centred @ centred)
    slope = float(centred @ y) / room
    rest = y - y.mean() - slope * centred
    bend = float(np.sqrt(rest @ rest / (x.size - 2) / room))
    known = float(np.sqrt((centred * s) @ (centred * s))) / room
    return Fit(slope, max(bend, known), int(n[chosen][0]), int(n[chosen][-1]), int(x.size))
