"""jvp and vjp of every set: against differences of the oracle, 50 digits, and each other."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests import tolerances
from tests.uncertainty_sets.cases import CLOSED
from uncertainty_sets import (
    KL,
    Box,
    Burg,
    CDNorm,
    ChiSquare,
    CressieRead,
    CVaR,
    CVaRMixture,
    Ellipsoid,
    EVaR,
    Hellinger,
    Intersection,
    Mapped,
    Nested,
    Penalised,
    Polyhedron,
    Product,
    Spectral,
    TotalVariation,
    Wasserstein,
    Wasserstein1,
    WeightedL1,
    get_set,
)
from uncertainty_sets.derivatives import face_of, sensitivity_of
from uncertainty_sets.errors import BackendUnsuitable, InvalidInput

STEP = 1e-6
SIZES = st.integers(2, 12)


def smooth_sets(size, rng):
    """Sets of which p moves with the losses, by what a failure is to say."""
    q = rng.dirichlet(np.ones(size))
    lower, upper = 0.4 * q, 1.7 * q
    shape = rng.uniform(0.5, 2.0, size) / size
    half = rng.normal(size=(size, size))
    matrix = half @ half.T / size**2 + np.eye(size) / size
    return {
        "kl": KL(q, 0.1),
        "evar": EVaR(q, 0.7),
        "chi-square": ChiSquare(q, 0.3),
        "chi-square, clipped": ChiSquare(q, 1.5),
        "hellinger": Hellinger(q, 0.05),
        "burg": Burg(q, 0.2),
        "power 1.5": CressieRead(q, 0.2, 1.5),
        "power -1": CressieRead(q, 0.2, -1.0),
        "power 3": CressieRead(q, 0.5, 3.0),
        "ellipsoid": Ellipsoid(q, shape, 0.1),
        "ellipsoid, clipped": Ellipsoid(q, shape, 0.6),
        "ellipsoid, matrix": Ellipsoid(q, matrix, 0.05),
        "ellipsoid, matrix, clipped": Ellipsoid(q, matrix, 0.5),
        "kl and box": Intersection(KL(q, 0.02), Box(lower, upper)),
        "chi-square and box": Intersection(ChiSquare(q, 0.1), Box(lower, upper)),
        "ellipsoid and box": Intersection(Ellipsoid(q, shape, 0.02), Box(lower, upper)),
        "penalised kl": Penalised("kl", q, 0.7),
        "penalised chi-square": Penalised("chi-square", q, 0.3),
        "penalised total variation": Penalised("total-variation", q, 1.3),
    }


def direction(name, like, rng):
    """A move of a parameter that keeps it one: relative to its size; of sum 0 for a centre; symmetric."""
    like = np.asarray(like, dtype=float)
    move = rng.normal(size=like.shape) * np.abs(like)
    last = name.rpartition(".")[2]
    if last == "center" or (last == "weights" and abs(like.sum() - 1.0) < 1e-9):
        move -= like * move.sum(axis=-1, keepdims=True)
    return 0.5 * (move + move.T) if last == "shape" and move.ndim == 2 else move


def differences(ask):
    """The central difference of (p, value) and how far the one-sided ones are apart: a kink shows."""
    before, here, after = ask(-STEP), ask(0.0), ask(STEP)
    central = (after.p - before.p) / (2 * STEP), (after.value - before.value) / (2 * STEP)
    bend = np.abs(after.p - 2 * here.p + before.p).max() / STEP
    return *central, bend


def check_moves(oracle, f, rng, where):
    """Every derivative of one answer against differences, and vjp as the transpose of jvp."""
    answer = oracle.worst_case(f)
    found, _ = sensitivity_of(answer)
    u, v = rng.normal(size=f.shape), rng.normal(size=f.shape[:-1])
    pulls = answer.vjp(u, value=v)
    assert set(pulls) == {"losses", *found.parameters}, where
    given_now = {"losses": f, **{name: oracle._given_by_name().get(name) for name in found.parameters}}
    for name, like in given_now.items():
        if like is None:
            continue
        move = rng.normal(size=f.shape) if name == "losses" else direction(name, like, rng)
        moved = answer.jvp(move) if name == "losses" else answer.jvp(**{name: move})

        def ask(step, name=name, like=like, move=move):
            if name == "losses":
                return oracle.worst_case(f + step * move)
            return oracle._with({name: np.asarray(like) + step * move}).worst_case(f)

        dp, value, bend = differences(ask)
        scale = 1.0 + np.abs(dp).max() + np.abs(value).max() + np.abs(moved.p).max()
        transposed = (pulls[name] * move).sum()
        assert abs((u * moved.p).sum() + (v * moved.value).sum() - transposed) <= (
            tolerances.ADJOINT * scale * f.size
        ), f"{where}: vjp by {name}"
        prices = [each for key, each in answer.dual.items() if key.endswith("eta")]
        steep = scale * (1.0 + 1.0 / max(min(prices, default=1.0), 1e-9))  # dp is of the size df·p/η
        assert np.abs(moved.p.sum(axis=-1)).max() <= tolerances.ADJOINT * steep, f"{where}: Σ dp by {name}"
        if bend > tolerances.KINK * scale:  # another face is within the step
            continue
        off = max(np.abs(moved.p - dp).max(), np.abs(moved.value - value).max())
        assert off <= tolerances.DIFFERENCES * scale, f"{where}: jvp by {name} off by {off:.2g}"


@pytest.mark.property
@pytest.mark.parametrize("name", CLOSED)
@given(size=SIZES, seed=st.integers(0, 2**32 - 1))
@settings(max_examples=10)
def test_every_set_with_a_closed_form(name, size, seed):
    rng = np.random.default_rng(seed)
    made = get_set(name).example(size, rng)
    answer = made.worst_case(rng.normal(size=size))
    assume(answer.backend == "closed-form")
    check_moves(made, answer.asked[1], rng, repr(made))


@given(size=SIZES, seed=st.integers(0, 2**32 - 1))
@settings(max_examples=15)
def test_smooth_sets_with_any_parameters(size, seed):
    rng = np.random.default_rng(seed)
    f = rng.normal(size=size)
    for name, made in smooth_sets(size, rng).items():
        check_moves(made, f, rng, f"{name}: {made!r}, losses {f.tolist()}")


@given(size=SIZES, seed=st.integers(0, 2**32 - 1))
@settings(max_examples=10)
def test_costs_orders_and_distortions(size, seed):
    rng = np.random.default_rng(seed)
    q, f, where = rng.dirichlet(np.ones(size)), rng.normal(size=size), rng.uniform(0.0, 3.0, size)
    matrix = np.abs(np.subtract.outer(where, where)) * rng.uniform(0.9, 1.1, (size, size))
    for made in (
        Wasserstein1(q, 0.2, where),
        Wasserstein1(q, 0.2, matrix),
        Wasserstein(q, 0.3, where),
        Wasserstein(q, 0.3, matrix, order=3.0),
        Wasserstein(q, 0.3, order=1.5),
        Spectral(q, np.sqrt),
        Spectral(q, lambda u: np.minimum(1.0, 0.5 * u + np.minimum(0.5, 2.0 * u))),
        CVaRMixture(q, [0.3, 1.0, 0.07], [0.4, 0.3, 0.3]),
        CDNorm(q, rng.uniform(0.2, 1.0) * q, 0.3 * size),
        WeightedL1(q, rng.uniform(0.5, 2.0, size), 0.2),
        Box(0.5 * q, 1.6 * q),
    ):
        check_moves(made, f, rng, repr(made))


def test_sets_of_sets_in_batches():
    rng = np.random.default_rng(4)
    q, within = rng.dirichlet(np.ones(2)), [rng.dirichlet(np.ones(3)) for _ in range(2)]
    inners = [KL(within[0], 0.1), ChiSquare(within[1], 0.2)]
    M = rng.dirichlet(np.ones(6), size=3)
    F, U, D = rng.normal(size=(3, 4, 6))
    for made in (
        Nested(CVaR(q, 0.4), inners),
        Nested(KL(q, 0.2), inners),
        Product(inners, q),
        Mapped(KL(np.full(3, 1 / 3), 0.2), M),
        Nested(KL(q, 0.2), [Product([KL([0.5, 0.5], 0.1), KL([1.0], 0.0)], [0.7, 0.3]), inners[1]]),
    ):
        check_moves(made, F[0], rng, repr(made))
        answer = made.worst_case(F)
        moves, pulls = answer.jvp(D), answer.vjp(U, value=np.ones(4))
        for b in range(4):
            row = made.worst_case(F[b])
            np.testing.assert_allclose(moves.p[b], row.jvp(D[b]).p, atol=1e-12)
            np.testing.assert_allclose(pulls["losses"][b], row.vjp(U[b], value=1.0)["losses"], atol=1e-12)


def test_fifty_digits():
    pytest.importorskip("mpmath")
    from bench.derivatives.digits import error, problems

    for seed in range(4):
        f, df = np.random.default_rng([1, seed]).normal(size=(2, 6))
        for name, problem in problems(6, seed).items():
            assert error(problem, f, df) <= tolerances.SMOOTH, f"{name}, seed {seed}"


def test_a_wrong_derivative_would_be_seen():
    rng = np.random.default_rng(0)
    ball = KL(rng.dirichlet(np.ones(6)), 0.1)
    twice = KL(ball.center, 0.2)
    f = rng.normal(size=6)
    answer = twice.worst_case(f)
    answer.asked = (ball, f)
    ball.worst_case = lambda losses: answer  # derivatives of another radius
    with pytest.raises(AssertionError, match="jvp by losses"):
        check_moves(ball, f, rng, "")


def test_a_batch_is_a_loop():
    rng = np.random.default_rng(1)
    F = rng.normal(size=(4, 6))
    U, D = rng.normal(size=(2, 4, 6))
    for name, made in smooth_sets(6, rng).items():
        answer = made.worst_case(F)
        pulls, moves = answer.vjp(U, value=np.ones(4)), answer.jvp(D)
        rows = [made.worst_case(f) for f in F]
        for b, row in enumerate(rows):
            np.testing.assert_allclose(moves.p[b], row.jvp(D[b]).p, atol=1e-12, err_msg=name)
            np.testing.assert_allclose(pulls["losses"][b], row.vjp(U[b], value=1.0)["losses"], atol=1e-12)
        for parameter in pulls.keys() - {"losses"}:  # one set for all rows: the sum of their pulls
            each = [row.vjp(u, value=1.0)[parameter] for row, u in zip(rows, U, strict=True)]
            np.testing.assert_allclose(pulls[parameter], sum(each), rtol=1e-9, atol=1e-11, err_msg=name)


def test_parameters_by_row():
    rng = np.random.default_rng(2)
    F, q = rng.normal(size=(3, 5)), rng.dirichlet(np.ones(5), size=3)
    radius = np.array([0.1, 0.2, 0.3])
    for kind in (KL, ChiSquare, TotalVariation):
        answer = kind(q, radius).worst_case(F)
        pulls = answer.vjp(value=np.ones(3))
        assert (pulls["center"].shape, pulls["radius"].shape) == ((3, 5), (3,))
        rows = [kind(q[b], radius[b]).worst_case(F[b]).vjp(value=1.0) for b in range(3)]
        np.testing.assert_allclose(pulls["radius"], [row["radius"] for row in rows], rtol=1e-10)
        move = rng.normal(size=3)
        one = kind(q[1], radius[1]).worst_case(F[1]).jvp(radius=move[1])
        np.testing.assert_allclose(answer.jvp(radius=move).p[1], one.p, atol=1e-12)


def test_the_face_is_the_formula():
    """J by the interface that second-order models use: symmetric, J1 = 0, and that of jvp."""
    rng = np.random.default_rng(3)
    f = rng.normal(size=6)
    for name, made in smooth_sets(6, rng).items():
        if "matrix" in name or "total" in name:
            continue
        face = face_of(made.worst_case(f))
        S, S1, g, V = np.diag(face.S), face.S1, face.g, face.V[0]
        total = S1.sum() or 1.0
        J = S - np.outer(S1, S1) / total - np.outer(S @ g, S @ g) / V
        dense = np.column_stack([face.apply(e) for e in np.eye(6)])
        np.testing.assert_allclose(J, dense, atol=1e-12, err_msg=name)
        np.testing.assert_allclose(J, J.T, atol=1e-13)
        np.testing.assert_allclose(J @ np.ones(6), 0.0, atol=1e-13)
        assert np.linalg.eigvalsh(J).min() >= -1e-13, name


class TestConventions:
    """What is returned where there is no derivative; docs/derivatives.md lists these."""

    def test_ties_at_the_threshold_move_together(self):
        answer = CVaR(np.full(4, 0.25), 0.4).worst_case([1.0, 1.0, 2.0, 0.0])
        np.testing.assert_allclose(answer.jvp(tail=1.0).p.sum(), 0.0, atol=1e-15)
        assert answer.jvp(tail=1.0).p[0] == answer.jvp(tail=1.0).p[1]

    def test_saturated_balls_follow_the_centre_on_the_largest_losses(self):
        q = np.array([0.2, 0.3, 0.5])
        answer = KL(q, 5.0).worst_case([1.0, 1.0, 0.0])
        assert (answer.jvp([0.0, 1.0, 0.0]).p == 0.0).all()
        move = np.array([0.1, -0.1, 0.0])
        np.testing.assert_allclose(answer.jvp(center=move).p, [0.2, -0.2, 0.0], atol=1e-15)
        assert answer.jvp(radius=1.0).value == 0.0

    def test_a_centre_counts_as_divided_by_its_sum(self):
        q, f = np.array([0.2, 0.3, 0.5]), [1.0, 3.0, 2.0]
        for made in (KL(q, 0.1), ChiSquare(q, 0.1), TotalVariation(q, 0.1), CVaR(q, 0.3)):
            answer = made.worst_case(f)
            np.testing.assert_allclose(answer.jvp(center=q).p, 0.0, atol=1e-15)
            assert abs(answer.vjp(value=1.0)["center"] @ q) < 1e-14

    def test_an_entry_without_mass_has_a_one_sided_derivative(self):
        q, f, step = np.array([0.0, 0.6, 0.4]), np.array([1.5, 1.0, 2.0]), 1e-7
        move = np.array([1.0, -0.6, -0.4])
        for made in (KL, ChiSquare):
            moved = made(q, 0.1).worst_case(f).jvp(center=move)
            far = made(q + step * move, 0.1).worst_case(f)
            off = np.abs((far.p - made(q, 0.1).worst_case(f).p) / step - moved.p).max()
            assert off < 1e-4, made


def test_a_radius_of_zero():
    q, f = np.array([0.2, 0.3, 0.5]), [1.0, 3.0, 2.0]
    for made in (KL(q, 0.0), ChiSquare(q, 0.0), Burg(q, 0.0), Ellipsoid(q, q, 0.0), EVaR(q, 1.0)):
        answer = made.worst_case(f)
        name = "tail" if isinstance(made, EVaR) else "radius"
        assert abs(answer.vjp(value=1.0)[name]) == np.inf, made
        assert answer.vjp(value=0.0)[name] == 0.0, made
        np.testing.assert_allclose(answer.jvp(center=[0.1, -0.1, 0.0]).p, [0.1, -0.1, 0.0], atol=1e-15)
    with pytest.raises(InvalidInput, match="derivative by radius is infinite"):
        KL(q, 0.0).worst_case(f).jvp(radius=1.0)


class TestRefusals:
    """Errors that say why."""

    def test_an_answer_of_a_solver(self):
        with pytest.raises(BackendUnsuitable, match="clarabel answered for KL"):
            KL([0.5, 0.5], 0.1).worst_case([1.0, 2.0], backend="clarabel").jvp([1.0, 0.0])

    def test_a_set_without_a_closed_form(self):
        with pytest.raises(BackendUnsuitable, match="answered for Polyhedron"):
            Polyhedron([[1.0, 0.0]], [0.7]).worst_case([1.0, 2.0]).vjp(value=1.0)

    def test_losses_that_were_overwritten(self):
        f = np.array([1.0, 2.0, 3.0])
        answer = KL(np.full(3, 1 / 3), 0.1).worst_case(f)
        f[:] = [3.0, 1.0, 2.0]
        with pytest.raises(InvalidInput, match="overwritten"):
            answer.jvp([1.0, 0.0, 0.0])

    def test_an_answer_from_a_pickle(self):
        answer = pickle.loads(pickle.dumps(KL([0.5, 0.5], 0.1).worst_case([1.0, 2.0])))
        with pytest.raises(InvalidInput, match="pickled"):
            answer.vjp(value=1.0)

    def test_shapes_and_names(self):
        answer = KL([0.5, 0.5], 0.1).worst_case([1.0, 2.0])
        with pytest.raises(InvalidInput, match=r"losses must have shape \(2,\), got \(3,\)"):
            answer.jvp([1.0, 0.0, 0.0])
        with pytest.raises(InvalidInput, match="by losses, center, radius, and none by 'tail'"):
            answer.jvp(tail=1.0)

    def test_what_is_not_a_direction(self):
        answer = KL(np.full(4, 0.25), 0.1).worst_case([1.0, 2.0, 4.0, 3.0])
        with pytest.raises(InvalidInput, match=r"p must have shape \(4,\), got the number 1.0"):
            answer.vjp(1.0)
        with pytest.raises(InvalidInput, match=r"losses must have shape \(4,\), got the number 0.01"):
            answer.jvp(0.01)
        with pytest.raises(InvalidInput, match="give p=, value= or both"):
            answer.vjp()
        with pytest.raises(InvalidInput, match="jvp needs a direction"):
            answer.jvp()
        bad = np.array([0.0, np.nan, 0.0, 0.0])
        for ask in (
            lambda: answer.vjp(bad),
            lambda: answer.vjp(value=np.nan),
            lambda: answer.jvp(bad),
            lambda: answer.jvp(radius=np.nan),
        ):
            with pytest.raises(InvalidInput, match="must not have NaN"):
                ask()

    def test_one_name(self):
        answer = KL([0.5, 0.5], 0.1).worst_case([1.0, 2.0])
        pulls = answer.vjp(value=1.0, wrt="radius")
        assert pulls.keys() == {"losses", "radius"}
        assert pulls["radius"] == answer.vjp(value=1.0)["radius"]
        with pytest.raises(InvalidInput, match="none by 'radus'; did you mean 'radius'"):
            answer.vjp(value=1.0, wrt="radus")
        with pytest.raises(InvalidInput, match="did you mean 'radius'"):
            answer.jvp(radus=1.0)


def test_the_first_derivative_is_p_for_every_set():
    F, weights = np.array([[1.0, 2.0], [3.0, 1.0]]), np.array([2.0, -1.0])
    plane = Polyhedron([[1.0, 0.0]], [0.7])
    for made in (KL([0.5, 0.5], 0.1), plane, Intersection(plane, KL([0.5, 0.5], 0.1))):
        answer = made.worst_case(F, backend="clarabel")
        np.testing.assert_array_equal(
            answer.vjp(value=weights, wrt=())["losses"], weights[:, None] * answer.p
        )
        one = made.worst_case(F[0], backend="clarabel")
        np.testing.assert_array_equal(one.vjp(value=3.0, wrt=())["losses"], 3.0 * one.p)
        for asked in ({"p": [1.0, 0.0]}, {"value": 1.0}, {"value": 1.0, "wrt": "radius"}):
            with pytest.raises(BackendUnsuitable, match=r"answer\.p"):
                one.vjp(**asked)
    indptr = [0, 2, 5]
    rows = Spectral.ragged([0.5, 0.5, 0.2, 0.3, 0.5], np.sqrt, indptr=indptr).worst_case(np.arange(5.0))
    pulled = rows.vjp(value=weights, wrt=())["losses"]
    np.testing.assert_array_equal(pulled, np.repeat(weights, [2, 3]) * rows.p)


def test_a_tangent_prints_short():
    moved = KL(np.full(1000, 1e-3), 0.1).worst_case(np.arange(1000.0)).jvp(radius=1.0)
    assert len(repr(moved)) < 200


def test_ragged_rows_are_their_sets():
    rng = np.random.default_rng(5)
    indptr, indices = np.array([0, 3, 7, 12]), rng.integers(0, 6, 12)
    values, U, D = rng.normal(size=6), rng.normal(size=12), rng.normal(size=12)
    q = np.concatenate([rng.dirichlet(np.ones(n)) for n in np.diff(indptr)])
    per_entry = rng.uniform(0.5, 2.0, 12)
    radius = np.array([0.1, 0.2, 0.15])
    for rows in (
        KL.ragged(q, radius, indptr=indptr, indices=indices),
        EVaR.ragged(q, 0.5, indptr=indptr, indices=indices),
        ChiSquare.ragged(q, radius, indptr=indptr, indices=indices),
        CressieRead.ragged(q, radius, 1.5, indptr=indptr, indices=indices),
        Ellipsoid.ragged(q, 0.2 * per_entry, radius, indptr=indptr, indices=indices),
        TotalVariation.ragged(q, radius, indptr=indptr, indices=indices),
        WeightedL1.ragged(q, per_entry, radius, indptr=indptr, indices=indices),
        CDNorm.ragged(q, 0.7 * q, 1.0, indptr=indptr, indices=indices),
        CVaR.ragged(q, 0.3, indptr=indptr, indices=indices),
        Box.ragged(0.5 * q, 1.7 * q, indptr=indptr, indices=indices),
    ):
        answer = rows.worst_case(values, scale=-0.9)
        moves, pulls = answer.jvp(D), answer.vjp(U, value=[1.0, 2.0, 3.0])
        for b in range(3):
            part = slice(indptr[b], indptr[b + 1])
            one = rows.row(b).worst_case(-0.9 * values[indices[part]])
            np.testing.assert_allclose(moves.p[part], one.jvp(D[part]).p, atol=1e-11, err_msg=repr(rows))
            np.testing.assert_allclose(moves.value[b], one.jvp(D[part]).value, atol=1e-11)
            pulled = one.vjp(U[part], value=b + 1.0)
            for name, each in pulled.items():
                whole = pulls[name]
                if each.ndim:
                    np.testing.assert_allclose(whole[part], each, atol=1e-10, err_msg=f"{rows} {name}")
                elif np.ndim(whole) and whole.size == 3:
                    np.testing.assert_allclose(whole[b], each, atol=1e-10)
    with pytest.raises(BackendUnsuitable, match="Spectral"):
        Spectral.ragged(q, np.sqrt, indptr=indptr).worst_case(values[indices]).jvp(D)
