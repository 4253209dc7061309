"""The unit in which a constraint is written decides nothing: neither the answer nor what is in the set."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from tests.uncertainty_sets.plugins import Stated
from uncertainty_sets import KL, Ellipsoid, Polyhedron, TotalVariation
from uncertainty_sets.conic import oracle as conic
from uncertainty_sets.conic.program import in_natural_units
from uncertainty_sets.errors import EmptySet, SolverFailed

SOLVERS = ("auto", "clarabel", "scs", "cvxpy")


def sized(make, size):
    subject = Stated(make)
    subject.size = size
    return subject


def total_variation(q, r, unit, link):
    def make(p):
        z = cp.Variable(q.size)
        if link is None:
            return [cp.norm1(unit * (p - q)) <= 2 * r * unit]
        return [z == link * (p - q), unit * cp.norm1(z) <= 2 * r * unit * link]

    return sized(make, q.size), TotalVariation(q, r)


def euclidean(q, r, unit, link):
    def make(p):
        z = cp.Variable(q.size)
        if link is None:
            return [unit * cp.norm(p - q) - unit * r <= 0]
        return [z == link * (p - q), cp.norm(unit * z) <= unit * link * r]

    return sized(make, q.size), Ellipsoid(q, 1.0, r * r)


def entropic(q, r, unit, link):
    def make(p):
        t = cp.Variable(q.size)
        if link is None:
            return [unit * cp.sum(cp.rel_entr(p, q)) <= unit * r]
        return [link * cp.rel_entr(p, q) <= t, unit * cp.sum(t) <= unit * link * r]

    return sized(make, q.size), KL(q, r)


def caps(q, r, unit, link):
    D, c = np.eye(q.size), np.minimum(q + r, 1.0)

    def make(p):
        z = cp.Variable(q.size)
        units = unit * np.logspace(-1, 1, q.size)
        if link is None:
            return [cp.multiply(units, p) <= units * c]
        return [z == link * p, cp.multiply(units, z) <= units * link * c]

    return sized(make, q.size), Polyhedron(D, c)


SHAPES = (total_variation, euclidean, entropic, caps)


def cases(seed, count):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        n = int(rng.integers(2, 8))
        q = 0.9 * rng.dirichlet(np.ones(n)) + 0.1 / n
        link = float(10.0 ** rng.uniform(-8, 8)) if rng.random() < 0.5 else None
        yield q, float(10.0 ** rng.uniform(-2, -0.5)), float(10.0 ** rng.uniform(-8, 8)), link, rng


@pytest.mark.parametrize("backend", SOLVERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_answers_in_any_units(shape, backend):
    """The value against the closed form of the same set; an answer that is refused counts as wrong."""
    for q, r, unit, link, rng in cases(3, 3):
        subject, plain = shape(q, r, unit, link)
        f = rng.normal(size=q.size)
        answer, best = subject.worst_case(f, backend=backend), plain.worst_case(f).value
        room = (1e-7 if backend in {"auto", "clarabel"} else 1e-5) * np.ptp(f)
        assert abs(answer.value - best) <= room, (unit, link)
        assert answer.upper_bound >= best - 1e-9 * np.ptp(f), (unit, link)
        assert plain.violation(answer.p) <= 1e-5


@pytest.mark.thorough
@pytest.mark.parametrize("shape", SHAPES)
def test_many_answers_in_any_units(shape):
    for q, r, unit, link, rng in cases(4, 200):
        subject, plain = shape(q, r, unit, link)
        for backend in SOLVERS:
            f = rng.normal(size=q.size)
            answer, best = subject.worst_case(f, backend=backend), plain.worst_case(f).value
            room = (1e-7 if backend in {"auto", "clarabel"} else 1e-4) * np.ptp(f)
            assert abs(answer.value - best) <= room, (backend, unit, link)


@pytest.mark.parametrize("shape", SHAPES)
def test_membership_in_any_units(shape):
    for q, r, unit, link, rng in cases(5, 3):
        subject, plain = shape(q, r, unit, link)
        edge = plain.worst_case(rng.normal(size=q.size)).p
        assert subject.contains(q)
        assert subject.contains(0.01 * q + 0.99 * edge, tol=1e-8), (unit, link)
        for share in (1e-3, 0.1, 0.5):
            outside = edge + share * (edge - q)
            if outside.min() >= 0.0:
                assert not subject.contains(outside, tol=1e-7), (unit, link, share)
                off = 0.5 * np.abs(outside - edge).sum()  # in total variation, to a point of the set
                assert 1e-2 * off <= subject.violation(outside) <= 30.0 * off, (unit, link, share)
        assert plain.contains(subject.reference(), tol=1e-7), (unit, link)


def test_references_lie_inside():
    q = np.array([0.5, 0.3, 0.2])
    subject = sized(lambda p: [cp.norm(1e-5 * (p - q)) <= 1e-6], 3)
    assert np.linalg.norm(subject.reference() - q) <= 0.1 + 1e-9
    assert not subject.contains([0.0, 0.0, 1.0], tol=1e-7)
    assert subject.worst_case([0.0, 1.0, 3.0], backend="scs").value == pytest.approx(1.1160247, abs=1e-6)


def test_auxiliary_variables_get_their_natural_units():
    q = np.array([0.5, 0.3, 0.2])
    tiny, _ = total_variation(q, 0.1, 1.0, 1e-8)
    given = conic.program(tiny)
    natural = in_natural_units(given)
    assert (natural.A[:, given.columns] != given.A[:, given.columns]).nnz == 0
    sizes = np.abs(natural.A[given.rows("zero")].tocoo().data)
    assert sizes.max() / sizes.min() < 1e9
    plain, _ = total_variation(q, 0.1, 1.0, 1.0)
    ordinary = conic.program(plain)
    assert in_natural_units(ordinary) is ordinary


# -- what counts as empty


@pytest.mark.parametrize("unit", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("lack", [2e-6, 1e-3, 0.5])
def test_a_set_empty_by_little_is_empty(unit, lack):
    cap = (1.0 - lack) / 3
    with pytest.raises(EmptySet, match="checked multipliers prove"):
        sized(lambda p: [unit * p <= unit * cap], 3).worst_case([1.0, 2.0, 3.0])
    q = np.array([0.5, 0.3, 0.2])
    for backend in ("auto", "clarabel", "scs"):
        far = sized(lambda p: [unit * cp.norm(p - q) <= unit * 0.1, p[0] >= 0.7 + lack], 3)
        with pytest.raises(EmptySet):
            far.worst_case([1.0, 2.0, 3.0], backend=backend)
    with pytest.raises(EmptySet):
        sized(lambda p: [p[0] == 0.2, unit * p[0] == unit * (0.2 + lack)], 3).reference()


def test_a_set_of_one_point_is_not_empty():
    """Caps that sum to 1 up to rounding leave one distribution, whatever a solver says."""
    rng = np.random.default_rng(0)
    for _ in range(8):
        q = rng.dirichlet(np.ones(4))
        f = rng.normal(size=4)
        subject = sized(lambda p, q=q: [p <= q], 4)
        for backend in ("auto", "scs"):
            answer = subject.worst_case(f, backend=backend)
            assert answer.value == pytest.approx(q @ f, abs=1e-4 * np.ptp(f))


def test_a_solver_that_says_infeasible_is_not_believed(monkeypatch):
    from uncertainty_sets.backends.clarabel_ import ClarabelSolver

    q = np.array([0.5, 0.3, 0.2])
    subject, _ = euclidean(q, 0.1, 1.0, None)
    honest = ClarabelSolver.solve
    monkeypatch.setattr(
        ClarabelSolver,
        "solve",
        lambda self, cost: honest(self, cost)._replace(outcome="infeasible", status="AlmostInfeasible"),
    )
    assert subject.worst_case([1.0, 2.0, 3.0]).backend == "scs"
    with pytest.raises(SolverFailed, match="says 'AlmostInfeasible', which could not be proved"):
        subject.worst_case([1.0, 2.0, 3.0], backend="clarabel")
