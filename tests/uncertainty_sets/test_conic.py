"""The conic oracle: optimal against models of its own kind, and bounds that hold whatever a solver said."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import cvxpy as cp
import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import brentq, linprog

from tests import tolerances
from tests.uncertainty_sets.plugins import (
    ALL,
    Ball,
    Entropic,
    Euclidean,
    Line,
    Powers,
    Stated,
    TotalVariation,
    Transport,
)
from uncertainty_sets import KL
from uncertainty_sets.backends import cold, select
from uncertainty_sets.conic import oracle as conic
from uncertainty_sets.conic.certificate import Certifier
from uncertainty_sets.conic.compile import compiled
from uncertainty_sets.conic.program import ConicProgram
from uncertainty_sets.errors import (
    BackendUnsuitable,
    EmptySet,
    InvalidInput,
    InvalidLosses,
    InvalidParameter,
    SolverFailed,
)


def random_case(rng, n):
    return rng.dirichlet(np.ones(n)), rng.normal(size=n)


def best_total_variation(q, r, f):
    """Mass up to r moves from the smallest losses to the largest one."""
    p, best = q.copy(), int(f.argmax())
    left = min(r, 1 - q[best])
    for j in np.argsort(f):
        if j != best:
            moved = min(left, p[j])
            p[j], p[best], left = p[j] - moved, p[best] + moved, left - moved
    return p @ f


def best_entropic(q, r, f):
    def tilted(theta):
        w = q * np.exp(theta * (f - f.max()))
        return w / w.sum()

    def divergence(theta):
        p = tilted(theta)
        return np.sum(p * np.log(np.maximum(p, 1e-300) / q))

    return tilted(brentq(lambda t: divergence(t) - r, 0, 1e4, xtol=1e-14)) @ f


def best_transport(q, r, f):
    n = len(q)
    cost = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    equal = np.kron(np.ones((1, n)), np.eye(n))
    answer = linprog(
        -np.repeat(f, n), cost.reshape(1, -1), [r], equal, q, bounds=(0, None), options={"presolve": False}
    )
    return -answer.fun


REFERENCES = {
    TotalVariation: best_total_variation,
    Entropic: best_entropic,
    Transport: best_transport,
    Line: best_transport,
}


def in_dual_cone(program, y, slack):
    """K* by its definition, a cone at a time; slack covers the rounding of this recheck alone."""
    row = 0
    for kind, size in program.cones:
        part = y[row : row + size]
        row += size
        if kind == "nonneg":
            assert part.min() >= 0
        elif kind == "soc":
            assert part[0] >= np.linalg.norm(part[1:]) * (1 - 1e-14)
        elif kind == "exp":
            u, v, w = part
            if u == 0:
                assert v >= 0
                assert w >= 0
            else:
                assert u < 0
                assert -u * np.exp(v / u - 1) <= w + slack
    assert row == y.size


def recheck(program, losses, y):
    """The bound's formula as the docstring of conic gives it."""
    residual = program.A.T @ y
    outside = np.setdiff1d(np.arange(residual.size), program.columns)
    assert np.abs(residual[outside]).max(initial=0.0) <= 1e-12 * max(1.0, np.abs(y).max())
    in_dual_cone(program, y, 1e-13 * np.abs(y).max())
    return program.b @ y + (losses - residual[program.columns]).max()


@pytest.mark.parametrize("n", [2, 7, 30])
@pytest.mark.parametrize("cls", ALL)
def test_certificate_holds_and_is_tight(cls, n):
    rng = np.random.default_rng(n)
    for radius in (1e-3, 0.1, 0.4):
        q, f = random_case(rng, n)
        uncertainty_set = cls(q, radius)
        r = uncertainty_set.worst_case(f)
        assert r.gap <= tolerances.CONIC_GAP * tolerances.spread(f)
        assert r.gap >= -tolerances.CONIC_GAP
        assert r.violation <= 1e-8
        assert r.p.min() >= 0
        assert r.p.sum() == pytest.approx(1, abs=1e-12)
        bound = recheck(conic.program(uncertainty_set, n), f, r.dual["y"])
        assert bound == pytest.approx(r.upper_bound, abs=1e-9)
        assert r.upper_bound >= r.value - tolerances.GAP
        if cls in REFERENCES:
            best = REFERENCES[cls](q, radius, f)
            assert r.upper_bound >= best - tolerances.GAP
            assert r.value == pytest.approx(best, abs=tolerances.value(f, tolerances.REFERENCE_LP))


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("noise", [1e-14, 1e-10, 1e-7, 1e-4, 1e-1, 1e1, 1e4])
def test_wrong_multipliers_give_a_true_bound_or_none(cls, noise):
    rng = np.random.default_rng(3)
    q, f = random_case(rng, 6)
    uncertainty_set = cls(q, 0.15)
    exact = uncertainty_set.worst_case(f)
    program = conic.program(uncertainty_set, 6)
    certifier = Certifier(program)
    repaired = 0
    for trial in range(12):
        y = exact.dual["y"] + noise * rng.normal(size=program.b.size)
        if trial % 3 == 0:
            y = noise * rng.normal(size=program.b.size)  # nothing of the truth left
        fixed = certifier.repair(y)
        if fixed is None:
            continue
        repaired += 1
        bound = certifier.bound(f, fixed, np.zeros(program.A.shape[1]))
        assert bound >= exact.value - 1e-9
        assert recheck(program, f, fixed) >= exact.value - 1e-9
        if noise <= 1e-7 and trial % 3:
            assert bound <= exact.value + 100 * noise + 1e-9
    assert repaired >= 6 or noise >= 1e-1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_multipliers_that_are_not_numbers_give_no_bound(bad):
    program = conic.program(Euclidean([0.5, 0.5], 0.1), 2)
    y = np.zeros(program.b.size)
    y[-1] = bad
    assert Certifier(program).repair(y) is None


@pytest.mark.parametrize("seed", range(25))
def test_random_programs(seed):
    """Programs of no particular origin, feasible by construction: the bound holds for the known point."""
    rng = np.random.default_rng(seed)
    n, extra = int(rng.integers(2, 6)), int(rng.integers(0, 5))
    cones = [("zero", 1), ("nonneg", n + 2 * extra + int(rng.integers(0, 4)))]
    cones += [("soc", int(rng.integers(2, 16))) for _ in range(rng.integers(0, 3))]
    cones += [("exp", 3)] * int(rng.integers(0, 3))
    p, z = rng.dirichlet(np.ones(n)), rng.normal(size=extra)
    x = np.concatenate([p, z])
    height = sum(size for _, size in cones)
    A = rng.normal(size=(height, n + extra)) * (rng.random((height, n + extra)) < 0.7)
    A[0], A[1 : 1 + n] = np.r_[np.ones(n), np.zeros(extra)], -np.eye(n, n + extra)
    box = np.eye(extra, n + extra, k=n)  # |z| <= 5: every auxiliary variable is bounded
    A[1 + n : 1 + n + extra], A[1 + n + extra : 1 + n + 2 * extra] = box, -box
    slack = [np.zeros(1), np.r_[p, 5 - z, 5 + z, rng.random(cones[1][1] - n - 2 * extra)]]
    for kind, size in cones[2:]:
        tail = rng.normal(size=size)
        if kind == "soc":
            slack.append(np.r_[np.linalg.norm(tail[1:]) + rng.random(), tail[1:]])
        else:
            width = 0.1 + rng.random()
            slack.append(np.array([tail[0], width, width * np.exp(tail[0] / width) + rng.random()]))
    b = A @ x + np.concatenate(slack)
    b[1 + n : 1 + n + 2 * extra] = 5.0
    program = ConicProgram(sparse.csc_array(A), b, tuple(cones), np.arange(n))
    f = rng.normal(size=n)
    solution = select("clarabel", program).compile(program).solve(program.cost(f))
    certifier = Certifier(program)
    for noise in (0.0, 1e-6, 1e-1):
        y = certifier.repair(solution.y + noise * rng.normal(size=height))
        assert y is not None
        bound = recheck(program, f, y)
        best = f @ solution.x[:n]
        assert bound >= f @ p
        assert bound >= best - 1e-7
        if noise == 0.0 and solution.outcome == "solved":
            assert bound <= best + tolerances.CONIC_GAP * 10


@pytest.mark.parametrize("cls", [TotalVariation, Euclidean, Entropic, Transport])
@pytest.mark.parametrize("scale", [1e-100, 1e-6, 1e6, 1e100])
@pytest.mark.parametrize("shift", [0.0, 1e6, -1e6])
def test_units_and_constants_do_not_matter(cls, scale, shift):
    q, f = random_case(np.random.default_rng(5), 8)
    uncertainty_set = cls(q, 0.1)
    plain, moved = uncertainty_set.worst_case(f), uncertainty_set.worst_case(scale * (f + shift))
    assert moved.value == pytest.approx(scale * (plain.value + shift), rel=1e-9)
    assert abs(moved.gap) <= scale * 1e-6
    assert moved.upper_bound >= moved.value - abs(moved.gap) - tolerances.ulps(scale * (f + shift))


def test_losses_as_large_as_floats_go():
    r = TotalVariation([0.5, 0.5], 0.25).worst_case([1.7e308, -1.7e308])
    assert r.value == pytest.approx(0.85e308)


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("loss", [0.0, -3.5, 0.1])
def test_equal_losses(cls, loss):
    uncertainty_set = cls(np.full(5, 0.2), 0.1)
    r = uncertainty_set.worst_case(np.full(5, loss))
    assert r.value == r.upper_bound == loss
    assert r.gap == 0
    assert uncertainty_set.contains(r.p, tol=1e-8)
    assert not r.dual["y"].any()


@pytest.mark.parametrize("cls", [TotalVariation, Euclidean, Entropic, Transport])
def test_one_entry(cls):
    r = cls([1.0], 0.1).worst_case([-2.0])
    assert (r.value, r.gap, r.p.tolist()) == (-2.0, 0.0, [1.0])


def test_a_batch_is_its_rows():
    rng = np.random.default_rng(0)
    uncertainty_set = Euclidean(rng.dirichlet(np.ones(4)), 0.1)
    losses = rng.normal(size=(3, 4))
    batch = uncertainty_set.worst_case(losses)
    assert batch.p.shape == (3, 4)
    assert batch.dual["y"].shape[0] == 3
    for index, row in enumerate(losses):
        single = uncertainty_set.worst_case(row)
        assert batch.value[index] == pytest.approx(single.value, abs=1e-9)
        for field in (batch.upper_bound, batch.gap, batch.violation, batch.iterations):
            assert field.shape == (3,)


def test_not_finite_losses_are_named():
    uncertainty_set = Euclidean([0.5, 0.5], 0.1)
    with pytest.raises(InvalidLosses, match=r"losses\[1\] = nan"):
        uncertainty_set.worst_case([0.0, np.nan])
    with pytest.raises(InvalidLosses, match=r"losses\[1, 0\] = inf"):
        uncertainty_set.worst_case([[0.0, 1.0], [np.inf, 1.0]])


@pytest.mark.parametrize("make", [lambda p: [p[0] >= 2], lambda p: [cp.norm(p) <= 0.1], lambda p: [False]])
def test_an_empty_set_is_said(make):
    with pytest.raises(EmptySet, match=r"Stated\(\) is empty: its constraints leave no vector with p >= 0"):
        Stated(make).worst_case([1.0, 2.0])


def test_no_constraints_is_the_simplex():
    uncertainty_set = Stated(lambda p: [])
    r = uncertainty_set.worst_case([1.0, 3.0, 2.0])
    assert (r.value, r.gap) == (3.0, 0.0)
    assert uncertainty_set.contains([0.2, 0.3, 0.5])
    assert not uncertainty_set.contains([0.2, 0.3, 0.6])
    assert Stated(lambda p: [True]).worst_case([1.0, 2.0]).value == 2.0


def test_unusable_constraints():
    losses = [1.0, 2.0]
    with pytest.raises(InvalidParameter, match="not convex"):
        Stated(lambda p: [cp.norm(p) >= 0.5]).worst_case(losses)
    with pytest.raises(InvalidParameter, match="integer"):
        Stated(lambda p: [p[0] <= cp.Variable(boolean=True)]).worst_case(losses)
    with pytest.raises(InvalidInput, match="must return a list"):
        Stated(lambda p: None).worst_case(losses)
    with pytest.raises(InvalidInput, match="one of its items is 3"):
        Stated(lambda p: [3]).worst_case(losses)
    with pytest.raises(BackendUnsuitable, match="semidefinite"):
        Stated(lambda p: [cp.diag(p) << 0.7 * np.eye(2)]).worst_case(losses)


NO_CONE_PROGRAM = {
    "not convex": lambda p: [cp.norm(p) >= 0.5],
    "bilinear": lambda p: [p[0] * p[1] <= 0.1],
    "quasiconvex": lambda p: [cp.length(p) <= 2],
    "integer": lambda p: [p[0] <= cp.Variable(integer=True)],
    "boolean": lambda p: [p <= cp.Variable(3, boolean=True)],
    "semidefinite": lambda p: [cp.diag(p) << 0.7 * np.eye(3)],
    "semidefinite variable": lambda p: [cp.diag(cp.Variable((3, 3), PSD=True)) == p],
    "power cone": lambda p: [cp.PowCone3D(p[0], p[1], p[2], 0.5)],
}


@pytest.mark.parametrize("kind", NO_CONE_PROGRAM)
def test_what_the_oracle_refuses_every_question_refuses(kind):
    ask = {
        "worst_case": lambda each: each.worst_case([1.0, 2.0, 3.0]),
        "violation": lambda each: each.violation([0.2, 0.3, 0.5]),
        "contains": lambda each: each.contains([0.2, 0.3, 0.5]),
        "reference": lambda each: each.reference(),
        "project": lambda each: each.project([3.0, 0.0, 0.0]),
    }
    said = set()
    for question in ask.values():
        subject = Stated(NO_CONE_PROGRAM[kind])
        subject.size = 3
        with pytest.raises((InvalidParameter, BackendUnsuitable)) as caught:
            question(subject)
        said.add((caught.type, str(caught.value).split(":")[0]))
    assert len(said) == 1, said


def test_a_doubtful_answer_is_refused(monkeypatch):
    uncertainty_set = Euclidean([0.5, 0.5], 0.1)
    solver = compiled(uncertainty_set, 2).solver("clarabel")
    found = solver.solve(np.array([1.0, 0.0, 0.0][: conic.program(uncertainty_set).A.shape[1]]))
    for worse in (
        found._replace(outcome="inaccurate", y=np.full_like(found.y, np.nan), status="Stuck"),
        found._replace(outcome="failed", status="Stuck"),
    ):
        monkeypatch.setattr(solver, "solve", lambda cost, worse=worse: worse)
        with pytest.raises(SolverFailed, match=r"'Stuck'.*Try another of available_backends"):
            uncertainty_set.worst_case([1.0, 2.0], backend="clarabel")
    # Without a usable multiplier, an answer its solver trusts has no bound but the largest loss.
    monkeypatch.setattr(solver, "solve", lambda cost: found._replace(y=np.full_like(found.y, np.nan)))
    with pytest.raises(SolverFailed, match=r"a gap of 0.43 of the spread and a violation of 0\.") as caught:
        uncertainty_set.worst_case([1.0, 2.0], backend="clarabel")
    assert caught.value.rows == ()
    assert caught.value.answer.upper_bound == 2.0
    assert not caught.value.answer.dual["y"].any()


@pytest.mark.parametrize("cls", ALL)
def test_violation_and_contains(cls):
    rng = np.random.default_rng(1)
    q, f = random_case(rng, 5)
    uncertainty_set = cls(q, 0.1)
    assert uncertainty_set.violation(q) <= 1e-12
    assert uncertainty_set.contains(q)
    certain = np.eye(5)[int(q.argmin())]
    assert uncertainty_set.violation(certain) > 1e-2
    outside = uncertainty_set.worst_case(f).p
    outside = outside + 0.2 * (outside - q)  # past the boundary, seen from inside
    if outside.min() >= 0:
        assert not uncertainty_set.contains(outside)


def test_residuals_are_in_units_of_p():
    assert Stated(lambda p: [100 * p[0] <= 50]).violation([0.75, 0.25]) == pytest.approx(0.25)
    assert Stated(lambda p: [p[0] == 0.5]).violation([0.75, 0.25]) == pytest.approx(0.25)
    assert Transport([0.5, 0.5], 0.1).violation([0.1, 0.9]) == pytest.approx(0.3)
    cone = cp.constraints.ExpCone
    at_one = Stated(lambda p: [cone(p[0], cp.Constant(1.0), cp.Constant(1.0))])
    assert at_one.violation([0.5, 0.5]) == pytest.approx(np.exp(0.5) - 1)


def test_exponential_cones_with_auxiliary_variables_at_their_edge():
    q = np.array([0.5, 0.3, 0.2])

    def entropic(p):
        spent = cp.Variable(3)  # at least p·log(p/q); at p = 0 a solver leaves it at -1e-13, not at 0
        return [cp.constraints.ExpCone(-spent, p, cp.Constant(q)), cp.sum(spent) <= 1.0]

    inside, beyond = Stated(entropic), Stated(lambda p: [*entropic(p), p[0] >= 0.1])
    for p in ([0.0, 0.5, 0.5], [-1e-17, 0.5, 0.5], [0.6, 0.4, 0.0], [1.0, 0.0, 0.0]):
        assert KL(q, 1.0).contains(p)
        assert inside.violation(p) <= 1e-9
    assert beyond.violation([0.0, 0.5, 0.5]) == pytest.approx(0.1)
    assert 0.1 < inside.violation([0.0, 0.0, 1.0]) < 1.0  # the divergence is 1.61
    # Without auxiliary variables: next to the face y = 0 of the cone, and at its edge.
    edge = Stated(lambda p: [cp.constraints.ExpCone(p[0] - 0.5, p[1], cp.Constant(1.0))])
    assert edge.violation([0.5, 0.0]) == 0.5  # Σp is 0.5
    assert edge.violation([1.0, 0.0]) > 0.2


@pytest.mark.parametrize("cls", ALL)
def test_reference_is_the_nearest_to_uniform(cls):
    q = np.array([0.6, 0.3, 0.1])
    p = cls(q, 0.05).reference()
    assert cls(q, 0.05).contains(p, tol=1e-7)
    assert np.linalg.norm(p - 1 / 3) < np.linalg.norm(q - 1 / 3)
    np.testing.assert_allclose(cls(np.full(3, 1 / 3), 0.05).reference(), 1 / 3, rtol=1e-9)


def test_reference_needs_a_size_and_a_member():
    with pytest.raises(InvalidInput, match="takes its size from the losses"):
        Stated(lambda p: []).reference()
    empty = Stated(lambda p: [p[0] >= 2])
    empty.size = 2
    with pytest.raises(EmptySet):
        empty.reference()


def test_program_needs_a_size():
    with pytest.raises(InvalidInput, match="give size"):
        conic.program(Stated(lambda p: []))
    assert conic.program(Stated(lambda p: []), 3).size == 3


def test_compiled_once_and_never_pickled():
    uncertainty_set = Entropic([0.5, 0.3, 0.2], 0.1)
    first = conic.program(uncertainty_set)
    uncertainty_set.worst_case([1.0, 2.0, 3.0])
    assert conic.program(uncertainty_set) is first
    for twin in (
        pickle.loads(pickle.dumps(uncertainty_set)),
        copy.copy(uncertainty_set),
        copy.deepcopy(uncertainty_set),
    ):
        assert not any(key.startswith("_cache") for key in twin.__dict__)
        assert twin.worst_case([1.0, 2.0, 3.0]).value == pytest.approx(
            uncertainty_set.worst_case([1.0, 2.0, 3.0]).value, abs=1e-8
        )


@pytest.mark.parametrize("cls", [TotalVariation, Entropic, Transport])
def test_threads(cls):
    rng = np.random.default_rng(2)
    uncertainty_set: Ball = cls(rng.dirichlet(np.ones(6)), 0.1)
    losses = rng.normal(size=(16, 6))
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(uncertainty_set.worst_case, losses))
    for row, answer in zip(losses, together, strict=True):
        assert answer.value == pytest.approx(cls(uncertainty_set.center, 0.1).worst_case(row).value, abs=1e-7)


@pytest.mark.parametrize("cls", [TotalVariation, Euclidean, Powers])
@pytest.mark.parametrize("backend", ["auto", "scs"])
def test_cold_answers_have_no_history(cls, backend):
    rng = np.random.default_rng(4)
    q, f = random_case(rng, 6)
    fresh, used = cls(q, 0.1), cls(q, 0.1)
    for _ in range(3):
        used.worst_case(f + 0.01 * rng.normal(size=6), backend=backend)
    with cold():
        first, second = (each.worst_case(f, backend=backend) for each in (fresh, used))
    assert first.p.tobytes() == second.p.tobytes()
    assert first.upper_bound == second.upper_bound
