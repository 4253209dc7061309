"""Radius and budget from a confidence level.

How large must a set be so that the true distribution is inside? Each function answers for one set, from
the number of samples behind the centre, the number of atoms, and the confidence that is wanted:

=========================  ====================================  ==========================================
function                   gives                                 guarantee
=========================  ====================================  ==========================================
`kl_radius`                radius of `KL`                        asymptotic
`divergence_radius`        radius of any φ-divergence ball       asymptotic
`l1_radius`                radius of Σ|p-q|                      any number of samples
`burg_radius`              radius of `Burg`                      any number of samples
`total_variation_radius`   radius of `TotalVariation`            any number of samples
`wasserstein1_radius`      radius of `Wasserstein1` on a line    any number of samples
`dnorm_budget`             budget of a D-norm set                any, but for independent perturbations only
`bootstrap_radius`         radius or budget of any set           asymptotic
=========================  ====================================  ==========================================

The centre is always the vector of sample frequencies, from independent draws of one distribution.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from typing import Any, Literal, Protocol, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.packages import load

__all__ = [
    "bootstrap_radius",
    "burg_radius",
    "divergence_radius",
    "dnorm_budget",
    "dnorm_violation",
    "kl_radius",
    "l1_radius",
    "total_variation_radius",
    "wasserstein1_radius",
]

Bound = Literal["binomial", "exponential"]

KL_RADIUS = 0.3
"""The radius of a KL ball where nothing is known: of estimators, `fdro choose` and the examples.

Over the data of `python -m bench groups`, on other splits than those reported, the worst group gained the
most between 0.3 and 0.5 and never lost; beyond 0.5 it lost on Adult, whose small groups can then take over.
"""


def divergence_radius(
    samples: SupportsIndex, atoms: SupportsIndex, confidence: float, *, curvature: float
) -> float:
    """The radius of a φ-divergence ball around sample frequencies that holds the true distribution.

    ``radius = φ''(1) / (2·samples) · χ²``, with χ² the `confidence` quantile of the chi-squared law
    with ``atoms - 1`` degrees of freedom, for the ball ``Σ q·φ(p/q) <= radius`` around frequencies q.

    Assumes independent samples of one distribution, every atom of positive probability, and many samples per
    atom: the coverage tends to `confidence` as the number of samples grows, and can be lower before. An atom
    that was never drawn makes some divergences infinite (KL); the true distribution is then outside the ball.

    Args:
        samples: how many draws the frequencies count.
        atoms: N, the number of outcomes.
        confidence: the probability, in (0, 1), with which the ball is to hold the true distribution.
        curvature: φ''(1). Kullback-Leibler ``t·log t - t + 1`` and Burg ``-log t + t - 1``: 1;
            modified χ² ``(t-1)²``, χ² ``(t-1)²/t`` and J ``(t-1)·log t``: 2; Hellinger ``(√t-1)²``: 1/2.

    Reference: Ben-Tal, den Hertog, De Waegenaere, Melenberg and Rennen, Robust solutions of
    optimization problems affected by uncertain probabilities, Management Science 59(2), 2013.

    Curvatures of the sets: 2 for `ChiSquare`, 1/4 for `Hellinger`, 1 for `KL`, `Burg` and `CressieRead`.
    The radius of `ChiSquare(q, radius=...)`:

    >>> round(divergence_radius(samples=1000, atoms=5, confidence=0.95, curvature=2.0), 6)
    0.009488
    """
    n, size, miss = _count("samples", samples), _count("atoms", atoms), _miss(confidence)
    phi = _real("curvature", curvature)
    if not 0.0 < phi < math.inf:
        raise InvalidParameter(f"curvature is φ''(1) and must be positive and finite, got {curvature!r}")
    if size == 1:
        return 0.0  # one atom has probability 1, whatever the samples say
    special = load("scipy.special", "a radius by a χ² quantile")
    return phi / (2.0 * n) * float(special.chdtri(size - 1, miss))


def kl_radius(samples: SupportsIndex, atoms: SupportsIndex, confidence: float) -> float:
    """The radius of `KL` around sample frequencies that holds the true distribution.

    ``radius = χ² / (2·samples)``: `divergence_radius` with φ''(1) = 1, and its assumptions: asymptotic, and
    every atom drawn several times. If q_i = 0, `KL` keeps p_i at 0. A true distribution with an atom that was
    never drawn is therefore outside the set for every radius, and no radius is valid for every number of
    samples. At a nominal 90 %, a truth drawn uniformly from the simplex is covered in 2 % of cases for 100
    samples on 20 atoms, 60 % for 1,000 and 86 % for 10,000 (docs/calibration.md measures it and says what to
    do instead).

    Reference: Ben-Tal et al., Management Science 59(2), 2013.

    >>> round(kl_radius(samples=1000, atoms=5, confidence=0.95), 6)
    0.004744
    """
    return divergence_radius(samples, atoms, confidence, curvature=1.0)


def burg_radius(samples: SupportsIndex, atoms: SupportsIndex, confidence: float) -> float:
    """The radius of `Burg` around sample frequencies that holds the true distribution.

    ``radius = k/samples · x`` with ``k = atoms - 1``, where x > 1 solves
    ``x - 1 - log x = log(1 / (1 - confidence)) / k``. Holds for every number of samples and every
    distribution, atoms that were never drawn included; assumes independent samples. With many samples per
    atom it is larger than needed: `divergence_radius` with curvature 1 is the limit.

    Reference: Agrawal, Finite-sample concentration of the multinomial in relative entropy, IEEE Transactions
    on Information Theory 66(10), 2020: ``Pr[Σ q·log(q/p) >= r] <= exp(-k·(x - 1 - log x))``.

    The truth may give an atom that was never drawn some probability, and KL cannot allow that:

    >>> from uncertainty_sets import KL, Burg
    >>> q, truth = [0.6, 0.4, 0.0], [0.55, 0.4, 0.05]
    >>> round(burg_radius(samples=20, atoms=3, confidence=0.9), 6)
    0.33646
    >>> Burg(q, 0.33646).contains(truth), KL(q, 10.0).contains(truth)
    (True, False)
    """
    n, size, miss = _count("samples", samples), _count("atoms", atoms), _miss(confidence)
    if size == 1:
        return 0.0
    k = size - 1
    wanted = -math.log(miss) / k
    excess = wanted + math.sqrt(2.0 * wanted)  # x - 1 from above, from where Newton's steps fall to the root
    while excess > 0.0:
        step = (excess - math.log1p(excess) - wanted) * (1.0 + excess) / excess
        if step <= 1e-15 * excess:
            break
        excess -= step
    return k / n * (1.0 + excess)


def l1_radius(samples: SupportsIndex, atoms: SupportsIndex, confidence: float) -> float:
    """How far, in Σ|p-q|, the true distribution can be from sample frequencies.

    ``radius = √(2/samples · log((2^atoms - 2) / (1 - confidence)))``, but at most 2, the largest possible
    distance. Holds for every number of samples and every distribution; assumes independent samples. The bound
    is a union over all events, so the true coverage is higher than stated, much higher for many atoms.

    Reference: Weissman, Ordentlich, Seroussi, Verdú and Weinberger, Inequalities for the L1 deviation
    of the empirical distribution, HP Labs HPL-2003-97, 2003.

    The L1 ball is `WeightedL1(q, weights=1.0, radius=l1_radius(...))`:

    >>> round(l1_radius(samples=1000, atoms=5, confidence=0.95), 6)
    0.11311
    """
    n, size, miss = _count("samples", samples), _count("atoms", atoms), _miss(confidence)
    if size == 1:
        return 0.0
    # log(2^N - 2) without forming 2^N, which overflows from N = 1024 on
    events = size * math.log(2.0) + math.log1p(-(2.0 ** (1 - size)))
    return min(2.0, math.sqrt(2.0 / n * (events - math.log(miss))))


def total_variation_radius(samples: SupportsIndex, atoms: SupportsIndex, confidence: float) -> float:
    """The radius of `TotalVariation` around sample frequencies that holds the true distribution.

    ``radius = ½·l1_radius``, at most 1, with its reference and its assumptions: it holds for every number of
    samples and every distribution, atoms that were never drawn included, if the samples are independent.

    >>> round(total_variation_radius(samples=1000, atoms=5, confidence=0.95), 6)
    0.056555
    """
    return 0.5 * l1_radius(samples, atoms, confidence)


def wasserstein1_radius(
    samples: SupportsIndex, atoms: SupportsIndex, confidence: float, *, positions: ArrayLike | None = None
) -> float:
    """The radius of `Wasserstein1` on a line around sample frequencies that holds the true distribution.

    ``radius = length · √(log(2 / (1 - confidence)) / (2·samples))``, but at most the length, the largest
    possible distance. On a line the distance is the area between the two distribution functions, at most the
    length of the range times the largest difference, which the Dvoretzky-Kiefer-Wolfowitz inequality bounds.
    Holds for every number of samples and every distribution; assumes independent samples.

    Args:
        samples: how many draws the frequencies count.
        atoms: N, the number of points on the line.
        confidence: the probability, in (0, 1), with which the ball is to hold the true distribution.
        positions: the N points, as given to `Wasserstein1` as cost; by default 1, ..., N, whose length
            is N - 1.

    Reference: Massart, The tight constant in the Dvoretzky-Kiefer-Wolfowitz inequality, Annals of
    Probability 18(3), 1990.

    >>> round(wasserstein1_radius(samples=1000, atoms=5, confidence=0.95), 6)
    0.171788
    >>> round(wasserstein1_radius(1000, 5, 0.95, positions=[0.0, 0.1, 0.5, 0.7, 1.0]), 6)
    0.042947
    """
    n, size, miss = _count("samples", samples), _count("atoms", atoms), _miss(confidence)
    length = float(size - 1) if positions is None else _length(positions, size)
    return length * min(1.0, math.sqrt(math.log(2.0 / miss) / (2.0 * n)))


class HasDistance(Protocol):
    """A set that can tell how far a distribution is from its centre, as those with a radius or budget can."""

    rows: int | None

    def radius_of(self, p: ArrayLike) -> float:
        """The least radius at which the set contains p."""
        ...

    def reference(self) -> Any:
        """The centre."""
        ...


def bootstrap_radius(
    uncertainty_set: HasDistance,
    samples: SupportsIndex,
    confidence: float,
    *,
    rng: np.random.Generator,
    resamples: SupportsIndex = 1000,
) -> float:
    """The radius (or budget) at which a set contains that share of bootstrap resamples of its own centre.

    Draws `resamples` times n = `samples` outcomes from the centre q and returns the smallest of the distances
    of their frequencies from q that a share of `confidence` does not exceed. Works for every set with
    a radius or budget; the set's own radius does not matter.

    What it guarantees: as the number of samples grows, with all else fixed and every atom of positive
    probability, the distances of resamples from q have the law of the distance between q and the truth, so
    the coverage tends to `confidence`. What it does not: anything for a fixed number of samples. With few
    samples per atom the coverage is too low, and an atom that was never drawn is in no resample: the distance
    that its probability adds is not seen (and for KL the truth is then outside for every radius). The radius
    is itself random; 1,000 resamples know a 95 % quantile to about ±0.7 % of coverage.

    Args:
        uncertainty_set: a set around the sample frequencies, with any radius.
        samples: how many draws the frequencies count.
        confidence: the share, in (0, 1).
        rng: where the resamples come from.
        resamples: how many. O(N) each for sets with a formula for the distance, some 50 times that otherwise.

    Reference: Efron and Tibshirani, An introduction to the bootstrap, Chapman and Hall, 1993.

    >>> from uncertainty_sets import KL
    >>> q = [0.4, 0.3, 0.1, 0.1, 0.1]
    >>> radius = bootstrap_radius(KL(q, 0.0), samples=1000, confidence=0.95, rng=np.random.default_rng(0))
    >>> round(radius, 3), round(kl_radius(samples=1000, atoms=5, confidence=0.95), 3)
    (0.005, 0.005)
    """
    n, count, miss = _count("samples", samples), _count("resamples", resamples), _miss(confidence)
    if uncertainty_set.rows is not None:
        raise InvalidParameter("bootstrap_radius takes a single set, and this one's parameters differ by row")
    draws = rng.multinomial(n, uncertainty_set.reference(), size=count) / n
    distances = np.sort([uncertainty_set.radius_of(each) for each in draws])
    # The order statistic that covers the next draw, too, with that probability; the largest if there is none.
    place = math.ceil((count + 1) * (1.0 - miss) - 1e-9)
    return float(distances[min(place, count) - 1])


def dnorm_violation(terms: SupportsIndex, budget: float, *, bound: Bound = "binomial") -> float:
    """A bound on the probability that a constraint protected with that D-norm budget is violated.

    With n = `terms` perturbations and Γ = `budget`:

    - "exponential": ``exp(-Γ² / (2n))``;
    - "binomial", tighter: ``B = (1-μ)·Pr[X >= ⌊ν⌋] + μ·Pr[X >= ⌊ν⌋ + 1]`` with X binomial(n, ½),
      ``ν = (Γ+n)/2`` and ``μ = ν - ⌊ν⌋``.

    Either is 0 for Γ >= n: no perturbation is left out.

    Assumes perturbations that are **independent**, symmetric and bounded by their spreads. The entries
    of p - q sum to 0, so they are never independent and neither bound is proven for `CDNorm`: take it
    as the classical guide to the size of Γ, not as a guarantee (docs/differences.md has a case in which
    it fails).

    Reference: Bertsimas and Sim, The price of robustness, Operations Research 52(1), 2004, Theorems 2
    and 3.

    >>> round(dnorm_violation(100, 24.263), 4), round(dnorm_violation(100, 24.263, bound="exponential"), 4)
    (0.0099, 0.0527)
    """
    n, gamma = _count("terms", terms), _real("budget", budget)
    if not gamma >= 0.0:
        raise InvalidParameter(f"budget must be at least 0, got {budget!r}")
    _known(bound)
    if gamma >= n:
        return 0.0
    if bound == "exponential":
        return math.exp(-gamma * gamma / (2.0 * n))
    nu = (gamma + n) / 2.0
    floor = math.floor(nu)
    mu = nu - floor
    return (1.0 - mu) * _tail(n, floor) + mu * _tail(n, floor + 1)


def dnorm_budget(terms: SupportsIndex, violation: float, *, bound: Bound = "binomial") -> float:
    """The smallest D-norm budget whose bound on the violation is at most the given probability.

    The inverse of `dnorm_violation`, with its reference and its assumptions: the perturbations must be
    independent, which ``Σ(p-q) = 0`` rules out for `CDNorm`. Use it as a guide, not as a guarantee.

    - "exponential": ``Γ = √(2n·log(1/violation))``;
    - "binomial", tighter: B is piecewise linear in Γ, and the piece that passes through `violation` is
      found by bisection, then inverted.

    Never more than n = `terms`, at which nothing is left out. Exact up to rounding.

    >>> round(dnorm_budget(100, 0.01), 3), round(dnorm_budget(100, 0.01, bound="exponential"), 3)
    (24.219, 30.349)
    """
    n, target = _count("terms", terms), _real("violation", violation)
    if not 0.0 < target < 1.0:
        raise InvalidParameter(
            f"violation is a probability and must lie strictly between 0 and 1, got {violation!r}"
        )
    _known(bound)
    if bound == "exponential":
        return min(float(n), math.sqrt(-2.0 * n * math.log(target)))
    # The first k with Pr[X >= k] <= violation; k >= 1 since Pr[X >= 0] = 1.
    above = bisect_left(range(n + 1), True, key=lambda k: _tail(n, k) <= target)
    if above > n:
        return float(n)  # smaller than 2^-n: only the whole set is safe enough
    high, low = _tail(n, above - 1), _tail(n, above)
    nu = above - 1 + (high - target) / (high - low)
    return max(0.0, 2.0 * nu - n)


def _tail(n: int, k: int) -> float:
    """Pr[X >= k] for X binomial(n, ½), by the incomplete beta function."""
    if k <= 0:
        return 1.0
    if k > n:
        return 0.0
    special = load("scipy.special", "a binomial tail")
    return float(special.betainc(k, n - k + 1, 0.5))


def _length(positions: ArrayLike, size: int) -> float:
    try:
        points = np.asarray(positions, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidParameter(f"positions must be a vector of real numbers: {error}") from error
    if points.shape != (size,):
        raise InvalidParameter(f"positions must have shape ({size},), one an atom, got {points.shape}")
    if not np.isfinite(points).all():
        raise InvalidParameter(f"positions must be finite, got {points[~np.isfinite(points)][0]}")
    return float(points.max() - points.min())


def _count(name: str, value: Any) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        raise InvalidParameter(f"{name} must be a whole number, got {value!r}") from None
    if count < 1:
        raise InvalidParameter(f"{name} must be at least 1, got {value!r}")
    return count


def _real(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidParameter(f"{name} must be a real number, got {value!r}") from None


def _miss(confidence: Any) -> float:
    """The probability 1 - confidence that the set may miss the truth."""
    level = _real("confidence", confidence)
    if not 0.0 < level < 1.0:
        raise InvalidParameter(
            f"confidence must lie strictly between 0 and 1 (0.95 for 95 %), got {confidence!r}"
        )
    return 1.0 - level


def _known(bound: str) -> None:
    if bound not in {"binomial", "exponential"}:
        raise InvalidParameter(f"bound must be 'binomial' or 'exponential', got {bound!r}")
