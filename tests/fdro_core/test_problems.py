"""The shipped problems: gradients, metrics, mini-batches and what they refuse."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from fdro_core import (
    AspireEase,
    HuberRegression,
    LeastSquares,
    Problem,
    SoftmaxRegression,
    solve,
)
from fdro_core.errors import InvalidProblem
from fdro_core.problems.samples import mean_and_scale
from tests.fdro_core.helpers import Quadratic, machines, middle_box, softmax_problems

RNG = np.random.default_rng(0)
X, LABELS, TARGETS = RNG.normal(size=(12, 4)), RNG.integers(0, 3, size=12), RNG.normal(size=12)
SHIPPED = [
    SoftmaxRegression(X, LABELS, 3, l2=0.1, intercept=False),
    SoftmaxRegression(X, LABELS, 3, intercept=True),
    LeastSquares(X, TARGETS, l2=0.1, intercept=False),
    LeastSquares(X, TARGETS, intercept=True),
    HuberRegression(X, TARGETS, 0.5, l2=0.1),
]


@pytest.mark.parametrize("problem", SHIPPED, ids=lambda p: type(p).__name__)
def test_gradient_and_metric(problem):
    w = RNG.normal(size=problem.dimension)
    loss, gradient = problem.loss_and_gradient(w)
    numeric = np.array(
        [
            (problem.loss_and_gradient(w + e)[0] - problem.loss_and_gradient(w - e)[0]) / 2e-6
            for e in 1e-6 * np.eye(problem.dimension)
        ]
    )
    np.testing.assert_allclose(gradient, numeric, atol=1e-7)
    assert isinstance(problem, Problem)
    assert loss > 0
    # The metric bounds the diagonal of the Hessian.
    step = 1e-4 * np.eye(problem.dimension)
    diagonal = [
        (problem.loss_and_gradient(w + e)[1] - problem.loss_and_gradient(w - e)[1])[i] / 2e-4
        for i, e in enumerate(step)
    ]
    assert np.all(np.array(diagonal) <= problem.metric() * (1 + 1e-6))


def test_softmax_layout():
    problem = SoftmaxRegression([[2.0, 0.0]], [1], classes=3, intercept=True)
    w = np.zeros((3, 3))
    w[0], w[2] = [1.0, 2.0, 3.0], [0.5, 0.0, 0.0]
    scores = np.array([2.5, 4.0, 6.0])
    expected = np.log(np.exp(scores).sum()) - scores[1]
    assert problem.loss_and_gradient(w.ravel())[0] == pytest.approx(expected)
    assert problem.accuracy(w.ravel()) == 0.0
    assert problem.accuracy(w.ravel(), [[2.0, 0.0]], [2]) == 1.0


LOSSES = """
import numpy as np
from fdro_core import SoftmaxRegression
rng = np.random.default_rng(0)
for _ in range(50):
    problem = SoftmaxRegression(rng.normal(size=(40, 6)), rng.integers(0, 3, 40), classes=3, intercept=False)
    print(float(problem.loss_and_gradient(rng.normal(size=18))[0]).hex())
"""


def test_losses_are_the_same_compiled_and_from_the_cache(tmp_path):
    """The first process compiles the kernels, the second loads them."""
    environment = {**os.environ, "FDRO_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", LOSSES]
    compiled, cached = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert len(compiled.split()) == 50
    assert compiled == cached


def test_large_scores_do_not_overflow():
    problem = SoftmaxRegression([[1e4]], [0], classes=2, intercept=False)
    loss, gradient = problem.loss_and_gradient(np.array([-1.0, 1.0]))
    assert loss == pytest.approx(2e4)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("problem", SHIPPED, ids=lambda p: type(p).__name__)
def test_mini_batches_are_unbiased(problem):
    w = RNG.normal(size=problem.dimension)
    rng = np.random.default_rng(1)
    draws = [problem.loss_and_gradient(w, rng, 4) for _ in range(4000)]
    loss, gradient = problem.loss_and_gradient(w)
    assert np.mean([d[0] for d in draws]) == pytest.approx(loss, rel=0.05)
    np.testing.assert_allclose(np.mean([d[1] for d in draws], axis=0), gradient, atol=0.05)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SoftmaxRegression([1.0], [0], 2), "samples, features"),
        (lambda: SoftmaxRegression([[np.nan]], [0], 2), "NaN"),
        (lambda: SoftmaxRegression([["a"]], [0], 2), "numbers"),
        (lambda: SoftmaxRegression([[1.0]], [2], 2), r"0\.\.1"),
        (lambda: SoftmaxRegression([[1.0]], [0.5], 2), r"whole numbers 0\.\.1, got 0\.5; number"),
        (lambda: SoftmaxRegression([[1.0]] * 2, [0, -1], 2), r"got -1\.\.0; number"),
        (lambda: SoftmaxRegression([[1.0]] * 2, [0, np.nan], 2), "got NaN or infinity; number"),
        (lambda: SoftmaxRegression([[1.0]] * 2, ["ill", "well"], 2), "got 'ill', 'well'; number the labels"),
        (
            lambda: SoftmaxRegression([[1.0]] * 4, ["0", "1", "0", "1"], 2),
            r"got '0', '1', '0', \.\.\.; number",
        ),
        (lambda: SoftmaxRegression([[1.0]] * 2, np.array([None, 1]), 2), "got None, 1; number"),
        (lambda: SoftmaxRegression([[1.0]], [0, 1], 2), "shape"),
        (lambda: SoftmaxRegression([[1.0]], [0], 2, l2=-1.0), "l2"),
        (lambda: LeastSquares([[1.0]], [np.inf]), "finite"),
        (lambda: LeastSquares([[1.0]], [1.0, 2.0]), "as X has rows"),
    ],
)
def test_bad_data(make, message):
    with pytest.raises(InvalidProblem, match=message):
        make()


def test_the_remedy_for_labels_that_are_words_works():
    words = ["well", "ill", "well"]
    with pytest.raises(InvalidProblem, match=r"names, y = np\.unique\(y, return_inverse=True\)"):
        SoftmaxRegression([[1.0]] * 3, words, 2)
    names, y = np.unique(words, return_inverse=True)
    assert SoftmaxRegression([[1.0]] * 3, y, 2).y.tolist() == [1, 0, 1]
    assert names.tolist() == ["ill", "well"]


def test_labels_may_be_any_whole_numbers():
    for labels in (
        [0.0, 1.0],
        [False, True],
        np.array([0, 1], dtype=np.uint8),
        np.array([0, 1], dtype=object),
    ):
        y = SoftmaxRegression([[1.0]] * 2, labels, 2).y
        assert y.tolist() == [0, 1]
        assert y.dtype == np.int64


def test_the_list_of_problems_is_checked():
    box = middle_box(3)
    with pytest.raises(InvalidProblem, match="empty"):
        solve([], box)
    with pytest.raises(InvalidProblem, match=r"problems\[1\]"):
        solve([Quadratic([1.0]), 3.0, Quadratic([1.0])], box)
    with pytest.raises(InvalidProblem, match=r"problems\[0\] has 2, problems\[2\] has 3"):
        solve([Quadratic([1.0, 2.0]), Quadratic([1.0, 2.0]), Quadratic([1.0, 2.0, 3.0])], box)
    with pytest.raises(InvalidProblem, match="start must have 1"):
        solve([Quadratic([1.0])] * 3, box, start=[0.0, 0.0])
    with pytest.raises(InvalidProblem, match="has no `dimension`"):
        solve([lambda: 3.0] * 3, box)
    wrong = Quadratic([1.0])
    wrong.dimension = 2
    wrong.centre = np.array([1.0])
    with pytest.raises(InvalidProblem, match="gradient"):
        solve([_Short()] * 3, box)


class _Short:
    dimension = 2

    def loss_and_gradient(self, w, rng=None, batch_size=None):
        return 0.0, np.zeros(1)


def test_metric_and_start_are_used_and_checked(aspire):
    class Own(Quadratic):
        def metric(self):
            return np.array([-1.0])

    with pytest.raises(InvalidProblem, match="metric"):
        solve([Own([1.0])] * 2, middle_box(2))

    class Starting(Quadratic):
        def initial_point(self, rng):
            return np.array([7.0])

    master, _ = machines([Starting([1.0])] * 2, middle_box(2), aspire())
    assert master.z == 7.0


def test_factories_are_built_by_the_engine(aspire):
    problems = softmax_problems(3)
    factories = [partial(SoftmaxRegression, p.X, p.y, 3, l2=p.l2, intercept=False) for p in problems]
    config = aspire(iterations=60)
    made, given = (solve(part, middle_box(3), algorithm=config) for part in (factories, problems))
    assert np.array_equal(made.w, given.w)


@pytest.mark.parametrize("reported", ["full", "average"])
@pytest.mark.few(1)
def test_periodic_communication_and_mini_batches_come_near(reported):
    problems, box = softmax_problems(4), middle_box(4)
    best = solve(problems, box).objective
    start = np.log(3)
    config = AspireEase(local_steps=4, batch_size=8, reported_loss=reported, iterations=2000)
    result = solve(problems, box, algorithm=config)
    assert result.objective - best < 0.2 * (start - best)
    assert result.gradients == 4 * 2000


def test_local_steps_without_mini_batches_reach_the_optimum():
    problems, box = softmax_problems(4), middle_box(4)
    best = solve(problems, box).objective
    result = solve(problems, box, algorithm=AspireEase(local_steps=3))
    assert result.objective == pytest.approx(best, rel=1e-4)


def test_mean_and_scale_are_those_of_all_parts_together():
    whole = np.random.default_rng(3).normal(5.0, 2.0, size=(30, 4))
    mean, deviation = mean_and_scale([whole[:7], whole[7:8], whole[8:]])
    np.testing.assert_allclose(mean, whole.mean(axis=0))
    np.testing.assert_allclose(deviation, whole.std(axis=0))


@pytest.mark.parametrize("value", [0.1, -1e9 / 3.0, 0.0])
def test_a_constant_feature_has_no_deviation(value):
    """NumPy's own deviation of such a feature is often rounding, which is no number to divide by."""
    parts = [np.full((samples, 1), value) for samples in (3, 10, 1000)]
    assert mean_and_scale(parts, constant=0.0)[1].tolist() == [0.0]


def test_an_intercept_is_the_default():
    """As in run files and estimators."""
    with_ones = np.column_stack([X, np.ones(len(X))])
    for given, stated in (
        (SoftmaxRegression(X, LABELS, 3), SoftmaxRegression(with_ones, LABELS, 3, intercept=False)),
        (LeastSquares(X, TARGETS), LeastSquares(with_ones, TARGETS, intercept=False)),
    ):
        assert given.fingerprint() == stated.fingerprint()
