"""An upper confidence bound of a mean by betting (Waudby-Smith and Ramdas, 2024), for samples in [0, 1].

Against "the mean is m" one bets that samples come out lower: the capital Π (1 - λ·(x - m)), with stakes λ in
[0, 1) that depend on earlier samples only, is a supermartingale if the mean is at least m. So by Ville's
inequality it ever exceeds 1/miss with a probability of at most `miss`, at any number of samples, and every m
at which it did is refuted. It grows with m: what is refuted is all above a bound, which bisection finds.

The stake is that which is best if the variance is as seen so far, √(2·log(1/miss)/(n·variance)). Stakes are
set anew, and the capital looked at, once per block: looking less often keeps the inequality true.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Vector
from uncertainty_sets.kernels.jit import entry, kernel, summing

LARGEST = 0.9  # stake: one sample may cost nine tenths of the capital
LONGEST = 48  # block: 0.1^48 is far from the least float
PRECISE = 2e-3  # of the bound, over its distance from the mean


@summing
def totals(x: Array) -> tuple[float, float]:
    """Return Σx and Σx²; of one block, so that their rounding does not matter."""
    total, squares = 0.0, 0.0
    for i in range(x.size):
        total += x[i]
        squares += x[i] * x[i]
    return total, squares


@summing
def product(x: Array, stake: float, rest: float) -> float:
    """Return Π (rest - stake·x)."""
    found = 1.0
    for i in range(x.size):
        found *= rest - stake * x[i]
    return found


@kernel
def stakes(x: Array, block: int, need: float, stake: Array) -> float:
    """Write the stake of every block, from the samples before it; return the mean of all."""
    n = x.size
    total, squares, seen = 0.5, 0.5, 1.0  # as if ½ ± ½ had been seen: a variance of ¼
    for b in range(stake.size):
        mean = total / seen
        variance = max(squares / seen - mean * mean, 0.25 / (n + 1.0))
        stake[b] = min(np.sqrt(2.0 * need / (n * variance)), LARGEST)
        part = x[b * block : min(n, (b + 1) * block)]
        more, more_squares = totals(part)
        total += more
        squares += more_squares
        seen += part.size
    return (total - 0.5) / n


@kernel
def refuted(x: Array, block: int, need: float, stake: Array, m: float) -> bool:
    """Whether the capital against the mean m is e^need after any block."""
    n, capital = x.size, 0.0
    for b in range(stake.size):
        part = x[b * block : min(n, (b + 1) * block)]
        capital += np.log(product(part, stake[b], 1.0 + stake[b] * m))
        if capital >= need:
            return True
    return False


@entry()
@kernel
def upper(x: Vector, need: float) -> float:
    """Return a number that is below the mean of x's law with a probability of at most e^-need.

    Args:
        x: independent samples in [0, 1], in an order that says nothing.
        need: log(1/miss).
    """
    n = x.size
    block = max(1, min(LONGEST, n // 256))
    stake = np.empty((n + block - 1) // block)
    mean = stakes(x, block, need, stake)
    low, high, step = mean, 1.0, np.sqrt(need / n)
    while step < 1.0 - mean:  # from a guess on
        if refuted(x, block, need, stake, mean + step):
            high = mean + step
            break
        low = mean + step
        step *= 2.0
    while high - low > PRECISE * (high - mean) and high - low > 1e-15:
        middle = 0.5 * (low + high)
        if refuted(x, block, need, stake, middle):
            high = middle
        else:
            low = middle
    return high
