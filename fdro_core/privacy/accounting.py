"""ε of a number of releases, by the Rényi accountant of the library dp-accounting.

This is the only file that imports the library. A release is a Gaussian mechanism of noise multiplier σ on a
Poisson sample of rate q; with q = 1, without sampling. Data sets are neighbours if one sample of one of them
is empty in the other ("replace special"): the number of samples is the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from typing import Any

from fdro_core.errors import InvalidSetting
from uncertainty_sets.errors import BackendMissing

Releases = tuple[tuple[float, float, int], ...]
"""Rate q, noise multiplier σ and how often, for every kind of release."""

MOST = 2**30  # releases that are searched; a run has fewer
EXACT = 1e-4  # of σ, in the search


def library() -> Any:
    """The module dp_accounting."""
    try:
        return import_module("dp_accounting")
    except ImportError as error:
        raise BackendMissing(
            'differential privacy is counted by dp-accounting: pip install "fdro[privacy]"'
        ) from error


def epsilon(releases: Sequence[tuple[float, float, int]], delta: float) -> float:
    """ε of all releases together, at this δ; 0 for none.

    >>> round(epsilon([(1.0, 10.0, 100)], 1e-5), 2)  # ρ = T/(2σ²) = 1/2 of zCDP
    4.73
    """
    return _epsilon(tuple((float(q), float(sigma), int(count)) for q, sigma, count in releases), delta)


@lru_cache(maxsize=4096)
def _epsilon(releases: Releases, delta: float) -> float:
    dp = library()
    accountant = _accountant(dp)
    with _quiet():
        for rate, noise, count in releases:
            if count > 0:
                accountant.compose(_event(dp, rate, noise), count)
        return float(accountant.get_epsilon(delta)) if any(count for *_, count in releases) else 0.0


def _accountant(dp: Any) -> Any:
    return dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_SPECIAL)


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out warnings of orders that the accountant cannot use: the others give a bound without them."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _event(dp: Any, rate: float, noise: float) -> Any:
    event = dp.GaussianDpEvent(noise)
    return event if rate >= 1.0 else dp.PoissonSampledDpEvent(rate, event)


@lru_cache(maxsize=1024)
def most_releases(limit: float, delta: float, rate: float, noise: float, before: Releases = ()) -> int:
    """How many releases more cost ε <= `limit` together with those before. Two dozen calls of `epsilon`.

    >>> most_releases(4.0, 1e-5, 1.0, 10.0)
    74
    """

    def fits(count: int) -> bool:
        return epsilon((*before, (rate, noise, count)), delta) <= limit

    low, high = 0, 1
    while high <= MOST and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@lru_cache(maxsize=1024)
def noise_for(limit: float, delta: float, rate: float, releases: int) -> float:
    """The smallest σ with which so many releases cost at most ε, to four digits and never below it."""
    if not (limit > 0 and 0 < delta < 1 and 0 < rate <= 1 and releases >= 1):
        raise InvalidSetting(
            "noise_for needs epsilon > 0, 0 < delta < 1, 0 < rate <= 1 and releases >= 1, got "
            f"{limit}, {delta}, {rate} and {releases}"
        )
    dp = library()
    with _quiet():
        found: float = dp.calibrate_dp_mechanism(
            lambda: _accountant(dp),
            lambda sigma: dp.SelfComposedDpEvent(_event(dp, rate, sigma), releases),
            limit,
            delta,
            dp.LowerEndpointAndGuess(0.0, 1.0),
            tol=EXACT,
        )
    while epsilon([(rate, found, releases)], delta) > limit:
        found *= 1.0 + EXACT
    return found
