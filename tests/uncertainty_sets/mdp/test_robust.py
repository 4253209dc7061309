"""Robust MDPs with a set per state-action: against cvxpy, hand-solved cases, and the bounds themselves."""

from __future__ import annotations

import warnings

import cvxpy as cp
import numpy as np
import pytest
from scipy.sparse import csr_matrix

from uncertainty_sets import (
    KL,
    Box,
    Burg,
    CDNorm,
    ChiSquare,
    CressieRead,
    CVaR,
    Ellipsoid,
    EVaR,
    Hellinger,
    Polyhedron,
    TotalVariation,
    UncertaintySet,
    Wasserstein,
    Wasserstein1,
    WeightedL1,
)
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.mdp import MDP, RobustMDP
from uncertainty_sets.mdp.by_state import ByState

STATES, ACTIONS, DISCOUNT = 4, 2, 0.8


class Ball(UncertaintySet):
    """A set that has constraints only."""

    def __init__(self, center, radius):
        self.center, self.radius = np.asarray(center), float(radius)
        self.size = self.center.size

    def constraints(self, p):
        return [cp.norm(p - self.center, "inf") <= self.radius]


def problem(seed=0, states=STATES, actions=ACTIONS):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(states), size=(states, actions)), rng.normal(size=(states, actions, states))


def per_entry(P):
    return {"lower": np.maximum(P - 0.1, 0.0), "upper": P + 0.2}


SETS = {
    "kl": (KL, lambda P: {"radius": 0.1}),
    "kl by state": (KL, lambda P: {"radius": np.linspace(0.01, 0.5, STATES)}),
    "kl by row": (KL, lambda P: {"radius": np.linspace(0.01, 0.5, STATES * ACTIONS).reshape(STATES, -1)}),
    "total variation": (TotalVariation, lambda P: {"radius": 0.2}),
    "weighted l1": (WeightedL1, lambda P: {"weights": 0.5 + P, "radius": 0.2}),
    "chi-square": (ChiSquare, lambda P: {"radius": 0.3}),
    "burg": (Burg, lambda P: {"radius": 0.1}),
    "hellinger": (Hellinger, lambda P: {"radius": 0.05}),
    "cressie-read": (CressieRead, lambda P: {"radius": 0.1, "power": 1.5}),
    "wasserstein1": (Wasserstein1, lambda P: {"radius": 0.4}),
    "wasserstein": (Wasserstein, lambda P: {"radius": 0.4}),
    "box": (Box, per_entry),
    "cd-norm": (CDNorm, lambda P: {"spread": 0.3 * P, "budget": 1.5}),
    "ellipsoid": (Ellipsoid, lambda P: {"shape": P, "radius": 0.2}),
    "cvar": (CVaR, lambda P: {"tail": 0.4}),
    "evar": (EVaR, lambda P: {"tail": 0.4}),
    "plug-in": (Ball, lambda P: {"radius": 0.15}),
    "plug-in by row": (Ball, lambda P: {"radius": np.linspace(0.05, 0.3, STATES * ACTIONS)}),
}


def row_set(kind, parameters, P, s, a):
    """The set of one state-action, made without the code under test."""
    given = {} if kind is Box else {"center": P[s, a]}
    for name, value in parameters.items():
        array = np.asarray(value)
        if array.shape == P.shape:
            given[name] = array[s, a]
        elif array.shape == (STATES,):
            given[name] = array[s]
        elif array.size == STATES * ACTIONS:
            given[name] = array.ravel()[s * ACTIONS + a]
        else:
            given[name] = value
    return kind(**given)


def bellman_by_cvxpy(sets, P, R, v, sign=1.0):
    """Tv with every row solved by Clarabel."""
    value = np.empty(P.shape[:2])
    for s, a in np.ndindex(P.shape[:2]):
        z = R[s, a] + DISCOUNT * v
        p = cp.Variable(P.shape[2], nonneg=True)
        task = cp.Problem(cp.Minimize(sign * (z @ p)), [cp.sum(p) == 1, *sets[s, a].constraints(p)])
        value[s, a] = sign * task.solve(solver="CLARABEL")
    return value


def bracket(T, v):
    """MacQueen's bounds from a reference update, widened by what a solver leaves."""
    change, factor, slack = T - v, DISCOUNT / (1.0 - DISCOUNT), 2e-6
    return T + factor * change.min() - slack, T + factor * change.max() + slack


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("optimistic", [False, True])
def test_agrees_with_cvxpy(name, optimistic):
    kind, parameters = SETS[name]
    P, R = problem(3)
    given = parameters(P)
    solution = RobustMDP(P, R, DISCOUNT, kind, optimistic=optimistic, **given).solve(tolerance=1e-6)
    assert solution.converged
    assert solution.width <= 1e-6
    sets = {(s, a): row_set(kind, given, P, s, a) for s in range(STATES) for a in range(ACTIONS)}
    T = bellman_by_cvxpy(sets, P, R, solution.value, -1.0 if optimistic else 1.0).max(axis=1)
    low, high = bracket(T, solution.value)
    assert high.max() - low.max() <= 1e-4  # the reference is near the fixed point itself
    assert (solution.lower <= high).all()
    assert (solution.upper >= low).all()
    # Nature's transitions are in the sets.
    p = solution.transitions.reshape(P.shape)
    assert max(sets[index].violation(p[index]) for index in sets) <= 1e-7


@pytest.mark.parametrize("method", ["policy", "value"])
@pytest.mark.parametrize("kind", [KL, TotalVariation, ChiSquare])
def test_bounds_hold_after_every_sweep(kind, method):
    P, R = problem(5)
    robust = RobustMDP(P, R, DISCOUNT, kind, radius=0.2)
    exact = robust.solve(tolerance=1e-11)
    for sweeps in (1, 2, 3, 5):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            early = robust.solve(method, tolerance=1e-11, max_sweeps=sweeps)
        assert (early.lower <= exact.upper).all()
        assert (early.upper >= exact.lower).all()
        # The lower bound is what the policy at hand guarantees.
        own = robust.evaluate(early, tolerance=1e-10)
        assert (own.upper >= early.lower).all()


def test_two_states_by_hand():
    """A reward of 1 until the chain is absorbed: v = 1 + γ(q - radius)v, for a ball in total variation."""
    P = np.array([[[0.5, 0.5]], [[0.0, 1.0]]])
    for radius in (0.0, 0.1, 0.25, 0.5, 0.9):
        solution = RobustMDP(P, [[1.0], [0.0]], 0.9, TotalVariation, radius=radius).solve(tolerance=1e-9)
        expected = 1.0 / (1.0 - 0.9 * max(0.5 - radius, 0.0))
        assert solution.value[0] == pytest.approx(expected, abs=1e-9)
        assert solution.lower[0] <= expected <= solution.upper[0]


def nominal(P, R, discount):
    """Plain value iteration on a dense model."""
    v = np.zeros(P.shape[0])
    for _ in range(4000):
        v = (P * (R + discount * v)).sum(axis=2).max(axis=1)
    return v


@pytest.mark.parametrize("kind", [KL, TotalVariation, ChiSquare, Hellinger, Burg, Wasserstein1])
def test_radius_zero_is_the_nominal_problem(kind):
    P, R = problem(7, 6, 3)
    solution = RobustMDP(P, R, 0.95, kind, radius=0.0).solve(tolerance=1e-8)
    np.testing.assert_allclose(solution.value, nominal(P, R, 0.95), atol=1e-8)


@pytest.mark.parametrize("kind", [KL, TotalVariation, ChiSquare, Wasserstein1])
def test_saturated_radius_is_the_adversarial_problem(kind):
    P, R = problem(8, 5, 3)
    solution = RobustMDP(P, R, 0.9, kind, radius=1e6 if kind is not TotalVariation else 1.0).solve(
        tolerance=1e-8
    )
    v = np.zeros(5)
    for _ in range(1000):
        v = (R + 0.9 * v).min(axis=2).max(axis=1)
    np.testing.assert_allclose(solution.value, v, atol=1e-8)
    best = RobustMDP(P, R, 0.9, kind, radius=1.0 if kind is TotalVariation else 1e6, optimistic=True).solve()
    w = np.zeros(5)
    for _ in range(1000):
        w = (R + 0.9 * w).max(axis=2).max(axis=1)
    np.testing.assert_allclose(best.value, w, atol=1e-6)


def test_methods_agree_and_warm_starts_help():
    P, R = problem(9, 30, 4)
    robust = RobustMDP(P, R, 0.97, KL, radius=0.05)
    by_policy, by_value = robust.solve("policy"), robust.solve("value")
    np.testing.assert_allclose(by_policy.value, by_value.value, atol=1e-6)
    assert by_policy.sweeps < by_value.sweeps
    again = robust.solve("value", start=by_policy)
    assert again.sweeps < by_value.sweeps


def test_evaluation_of_the_optimal_policy_gives_its_value():
    P, R = problem(10, 8, 3)
    for optimistic in (False, True):
        robust = RobustMDP(P, R, 0.9, KL, radius=0.1, optimistic=optimistic)
        best = robust.solve(tolerance=1e-9)
        for policy in (best, best.actions, best.policy, best.policy.reshape(8, 3)):
            own = robust.evaluate(policy, tolerance=1e-9)
            np.testing.assert_allclose(own.value, best.value, atol=2e-9)
        other = robust.evaluate(np.full((8, 3), 1 / 3), tolerance=1e-9)
        assert (other.lower <= best.upper).all()
        assert (other.value < best.value - 1e-3).any()


def test_evaluation_of_a_randomised_policy_against_plain_iteration():
    P, R = problem(11, 5, 3)
    weights = np.random.default_rng(1).dirichlet(np.ones(3), size=5)
    found = RobustMDP(P, R, 0.9, KL, radius=0.1).evaluate(weights, tolerance=1e-9)
    v = np.zeros(5)
    sets = KL(P.reshape(15, 5), radius=0.1)
    for _ in range(300):
        z = (R + 0.9 * v).reshape(15, 5)
        v = (weights * -sets.worst_case(-z).value.reshape(5, 3)).sum(axis=1)
    np.testing.assert_allclose(found.value, v, atol=1e-8)


def test_ragged_actions_and_successors_equal_the_dense_problem():
    rng = np.random.default_rng(12)
    counts, states = np.array([1, 3, 2, 1]), 4
    rows = counts.sum()
    q = rng.dirichlet(np.ones(2), size=rows)
    where = np.sort([rng.choice(states, 2, replace=False) for _ in range(rows)], axis=1)
    P = csr_matrix((q.ravel(), where.ravel(), np.arange(rows + 1) * 2), shape=(rows, states))
    r = rng.normal(size=rows)
    found = RobustMDP(P, r, 0.9, KL, radius=0.2, actions_per_state=counts).solve(tolerance=1e-9)
    # The same with three actions everywhere; a missing one repeats the first.
    first = np.append(0, np.cumsum(counts))[:-1]
    rows_of = [[first[s] + min(a, counts[s] - 1) for a in range(3)] for s in range(states)]
    dense = P.toarray()[rows_of]
    same = RobustMDP(dense, r[rows_of], 0.9, KL, radius=0.2).solve(tolerance=1e-9)
    np.testing.assert_allclose(found.value, same.value, atol=1e-9)


def test_successors_of_probability_zero_count_for_total_variation():
    """A dense array has them, a sparse matrix only if they are stored."""
    dense = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    rewards = [[1.0], [0.0]]
    free = RobustMDP(dense, rewards, 0.5, TotalVariation, radius=0.5).solve()
    bound = RobustMDP(csr_matrix(dense[:, 0]), rewards, 0.5, TotalVariation, radius=0.5).solve()
    assert free.value[0] == pytest.approx(1.0 / 0.75, abs=1e-6)
    assert bound.value[0] == pytest.approx(2.0, abs=1e-6)


@pytest.mark.parametrize("states", [20, 600])  # a linear system, and sweeps in place
def test_discount_near_one(states):
    rng = np.random.default_rng(13)
    rows = np.arange(states * 2)
    where = np.stack([np.maximum(rows // 2 - 1, 0), np.minimum(rows // 2 + 1, states - 1)], axis=1)
    q = rng.dirichlet(np.ones(2), size=states * 2)
    P = csr_matrix((q.ravel(), where.ravel(), np.arange(states * 2 + 1) * 2), shape=(states * 2, states))
    solution = RobustMDP(P, rng.random(states * 2), 0.9995, KL, radius=0.01).solve(tolerance=1e-4)
    assert solution.converged


def test_absorbing_states_and_deterministic_rows():
    P = np.zeros((3, 1, 3))
    P[0, 0, 1] = P[1, 0, 2] = P[2, 0, 2] = 1.0
    solution = RobustMDP(P, [[1.0], [2.0], [0.0]], 0.5, KL, radius=3.0).solve(tolerance=1e-9)
    np.testing.assert_allclose(solution.value, [2.0, 2.0, 0.0], atol=1e-9)


def test_a_function_makes_the_sets():
    P, R = problem(14, 3, 2)
    box = RobustMDP(P, R, 0.8, Box, lower=P - 0.1, upper=P + 0.1).solve(tolerance=1e-8)
    rows = np.vstack([np.eye(3), -np.eye(3)])
    by_function = RobustMDP(
        P, R, 0.8, lambda q: Polyhedron(rows, np.append(q + 0.1, 0.1 - q))
    ).solve(tolerance=1e-6)  # fmt: skip
    np.testing.assert_allclose(box.value, by_function.value, atol=1e-6)


def test_names_of_the_registry():
    P, R = problem(15)
    same = [RobustMDP(P, R, 0.8, kind, radius=0.1).solve().value for kind in (KL, "kl")]
    np.testing.assert_array_equal(*same)


def test_rewards_of_all_forms_agree():
    P, _ = problem(16)
    r = np.random.default_rng(0).normal(size=(STATES, ACTIONS))
    flat = RobustMDP(P, r, 0.8, KL, radius=0.1).solve(tolerance=1e-9)
    deep = RobustMDP(P, np.repeat(r[:, :, None], STATES, axis=2), 0.8, KL, radius=0.1).solve(tolerance=1e-9)
    np.testing.assert_allclose(flat.value, deep.value, atol=1e-9)


def test_scales_and_large_offsets():
    P, R = problem(17)
    plain = RobustMDP(P, R, 0.8, KL, radius=0.1).solve(tolerance=1e-9)
    for scale in (1e-100, 1e100):
        found = RobustMDP(P, scale * R, 0.8, KL, radius=0.1).solve(tolerance=1e-8 * scale)
        np.testing.assert_allclose(found.value / scale, plain.value, atol=1e-8)
    with pytest.warns(UserWarning, match="what rounding"):
        shifted = RobustMDP(P, R + 1e9, 0.8, KL, radius=0.1).solve(tolerance=1e-9)
    assert not shifted.converged
    expected = plain.value + 1e9 / 0.2
    assert (shifted.lower <= expected + 1e-6).all()
    assert (shifted.upper >= expected - 1e-6).all()


def test_interrupt_keeps_the_best():
    P, R = problem(18, 20, 3)

    def stop(sweep):
        if sweep.number == 3:
            raise KeyboardInterrupt

    robust = RobustMDP(P, R, 0.99, KL, radius=0.1)
    early = robust.solve("value", on_sweep=stop)
    assert early.interrupted
    assert not early.converged
    assert early.sweeps == 3
    exact = robust.solve(tolerance=1e-9)
    assert (early.lower <= exact.upper).all()
    assert (early.upper >= exact.lower).all()


def test_too_few_sweeps_warn():
    P, R = problem(19)
    with pytest.warns(UserWarning, match="after 2 sweeps the proved bounds are .* max_sweeps"):
        solution = RobustMDP(P, R, 0.99, KL, radius=0.1).solve("value", max_sweeps=2)
    assert not solution.converged


def test_solution_reads_well():
    P, R = problem(20)
    solution = RobustMDP(P, R, 0.8, KL, radius=0.1).solve()
    assert "proved within" in repr(solution)
    assert "converged" in repr(solution)
    matrix = solution.transition_matrix()
    assert matrix.shape == (STATES * ACTIONS, STATES)
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0)
    widths = [sweep.width for sweep in solution.history]
    assert widths == sorted(widths, reverse=True)


def robust(P, R, *, radius=0.1):
    return RobustMDP(P, R, 0.8, KL, radius=radius)


BAD = {
    "rows that do not sum to 1": (lambda P, R: RobustMDP(P * 0.9, R, 0.8, KL, radius=0.1), "sum to 0.9"),
    "negative": (lambda P, R: RobustMDP(P - 0.5, R, 0.8, KL, radius=0.1), "between 0 and 1"),
    "discount": (lambda P, R: RobustMDP(P, R, 1.0, KL, radius=0.1), "below 1, got 1"),
    "shape": (lambda P, R: RobustMDP(P[:3], R, 0.8, KL, radius=0.1), r"\(states, actions, states\)"),
    "rewards": (lambda P, R: RobustMDP(P, R[:, :1], 0.8, KL, radius=0.1), r"got shape \(4, 1, 4\)"),
    "rewards not finite": (lambda P, R: robust(P, R * np.inf), "rewards must be finite"),
    "rectangular": (lambda P, R: RobustMDP(P, R, 0.8, KL, rectangular="x", radius=0.1), '"sa" or "s"'),
    "ambiguity": (lambda P, R: RobustMDP(P, R, 0.8, 3.0, radius=0.1), "class of sets such as KL"),
    "function and radius": (lambda P, R: RobustMDP(P, R, 0.8, lambda q: Ball(q, 1), radius=1), "takes no"),
    "method": (lambda P, R: robust(P, R).solve("newton"), '"policy" or "value"'),
    "tolerance": (lambda P, R: robust(P, R).solve(tolerance=0.0), "above 0"),
    "sweeps": (lambda P, R: robust(P, R).solve(max_sweeps=0), "at least 1"),
    "start": (lambda P, R: robust(P, R).solve(start=[1.0]), "each of the 4 states"),
    "action": (lambda P, R: robust(P, R).evaluate([0, 1, 2, 0]), "state 2 has no action 2"),
    "policy": (lambda P, R: robust(P, R).evaluate([0.5, 0.5]), "got float64 of shape"),
    "policy sum": (
        lambda P, R: robust(P, R).evaluate(np.full((4, 2), 0.4)), "in state 0 they are"
    ),
    "radius": (lambda P, R: RobustMDP(P, R, 0.8, KL, radius=-0.1), "radius"),
    "radius shape": (lambda P, R: RobustMDP(P, R, 0.8, KL, radius=[0.1, 0.2]), "radius"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    make, words = BAD[name]
    with pytest.raises(InvalidParameter, match=words):
        make(*problem(21))


def test_repr_names_the_problem():
    P, R = problem(22)
    assert repr(robust(P, R)) == f"RobustMDP({MDP(P, R, 0.8)}, KL, radius=0.1, rectangular='sa')"


def test_models_of_tables():
    table = [(0, 5, 1, 1.0, 1.0), (0, 9, 0, 0.5, 0.0), (0, 9, 1, 0.5, 0.0), (1, 0, 1, 1.0, 0.0)]
    model = MDP.from_table(*zip(*table, strict=True), discount=0.9)
    solution = RobustMDP.of(model, KL, radius=0.1).solve()
    assert solution.actions.tolist() == [5, 0]


@pytest.mark.parametrize("kind", [KL, TotalVariation, ChiSquare])
def test_sweeps_without_transitions_prove_the_same(kind):
    """Value iteration with a joint budget leaves nature's transitions out until the end."""
    P, R = problem(23, 6, 3)
    updates = [
        ByState(MDP(P, R, 0.9), kind, 0.2).improve(np.arange(6.0), transitions=t) for t in (True, False)
    ]
    for name in ("lower", "upper", "policy"):
        full, short = (getattr(each, name) for each in updates)
        np.testing.assert_allclose(short, full, rtol=0.0, atol=1e-12)
    assert updates[1].p.size == 0
    by_value = RobustMDP(P, R, 0.9, kind, radius=0.2, rectangular="s").solve("value")
    by_policy = RobustMDP(P, R, 0.9, kind, radius=0.2, rectangular="s").solve("policy")
    np.testing.assert_allclose(by_value.value, by_policy.value, atol=1e-6)
    np.testing.assert_allclose(by_value.transitions, by_policy.transitions, atol=1e-3)
    np.testing.assert_allclose(by_value.transition_matrix().sum(axis=1), 1.0)
