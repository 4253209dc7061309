"""A joint budget per state: against cvxpy, against single sets, and by its own bounds."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from tests import tolerances
from uncertainty_sets import KL, Box, ChiSquare, TotalVariation
from uncertainty_sets.errors import InvalidLosses, InvalidParameter
from uncertainty_sets.mdp.by_state import KINDS, ByState
from uncertainty_sets.mdp.model import MDP

ALL = sorted(KINDS, key=lambda kind: kind.__name__)
kinds = pytest.mark.parametrize("kind", ALL)


def divergence(kind, p, q):
    """Σ_a D(p_a, q_a) of one row in NumPy."""
    if kind is TotalVariation:
        return 0.5 * np.abs(p - q).sum()
    assert (p[q == 0.0] == 0.0).all()
    p, q = p[q > 0.0], q[q > 0.0]
    if kind is ChiSquare:
        return ((p - q) ** 2 / q).sum()
    ratio = p / q
    return (q * (np.where(ratio > 0.0, ratio * np.log(np.maximum(ratio, 1e-300)), 0.0) - ratio + 1.0)).sum()


def conic_divergence(kind, p, q):
    """The same for cvxpy; q > 0."""
    if kind is TotalVariation:
        return 0.5 * cp.norm1(p - q)
    if kind is ChiSquare:
        return cp.sum(cp.multiply(1.0 / q, cp.square(p - q)))
    return cp.sum(cp.rel_entr(p, q))


def ragged_model(rng, states=4, *, zeros=False, discount=0.9, by_entry=True):
    """A model with one to four actions per state and one to all states as successors."""
    actions = rng.integers(1, 5, size=states)
    rows = [np.sort(rng.permutation(states)[: rng.integers(1, states + 1)]) for _ in range(actions.sum())]
    masses = [rng.dirichlet(np.ones(len(each))) for each in rows]
    if zeros:
        for mass in masses:
            mass[: mass.size // 2] = 0.0
        masses = [mass / mass.sum() for mass in masses]
    indptr = np.append(0, np.cumsum([len(each) for each in rows]))
    P = csr_array((np.concatenate(masses), np.concatenate(rows), indptr), shape=(len(rows), states))
    rewards = rng.normal(size=indptr[-1] if by_entry else len(rows))
    return MDP(P, rewards, discount, actions_per_state=actions)


def rows_of(model, state, v):
    """z, q and the entries of every action of a state."""
    found = []
    for b in range(model.state_rows[state], model.state_rows[state + 1]):
        part = slice(model.indptr[b], model.indptr[b + 1])
        z = model.row_rewards[b] + model.discount * v[model.indices[part]]
        z = z if model.entry_rewards is None else z + model.entry_rewards[part]
        found.append((z, model.probabilities[part], part))
    return found


def reference(kind, rows, budget, policy=None, sign=1.0):
    """min over p of max_a p_aᵀz_a, or of Σ π_a·p_aᵀz_a; with sign = -1 the maximum of the latter."""
    ps = [cp.Variable(z.size, nonneg=True) for z, _, _ in rows]
    limits = [cp.sum(p) == 1.0 for p in ps]
    spent = sum(conic_divergence(kind, p, q) for p, (_, q, _) in zip(ps, rows, strict=True))
    means = [p @ z for p, (z, _, _) in zip(ps, rows, strict=True)]
    if policy is None:
        top = cp.Variable()
        problem = cp.Problem(cp.Minimize(top), [*limits, spent <= budget, *(each <= top for each in means)])
    else:
        value = sum(weight * mean for weight, mean in zip(policy, means, strict=True))
        problem = cp.Problem(cp.Minimize(sign * value), [*limits, spent <= budget])
    problem.solve(solver=cp.CLARABEL)
    return sign * problem.value


def size_of(model, v):
    """The largest number that goes into z, whose rounding z has."""
    entries = 0.0 if model.entry_rewards is None else np.abs(model.entry_rewards).max()
    return max(np.abs(model.row_rewards).max(), entries, np.abs(v).max())


def check(kind, model, v, budget, update, *, improved):
    """The bounds are in order and near, and p is in the set and attains the upper one."""
    budgets = np.broadcast_to(budget, (model.states,))
    for s in range(model.states):
        rows = rows_of(model, s, v)
        part = slice(model.state_rows[s], model.state_rows[s + 1])
        policy = update.policy[part]
        z = np.concatenate([each for each, _, _ in rows])
        allowed = tolerances.GAP * np.ptp(z) + 64 * np.spacing(size_of(model, v))
        assert update.lower[s] <= update.upper[s] <= update.lower[s] + allowed
        assert policy.min() >= 0.0
        assert policy.sum() == pytest.approx(1.0, abs=1e-12)
        spent, means = 0.0, []
        for mean, q, entries in rows:
            p = update.p[entries]
            assert p.min() >= 0.0
            assert p.sum() == pytest.approx(1.0, abs=1e-13)
            spent += divergence(kind, p, q)
            means.append(p @ mean)
        assert spent <= budgets[s] * (1.0 + 1e-10) + 1e-14
        attained = max(means) if improved else policy @ np.array(means)
        assert attained == pytest.approx(update.upper[s], abs=allowed)


@kinds
@pytest.mark.parametrize("seed", range(4))
def test_against_cvxpy(kind, seed):
    rng = np.random.default_rng(seed)
    model, v = ragged_model(rng, by_entry=seed % 2 == 0), rng.normal(size=4)
    budget = rng.choice([0.01, 0.1, 0.5, 3.0], size=4)
    weights = rng.random(model.rows)
    policy = weights / model.repeat_by_state(np.add.reduceat(weights, model.state_rows[:-1]))
    robust, hopeful = ByState(model, kind, budget), ByState(model, kind, budget, optimistic=True)
    best, given, high = robust.improve(v), robust.evaluate(policy, v), hopeful.evaluate(policy, v)
    check(kind, model, v, budget, best, improved=True)
    check(kind, model, v, budget, given, improved=False)
    for s in range(4):
        rows, part = rows_of(model, s, v), slice(model.state_rows[s], model.state_rows[s + 1])
        close = tolerances.REFERENCE_CONIC * np.ptp(np.concatenate([z for z, _, _ in rows])) + 1e-9
        assert best.lower[s] == pytest.approx(reference(kind, rows, budget[s]), abs=close)
        assert given.lower[s] == pytest.approx(reference(kind, rows, budget[s], policy[part]), abs=close)
        expected = reference(kind, rows, budget[s], policy[part], sign=-1.0)
        assert high.lower[s] == pytest.approx(expected, abs=close)
        assert high.lower[s] <= high.upper[s]


def test_two_equal_actions_share_the_budget():
    # Two actions with values 0 and 1 at even odds: by symmetry nature moves half of the budget in each, the
    # policy is even, and ½ - 0.1 is the value.
    model = MDP(np.full((2, 2, 2), 0.5), np.zeros((2, 2)), 0.5)
    update = ByState(model, TotalVariation, 0.2).improve(np.array([0.0, 2.0]))
    np.testing.assert_allclose(update.lower, 0.4, atol=1e-14)
    np.testing.assert_allclose(update.policy, 0.5, atol=1e-14)
    np.testing.assert_allclose(update.p, np.tile([0.6, 0.4], 4), atol=1e-14)
    # χ²: (2x)² in each action that moves x, so 2·4x² = 0.02 and x = 0.05.
    update = ByState(model, ChiSquare, 0.02).improve(np.array([0.0, 2.0]))
    np.testing.assert_allclose(update.lower, 0.45, atol=1e-11)


@kinds
def test_no_budget_is_the_nominal_update(kind):
    rng = np.random.default_rng(5)
    model, v = ragged_model(rng, 6), rng.normal(size=6)
    update = ByState(model, kind, 0.0).improve(v)
    means = [[q @ z for z, q, _ in rows_of(model, s, v)] for s in range(6)]
    np.testing.assert_allclose(update.lower, [max(each) for each in means], atol=1e-13)
    np.testing.assert_array_equal(update.p, model.probabilities)
    again = ByState(model, kind, 0.0).evaluate(update.policy, v)
    np.testing.assert_allclose(again.upper, update.upper, atol=1e-13)


@kinds
def test_a_large_budget_is_the_adversarial_update(kind):
    rng = np.random.default_rng(6)
    model, v = ragged_model(rng, 6), rng.normal(size=6)
    updates = ByState(model, kind, 1e5)
    for _ in range(2):  # cold, then from a saturated answer
        update = updates.improve(v)
        least = [max(z.min() for z, _, _ in rows_of(model, s, v)) for s in range(6)]
        np.testing.assert_allclose(update.lower, least, atol=1e-12)
        check(kind, model, v, 1e5, update, improved=True)
    given = updates.evaluate(update.policy, v)
    np.testing.assert_allclose(given.lower, least, atol=1e-12)


@kinds
@pytest.mark.parametrize("budget", [1e-12, 1e-4, 0.05, 0.7])
def test_one_action_is_the_set_itself(kind, budget):
    rng = np.random.default_rng(7)
    P, R, v = rng.dirichlet(np.ones(6), size=(6, 1)), rng.normal(size=(6, 1, 6)), rng.normal(size=6)
    updates = ByState(MDP(P, R, 0.9), kind, budget)
    best, given = updates.improve(v), updates.evaluate(np.ones(6), v)
    for s in range(6):
        z = R[s, 0] + 0.9 * v
        expected = -kind(P[s, 0], budget).worst_case(-z).value
        close = tolerances.value(z, tolerances.SAME_VALUE)
        assert best.lower[s] == pytest.approx(expected, abs=close)
        assert given.lower[s] == pytest.approx(expected, abs=close)


@kinds
def test_the_policy_guarantees_the_lower_bound(kind):
    rng = np.random.default_rng(8)
    for budget in (1e-6, 0.01, 0.3, 2.0):
        model, v = ragged_model(rng, 8), rng.normal(size=8)
        updates = ByState(model, kind, budget)
        best = updates.improve(v)
        given = updates.evaluate(best.policy, v)
        assert (given.lower >= best.lower - 1e-9).all()
        assert (given.upper >= best.lower).all()
        assert (given.lower <= best.upper).all()


@kinds
def test_warm_and_cold_agree(kind):
    rng = np.random.default_rng(9)
    model, v = ragged_model(rng, 10), rng.normal(size=10)
    updates = ByState(model, kind, 0.2)
    for step in (1.0, 0.3, 0.01, 1e-4, 5.0):
        v = v + step * rng.normal(size=10)
        warm, cold = updates.improve(v), ByState(model, kind, 0.2).improve(v)
        np.testing.assert_allclose(warm.lower, cold.lower, atol=1e-9)
        check(kind, model, v, 0.2, warm, improved=True)
        again = updates.evaluate(warm.policy, v)
        np.testing.assert_allclose(again.lower, warm.lower, atol=2e-9)
        check(kind, model, v, 0.2, again, improved=False)


@kinds
@pytest.mark.parametrize("optimistic", [False, True])
def test_sparse_rows_answer_as_dense_ones(kind, optimistic):
    rng = np.random.default_rng(10)
    P = rng.dirichlet(np.ones(7), size=(7, 3))
    P[rng.random(P.shape) < 0.4] = 0.0
    P[..., 0] += 0.1
    P /= P.sum(axis=2, keepdims=True)
    R, v = rng.normal(size=(7, 3)), rng.normal(size=7)
    # Total variation moves mass to successors of probability 0 if they are stored: store all.
    full = csr_array((P.ravel(), np.tile(np.arange(7), 21), 7 * np.arange(22)), shape=(21, 7))
    sparse = full if kind is TotalVariation else csr_array(P.reshape(21, 7))
    one = ByState(MDP(P, R, 0.9), kind, 0.3, optimistic=optimistic).improve(v)
    two = ByState(MDP(sparse, R, 0.9), kind, 0.3, optimistic=optimistic).improve(v)
    np.testing.assert_allclose(one.lower, two.lower, rtol=0, atol=1e-13)
    np.testing.assert_allclose(one.policy, two.policy, atol=1e-9)
    keep = np.ones(P.size, bool) if kind is TotalVariation else P.ravel() > 0.0
    np.testing.assert_allclose(one.p[keep], two.p, atol=1e-9)
    assert not one.p[~keep].any()


@kinds
def test_optimistic_improvement_is_the_best_row_with_the_whole_budget(kind):
    rng = np.random.default_rng(11)
    model, v = ragged_model(rng, 6), rng.normal(size=6)
    updates = ByState(model, kind, 0.3, optimistic=True)
    best = updates.improve(v)
    for s in range(6):
        rows = [kind(q, 0.3).worst_case(z).value for z, q, _ in rows_of(model, s, v)]
        assert best.lower[s] == pytest.approx(max(rows), abs=1e-8)
        assert best.lower[s] <= best.upper[s]
    given = updates.evaluate(best.policy, v)
    np.testing.assert_allclose(given.lower, best.lower, atol=1e-8)
    weights = rng.random(model.rows)
    other = weights / model.repeat_by_state(np.add.reduceat(weights, model.state_rows[:-1]))
    assert (updates.evaluate(other, v).upper <= best.upper + 1e-8).all()


@kinds
@pytest.mark.parametrize("scale", [1e-200, 1e-100, 1e-30, 1e30, 1e100, 1e200])
def test_scales(kind, scale):
    rng = np.random.default_rng(12)
    P, R, v = rng.dirichlet(np.ones(5), size=(5, 3)), rng.normal(size=(5, 3)), rng.normal(size=5)
    one = ByState(MDP(P, R, 0.9), kind, 0.2)
    other = ByState(MDP(P, scale * R, 0.9), kind, 0.2)
    best, scaled = one.improve(v), other.improve(scale * v)
    np.testing.assert_allclose(scaled.lower / scale, best.lower, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(scaled.upper / scale, best.upper, rtol=1e-9, atol=1e-10)
    given, like = one.evaluate(best.policy, v), other.evaluate(best.policy, scale * v)
    np.testing.assert_allclose(like.lower / scale, given.lower, rtol=1e-9, atol=1e-10)


@kinds
def test_a_large_common_offset(kind):
    rng = np.random.default_rng(13)
    P, R, v = rng.dirichlet(np.ones(5), size=(5, 3)), rng.normal(size=(5, 3)), rng.normal(size=5)
    plain = ByState(MDP(P, R, 0.9), kind, 0.2).improve(v)
    model = MDP(P, R + 2.0**30, 0.9)
    lifted = ByState(model, kind, 0.2).improve(v)
    np.testing.assert_allclose(lifted.lower - 2.0**30, plain.lower, atol=64 * np.spacing(2.0**30))
    assert (lifted.lower <= lifted.upper).all()


@kinds
def test_equal_values_and_single_successors(kind):
    # State 0: both actions constant; state 1: a constant action between the others' values; state 2: ties.
    P = np.zeros((3, 3, 3))
    P[0, :, 0] = 1.0
    P[1, 0, 1], P[1, 1:] = 1.0, [0.2, 0.3, 0.5]
    P[2] = [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.25, 0.5, 0.25]]
    rows = csr_array(P.reshape(9, 3))
    model, v = MDP(rows, np.zeros((3, 3)), 0.5), np.array([2.0, 2.0, 4.0])
    for budget in (0.0, 1e-9, 0.1, 10.0):
        update = ByState(model, kind, budget).improve(v)
        check(kind, model, v, budget, update, improved=True)
        assert update.lower[0] == pytest.approx(1.0, abs=1e-12)
        assert update.lower[1] >= 1.0 - 1e-12
        check(
            kind,
            model,
            v,
            budget,
            ByState(model, kind, budget).evaluate(np.full(9, 1 / 3), v),
            improved=False,
        )


@kinds
def test_an_action_that_is_far_worse_does_not_blur_the_others(kind):
    P = np.full((2, 3, 2), 0.5)
    R = np.array([[0.0, 0.1, -1e12], [0.0, 0.1, -1e12]])
    update = ByState(MDP(P, R, 0.9), kind, 0.05).improve(np.array([0.0, 1.0]))
    without = ByState(MDP(P[:, :2], R[:, :2], 0.9), kind, 0.05).improve(np.array([0.0, 1.0]))
    np.testing.assert_allclose(update.lower, without.lower, atol=1e-11)
    assert (update.policy.reshape(2, 3)[:, 2] == 0.0).all()


@pytest.mark.property
@kinds
@settings(deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.floats(-14.0, 2.0), st.sampled_from(["normal", "round", "cauchy", "near"])
)
def test_bounds_hold_and_meet(kind, seed, exponent, shape):
    rng = np.random.default_rng(seed)
    model, v = ragged_model(rng, 5, zeros=bool(seed % 2)), rng.normal(size=5)
    values = {
        "normal": v,
        "round": np.round(v),
        "cauchy": v / (0.01 + rng.random(5) ** 3),
        "near": 1.0 + 1e-7 * v,
    }
    budget, v = 10.0**exponent, values[shape]
    updates = ByState(model, kind, budget)
    best = updates.improve(v)
    check(kind, model, v, budget, best, improved=True)
    given = updates.evaluate(best.policy, v)
    check(kind, model, v, budget, given, improved=False)
    slack = 1e-9 * max(1.0, np.abs(v).max())
    assert (given.upper >= best.lower).all()
    assert (given.lower >= best.lower - slack).all()


def test_bad_input_is_refused():
    model = MDP(np.full((2, 2, 2), 0.5), np.zeros((2, 2)), 0.5)
    with pytest.raises(InvalidParameter, match="for KL, TotalVariation, ChiSquare, got Box"):
        ByState(model, Box, 0.1)
    for budget in (-0.1, np.nan, np.inf, [0.1, 0.1, 0.1]):
        with pytest.raises(InvalidParameter, match="budget must be"):
            ByState(model, KL, budget)
    updates = ByState(model, KL, [0.1, 0.2])
    for v in ([0.0], [0.0, np.inf], [[0.0, 1.0]]):
        with pytest.raises(InvalidLosses, match="for each of the 2 states"):
            updates.improve(v)
    with pytest.raises(InvalidParameter, match=r"state 1 in the policy sum to 1\.5"):
        updates.evaluate([0.5, 0.5, 1.0, 0.5], [0.0, 1.0])
    with pytest.raises(InvalidParameter, match="4 state-actions"):
        updates.evaluate([1.0, 0.0], [0.0, 1.0])
    with pytest.raises(InvalidParameter, match="not >= 0"):
        updates.evaluate([1.5, -0.5, 1.0, 0.0], [0.0, 1.0])


@kinds
def test_values_that_overflow_are_named(kind):
    model = MDP(np.full((2, 2, 2), 0.5), np.full((2, 2), 1.7e308), 0.9)
    with pytest.raises(InvalidLosses, match="of state 0 are too large"):
        ByState(model, kind, 0.1).improve(np.array([1.7e308, 0.0]))


@pytest.mark.parametrize("seed", range(12))
def test_centres_at_corners_leave_no_false_bound(seed):
    """Masses of 1e-300 to 1e-10 beside one of nearly all: the policies are judged by Cauchy's inequality."""
    rng = np.random.default_rng(seed)
    states, actions = 20, 4
    q = np.zeros((states * actions, states))
    q[:, 1] = 10.0 ** rng.uniform(-300.0 if seed % 2 else -30.0, -10.0, len(q))
    q[:, 0] = 1.0 - q[:, 1]
    model = MDP(q.reshape(states, actions, states), rng.normal(size=(states, actions)), 0.9)
    budget = rng.choice([1e-3, 0.3, 1.0], states)
    v = rng.normal(size=states)
    updates = ByState(model, ChiSquare, budget)
    z = model.row_rewards[:, None] + 0.9 * v[:2]
    center = q[:, :2]
    mean = (center * z).sum(axis=1).reshape(states, actions)
    spread = np.abs(np.diff(z, axis=1)).reshape(states, actions)
    deviation = np.sqrt(center[:, 1].reshape(states, actions)) * spread
    improved = updates.improve(v)
    assert (improved.lower <= improved.upper).all()
    assert (improved.upper <= mean.max(axis=1) + 1e-9).all()
    least = (mean - np.sqrt(budget)[:, None] * deviation).max(axis=1)
    assert (improved.upper >= least - 1e-9).all()
    assert (improved.upper - improved.lower <= 1e-8 * np.ptp(z)).all()
    policy = rng.dirichlet(np.ones(actions), states)
    found = updates.evaluate(policy.ravel(), v)
    nominal = (policy * mean).sum(axis=1)
    room = np.sqrt(budget) * np.sqrt(((policy * deviation) ** 2).sum(axis=1))
    assert (found.lower <= found.upper).all()
    assert (found.upper <= nominal + 1e-9).all()
    assert (found.lower >= nominal - room - 1e-8).all()


@pytest.mark.parametrize("question", ["improve", "evaluate"])
def test_a_mass_too_small_to_gain_is_left_where_it_is(question):
    """Two successors of half the mass, and a worse one of 1e-40 to 1e-250: all goes to the worse half."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        states, actions = 10, 3
        q = np.zeros((states * actions, states))
        q[:, :2] = 0.5
        q[:, 2] = 10.0 ** rng.uniform(-250.0, -40.0, len(q))
        v = np.concatenate([[0.0, 1.0, -rng.uniform(0.01, 1.0)], rng.normal(size=states - 3)])
        model = MDP(q.reshape(states, actions, states), rng.normal(size=(states, actions)), 0.9)
        updates = ByState(model, ChiSquare, rng.uniform(actions, 50.0, states))
        reached = model.row_rewards.reshape(states, actions)
        if question == "improve":
            found, known = updates.improve(v), reached.max(axis=1)
        else:
            policy = rng.dirichlet(np.ones(actions), states)
            found, known = updates.evaluate(policy.ravel(), v), (policy * reached).sum(axis=1)
        np.testing.assert_allclose(found.lower, known, rtol=0.0, atol=1e-8)
        np.testing.assert_allclose(found.upper, known, rtol=0.0, atol=1e-8)
