"""Every update of the paper against the Lagrangian, and a whole run against thirty lines of NumPy."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest

from fdro_core import AspireEase, Constant, LeastSquares, VirtualEngine, solve
from fdro_core.aspire.admm.adversary import setting_2
from fdro_core.protocol.engine import Event
from fdro_core.protocol.messages import Step, Update
from tests.fdro_core.helpers import machines, middle_box, softmax_problems, square_problems

PAPER = {
    "penalty": 0.7,
    "worker_step": 0.05,
    "consensus_step": 0.03,
    "value_update": "gradient",
    "value_step": 0.02,
    "plane_dual_step": 0.4,
    "consensus_dual_step": 0.6,
    "regularisation": "setting-2",
    "plane_damping_floor": 0.01,
    "consensus_damping_floor": 0.01,
    "metric": "none",
}


def lagrangian(problems, P, W, z, h, lam, Phi, kappa, c1, c2):
    """L̃_p of the paper."""
    f = np.array([problem.loss_and_gradient(w)[0] for problem, w in zip(problems, W, strict=True)])
    value = h + lam @ (P @ f - h) + np.sum(Phi * (z - W)) + 0.5 * kappa * np.sum((z - W) ** 2)
    return value - 0.5 * c1 * np.sum(lam**2) - 0.5 * c2 * np.sum(Phi**2)


def slope(function, x, eps=1e-6):
    """Central differences of a function of an array."""
    x = np.asarray(x, dtype=float)
    out = np.empty_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += eps
        down[i] -= eps
        out[i] = (function(up) - function(down)) / (2 * eps)
    return out


def test_every_update_is_the_lagrangians_gradient_step():
    N = 3
    problems = square_problems(N)
    config = AspireEase(active_workers=2, plane_interval=10**6, **PAPER)
    master, workers = machines(problems, middle_box(N), config)
    rng = np.random.default_rng(5)
    p = z_size = problems[0].dimension
    W, Phi, z = rng.normal(size=(N, p)), rng.normal(size=(N, p)), rng.normal(size=z_size)
    planes = np.array([master.adversary.planes.table[:, 0], [0.1, 0.1, 0.8]])
    lam, h, kappa = np.array([0.6, 0.3]), 0.37, config.penalty
    # Put machines into that state.
    master.adversary.planes._add(planes[1], 0.0)
    master.adversary.planes.multipliers[:] = lam
    state = master.consensus
    master.adversary.value, state.z = h, z.copy()
    state.w, state.U[:] = list(W), Phi  # U is φ/D, and D = 1 here
    state.total = W.sum(axis=0) - Phi.sum(axis=0) / kappa
    master.adversary.losses[:] = [q.loss_and_gradient(w)[0] for q, w in zip(problems, W, strict=True)]
    master.adversary.planes.refresh(master.adversary.losses)
    for j, worker in enumerate(workers):
        worker.state.w = W[j]
        worker.state.gradient = problems[j].loss_and_gradient(W[j])[1]
    t = 0
    c1 = setting_2(config.plane_dual_step, t, config.plane_damping_floor)
    c2 = setting_2(config.consensus_dual_step, t, config.consensus_damping_floor)

    def value(W, z, h, lam, Phi):
        return lagrangian(problems, planes, W, z, h, lam, Phi, kappa, c1, c2)

    # Workers 0 and 2 step from (z, λ); φ stands still in this first half.
    steps = dict(master.start())
    replies = {}
    for j in (0, 2):
        step = Step(steps[j].ticket, Phi[j] + kappa * z, float(lam @ planes[:, j]), kappa, step=steps[j].step)
        replies[j] = workers[j].handle(step)
    new_W = W.copy()
    for j in (0, 2):

        def along(row, j=j):
            return value(np.vstack([row if i == j else W[i] for i in range(N)]), z, h, lam, Phi)

        new_W[j] = W[j] - config.worker_step * slope(along, W[j])
        np.testing.assert_allclose(replies[j].w, new_W[j], rtol=1e-7)

    # The master closes the iteration.
    assert master.handle(Event(1.0, 0, replies[0])) == []
    outgoing = dict(master.handle(Event(1.1, 2, replies[2])))
    new_z = z - config.consensus_step * slope(lambda v: value(new_W, v, h, lam, Phi), z)
    np.testing.assert_allclose(master.z, new_z, rtol=1e-7)
    new_h = h - config.value_step * float(slope(lambda v: value(new_W, new_z, v[0], lam, Phi), [h])[0])
    assert master.adversary.value == pytest.approx(new_h, rel=1e-7)
    new_lam = lam + config.plane_dual_step * slope(lambda v: value(new_W, new_z, new_h, v, Phi), lam)
    np.testing.assert_allclose(master.adversary.planes.multipliers, np.maximum(new_lam, 0.0), rtol=1e-6)
    gradient = slope(lambda v: value(new_W, new_z, new_h, new_lam, v), Phi)
    new_Phi = Phi.copy()
    new_Phi[[0, 2]] += config.consensus_dual_step * gradient[[0, 2]]
    np.testing.assert_allclose(state.U, new_Phi, rtol=1e-7)

    # Each gets φ_j + κ₁z in one vector, and the weight Pᵀλ.
    for j in (0, 2):
        assert outgoing[j].weight == pytest.approx(float(new_lam @ planes[:, j]), rel=1e-6)
        np.testing.assert_allclose(outgoing[j].pull, new_Phi[j] + kappa * new_z, rtol=1e-7)


def synchronous(problems, P, iterations, kappa, L):
    """S = N with the default rules and fixed planes, κ₁ and ρ₁, in plain NumPy."""
    N, p = len(problems), problems[0].dimension
    W, Phi, z, rho = np.zeros((N, p)), np.zeros((N, p)), np.zeros(p), 0.3
    lam = np.zeros(len(P))
    lam[0] = 1.0
    for t in range(iterations):
        if t:
            Phi = Phi + kappa * (z - W)
        s = P.T @ lam
        for j, problem in enumerate(problems):
            _, g = problem.loss_and_gradient(W[j])
            W[j] = W[j] - (s[j] * g - Phi[j] + kappa * (W[j] - z)) / (s[j] * L[j] + kappa)
        f = np.array([problem.loss_and_gradient(w)[0] for problem, w in zip(problems, W, strict=True)])
        z = W.mean(axis=0) - Phi.mean(axis=0) / kappa
        v = lam + rho * (P @ f)
        order = np.sort(v)[::-1]
        cumulative = (np.cumsum(order) - 1) / np.arange(1, len(v) + 1)
        lam = np.maximum(v - cumulative[np.flatnonzero(order > cumulative)[-1]], 0.0)
    return z, W, lam


def test_all_workers_active_equals_a_plain_synchronous_loop():
    N = 4
    problems = softmax_problems(N)
    config = AspireEase(
        active_workers=N,
        iterations=60,
        metric="none",
        plane_interval=10**6,
        penalty=0.2,
        plane_dual_step=0.3,
    )
    extra = np.array([0.7, 0.1, 0.1, 0.1])
    seen = {}

    class TwoPlanes:
        size = N

        def reference(self):
            return np.full(N, 0.25)

        def worst_case(self, losses):
            return type("Answer", (), {"p": extra, "value": float(extra @ losses)})

    def keep(run, entry):
        seen["master"] = run.master

    master, workers = machines(problems, TwoPlanes(), config)
    master.adversary.planes._add(extra, float(extra @ master.adversary.losses))
    curvatures = master.adversary.curvature.copy()
    outgoing = master.start()
    while master.iteration < 60:
        following = []
        for j, step in outgoing:
            following += master.handle(Event(0.0, j, workers[j].handle(step)))
        outgoing = following
    assert np.array_equal(curvatures, master.adversary.curvature), (
        "this test needs curvatures that are never raised"
    )
    P = np.vstack([np.full(N, 0.25), extra])
    z, W, lam = synchronous(problems, P, 60, 0.2, curvatures)
    np.testing.assert_allclose(master.z, z, atol=1e-12)
    np.testing.assert_allclose(master.consensus.w, W, atol=1e-12)
    np.testing.assert_allclose(master.adversary.planes.multipliers, lam, atol=1e-12)


def test_running_sums_stay_what_they_sum():
    N = 6
    config = AspireEase(active_workers=2, iterations=400, parameter_bound=0.3, consensus_dual_bound=0.02)
    kept = []
    solve(
        softmax_problems(N),
        middle_box(N),
        algorithm=config,
        engine=VirtualEngine(seed=3),
        observers=[lambda run, entry: kept.append(run.master) and None],
    )
    master = kept[-1]
    state = master.consensus
    total = np.sum(state.w, axis=0) - state.U.sum(axis=0) / state.penalty
    np.testing.assert_allclose(state.total, total, atol=1e-12)
    np.testing.assert_allclose(
        master.adversary.planes.losses, master.adversary.planes.matrix() @ master.adversary.losses, atol=1e-10
    )
    assert np.abs(master.z).max() <= 0.3
    assert np.abs(state.w).max() <= 0.3
    assert np.abs(state.metric * state.U).max() == pytest.approx(0.02)


def test_one_pass_for_one_worker_equals_the_general_passes():
    problems, box = softmax_problems(5), middle_box(5)
    engine = partial(VirtualEngine, seed=1, delays=Constant(1.0))
    given = {"iterations": 200, "plane_dual_step": 0.1}  # so that no plane hangs on the last bit of a λ
    fast = solve(problems, box, algorithm=AspireEase(**given), engine=engine())
    slow = solve(problems, box, algorithm=AspireEase(**given, parameter_bound=1e300), engine=engine())
    np.testing.assert_allclose(fast.w, slow.w, atol=1e-12)


def play(config, order, *, single):
    """A master that gets the replies in a given order, by the short path or by the general one."""
    master, workers = machines(softmax_problems(4), middle_box(4), config)
    assert master.single
    master.single = single
    under_way = dict(master.start())
    for time, choice in enumerate(order):
        waiting = sorted(under_way)
        j = waiting[choice % len(waiting)]
        reply = workers[j].handle(under_way.pop(j))
        under_way.update(master.handle(Event(float(time), j, reply)))
    return master


@pytest.mark.parametrize(
    "given", [{}, {"max_staleness": 5}, {"active_workers": 2}, {"plane_interval": 3}], ids=str
)
def test_the_short_path_for_one_worker_keeps_the_same_books(given):
    order = np.random.default_rng(0).integers(0, 12, size=60)
    config = AspireEase(**given, plane_dual_step=0.1)  # so that no plane hangs on the last bit of a λ
    short, general = (play(config, order, single=single) for single in (True, False))
    assert short.iteration == general.iteration > 20
    for name in ("sent", "received", "gradients", "theorem_numbers", "time"):
        assert getattr(short, name) == getattr(general, name)
    assert list(short.roster.pending) == list(general.roster.pending)
    ours, theirs = short.roster.snapshot(), general.roster.snapshot()
    assert {k: v for k, v in ours.items() if k != "pending"} == {
        k: v for k, v in theirs.items() if k != "pending"
    }
    np.testing.assert_allclose(short.z, general.z, atol=1e-12)
    np.testing.assert_allclose(short.weights, general.weights, atol=1e-12)
    np.testing.assert_allclose(short.adversary.losses, general.adversary.losses, atol=1e-12)


def test_one_call_for_one_worker_moves_the_planes_as_the_general_calls_do():
    adversary = play(AspireEase(), range(40), single=True).adversary
    assert adversary.climbs
    assert adversary.planes.size > 1
    other = copy.deepcopy(adversary)
    other.planes._view()  # the copies of views are no views
    update = Update(0, np.zeros(1), float(adversary.losses[2]) + 0.1, 2.0, 3.0)
    assert adversary.respond_to_one(2, update, 0) == pytest.approx(other.respond([(2, update)], 0, 0.0)[0])
    assert adversary.value == pytest.approx(other.value)
    for name in ("losses", "gradient_sq", "curvature"):
        assert np.array_equal(getattr(adversary, name), getattr(other, name))
    for name in ("losses", "multipliers", "previous"):
        np.testing.assert_allclose(getattr(adversary.planes, name), getattr(other.planes, name), rtol=1e-9)


def test_a_step_asked_twice_is_taken_once():
    config = AspireEase(active_workers=1)
    master, workers = machines(square_problems(2), middle_box(2), config)
    steps = dict(master.start())
    first = workers[0].handle(steps[0])
    again = workers[0].handle(steps[0])
    assert isinstance(first, Update)
    assert isinstance(again, Update)
    assert np.array_equal(first.w, again.w)
    assert workers[0].state.steps == 2
    master.handle(Event(1.0, 0, first))
    before = (master.iteration, master.z.copy())
    assert master.handle(Event(1.2, 0, again)) == []
    assert master.iteration == before[0]
    assert np.array_equal(master.z, before[1])


class Counting(LeastSquares):
    """Writes down on how many samples it is evaluated."""

    def __init__(self, A, b):
        super().__init__(A, b, intercept=False)
        self.sizes = []

    def loss_and_gradient(self, w, rng=None, batch_size=None):
        self.sizes.append(self.samples if batch_size is None else min(batch_size, self.samples))
        return super().loss_and_gradient(w, rng, batch_size)


@pytest.mark.parametrize(("batch", "sizes"), [(None, {5000}), (8, {5000, 1024}), (2000, {5000, 2000})])
def test_with_mini_batches_the_curvature_is_that_of_a_sample(batch, sizes):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(5000, 4)) * [3.0, 1.0, 1.0, 0.1]
    problem = Counting(A, rng.normal(size=5000))
    config = AspireEase(batch_size=batch, metric="none", seed=1)
    master, _ = machines([problem], middle_box(1), config)
    assert set(problem.sizes) == sizes
    assert problem.sizes.count(5000) == (9 if batch is None else 1)
    largest = np.linalg.eigvalsh(A.T @ A / 5000)[-1]
    assert master.adversary.curvature[0] == pytest.approx(largest, rel=0.1 if batch else 1e-3)


def test_losses_below_zero_are_followed_or_refused():
    from fdro_core.errors import DriverError
    from tests.fdro_core.helpers import Quadratic

    problems = [Quadratic([0.0], shift=-3.0), Quadratic([2.0], shift=-3.0)]
    result = solve(problems, middle_box(2))
    assert result.objective == pytest.approx(-2.5, abs=1e-6)
    with pytest.raises(DriverError, match="value_floor") as caught:
        solve(problems, middle_box(2), algorithm=AspireEase(value_floor=0.0))
    assert caught.value.result is not None
