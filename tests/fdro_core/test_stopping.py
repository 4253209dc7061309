"""`AspireModels`: a run stops by itself at the optimum, and not before."""

from __future__ import annotations

from io import StringIO

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

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
    Adaptive,
    AspireEase,
    AspireModels,
    Crash,
    Straggler,
    VirtualEngine,
    resume,
    solve,
)
from fdro_core.aspire.models.stopping import WINDOW, Convergence
from fdro_core.baselines import AFL
from fdro_core.errors import InvalidSetting
from fdro_core.observers import Checkpoint, Progress
from fdro_core.result import STOPPED, ending
from tests.fdro_core.helpers import Quadratic, middle_box, same, softmax_problems
from uncertainty_sets import Box, UncertaintySet

NEAR = 1e-7  # of the conic optimum, as `bench.driver.problems.relative_gap` measures it
N = 5


def models(**given):
    return AspireModels(**given)


class Shifted:
    """A problem with a constant added to its loss."""

    def __init__(self, problem, shift):
        self.problem, self.shift, self.dimension = problem, shift, problem.dimension

    def loss_and_gradient(self, w, rng=None, batch_size=None):
        loss, gradient = self.problem.loss_and_gradient(w)
        return loss + self.shift, gradient

    def metric(self):
        return self.problem.metric()


# -- stopping ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(six_sets(4)))
@pytest.mark.parametrize("make", [classification, regression])
@pytest.mark.parametrize("S", [1, 2, 4])
def test_a_run_stops_by_itself_at_the_optimum(kind, make, S):
    problems, chosen = make(4, seed=5), six_sets(4, seed=5)[kind]
    best, _ = reference(problems, chosen)
    result = solve(problems, chosen, algorithm=models(active_workers=S))
    start = robust_value(problems, chosen, np.zeros(problems[0].dimension))
    proved = make is classification  # least squares without a ridge have no strong convexity to prove it by
    assert result.stop_reason == ("converged" if proved else STOPPED)
    assert np.isfinite(result.gap) == proved
    assert result.iterations * S < 120 * 4
    assert result.planned == 1500 * 4 // S
    assert abs(relative_gap(robust_value(problems, chosen, result.w), best, start)) < NEAR
    assert result.lower_bound <= best + 1e-9 * abs(best)  # the conic solver's own accuracy


def test_a_set_without_a_size_of_its_own():
    class Near(UncertaintySet):
        def constraints(self, p):
            return [cp.norm(p - 1.0 / p.size) <= 0.2]

    problems = softmax_problems(3)
    long = solve(problems, Near(), algorithm=models(iterations=600, tolerance=0.0))
    result = solve(problems, Near(), algorithm=models())
    assert (result.stop_reason, long.stop_reason) == ("converged", "iterations")
    assert result.objective == pytest.approx(long.objective, rel=NEAR)
    assert result.lower_bound <= long.objective <= result.lower_bound + 1e-5


CALM = {
    "straggler": ({}, {"stragglers": [Straggler(1, 500.0)]}),
    "straggler within a long τ": ({"max_staleness": 400}, {"stragglers": [Straggler(1, 100.0)]}),
    "back late": ({}, {"crashes": [Crash(3, 10.0, 300.0)]}),
    "back late, dropped meanwhile": ({"dead_losses": "drop"}, {"crashes": [Crash(3, 10.0, 300.0)]}),
    "cp": ({"planes": "cp"}, {}),
    "adaptive": ({"adaptive": Adaptive(few=2)}, {"stragglers": [Straggler(1, 15.0, 20.0, 50.0)]}),
    "rare planes": ({"plane_interval": 25}, {}),
    "planes at every iteration": ({"plane_interval": 1}, {}),
    "faults": ({"deadline": 5.0, "active_workers": 2}, {"lost": 0.05, "repeated": 0.1}),
}


@pytest.mark.filterwarnings("ignore::fdro_core.errors.WorkerWarning")
@pytest.mark.parametrize("case", CALM)
def test_no_stop_before_the_optimum(case):
    given, engine = CALM[case]
    problems, box = softmax_problems(N), middle_box(N)
    long = solve(problems, box, algorithm=models(tolerance=0.0, iterations=2000))
    result = solve(problems, box, algorithm=models(**given), engine=VirtualEngine(seed=2, **engine))
    assert result.stop_reason == "converged"
    assert result.objective == pytest.approx(long.objective, rel=NEAR)
    assert result.gap < 1e-7


@pytest.mark.filterwarnings("ignore::fdro_core.errors.WorkerWarning")
def test_a_lost_worker_whose_loss_is_frozen_keeps_the_run_going():
    crash = {"crashes": [Crash(3, 10.0)]}
    frozen = solve(
        softmax_problems(N), middle_box(N), algorithm=models(), engine=VirtualEngine(seed=2, **crash)
    )
    assert frozen.stop_reason == "iterations"
    assert frozen.lower_bound == -np.inf
    assert frozen.gap == np.inf
    dropped = solve(
        softmax_problems(N),
        middle_box(N),
        algorithm=models(dead_losses="drop"),
        engine=VirtualEngine(seed=2, **crash),
    )
    assert dropped.stop_reason == STOPPED
    assert dropped.gap == np.inf


class Flat:
    """A constant."""

    dimension = 3

    def __init__(self, value):
        self.value = value

    def loss_and_gradient(self, w, rng=None, batch_size=None):
        return self.value, np.zeros(3)


@pytest.mark.parametrize(
    ("problems", "start", "w", "objective"),
    [
        ([Quadratic([3.0])], None, [3.0], 0.0),
        ([Quadratic([1.0, 2.0])] * 4, None, [1.0, 2.0], 0.0),
        ([Quadratic([-1.0]), Quadratic([1.0])], None, [0.0], 0.5),
        ([Quadratic([-1.0]), Quadratic([1.0])], [1e-6], [0.0], 0.5),
        ([Quadratic([-1.0]), Quadratic([1.0])], [1e8], [0.0], 0.5),
        ([Quadratic([2.0, 3.0], scale=s) for s in (1.0, 5.0, 0.1)], None, [2.0, 3.0], 0.0),
        ([Flat(1.0)] * 3, None, [0.0] * 3, 1.0),
        ([Flat(0.0)] * 3, None, [0.0] * 3, 0.0),
        ([Flat(-2.0), Flat(-1.0)], None, [0.0] * 3, -1.0),
    ],
    ids=["one worker", "all equal", "optimal start", "near", "far", "zero loss", "flat", "zero", "negative"],
)
def test_corners(problems, start, w, objective):
    everything = Box(np.zeros(len(problems)), np.ones(len(problems)))
    result = solve(problems, everything, algorithm=models(), start=start)
    assert result.stop_reason == STOPPED  # none of them states its convexity
    np.testing.assert_allclose(result.w, w, atol=1e-7)
    assert result.objective == pytest.approx(objective, abs=1e-12)


class Slow:
    """Curvatures from 1 to 1/condition, without a metric that would even them out."""

    def __init__(self, condition, centre):
        self.curvatures = np.geomspace(1.0, 1.0 / condition, 6)
        self.centre, self.dimension = centre, 6

    def loss_and_gradient(self, w, rng=None, batch_size=None):
        away = w - self.centre
        return 0.5 * float(self.curvatures @ (away * away)), self.curvatures * away


class Separable:
    """A logistic loss without a minimum: progress becomes ever slower and never ends."""

    dimension = 2

    def __init__(self, x):
        self.x = np.array(x)

    def loss_and_gradient(self, w, rng=None, batch_size=None):
        margin = float(self.x @ w)
        return float(np.log1p(np.exp(-margin))), -self.x / (1.0 + np.exp(margin))


@pytest.mark.parametrize(
    "problems",
    [
        [Slow(1e4, np.linspace(0.0, 1.0, 6) + shift) for shift in (-0.1, 0.0, 0.1)],
        [Separable([1.0, 0.5]), Separable([0.5, 1.0])],
    ],
    ids=["condition 1e4", "no minimum"],
)
def test_slow_progress_is_not_the_end(problems):
    """δ is far below the tolerance here long before the objective is near its infimum."""
    result = solve(problems, middle_box(len(problems)), algorithm=models())
    assert result.stop_reason == "iterations"


def test_slow_progress_ends_near_the_optimum():
    problems = [Slow(1e2, np.linspace(0.0, 1.0, 6) + shift) for shift in (-0.1, 0.0, 0.1)]
    long = solve(problems, middle_box(3), algorithm=models(tolerance=0.0))
    result = solve(problems, middle_box(3), algorithm=models())
    assert result.stop_reason == STOPPED
    assert result.iterations < long.iterations
    assert result.objective == pytest.approx(long.objective, rel=NEAR)


class Network:
    """Two tanh units and a linear one, on a few points: not convex."""

    dimension = 7

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.X = rng.normal(size=(12, 2))
        self.y = np.sin(2.0 * self.X[:, 0]) + 0.3 * seed

    def loss_and_gradient(self, w, rng=None, batch_size=None):
        inner, outer, bias = w[:4].reshape(2, 2), w[4:6], w[6]
        hidden = np.tanh(self.X @ inner)
        off = (hidden @ outer + bias - self.y) / len(self.y)
        back = off[:, None] * outer * (1.0 - hidden**2)
        gradient = np.concatenate([(self.X.T @ back).ravel(), hidden.T @ off, [off.sum()]])
        return 0.5 * len(self.y) * float(off @ off) + 5e-4 * float(w @ w), gradient + 1e-3 * w


def test_a_network_stops_at_a_stationary_point_or_goes_on():
    problems = [Network(seed) for seed in range(3)]
    start = np.random.default_rng(0).normal(size=7)
    short = solve(problems, middle_box(3), algorithm=models(iterations=6000), start=start)
    assert short.stop_reason == "iterations"  # its objective is 3e-3 above the one below
    result = solve(problems, middle_box(3), algorithm=models(iterations=40_000), start=start)
    assert result.stop_reason == STOPPED
    assert result.objective < short.objective
    assert result.stationarity < 1e-6 * result.objective
    assert result.lower_bound == -np.inf  # nothing is known of its convexity


@given(exponent=st.floats(-6.0, 6.0), seed=st.integers(0, 50))
@settings(max_examples=12, deadline=None)
def test_units_change_neither_the_stop_nor_the_bound(exponent, seed):
    """Only the first look at the curvature, at a distance of 1e-4 in the metric, depends on them a little."""
    factor = 10.0**exponent
    problems, box = softmax_problems(3, seed), middle_box(3)
    plain = solve(problems, box, algorithm=models())
    scaled = solve([Scaled(each, factor) for each in problems], box, algorithm=models())
    assert plain.stop_reason == scaled.stop_reason == "converged"
    assert scaled.iterations == pytest.approx(plain.iterations, abs=4 * 3)
    assert robust_value(problems, box, scaled.w) == pytest.approx(plain.objective, rel=NEAR)
    assert scaled.lower_bound <= factor * plain.objective
    assert scaled.gap <= 1e-4 * factor * plain.objective


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_units_that_round(factor):
    problems, chosen = classification(4, seed=5), six_sets(4, seed=5)["kl"]
    best, _ = reference(problems, chosen)
    result = solve([Scaled(each, factor) for each in problems], chosen, algorithm=models())
    start = robust_value(problems, chosen, np.zeros(problems[0].dimension))
    assert result.stop_reason == "converged"
    assert abs(relative_gap(robust_value(problems, chosen, result.w), best, start)) < NEAR
    assert result.lower_bound <= factor * best * (1.0 + 1e-9)


@pytest.mark.parametrize("shift", [-50.0, 1e3, 1e6])
def test_a_constant_in_all_losses_does_not_end_a_run_early(shift):
    problems, box = softmax_problems(N), middle_box(N)
    plain = solve(problems, box, algorithm=models())
    result = solve([Shifted(each, shift) for each in problems], box, algorithm=models())
    assert result.stop_reason == STOPPED
    assert robust_value(problems, box, result.w) == pytest.approx(plain.objective, rel=NEAR)


def test_a_smaller_tolerance_takes_longer_and_zero_never_stops():
    problems, box = classification(4, seed=5), middle_box(4)
    taken = [solve(problems, box, algorithm=models(tolerance=each)) for each in (1e-3, 1e-8, 1e-11)]
    assert [each.stop_reason for each in taken] == ["converged"] * 3
    assert taken[0].iterations < taken[1].iterations < taken[2].iterations
    assert taken[0].objective > taken[2].objective
    off = solve(problems, box, algorithm=models(tolerance=0.0, iterations=900))
    assert (off.stop_reason, off.iterations, off.planned) == ("iterations", 900, 900)


def test_mini_batches_and_other_algorithms_do_not_stop_by_themselves():
    problems, box = softmax_problems(3), middle_box(3)
    sampled = solve(problems, box, algorithm=models(batch_size=4, iterations=300))
    assert (sampled.stop_reason, sampled.model) == ("iterations", "average")
    assert np.isfinite(sampled.lower_bound)  # losses and gradients at the end are over all data
    assert sampled.lower_bound < sampled.objective
    for other in (AspireEase(iterations=900), AFL(iterations=50)):
        result = solve(problems, box, algorithm=other)
        assert (result.stop_reason, result.model) == ("iterations", "z")
        assert result.lower_bound == -np.inf
        assert result.gap == np.inf
        assert "optimum" not in repr(result)


@pytest.mark.parametrize("value", [-1e-8, np.inf, None, "tight"])
def test_a_tolerance_that_is_none(value):
    with pytest.raises(InvalidSetting, match="tolerance must be a finite number >= 0"):
        solve(softmax_problems(2), middle_box(2), algorithm=models(tolerance=value))


@pytest.mark.parametrize("stop", [7, 40, 67])
def test_resume_reaches_the_same_end(stop, tmp_path):
    problems, box, path = softmax_problems(N), middle_box(N), tmp_path / "run.npz"
    whole = solve(problems, box, algorithm=models())
    assert stop < whole.iterations < 120
    solve(problems, box, algorithm=models(iterations=stop), observers=[Checkpoint(path)])
    rest = resume(path, problems, box, algorithm=models())
    same(whole, rest)
    assert (rest.stop_reason, rest.iterations) == ("converged", whole.iterations)


def test_a_run_that_converged_ends_at_once_when_resumed_unless_more_is_asked(tmp_path):
    problems, box, path = softmax_problems(N), middle_box(N), tmp_path / "run.npz"
    whole = solve(problems, box, algorithm=models(), observers=[Checkpoint(path)])
    again = resume(path, problems, box, algorithm=models())
    same(whole, again)
    assert (again.stop_reason, again.iterations) == ("converged", whole.iterations)
    further = resume(path, problems, box, algorithm=models(tolerance=0.0, iterations=200))
    never = solve(problems, box, algorithm=models(tolerance=0.0, iterations=200))
    same(never, further)
    assert further.stop_reason == "iterations"


def rule(*deltas, tolerance=1e-8, apart=1.0):
    """The rule after looks with these δ, at an objective of 1 that began at 2."""
    found = Convergence(tolerance, 2.0)
    for delta in deltas:
        found.epochs += apart
        found.look(1.0, np.array([1.0, 1.0]), 0.0, delta)
    return found


def test_the_rule():
    assert rule(*[10.0 ** (-k) for k in range(5, 14)]).reached
    assert not rule(*[10.0 ** (-k) for k in range(5, 10)]).reached  # its largest of three is 1e-7
    assert not rule(1e-5, 1e-6, 1e-7, 1e-12, 1e-12, 1e-4).reached
    assert not rule(*[1e-12 * 0.9999**k for k in range(20)]).reached  # hardly falls
    assert not rule(*[1e-10] * 9).reached
    assert rule(*[1e-15] * WINDOW).reached  # rounding
    assert not rule(*[1e-15] * (WINDOW - 1)).reached
    assert not rule(*[1e-15] * 9, tolerance=0.0).reached
    assert len(rule(*[1e-15] * 9, apart=0.1).records) == 1  # one look per epoch
    assert rule(1e-15, apart=0.0).records == []  # at z⁰


def test_a_fall_over_many_epochs_counts_as_slow():
    """δ falls tenfold between looks; if that takes 10,000 epochs, 8,700 times δ is still to be gained."""
    deltas = [10.0 ** (-k) for k in range(5, 14)]
    assert rule(*deltas).reached
    assert not rule(*deltas, apart=10_000.0).reached


# -- words -------------------------------------------------------------------------------------------


def test_words():
    assert ending("converged", 1117, 7500).startswith("converged after 1,117 of 7,500 iterations: ")
    assert ending("iterations", 10, 10) == "all iterations done"
    assert ending("my rule", 3, 10) == "stopped by my rule"


def test_progress_says_that_the_run_converged():
    out = StringIO()
    progress = Progress(Console(file=out, width=200))
    result = solve(softmax_problems(3), middle_box(3), algorithm=models(), observers=[progress])
    assert ending("converged", result.iterations, result.planned) in out.getvalue()
