"""Every reply is looked at before it touches the master's state: on all engines, for every algorithm."""

from __future__ import annotations

import math
from functools import partial
from itertools import product

import numpy as np
import pytest

from fdro_core import AspireEase, VirtualEngine, solve
from fdro_core.aspire.admm.worker import Worker
from fdro_core.aspire.models.messages import (
    BeginModels,
    Begun,
    Evaluate,
    EvaluateAhead,
    Evaluation,
    EvaluationAhead,
    Inspect,
    Inspected,
)
from fdro_core.baselines import AFL, QFFL, DRFAProx, FedAvg, FedProx, Scaffold, ScaffPD
from fdro_core.errors import InvalidProblem, InvalidReply, WorkerFailed, WorkerWarning
from fdro_core.protocol.messages import (
    Begin,
    Hello,
    Introduction,
    Probe,
    Probed,
    Step,
    Train,
    Trained,
    Update,
)
from fdro_core.protocol.replies import fault
from tests.fdro_core.engine_kinds import EVERY, VIRTUAL, happened, kinds
from tests.fdro_core.helpers import FORMS, Quadratic, forms, in_form, middle_box, softmax_problems
from tests.fdro_core.twisted import (
    OF_STEPS,
    PROBES,
    STEPS,
    STRANGE,
    WRONG,
    With,
    changed,
    scaled,
    terabytes,
)

N = 4
TWO = np.ones(2)


def quadratics():
    return [Quadratic([float(j), 1.0]) for j in range(N)]


# -- the form of one reply --------------------------------------------------------------------------

STEP, BEGIN, PROBE = Step(5, TWO, 1.0, 1.0), Begin(TWO, TWO), Probe(TWO, TWO, 1.0, 1.0)
TRAIN, ASKED = Train(5, TWO, 2, 0.1, 1), Train(5, TWO, 0, 0.1)
UPDATE = Update(5, TWO, 1.0, 1.0, 1.0)
INTRODUCTION = Introduction(2, TWO, None, 3)
PROBED = Probed(1.0, 1.0, 0.0)
TRAINED = Trained(5, TWO, 1.0, TWO)


def test_good_replies_pass():
    for request, reply in (
        (STEP, UPDATE),
        (STEP, changed(UPDATE, loss=np.float64(1.0), ticket=6)),
        (STEP, changed(UPDATE, loss=math.nan)),  # a number for the master to refuse, not a form
        (BEGIN, changed(UPDATE, ticket=-1)),
        (Hello(), INTRODUCTION),
        (Hello(), Introduction(2, None, None)),
        (PROBE, PROBED),
        (TRAIN, TRAINED),
        (ASKED, Trained(5, None, 1.0)),
    ):
        assert fault(request, reply) == ""


@pytest.mark.parametrize(
    ("request_", "reply"),
    [
        *[(request, thing) for request in (STEP, BEGIN, Hello(), PROBE, TRAIN)
          for thing in (TWO, len, None, "update", 3.0, {"w": TWO}, STEP)],
        (STEP, TRAINED),
        (TRAIN, UPDATE),
        (STEP, Update.__new__(Update)),
        (PROBE, Probed.__new__(Probed)),
        *[(STEP, changed(UPDATE, w=w)) for w in (np.ones(1), np.ones(3), np.ones((2, 1)), np.float64(1.0),
          np.ones(2, dtype=np.float32), np.ones(2, dtype=complex), np.array(["1", "2"]), [1.0, 1.0], None)],
        *[(STEP, changed(UPDATE, **{name: value})) for name in ("loss", "gradient_sq", "curvature")
          for value in (10**400, 1, "1", None, TWO, 1j, True)],
        *[(STEP, changed(UPDATE, ticket=ticket)) for ticket in (4, 5.0, None, True)],
        *[(BEGIN, changed(UPDATE, ticket=-1, **{name: value})) for name, value in (
          ("loss", math.nan), ("loss", 1e300), ("gradient_sq", -1.0), ("curvature", -1.0),
          ("curvature", 1e300), ("curvature", math.inf))],
        *[(Hello(), changed(INTRODUCTION, dimension=value)) for value in (0, -1, "2", 2.0, True, None)],
        *[(Hello(), changed(INTRODUCTION, metric=value)) for value in (np.ones(3), [1.0, 1.0], "1")],
        *[(Hello(), changed(INTRODUCTION, samples=value)) for value in ("3", -1.0, math.nan)],
        *[(PROBE, changed(PROBED, **{name: value})) for name in ("loss_at_z", "loss_at_w")
          for value in (1e300, -1e300, math.nan, math.inf, 10**400, "1")],
        (PROBE, changed(PROBED, worker_sq=-1.0)),
        (TRAIN, changed(TRAINED, w=None)),
        (TRAIN, changed(TRAINED, marked=None)),
        (TRAIN, changed(TRAINED, w=np.ones(3))),
        (ASKED, changed(TRAINED, marked=None)),
    ],
)  # fmt: skip
def test_bad_replies_do_not(request_, reply):
    assert fault(request_, reply)


EVALUATION, AHEAD = Evaluation(5, 1.0, TWO), EvaluationAhead(5, 1.0, TWO, TWO, TWO)
OF_VECTORS = {
    ("w", STEP): UPDATE, ("w", BEGIN): UPDATE, ("w", TRAIN): TRAINED, ("marked", TRAIN): TRAINED,
    ("metric", Hello()): INTRODUCTION, ("start", Hello()): INTRODUCTION,
    ("gradient", Evaluate(5, TWO)): EVALUATION, ("gradient", Inspect(TWO)): Inspected(1.0, TWO),
    ("gradient", BeginModels(TWO, TWO)): Begun(1.0, TWO, 1.0, 1.0),
    **{(name, EvaluateAhead(5, TWO, TWO, TWO)): AHEAD for name in ("gradient", "point", "first")},
}  # fmt: skip
"""Every vector that a worker sends: its name, the message that asks for it, and a good reply."""


@pytest.mark.parametrize("asked", OF_VECTORS, ids=lambda asked: f"{type(asked[1]).__name__}.{asked[0]}")
def test_a_vector_is_refused_by_its_size_before_it_is_touched(asked):
    """Eight terabytes that do not exist: any pass over them or copy of them would not return."""
    (name, request), reply = asked, OF_VECTORS[asked]
    assert fault(request, reply) == ""
    wrong = fault(request, changed(reply, **{name: terabytes()}))
    assert wrong.startswith(f"{name} of shape (1000000000000,) and float64; 2 numbers")


def test_numbers_and_texts_are_refused_by_their_size():
    for name in ("dimension", "samples"):
        wrong = fault(Hello(), changed(INTRODUCTION, **{name: 10**5000}))
        assert wrong.startswith(f"{name}, an int of 16610 bits; it must be in ")
    wrong = fault(Hello(), changed(INTRODUCTION, identity="x" * 70_000))
    assert wrong == "identity of 70,000 characters; at most 65,536 are allowed"
    assert fault(Hello(), changed(INTRODUCTION, identity="x" * 65_536, samples=2**62)) == ""


# -- whole runs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "form"), [*kinds("models"), (VIRTUAL, "admm")])
@pytest.mark.parametrize("what", STRANGE)
def test_a_reply_of_the_wrong_form_is_as_if_the_worker_had_raised(kind, form, what, make):
    config = With(in_form(form, iterations=40), 1, STEPS, STRANGE[what])
    with pytest.warns(WorkerWarning, match="InvalidReply: worker 1 replied"):
        result = solve(quadratics(), middle_box(N), algorithm=config, engine=make(kind, restarts=0))
    (lost,) = happened(result, "worker-lost")
    assert lost["worker"] == 1
    assert result.iterations == 40
    assert np.isfinite(result.w).all()


@pytest.mark.parametrize("S", [1, N])
@pytest.mark.parametrize(("form", "what"), [*product(FORMS, WRONG), *product(["admm"], OF_STEPS)])
def test_numbers_out_of_range_are_refused_and_counted(form, what, S):
    config = in_form(form, iterations=60, active_workers=S)
    config = With(config, 1, STEPS, (WRONG | OF_STEPS)[what])
    with pytest.warns(WorkerWarning, match="worker 1.*3 updates with NaN"):
        result = solve(quadratics(), middle_box(N), algorithm=config)
    assert [entry["worker"] for entry in happened(result, "bad-update")] == [1, 1, 1]
    assert np.abs(result.w).max() < 10
    assert not result.proved


@pytest.mark.parametrize("what", STRANGE | WRONG)
@pytest.mark.parametrize("method", [FedAvg, FedProx, AFL, DRFAProx, QFFL, Scaffold, ScaffPD])
def test_baselines_refuse_the_same(method, what):
    twist = (STRANGE | WRONG)[what]
    config = With(method(iterations=30), 1, Train, lambda reply: reply if reply.w is None else twist(reply))
    with pytest.warns(WorkerWarning, match="worker 1"):
        result = solve(quadratics(), middle_box(N), algorithm=config)
    assert np.abs(result.w).max() < 10
    assert not result.proved


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize(
    "what", ["huge curvature", "negative curvature", "negative square", "NaN", "a huge loss"]
)
def test_what_would_freeze_the_run_at_its_start_ends_it(kind, what, make, aspire):
    config = With(aspire(iterations=40), 1, Begin, (WRONG | OF_STEPS)[what])
    with pytest.raises(WorkerFailed, match="at the starting point") as caught:
        solve(quadratics(), middle_box(N), algorithm=config, engine=make(kind))
    assert caught.value.worker == 1
    assert isinstance(caught.value.__cause__, InvalidReply)


def test_a_metric_out_of_range_is_refused():
    for metric in ([1.0, 1e300], [1.0, -1.0], [math.nan, 1.0], [1.0], "ab", [1.0, 1j]):
        problems = quadratics()
        problems[2].metric = lambda metric=metric: metric
        with pytest.raises(InvalidProblem, match=r"problems\[2\]\.metric\(\) must be 2 numbers"):
            solve(problems, middle_box(N))


@pytest.mark.parametrize("worst", [1e300, -1e300, math.nan])
def test_a_probe_out_of_range_is_no_answer(worst, aspire):
    config = With(aspire(iterations=40), 1, PROBES, lambda reply: changed(reply, loss_at_z=worst))
    with pytest.warns(WorkerWarning, match="loss_at_z"):
        result = solve(quadratics(), middle_box(N), algorithm=config)
    assert abs(result.objective) < 10
    assert np.isnan(result.losses[1])
    assert result.caveat().startswith("with the last known loss of worker 1 from iteration ")


# -- problems ---------------------------------------------------------------------------------------


class Odd(Quadratic):
    """Gives something else from its call number `at` on."""

    def __init__(self, centre, at, loss=None, gradient=None, whole=None):
        super().__init__(centre)
        self.at, self.odd_loss, self.odd_gradient, self.whole, self.calls = at, loss, gradient, whole, 0

    def loss_and_gradient(self, w, rng=None, batch_size=None):
        self.calls += 1
        loss, gradient = super().loss_and_gradient(w)
        if self.calls < self.at:
            return loss, gradient
        if self.whole is not None:
            return self.whole
        return (
            loss if self.odd_loss is None else self.odd_loss,
            gradient if self.odd_gradient is None else self.odd_gradient,
        )


ODD = [
    *[{"gradient": g} for g in (np.ones(1), np.ones(3), np.ones((2, 1)), 1.0, ["a", "b"], np.ones(2) * 1j)],
    *[{"loss": loss} for loss in ("0.5", 10**400, 1j, [0.5, 0.5], b"1")],
    *[{"whole": whole} for whole in (0.5, (0.5,), (0.5, np.ones(2), 1))],
]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("config", [*forms(iterations=300), FedAvg(iterations=60)])
def test_every_gradient_is_checked_not_only_the_first(odd, config):
    problems = [*quadratics()[:3], Odd([3.0, 1.0], 20, **odd)]
    with pytest.warns(WorkerWarning, match=r"InvalidProblem: .*problems\[3\].loss_and_gradient"):
        result = solve(problems, middle_box(N), algorithm=config)
    (lost,) = happened(result, "worker-lost")
    assert lost["worker"] == 3
    with pytest.raises(InvalidProblem, match=r"problems\[3\]"):
        solve([*quadratics()[:3], Odd([3.0, 1.0], 1, **odd)], middle_box(N), algorithm=config)


@pytest.mark.parametrize("dimension", [0, -1, "2", 2.0, True, None])
def test_dimensions_are_checked(dimension):
    problem = Quadratic([0.0, 1.0])
    problem.dimension = dimension
    with pytest.raises(InvalidProblem, match=r"problems\[0\].dimension must be a whole number >= 1"):
        solve([problem, problem], middle_box(2))


@pytest.mark.parametrize("samples", [-1, "many", math.nan, 2.5])
def test_sample_counts_are_checked(samples):
    problem = Quadratic([0.0, 1.0])
    problem.samples = samples
    with pytest.raises(InvalidProblem, match=r"problems\[0\].samples must be"):
        solve([problem, problem], middle_box(2), algorithm=FedAvg())


class Reusing:
    """Another problem's gradients, all in the same few arrays, in turn; and a view of them."""

    def __init__(self, problem, buffers):
        self.problem, self.dimension, self.samples = problem, problem.dimension, problem.samples
        self.buffers = [np.empty(problem.dimension) for _ in range(buffers)]
        self.metric = problem.metric

    def loss_and_gradient(self, w, *arguments):
        loss, gradient = self.problem.loss_and_gradient(w, *arguments)
        buffer = self.buffers.pop(0)
        self.buffers.append(buffer)
        buffer[:] = gradient
        return loss, buffer[:]


@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize(
    "config",
    [
        *forms(iterations=200),
        *forms(iterations=60, active_workers=N, batch_size=4),
        AspireEase(iterations=60, active_workers=N, local_steps=3, batch_size=4),
        FedAvg(iterations=40, local_steps=3),
    ],
)
def test_a_problem_may_give_its_gradients_in_one_array(config, buffers):
    """The same run, bit for bit, with probes and returns in between."""

    def probe(run, entry):
        if entry["event"] == "report" and entry["iteration"] % 7 == 0:
            run.stationarity()

    engine = {"seed": 3, "lost": 0.0, "repeated": 0.1}
    one, other = (
        solve(problems, middle_box(N), algorithm=config, engine=VirtualEngine(**engine), observers=[probe])
        for problems in (softmax_problems(N), [Reusing(p, buffers) for p in softmax_problems(N)])
    )
    assert np.array_equal(one.w, other.w)
    assert one.objective == other.objective


def test_snapshots_of_a_worker_do_not_change_with_it():
    worker = Worker(0, Quadratic([0.0, 1.0]), AspireEase())
    worker.handle(Begin(np.zeros(2), np.ones(2)))
    before = worker.snapshot()
    answers = []
    for _ in range(2):
        answers.append(worker.handle(Step(1, np.ones(2), 1.0, 1.0)).w)
        worker.handle(Step(2, np.ones(2), 1.0, 1.0))
        worker.restore(before)
    assert np.array_equal(*answers)


# -- numbers that are finite, and far beyond the others' ----------------------------------------------

LIES = [("admm", 1e6, 40), ("admm", -5.0, 400), ("models", 1e6, 40), ("models", -50.0, 400)]
"""Forms, factors and numbers of replies; a lie ends in overflow if the run is long."""


@pytest.mark.parametrize("S", [1, N])
@pytest.mark.parametrize(("form", "factor", "replies"), LIES)
def test_a_worker_that_scales_its_model_or_gradient_is_named(form, factor, replies, S):
    config = in_form(form, iterations=replies // S, active_workers=S)
    config = With(config, 1, STEPS, partial(scaled, factor))
    with pytest.warns(WorkerWarning) as told:
        result = solve(softmax_problems(N), middle_box(N), algorithm=config)
    assert list(result.suspicious) == [1]
    assert any("worker 1" in str(each.message) and "suspicious" in str(each.message) for each in told)


@pytest.mark.parametrize(("factor", "iterations"), [(1e6, 8), (-50.0, 30)])
def test_in_a_baseline_too(factor, iterations):
    config = With(FedAvg(iterations=iterations), 1, Train, partial(scaled, factor))
    with pytest.warns(WorkerWarning):
        result = solve(softmax_problems(N), middle_box(N), algorithm=config)
    assert list(result.suspicious) == [1]


@pytest.mark.parametrize("factor", [1e12, -1e12])
def test_a_loss_that_nobody_would_believe_is_told(factor, aspire):
    config = With(
        aspire(iterations=40), 2, PROBES, lambda reply: changed(reply, loss_at_z=factor * reply.loss_at_z)
    )
    with pytest.warns(WorkerWarning, match=r"worker 2.*its loss at the model"):
        result = solve(quadratics(), middle_box(N), algorithm=config)
    assert list(result.suspicious) == [2]


def test_units_that_leave_the_others_no_step_are_told(aspire):
    problems = quadratics()
    problems[3] = Quadratic([3.0, 1.0], scale=1e10)
    with pytest.warns(WorkerWarning, match=r"worker 3.*its curvature is 1e\+10"):
        result = solve(problems, middle_box(N), algorithm=aspire(iterations=40))
    assert list(result.suspicious) == [3]
    problems = quadratics()
    problems[3].metric = lambda: np.array([1e10, 1.0])
    with pytest.warns(WorkerWarning, match=r"worker 3.*its metric is 1e\+10"):
        solve(problems, middle_box(N), algorithm=FedAvg(iterations=4))


def test_honest_workers_of_different_size_are_not(aspire):
    """The control: scales a million apart, a worker without weight, and starting points far away."""
    problems = [Quadratic([float(j), 1.0], scale=10.0 ** (2 * j)) for j in range(N)]
    result = solve(problems, middle_box(N), algorithm=aspire(iterations=400), start=[1e6, -1e6])
    assert result.suspicious == {}
    assert result.proved
    assert solve(problems, middle_box(N), algorithm=FedAvg(iterations=40)).suspicious == {}
