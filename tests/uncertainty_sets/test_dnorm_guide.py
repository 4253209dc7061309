"""The D-norm guide to budgets: hand values, exact arithmetic, simulation on what it assumes, errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import tolerances
from uncertainty_sets.calibration import dnorm_budget, dnorm_violation
from uncertainty_sets.errors import InvalidParameter

REPETITIONS = 20_000


def test_dnorm_by_hand() -> None:
    assert dnorm_violation(100, 24.263) == pytest.approx(0.0099, abs=tolerances.HAND)
    assert dnorm_violation(100, 24.263, bound="exponential") == pytest.approx(0.0527, abs=tolerances.HAND)
    # two coins: Pr[X >= 1] = 3/4 at Γ = 0, and half of Pr[X >= 1] + Pr[X >= 2] = 1 at Γ = 1
    assert dnorm_violation(2, 0.0) == pytest.approx(0.75)
    assert dnorm_violation(2, 1.0) == pytest.approx(0.5)
    assert dnorm_budget(2, 0.5) == pytest.approx(1.0)
    assert dnorm_budget(50, math.exp(-1), bound="exponential") == pytest.approx(10.0)


@given(st.integers(1, 200), st.fractions(0, 1))
def test_binomial_bound_in_exact_arithmetic(terms: int, share: Fraction) -> None:
    budget = float(share * terms)
    if budget >= terms:
        return
    nu = (Fraction(budget) + terms) / 2
    floor = math.floor(nu)
    low = Fraction(sum(math.comb(terms, k) for k in range(floor + 1, terms + 1)), 2**terms)
    high = low + Fraction(math.comb(terms, floor), 2**terms)
    exact = high + (nu - floor) * (low - high)
    assert dnorm_violation(terms, budget) == pytest.approx(float(exact), rel=1e-10)


def test_budget_ends() -> None:
    for bound in ("binomial", "exponential"):
        assert dnorm_violation(7, 7.0, bound=bound) == 0.0
        assert dnorm_violation(7, math.inf, bound=bound) == 0.0
        assert dnorm_budget(7, 1e-9, bound=bound) == 7.0
        assert dnorm_budget(1, 1e-300, bound=bound) == 1.0
    assert dnorm_budget(7, 0.99) == 0.0  # the binomial bound is below 1 already at Γ = 0
    assert dnorm_violation(7, 0.0, bound="exponential") == 1.0
    assert 0.0 < dnorm_budget(10**9, 1e-12) < dnorm_budget(10**9, 1e-12, bound="exponential") < 10**9


@pytest.mark.parametrize(("terms", "budget"), [(1, 0.0), (8, 2.0), (9, 3.0), (25, 7.0), (100, 20.0)])
def test_binomial_bound_is_reached_by_signs(terms: int, budget: float) -> None:
    """Equal coefficients, perturbations ±1: where (Γ+n)/2 is whole the bound is the probability itself."""
    ups = np.random.default_rng(terms).binomial(terms, 0.5, size=REPETITIONS)
    reached = float(np.mean(2 * ups - terms >= budget))
    bound = dnorm_violation(terms, budget)
    if (budget + terms) % 2 == 0:
        assert abs(reached - bound) <= tolerances.frequency(bound, REPETITIONS)
    else:
        assert reached <= bound + tolerances.frequency(bound, REPETITIONS)
    exponential = dnorm_violation(terms, budget, bound="exponential")
    assert reached <= exponential + tolerances.frequency(exponential, REPETITIONS)


@pytest.mark.parametrize("violation", [0.3, 0.05, 0.01])
@pytest.mark.parametrize("bound", ["binomial", "exponential"])
@pytest.mark.parametrize("terms", [1, 5, 30])
def test_budget_protects_a_constraint(terms: int, violation: float, bound: str) -> None:
    """The worst case over the D-norm set is exceeded no more often than promised."""
    rng = np.random.default_rng(terms)
    budget = dnorm_budget(terms, violation, bound=bound)
    for coefficients in (np.ones(terms), np.sort(rng.exponential(size=terms))[::-1]):
        whole = math.floor(budget)
        part = (budget - whole) * coefficients[whole] if whole < terms else 0.0
        protection = coefficients[:whole].sum() + part
        for perturbations in (
            rng.choice([-1.0, 1.0], size=(REPETITIONS, terms)),
            rng.uniform(-1.0, 1.0, size=(REPETITIONS, terms)),
        ):
            exceeded = np.mean(perturbations @ coefficients > protection + 1e-12)
            assert exceeded <= violation + tolerances.frequency(violation, REPETITIONS)


@pytest.mark.parametrize("bound", ["binomial", "exponential"])
@given(st.integers(1, 10**5), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_budget_is_never_violated_more(bound: str, terms: int, one: float, two: float) -> None:
    low, high = sorted((one, two))
    less = dnorm_violation(terms, high * terms, bound=bound)
    more = dnorm_violation(terms, low * terms, bound=bound)
    assert 0.0 <= less <= more * (1 + 1e-9)
    assert more <= 1.0


@given(st.integers(1, 10**5), st.floats(0, 1))
def test_the_binomial_bound_is_the_tighter(terms: int, share: float) -> None:
    budget = share * terms
    assert dnorm_violation(terms, budget) <= dnorm_violation(terms, budget, bound="exponential") * (1 + 1e-9)


@pytest.mark.parametrize("bound", ["binomial", "exponential"])
@given(st.integers(1, 10**5), st.floats(1e-12, 1 - 1e-9))
def test_budget_inverts_violation(bound: str, terms: int, violation: float) -> None:
    budget = dnorm_budget(terms, violation, bound=bound)
    assert 0.0 <= budget <= terms
    reached = dnorm_violation(terms, budget, bound=bound)
    assert reached <= violation * (1 + 1e-9)
    if 0.0 < budget < terms:  # inside, the bound is met with equality: no smaller budget would do
        assert reached == pytest.approx(violation, rel=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dnorm_violation(0, 1.0), "terms must be at least 1, got 0"),
        (lambda: dnorm_violation(2.5, 1.0), "terms must be a whole number, got 2.5"),
        (lambda: dnorm_violation(5, -0.5), "budget must be at least 0, got -0.5"),
        (lambda: dnorm_violation(5, math.nan), "budget must be at least 0, got nan"),
        (lambda: dnorm_violation(5, "two"), "budget must be a real number, got 'two'"),
        (
            lambda: dnorm_violation(5, 1.0, bound="best"),
            "bound must be 'binomial' or 'exponential', got 'best'",
        ),
        (lambda: dnorm_budget(-1, 0.1), "terms must be at least 1, got -1"),
        (lambda: dnorm_budget(5, 0.0), "violation is a probability .* got 0.0"),
        (lambda: dnorm_budget(5, 1.0), "violation is a probability .* got 1.0"),
        (lambda: dnorm_budget(5, math.nan), "violation is a probability .* got nan"),
        (lambda: dnorm_budget(5, []), r"violation must be a real number, got \[\]"),
        (lambda: dnorm_budget(5, 0.1, bound="best"), "bound must be 'binomial' or 'exponential', got 'best'"),
    ],
)
def test_dnorm_errors(call: Callable[[], float], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        call()


def test_numpy_scalars_are_welcome() -> None:
    assert dnorm_budget(np.int64(9), np.float32(0.25)) == dnorm_budget(9, 0.25)
