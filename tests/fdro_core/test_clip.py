"""`AspireModels(clip=c)`: what one worker can do by its replies is bounded by what the others report."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest

from bench.driver.problems import classification, reference, robust_value, six_sets
from fdro_core import AspireModels, LogNormal, ThreadEngine, VirtualEngine, resume, solve
from fdro_core.aspire.models.clipping import Clip
from fdro_core.aspire.models.messages import Evaluate, Evaluation
from fdro_core.errors import CheckpointDamaged, CheckpointMismatch, InvalidSetting, WorkerWarning
from fdro_core.master.outliers import others_median, others_spread
from fdro_core.observers import Checkpoint
from fdro_core.protocol.saved import Saved
from tests.fdro_core.helpers import Quadratic, machines, middle_box, same, softmax_problems
from tests.fdro_core.twisted import With, changed, scaled
from uncertainty_sets import Box

N, LIAR = 5, 1
CLIPPED = pytest.mark.filterwarnings("ignore:worker.*clipped:fdro_core.errors.WorkerWarning")


class Lying(Quadratic):
    """A quadratic that multiplies its gradient, or reports another loss or metric."""

    def __init__(self, centre, factor=1.0, loss=None, metric=None):
        super().__init__(centre)
        self.factor, self.loss = factor, loss
        if metric is not None:
            self.metric = lambda: np.full(self.dimension, metric)

    def loss_and_gradient(self, w, rng=None, batch_size=None):
        loss, gradient = super().loss_and_gradient(w)
        return loss if self.loss is None else self.loss, self.factor * gradient


class Factor:
    """A problem whose gradient is multiplied, and nothing else."""

    def __init__(self, problem, factor):
        self.problem, self.factor, self.dimension = problem, factor, problem.dimension

    def loss_and_gradient(self, *arguments):
        loss, gradient = self.problem.loss_and_gradient(*arguments)
        return loss, self.factor * gradient


# -- medians of the others ----------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(2, 10))
def test_the_median_of_the_others_and_their_spread(size):
    rng = np.random.default_rng(size)
    for values in (rng.normal(size=size), rng.integers(0, 3, size=size).astype(float)):
        middle, spread = others_spread(values)
        assert np.array_equal(middle, others_median(values))
        for j in range(size):
            others = np.sort(np.delete(values, j))
            median = others[others.size // 2]
            assert middle[j] == median
            assert spread[j] == np.sort(np.abs(others - median))[others.size // 2]


def test_one_false_number_leaves_medians_among_the_true_ones():
    true = np.array([1.0, 2.0, 3.0, 4.0])
    for size in (2, 3, 4):  # honest workers
        for lie in (-np.inf, 0.0, np.inf):
            medians = others_median(np.append(true[:size], lie))
            assert medians[-1] in true[:size]
            assert (medians[:-1] >= true[0]).all()  # so that no honest worker is bounded by nothing


# -- the bounds, by hand ------------------------------------------------------------------------------

CENTRES, START = ([0.0], [1.0], [2.0]), [10.0]
"""At 10 the gradients are 10, 9 and 8, the losses 50, 40.5 and 32, the curvatures 1."""


def handshake(liar, clip=2.0):
    """The master's models as the handshake leaves them."""
    problems = [Quadratic(CENTRES[0]), Quadratic(CENTRES[1]), liar]
    config = AspireModels(clip=clip)
    workers = [config.worker(j, problem)() for j, problem in enumerate(problems)]

    def ask(messages):
        return {j: workers[j].handle(message) for j, message in messages.items()}

    return config.master(Box(np.zeros(3), np.ones(3)), 3, ask, np.array(START))


def test_the_handshake_is_bounded():
    models = handshake(Lying(CENTRES[2], factor=100.0)).models
    # Of 800, twice the upper median of 10 and 9 is left; of curvature 100, twice 1.
    assert models.G[:, 0] == pytest.approx([10.0, 9.0, 20.0], rel=1e-12)
    assert models.curvature == pytest.approx([1.0, 1.0, 2.0], rel=1e-6)
    assert models.losses == pytest.approx([50.0, 40.5, 32.0])


@pytest.mark.parametrize(("loss", "taken"), [(1e6, 150.0), (-1e6, -50.0), (120.0, 120.0)])
def test_a_loss_is_bounded_around_the_others_median(loss, taken):
    """The others' median is 50; their distances to it 0 and 9.5, less than 50: 50 ± 2·50."""
    models = handshake(Lying(CENTRES[2], loss=loss)).models
    assert models.losses == pytest.approx([50.0, 40.5, taken])


def test_without_clip_nothing_is():
    models = handshake(Lying(CENTRES[2], factor=100.0, loss=1e6), clip=None).models
    assert models.G[2, 0] == pytest.approx(800.0)
    assert models.losses[2] == 1e6


def test_a_metric_is_bounded():
    """1, 1 and 1e10: the third counts as 2·1."""
    assert handshake(Lying(CENTRES[2], metric=1e10)).metric == pytest.approx([4.0 / 3.0])
    with pytest.warns(WorkerWarning, match="its metric"):
        solve(
            [Quadratic(CENTRES[0]), Quadratic(CENTRES[1]), Lying(CENTRES[2], metric=1e10)],
            Box(np.zeros(3), np.ones(3)),
            algorithm=AspireModels(iterations=3, clip=2.0),
        )


def bounds(alive=(True, True, True), factor=2.0):
    """Three workers with gradients of length 5, 1 and 2 in the metric (1, 4)."""
    gradients = np.array([[3.0, 16.0], [0.0, 4.0], [2.0, 0.0]])
    return Clip(factor, np.array([1.0, 3.0, 2.0]), gradients, np.ones(3), np.array([1.0, 4.0]), alive)


def test_a_reply_is_scaled_down_and_counted():
    clip, inverse = bounds(), np.array([1.0, 0.25])
    long = Evaluation(7, 2.0, np.array([0.0, 80.0]))  # D⁻¹g is 20 long; 2·max(1, 2) are allowed
    kept, what = clip.bounded(0, long, np.zeros(2), inverse, 20.0)
    assert kept.gradient == pytest.approx([0.0, 16.0])
    assert (kept.ticket, kept.loss) == (7, 2.0)
    assert "20 times" not in what
    assert "10 times as long as the others' median" in what
    assert long.gradient.tolist() == [0.0, 80.0]
    short = Evaluation(8, 2.0, np.array([4.0, 0.0]))
    assert clip.bounded(0, short, np.zeros(2), inverse, 4.0) == (short, "")
    assert clip.clipped() == [[0, 1]]


def test_bounds_are_worked_out_once_per_epoch():
    clip, inverse = bounds(), np.array([1.0, 0.25])
    for j, length in ((1, 50.0), (2, 70.0)):
        clip.bounded(j, Evaluation(1, 2.0, np.array([length, 0.0])), np.zeros(2), inverse, length)
    assert clip.longest[0].tolist() == [4.0, 10.0, 10.0]
    clip.refresh([True] * 3)
    assert clip.longest[0].tolist() == [140.0, 140.0, 100.0]  # by what was reported, not by what was kept


def test_nothing_is_measured_by_zeros_or_by_one_other_worker():
    clip = bounds(alive=(True, True, False))
    assert np.isinf(clip.longest).all()
    assert np.isinf(clip.most).all()
    still = Clip(2.0, np.ones(3), np.array([[0.0], [0.0], [1.0]]), np.ones(3), np.ones(1), [True] * 3)
    assert still.longest[0].tolist() == [2.0, 2.0, np.inf]  # of (0, 1), (0, 1) and (0, 0)


def test_curvature_cannot_grow_beyond_the_others():
    """Random gradients between points that come closer would make c_j, and the steps, as bad as liked."""
    rng = np.random.default_rng(0)
    master, _ = machines(
        [Quadratic([0.0]), Quadratic([1.0]), Quadratic([2.0])], middle_box(3), AspireModels(clip=2.0)
    )
    models = master.models
    for step in range(30):
        models.learn(2, np.array([0.5 + 0.1**step]), 1.0, rng.normal(size=1))
    assert models.curvature[2] <= 2.0 * (1.0 + 1e-6)


# -- runs ---------------------------------------------------------------------------------------------


def liar(config, twist):
    return With(config, LIAR, (Evaluate,), twist)


class End:
    """The model at the end, which is the result unless the run began with a better one."""

    def __call__(self, run, entry):
        """Nothing to do."""

    def finish(self, run):
        self.w = run.master.z


def honest_worst(problems, w):
    return max(problem.loss_and_gradient(w)[0] for j, problem in enumerate(problems) if j != LIAR)


@pytest.mark.parametrize("engine", [VirtualEngine, ThreadEngine])
@pytest.mark.parametrize("batch", [None, 8])
def test_a_liar_does_less(engine, batch):
    problems, tight = softmax_problems(N, seed=3), Box(np.full(N, 0.1), np.full(N, 0.25))
    settings = {"iterations": 60 * N, "batch_size": batch}
    honest = solve(problems, tight, algorithm=AspireModels(**settings)).w
    lost = {}
    for clip in (None, 2.0):
        config = liar(AspireModels(clip=clip, **settings), partial(scaled, -20.0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WorkerWarning)
            end = End()
            result = solve(problems, tight, algorithm=config, engine=engine(), observers=[end])
        lost[clip] = honest_worst(problems, end.w) - honest_worst(problems, honest)
        assert (LIAR in result.clipped) == (clip is not None)
    assert lost[None] > 0.1
    assert lost[2.0] < 0.5 * lost[None]


def test_a_liar_is_told_of_once_and_counted():
    config = liar(AspireModels(iterations=100, clip=2.0), partial(scaled, 100.0))
    with pytest.warns(WorkerWarning, match="clipped") as told:
        result = solve(softmax_problems(N, seed=3), middle_box(N), algorithm=config)
    mine = [str(each.message) for each in told if f"worker {LIAR}," in str(each.message)]
    assert len([each for each in mine if "clipped" in each]) == 1
    assert "as long as the others' median; clip = 2" in mine[0]
    replies = sum(entry["event"] == "report" for entry in result.history)
    assert 0.5 * replies < result.clipped[LIAR] <= 1.2 * replies  # one per epoch, and nearly all
    assert solve(softmax_problems(N), middle_box(N), algorithm=AspireModels(iterations=20)).clipped == {}


@CLIPPED
def test_the_end_of_local_steps_is_bounded():
    """A worker may report that its local steps led anywhere."""

    def far(reply):
        return changed(reply, point=reply.point + 1e6)

    problems = softmax_problems(N, seed=3)
    ends = {}
    for clip in (None, 2.0):
        config = AspireModels(iterations=20 * N, local_steps=4, clip=clip)
        end = End()
        with pytest.warns(WorkerWarning):  # of the model that goes away, or of the clip
            result = solve(problems, middle_box(N), algorithm=liar(config, far), observers=[end])
        assert result.model == ("z" if clip else "start")
        ends[clip] = float(np.linalg.norm(end.w))
    honest = solve(problems, middle_box(N), algorithm=AspireModels(iterations=20 * N, local_steps=4))
    assert ends[None] > 1e3
    assert ends[2.0] < 10.0 * np.linalg.norm(honest.w)


@CLIPPED
@pytest.mark.parametrize("kind", ["box", "kl", "ellipsoid"])
@pytest.mark.few(2)
def test_honest_workers_end_at_the_same_optimum(kind):
    problems, chosen = classification(8, seed=21), six_sets(8, seed=21)[kind]
    best, _ = reference(problems, chosen)
    result = solve(problems, chosen, algorithm=AspireModels(clip=2.0, tolerance=1e-10))
    assert robust_value(problems, chosen, result.w) == pytest.approx(best, rel=1e-6)


@CLIPPED
def test_and_so_they_do_if_all_gradients_vanish():
    """One optimum for all: gradients fall together, and a slow worker's are those of an older model."""
    problems = [Quadratic([1.0, -2.0], scale=1.0 + j) for j in range(N)]
    engine = VirtualEngine(delays=LogNormal(1.0, 1.0))
    result = solve(problems, middle_box(N), algorithm=AspireModels(clip=2.0), engine=engine)
    assert result.w == pytest.approx([1.0, -2.0], abs=1e-6)


@CLIPPED
@pytest.mark.parametrize("settings", [{}, {"batch_size": 4, "active_workers": 2}, {"local_steps": 3}])
@pytest.mark.parametrize("stop", [3, 37])
def test_resume_equals_uninterrupted(settings, stop, tmp_path):
    problems = softmax_problems(N)
    problems[LIAR] = Factor(problems[LIAR], 50.0)
    path = tmp_path / "run.npz"

    def config(iterations, clip=2.0):
        return AspireModels(iterations=iterations, clip=clip, tolerance=0.0, **settings)

    def engine():
        return VirtualEngine(seed=2, delays=LogNormal())

    whole = solve(problems, middle_box(N), algorithm=config(120), engine=engine())
    solve(problems, middle_box(N), algorithm=config(stop), engine=engine(), observers=[Checkpoint(path)])
    rest = resume(path, problems, middle_box(N), algorithm=config(120), engine=engine())
    same(whole, rest)
    assert rest.clipped == whole.clipped
    assert rest.clipped[LIAR] > 0
    with pytest.raises(CheckpointMismatch, match=r"clip: 2\.0 → 3\.0"):
        resume(path, problems, middle_box(N), algorithm=config(120, clip=3.0), engine=engine())


# -- the setting --------------------------------------------------------------------------------------


def test_the_setting_is_checked():
    with pytest.raises(InvalidSetting, match="needs 3 workers or more, got 2"):
        AspireModels(clip=2.0).resolve(2)
    with pytest.raises(InvalidSetting, match=r"clip must be a finite number >= 1, got 0\.5"):
        AspireModels(clip=0.5).resolve(3)
    assert AspireModels().clip is None


def test_a_damaged_state_is_refused():
    state = bounds().snapshot()
    assert Clip.restored(2.0, 3, state).longest is state["longest"]
    saved = Saved("run.npz", {}, {"N": 3}, force=False)
    Clip.check_saved(saved, "clip", state)
    for wrong, words in (({"losses": np.ones(2)}, "2 entries"), ({"most": np.full(3, np.nan)}, "holds NaN")):
        with pytest.raises(CheckpointDamaged, match=f"clip.{next(iter(wrong))} .*{words}"):
            Clip.check_saved(saved, "clip", state | wrong)
