"""`local_steps` with `AspireModels`: the steps against references; they keep the fixed point."""

from __future__ import annotations

import numpy as np
import pytest

from bench.driver.problems import (
    Scaled,
    classification,
    reference,
    regression,
    relative_gap,
    robust_value,
    six_sets,
)
from fdro_core import (
    AspireModels,
    HuberRegression,
    Straggler,
    VirtualEngine,
    resume,
    solve,
)
from fdro_core.aspire.models import local
from fdro_core.aspire.models.full import FullModels
from fdro_core.aspire.models.messages import EvaluateAhead, EvaluateMean, Evaluation, EvaluationAhead
from fdro_core.aspire.models.sampled import SampledModels
from fdro_core.aspire.models.worker import ModelWorker
from fdro_core.aspire.planes import Planes
from fdro_core.errors import CheckpointDamaged
from fdro_core.observers import Checkpoint
from fdro_core.protocol.replies import fault
from fdro_core.protocol.saved import Saved
from tests.fdro_core.helpers import Quadratic, middle_box, same, softmax_problems
from tests.fdro_core.test_checkpoint import SCENES
from uncertainty_sets import Box

N, P, E = 5, 4, 3


def models(**settings):
    return AspireModels(**settings)


def planes_of(rng):
    """Two random planes, with weights."""
    planes = Planes(rng.dirichlet(np.ones(N)), keep_all=True, limit=20)
    planes.update(np.eye(N)[0], 9.0 * np.eye(N)[0])
    assert planes.size == 2
    planes.multipliers[:] = rng.dirichlet(np.ones(2))
    return planes


# -- the steps against references ---------------------------------------------------------------------------


def test_full_batches_step_on_the_corrected_loss():
    """The worker ends where the formula over all gradients ends, and reports exact values there."""
    rng = np.random.default_rng(0)
    planes, z, metric = planes_of(rng), rng.normal(size=P), rng.uniform(0.5, 2.0, size=P)
    problems = [Quadratic(rng.normal(size=P), scale) for scale in (0.5, 1.0, 2.0, 3.0, 4.0)]
    first = [problem.loss_and_gradient(z) for problem in problems]
    G = np.array([gradient for _, gradient in first])
    c = rng.uniform(4.0, 8.0, size=N)
    state = FullModels(planes, z, metric, np.array([loss for loss, _ in first]), G, c, local_steps=True)
    for _ in range(20):
        j = int(rng.integers(N))
        G[j] = rng.normal(size=P)
        state.controls.learn(j, G[j])
    z = rng.normal(size=P)
    for j in range(N):
        worker = ModelWorker(j, problems[j], seed=0, batch_size=None, local_steps=E)
        message = EvaluateAhead(7, z, *state.local_step(j, E))
        reply = worker.handle(message)
        assert fault(message, reply) == ""
        d, y = planes.weights() @ G, z
        longest = max(c[j], planes.weights() @ c)  # no step is longer than one of the whole objective
        for _ in range(E - 1):
            slope = problems[j].loss_and_gradient(y)[1] - G[j] + d
            y = y - (slope / metric / longest + local.DAMPING * (y - z)) / (1.0 + local.DAMPING)
        np.testing.assert_allclose(reply.point, y, rtol=1e-10)
        loss, gradient = problems[j].loss_and_gradient(reply.point)
        assert reply.loss == loss
        np.testing.assert_array_equal(reply.gradient, gradient)
        np.testing.assert_array_equal(reply.first, problems[j].loss_and_gradient(z)[1])


def test_mini_batches_report_means_and_go_no_further_than_their_reach():
    rng = np.random.default_rng(1)
    planes, z, G = planes_of(rng), rng.normal(size=P), rng.normal(size=(N, P))
    eta = 0.1
    state = SampledModels(planes, z, np.zeros(N), G, step=local.long_step(eta, E), prox=0.1, window=0.1)
    state.epochs = 50.0  # η is at its longest, so that the reach matters
    problem = Quadratic(rng.normal(size=P), 3.0)
    for j in range(N):
        worker = ModelWorker(j, problem, seed=0, batch_size=1, local_steps=E)
        message = EvaluateMean(7, z, *state.local_step(j, E), state.reach(E))
        reply = worker.handle(message)
        assert fault(message, reply) == ""
        step, y, seen, clipped = state.step_size / E, z, [], False
        reach = local.CLIP * eta / np.sqrt(E)
        for _ in range(E):
            loss, gradient = problem.loss_and_gradient(y)
            seen.append((loss, gradient))
            move = step * (gradient - G[j] + planes.weights() @ G) / state.metric
            clipped |= bool((np.abs(move) > reach).any())
            y = y - np.clip(move, -reach, reach)
        assert clipped
        assert reply.loss == pytest.approx(np.mean([loss for loss, _ in seen]))
        np.testing.assert_allclose(reply.gradient, np.mean([g for _, g in seen], axis=0), rtol=1e-10)


def test_the_sums_of_the_controls_follow_every_reply():
    rng = np.random.default_rng(2)
    planes = planes_of(rng)
    controls = local.Controls(planes, rng.normal(size=(N, P)))
    for _ in range(30):
        controls.learn(int(rng.integers(N)), rng.normal(size=P))
        kept = controls.slopes.copy()
        controls.recentre()
        np.testing.assert_allclose(kept, controls.slopes, atol=1e-12)
    np.testing.assert_allclose(
        controls.correction(3), planes.weights() @ controls.gradients - controls.gradients[3], atol=1e-12
    )


@pytest.mark.parametrize("name", ["gradients", "slopes"])
def test_damaged_controls_are_refused(name):
    rng = np.random.default_rng(3)
    planes = planes_of(rng)
    state = local.Controls(planes, rng.normal(size=(N, P))).snapshot()
    saved = Saved("run.npz", {}, {"N": N, "p": P, "planes": planes.size}, force=False)
    local.Controls.check_saved(saved, "models", state)
    with pytest.raises(CheckpointDamaged, match=f"models.{name} must be an array .*entries where"):
        local.Controls.check_saved(saved, "models", state | {name: state[name][1:]})


# -- the fixed point ----------------------------------------------------------------------------------------


def gap(kind, S, **engine):
    """How far E = 5 local steps end from the optimum of least squares with very different workers."""
    problems, chosen = regression(4, seed=5), six_sets(4, seed=5)[kind]
    best, _ = reference(problems, chosen)
    algorithm = models(active_workers=S, iterations=480 // S, local_steps=5, tolerance=0.0)
    result = solve(problems, chosen, algorithm=algorithm, engine=VirtualEngine(seed=1, **engine))
    start = robust_value(problems, chosen, np.zeros(problems[0].dimension))
    return abs(relative_gap(robust_value(problems, chosen, result.w), best, start))


@pytest.mark.parametrize("kind", sorted(six_sets(4)))
@pytest.mark.parametrize("S", [1, 2, 4])
def test_full_batches_reach_the_optimum(kind, S):
    assert gap(kind, S) < 1e-7


def test_full_batches_reach_the_optimum_with_a_straggler():
    assert gap("kl", 1, stragglers=[Straggler(2, 20.0)]) < 1e-7


def test_without_the_correction_they_do_not(monkeypatch):
    monkeypatch.setattr(local.Controls, "correction", lambda self, j: np.zeros_like(self.gradients[j]))
    assert gap("kl", 1) > 1e-6


def at_the_optimum():
    """Models of mini-batches at the optimum of two quadratics, with exact gradients there."""
    problems = [Quadratic([0.0, 1.0], 1.0), Quadratic([3.0, -1.0], 2.0)]
    z = np.array([2.0, -1.0 / 3.0])  # the mean of the centres with weights 1 : 2, for p = (½, ½)
    G = np.array([problem.loss_and_gradient(z)[1] for problem in problems])
    np.testing.assert_allclose(G.sum(axis=0), 0.0, atol=1e-15)
    planes = Planes(np.array([0.5, 0.5]), keep_all=True, limit=20)
    losses = np.array([problem.loss_and_gradient(z)[0] for problem in problems])
    state = SampledModels(planes, z, losses, G, step=0.1, prox=0.1, window=0.1)
    state.squares = np.ones(2)
    return problems, state


@pytest.mark.parametrize("corrected", [True, False])
def test_mini_batches_stay_at_the_optimum(corrected):
    problems, state = at_the_optimum()
    z = state.z
    for turn in range(20):
        j = turn % 2
        scale, shift = state.local_step(j, 5)
        worker = ModelWorker(j, problems[j], seed=0, batch_size=1, local_steps=5)
        sent = state.z
        reply = worker.handle(EvaluateMean(turn, sent, scale, shift if corrected else 0.0 * shift))
        state.learn(j, sent, reply.loss, reply.gradient)
        state.step(5 / 2)
    moved = float(np.abs(state.z - z).max())
    assert moved < 1e-12 if corrected else moved > 1e-3


@pytest.mark.parametrize("curvature", [1.0, 30.0, 1e3, 1e6])
def test_a_local_step_that_raises_its_loss_is_undone(curvature):
    """With a c_j that is too small by any factor, φ at the end is never above φ at z."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        problem, z = Quadratic(rng.normal(size=P), curvature), 3.0 * rng.normal(size=P)
        scale, shift = rng.uniform(0.5, 2.0, size=P), rng.normal(size=P)

        def value(y, problem=problem, z=z, scale=scale, shift=shift):
            away = y - z
            return (
                problem.loss_and_gradient(y)[0]
                + (shift / scale) @ away
                + 0.25 * away**2 @ (1.0 / scale) / 1.5
            )

        reply = ModelWorker(0, problem, seed=0, batch_size=None, local_steps=8).handle(
            EvaluateAhead(1, z, scale, shift)
        )
        assert value(reply.point) <= value(z) + 1e-12 * abs(value(z))
        assert reply.loss == problem.loss_and_gradient(reply.point)[0]
        np.testing.assert_array_equal(reply.gradient, problem.loss_and_gradient(reply.point)[1])


@pytest.mark.parametrize("factor", [900.0, 1e4])
@pytest.mark.parametrize("make", [regression, classification])
def test_workers_in_other_units_reach_the_optimum_as_without_local_steps(make, factor):
    problems = [Scaled(each, factor if j == 0 else 1.0) for j, each in enumerate(make(4, seed=0))]
    chosen = six_sets(4, seed=0)["kl"]
    plain = solve(problems, chosen, algorithm=models(iterations=800))
    start = robust_value(problems, chosen, np.zeros(problems[0].dimension))
    for steps in (2, 5, 10):
        result = solve(problems, chosen, algorithm=models(iterations=800, local_steps=steps))
        assert result.objective == pytest.approx(plain.objective, rel=1e-6)
        assert not result.suspicious.keys() - plain.suspicious.keys()
        reports = [entry for entry in result.history if entry["event"] == "report"]
        assert max(entry["objective"] for entry in reports) < 3.0 * start


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("far", [1e2, 1e6])
def test_a_far_start_where_losses_are_linear(workers, far):
    rng = np.random.default_rng(0)
    problems = [
        HuberRegression(rng.normal(size=(30, 3)), rng.normal(size=30), epsilon=1.0) for _ in range(workers)
    ]
    everyone, start = Box(np.zeros(workers), np.ones(workers)), np.full(4, far)
    ends = [
        solve(problems, everyone, algorithm=models(local_steps=steps, iterations=900), start=start).objective
        for steps in (1, 2, 5)
    ]
    np.testing.assert_allclose(ends, ends[0], rtol=1e-7)


# -- messages -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("batch_size", "down", "up"), [(None, 3 * 9 + 1, 3 * 9 + 2), (4, 3 * 9 + 2, 9 + 2)])
def test_gradients_and_numbers_are_counted(batch_size, down, up):
    def counts(local_steps, iterations):
        settings = {"local_steps": local_steps, "iterations": iterations, "report_interval": 1}
        algorithm = models(batch_size=batch_size, active_workers=N, tolerance=0.0, **settings)
        history = solve(softmax_problems(N), middle_box(N), algorithm=algorithm).history
        reports = [entry for entry in history if entry["event"] == "report"]
        last, before = reports[-1], reports[-2]
        return tuple(last[key] - before[key] for key in ("gradients", "bits_down", "bits_up"))

    assert counts(1, 8) == (N, 32 * N * (9 + 1), 32 * N * (9 + 2))
    assert counts(E, 8) == (E * N, 32 * N * down, 32 * N * up)


@pytest.mark.filterwarnings("ignore::fdro_core.errors.WorkerWarning")
@pytest.mark.parametrize("batch_size", [None, 4])
def test_a_repeated_message_is_the_same_and_gets_the_same_answer(batch_size, monkeypatch):
    """A message that was lost on its way is sent again, as it was."""
    seen, again = {}, []
    handle = ModelWorker.handle

    def watched(self, message):
        reply = handle(self, message)
        if isinstance(message, EvaluateMean):
            key = (self.index, message.ticket)
            if key in seen:
                again.append(key)
                for one, other in ((message, seen[key][0]), (reply, seen[key][1])):
                    for name, value in one.fields().items():
                        np.testing.assert_array_equal(value, getattr(other, name))
            seen[key] = message, reply
        return reply

    monkeypatch.setattr(ModelWorker, "handle", watched)
    engine = VirtualEngine(seed=3, lost=0.1, repeated=0.1)
    algorithm = models(
        local_steps=E, batch_size=batch_size, deadline=3.0, iterations=150, active_workers=2, tolerance=0.0
    )
    solve(softmax_problems(N), middle_box(N), algorithm=algorithm, engine=engine)
    assert again


def test_the_batches_of_local_steps_differ():
    """Two local steps that do not move draw two batches."""
    problem = softmax_problems(1)[0]
    z, nothing = np.linspace(-1.0, 1.0, problem.dimension), np.zeros(problem.dimension)
    one = ModelWorker(0, problem, seed=3, batch_size=4)
    two = ModelWorker(0, problem, seed=3, batch_size=4, local_steps=2)
    message = EvaluateMean(1, z, nothing, nothing)
    assert one.handle(message).loss != two.handle(message).loss


def test_replies_of_the_wrong_form_are_refused():
    z = np.zeros(2)
    message = EvaluateAhead(1, z, z, z)
    assert "EvaluationAhead is needed" in fault(message, Evaluation(1, 0.0, z))
    assert "point of shape (3,)" in fault(message, EvaluationAhead(1, 0.0, z, np.zeros(3), z))
    assert "first of type list" in fault(message, EvaluationAhead(1, 0.0, z, z, [0.0, 0.0]))
    assert fault(message, EvaluationAhead(1, 0.0, z, z, z)) == ""


class Torn(Quadratic):
    """Returns a gradient that is not finite at one call: the second of a message with local steps."""

    calls = 0

    def loss_and_gradient(self, w, rng=None, batch_size=None):
        self.calls += 1
        loss, gradient = super().loss_and_gradient(w)
        return loss, gradient * np.nan if self.calls == 30 else gradient


@pytest.mark.filterwarnings("ignore::fdro_core.errors.WorkerWarning")
@pytest.mark.parametrize("batch_size", [None, 1])
def test_a_bad_local_step_is_left_out(batch_size):
    problems = [Quadratic([0.0]), Torn([1.0]), Quadratic([2.0])]
    algorithm = models(local_steps=E, iterations=200, batch_size=batch_size, tolerance=0.0)
    result = solve(problems, Box(np.zeros(3), np.ones(3)), algorithm=algorithm)
    assert any(entry["event"] == "bad-update" for entry in result.history)
    assert np.isfinite(result.w).all()


# -- resume -------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::fdro_core.errors.WorkerWarning")
@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("stop", [3, 37])
def test_resume_equals_uninterrupted(scene, stop, tmp_path):
    settings, engine = SCENES[scene]
    settings = {**settings, "local_steps": E}
    problems, box, path = softmax_problems(N), middle_box(N), tmp_path / "run.npz"

    def engines():
        return VirtualEngine(seed=2, **engine)

    whole = solve(problems, box, algorithm=models(iterations=200, **settings), engine=engines())
    same(whole, solve(problems, box, algorithm=models(iterations=200, **settings), engine=engines()))
    first = models(iterations=stop, **settings)
    solve(problems, box, algorithm=first, engine=engines(), observers=[Checkpoint(path)])
    rest = resume(path, problems, box, algorithm=models(iterations=200, **settings), engine=engines())
    same(whole, rest)
