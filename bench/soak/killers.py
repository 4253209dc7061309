"""Orders that defeat a selection: against its fixed sample, and against median-of-three quicksort."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.arrays import Array

SEED, SAMPLE, SHARE, SORTED = 88172645463325252, 2048, 16, 96
"""The constants of the sample in kernels/selection.py; if those change, this is an ordinary order."""


def sampled(count: int) -> NDArray[np.int64]:
    """The places that one stratified sample of `count` entries looks at."""
    size, state, word = min(SAMPLE, count // SHARE), SEED, 2**64 - 1
    places = np.empty(size, np.int64)
    for i in range(size):
        state ^= (state << 13) & word
        state ^= state >> 7
        state ^= (state << 17) & word
        first, after = i * count // size, (i + 1) * count // size
        places[i] = first + state % (after - first)
    return places


@cache
def against_sample(size: int) -> Array:
    """An order in which every sample has the largest entries left, so that every bracket misses.

    It follows the selection of half the weight among equal weights, round after round: the sampled entries
    get the next lower values, and those at or above the pivot are removed.
    """
    f, left, height, above = np.full(size, np.nan), np.arange(size), float(size), 0.0
    weight = 2.0 / size
    while left.size > max(SORTED, SHARE):
        places = left[sampled(left.size)]
        fresh = places[np.isnan(f[places])]
        f[fresh] = height - np.arange(1.0, fresh.size + 1.0)
        height -= fresh.size + 1.0
        wanted = int(np.ceil((1.0 - above) * places.size / left.size / weight)) - 1
        pivot = np.sort(f[places])[::-1][min(places.size - 1, max(wanted, 0))]
        leave = f[left] >= pivot
        if above + weight * leave.sum() > 1.0:
            break
        above += weight * float(leave.sum())
        left = left[~leave]
    rest = np.isnan(f)
    f[rest] = np.random.default_rng(size).random(int(rest.sum()))
    return f


@cache
def against_median_of_three(size: int) -> Array:
    """Musser's permutation: the median of first, middle and last is always next to an end."""
    half = size // 2
    f = np.arange(1.0, size + 1.0)
    odd = np.arange(half) % 2 == 0
    f[:half] = np.where(odd, np.arange(half) + 1.0, half + np.arange(half) + (half % 2))
    f[half : 2 * half] = 2.0 * (np.arange(half) + 1.0)
    return f


@cache
def organ_pipe(size: int) -> Array:
    """Up and down again."""
    return np.minimum(np.arange(size), np.arange(size)[::-1]).astype(float)


def losses(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Rows of the orders above, sorted ones too, each upwards or downwards."""
    n = shape[1]
    orders = (against_sample(n), against_median_of_three(n), organ_pipe(n), np.arange(float(n)))
    picked = rng.integers(len(orders), size=shape[0])
    sign = rng.choice([-1.0, 1.0], size=(shape[0], 1))
    return np.asarray(np.array(orders)[picked] * sign)
