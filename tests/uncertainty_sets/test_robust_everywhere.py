"""`robust.support` of every set and penalty beside other terms, against the dual problem by its definition.

    min over x of  support(P, e(x)) + g(x)   =   max over p in P of  min over x of  pᵀe(x) + g(x)

The inner minimum is known by hand for each kind of problem below, and P is stated by definitions.py. So the
right-hand side is one problem in p for cvxpy, which has nothing but the data in common with the left one.
"""

from __future__ import annotations

import warnings

import cvxpy as cp
import numpy as np
import pytest

from tests import tolerances
from tests.uncertainty_sets import definitions
from tests.uncertainty_sets.cases import NAMES
from tests.uncertainty_sets.test_references import varied
from uncertainty_sets.penalised import Penalised, penalties
from uncertainty_sets.robust import support

PRICE = 0.3
"""The factor of the square in g."""


def oracle(name, size, rng):
    if name in NAMES:
        return varied(name, size, rng)
    return Penalised(
        name.removeprefix("penalised "), rng.dirichlet(np.ones(size)), 10.0 ** rng.uniform(-2.0, 1.0)
    )


ORACLES = [*NAMES, *(f"penalised {name}" for name in sorted(penalties()))]


def dual(subject, gain):
    """The largest gain(p) less the penalty."""
    p = cp.Variable(subject.size)
    cost, limits = definitions.price(subject, p)
    return definitions.solved(cp.Problem(cp.Maximize(gain(p) - cost), limits))


def quadratic(subject, A, b):
    """Affine losses A x + b beside the square of x."""
    x = cp.Variable(A.shape[1])
    found = cp.Problem(cp.Minimize(support(subject, A @ x + b) + PRICE * cp.sum_squares(x)))
    return solved(found), dual(subject, lambda p: p @ b - cp.sum_squares(A.T @ p) / (4.0 * PRICE))


def exponential(subject, A, b):
    """Affine losses that fall in x, beside Σ exp(x): min of -u·x + exp(x) = u - u·log(u)."""
    A, x = -np.abs(A), cp.Variable(A.shape[1])
    found = cp.Problem(cp.Minimize(support(subject, A @ x + b) + cp.sum(cp.exp(x))))
    return solved(found), dual(subject, lambda p: p @ b + cp.sum(-A.T @ p + cp.entr(-A.T @ p)))


def squares(subject, A, b):
    """Losses (A x - b)² beside the square of x: p·s² = max over v of v·s - v²/4p."""
    x, v = cp.Variable(A.shape[1]), cp.Variable(b.size)
    found = cp.Problem(cp.Minimize(support(subject, cp.square(A @ x - b)) + PRICE * cp.sum_squares(x)))

    def gain(p):
        spent = sum(cp.quad_over_lin(v[i], 4.0 * p[i]) for i in range(b.size))
        return -b @ v - spent - cp.sum_squares(A.T @ v) / (4.0 * PRICE)

    return solved(found), dual(subject, gain)


def constraint(subject, A, b):
    """The nearest x to 0 with a worst case within a limit, whose price is the mass of p."""
    x, rng = cp.Variable(A.shape[1]), np.random.default_rng(0)
    tried = [subject.worst_case(A @ at + b).value for at in rng.normal(size=(20, A.shape[1]))]
    limit = 0.5 * (min(tried) + subject.worst_case(b).value) + 0.05
    found = cp.Problem(cp.Minimize(cp.sum_squares(x)), [support(subject, A @ x + b) <= limit])
    p, mass = cp.Variable(b.size), cp.Variable(nonneg=True)
    cost, limits = definitions.price(subject, p, mass)
    gain = p @ b - mass * limit - cp.sum_squares(A.T @ p) / 4.0 - cost
    return solved(found), definitions.solved(cp.Problem(cp.Maximize(gain), limits))


def parameters(subject, A, b):
    """Parameters in the losses and before the support: compiled once, and solved for two values of each."""
    x, shift, weight = cp.Variable(A.shape[1]), cp.Parameter(b.size), cp.Parameter(nonneg=True)
    square = PRICE * cp.sum_squares(x)
    moved = cp.Problem(cp.Minimize(support(subject, A @ x + shift) + square))
    weighted = cp.Problem(cp.Minimize(weight * support(subject, A @ x + b) + square))
    assert moved.is_dpp()
    assert weighted.is_dpp()
    left, right = [], []
    for shift.value, weight.value in ((b, 2.0), (-b[::-1], 0.5)):
        c, w = shift.value, weight.value
        left += [solved(moved), solved(weighted) / w]
        right.append(dual(subject, lambda p, c=c: p @ c - cp.sum_squares(A.T @ p) / (4.0 * PRICE)))
        right.append(dual(subject, lambda p, w=w: p @ b - w * cp.sum_squares(A.T @ p) / (4.0 * PRICE)))
    return left, right


KINDS = {each.__name__: each for each in (quadratic, exponential, squares, constraint, parameters)}


def solved(problem) -> float:
    """The solver's own optimum by cvxpy's own choice of a solver: `value` would evaluate the oracle.

    One in a thousand times Clarabel stops at 1e-7 and cvxpy warns of it; the number is judged all the same.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Solution may be inaccurate")
        problem.solve()
    assert problem.status in {cp.OPTIMAL, cp.OPTIMAL_INACCURATE}, problem.status
    return float(problem.solution.opt_val)


def both(name, kind, seed):
    rng = np.random.default_rng([seed, ORACLES.index(name), list(KINDS).index(kind)])
    size = int(rng.integers(2, 8))
    subject = oracle(name, size, rng)
    A, b = rng.normal(size=(size, int(rng.integers(1, 4)))), rng.normal(size=size)
    return KINDS[kind](subject, A, b)


@pytest.mark.parametrize("name", ORACLES)
def test_every_set_and_penalty_beside_every_kind_of_term(name):
    for kind in KINDS:
        left, right = both(name, kind, 0)
        assert left == pytest.approx(right, abs=tolerances.REFERENCE_CONIC), kind


@pytest.mark.thorough
def test_a_thousand_random_problems():
    wrong, tried = [], 0
    for seed in range(1, 10):
        for name in ORACLES:
            for kind in KINDS:
                tried += 1
                try:
                    left, right = both(name, kind, seed)
                except Exception as error:
                    wrong.append((name, kind, seed, repr(error)[:200]))
                    continue
                if left != pytest.approx(right, abs=tolerances.REFERENCE_CONIC):
                    wrong.append((name, kind, seed, left, right))
    assert tried > 1000
    assert not wrong, f"{len(wrong)} of {tried}: {wrong[:10]}"
