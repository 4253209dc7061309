"""The betting bound, against the same capital written out in NumPy, and how often it is below the mean."""

from __future__ import annotations

import math

import numpy as np
import pytest

from uncertainty_sets.kernels import betting


def capital(x, need, m):
    """The logarithm of the largest capital against the mean m, after whole blocks."""
    n = x.size
    block = max(1, min(betting.LONGEST, n // 256))
    stake = np.empty(n)
    for start in range(0, n, block):
        seen = np.concatenate([[0.0, 1.0], x[:start]])  # half a sample each
        weight = np.concatenate([[0.5, 0.5], np.ones(start)])
        mean = np.average(seen, weights=weight)
        variance = max(np.average((seen - mean) ** 2, weights=weight), 0.25 / (n + 1))
        stake[start : start + block] = min(math.sqrt(2 * need / (n * variance)), betting.LARGEST)
    ends = np.minimum(np.arange(block, n + block, block), n) - 1
    return float(np.cumsum(np.log1p(-stake * (x - m)))[ends].max())


@pytest.mark.parametrize("n", [1, 7, 300, 5000])
def test_the_bound_is_where_the_capital_suffices(n):
    rng = np.random.default_rng(n)
    for x in (rng.beta(1, 4, n), (rng.random(n) < 0.1).astype(float), np.zeros(n), np.ones(n)):
        need = math.log(20)
        bound = betting.upper(x, need)
        assert x.mean() <= bound <= 1.0
        if bound < 1.0:
            assert capital(x, need, bound) >= need - 1e-9
            before = bound - 1.1 * betting.PRECISE * (bound - x.mean())
            assert capital(x, need, before) < need + 1e-9


@pytest.mark.parametrize("law", ["beta", "rare"])
def test_the_mean_is_above_it_as_seldom_as_promised(law):
    rng = np.random.default_rng(5)
    n, rounds, below = 200, 2000, 0
    for _ in range(rounds):
        x = rng.beta(0.3, 3.0, n) if law == "beta" else (rng.random(n) < 0.03).astype(float)
        below += betting.upper(x, math.log(10)) < (0.3 / 3.3 if law == "beta" else 0.03)
    assert below / rounds <= 0.1 + 3 * math.sqrt(0.09 / rounds)
    assert below > 0, "a bound that never fails is loose"
