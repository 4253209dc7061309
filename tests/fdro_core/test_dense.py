"""Networks of dense layers: against PyTorch, by hand and by finite differences; dropout, threads, sizes."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest

from fdro_core import AspireModels, DenseNetwork, Problem, SoftmaxRegression, VirtualEngine, solve
from fdro_core.errors import InvalidProblem
from fdro_core.problems import kernels
from fdro_core.problems.dense import ROWS
from uncertainty_sets import Box

RNG = np.random.default_rng(7)
X, Y = RNG.normal(size=(60, 4)), RNG.integers(0, 3, size=60)
RATES = (0.1, 0.3, 0.5)


def network(**more):
    return DenseNetwork(X, Y, 3, **{"hidden": (6, 5), "seed": 1, "dtype": np.float64} | more)


def start(problem):
    return problem.initial_point(np.random.default_rng(0))


def differences(loss, w, entries, reach=1e-6):
    """Central differences of a loss in some entries of w."""
    steps = np.eye(w.size)[entries] * reach
    return np.array([(loss(w + step) - loss(w - step)) / (2 * reach) for step in steps])


def test_a_network_computed_by_hand():
    # x = 1: hidden units 2·1 - 1 = 1 and -1·1 + 0 -> 0; scores 3·1 + 0 = 3 and 1·1 + 1 = 2.
    problem = DenseNetwork([[1.0]], [1], classes=2, hidden=(2,), dtype=np.float64)
    w = np.array([2.0, -1.0, -1.0, 0.0, 3.0, 5.0, 1.0, 7.0, 0.0, 1.0])
    assert problem.predict(w, [[1.0]]).tolist() == [[3.0, 2.0]]
    loss, gradient = problem.loss_and_gradient(w)
    share = 1.0 / (1.0 + np.exp(-1.0))  # the first class's probability, and so the slope in its score
    assert loss == pytest.approx(1.0 + np.log1p(np.exp(-1.0)), rel=1e-14)
    slope = share * (3.0 - 1.0)  # in the first hidden unit; the second one is off
    wanted = [slope, 0.0, slope, 0.0, share, 0.0, -share, 0.0, share, -share]
    np.testing.assert_allclose(gradient, wanted, rtol=1e-14, atol=1e-16)


@pytest.mark.parametrize(("dtype", "close"), [("float64", 1e-13), ("float32", 2e-6)])
@pytest.mark.parametrize("hidden", [(), (1,), (6, 5), (8, 8, 8)])
@pytest.mark.parametrize("batch_size", [None, 1, 17])
def test_loss_and_gradient_are_those_of_torch(dtype, close, hidden, batch_size):
    torch = pytest.importorskip("torch")
    from fdro_core.problems.torch import TorchProblem

    widths = (4, *hidden, 3)
    layers = []
    for before, after in pairwise(widths):
        layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
    module = torch.nn.Sequential(*layers[:-1]).to(getattr(torch, dtype))
    theirs = TorchProblem(module, X, Y, l2=0.3)
    ours = network(hidden=hidden, dtype=dtype, l2=0.3)
    w = start(ours)
    assert ours.dimension == theirs.dimension
    for rng in (np.random.default_rng(3), np.random.default_rng(4)):
        state = rng.bit_generator.state
        loss, gradient = ours.loss_and_gradient(w, rng, batch_size)
        rng.bit_generator.state = state
        other, slope = theirs.loss_and_gradient(w, rng, batch_size)
        assert loss == pytest.approx(other, rel=close)
        np.testing.assert_allclose(gradient, slope, rtol=close, atol=close)
    np.testing.assert_allclose(ours.predict(w, X), theirs.predict(w, X), rtol=close, atol=close)


@pytest.mark.parametrize("dropout", [0.0, 0.4, RATES])
def test_gradients_are_those_of_finite_differences(dropout):
    problem = network(dropout=dropout, l2=0.2)
    w = start(problem)

    def loss(point):  # the same batch and the same masks every time
        return problem.loss_and_gradient(point, np.random.default_rng(5), 40)[0]

    gradient = problem.loss_and_gradient(w, np.random.default_rng(5), 40)[1]
    entries = np.arange(w.size)
    np.testing.assert_allclose(gradient, differences(loss, w, entries), rtol=1e-6, atol=1e-8)


def test_without_hidden_layers_it_is_softmax_regression():
    problem, other = network(hidden=(), l2=0.1), SoftmaxRegression(X, Y, 3, l2=0.1)
    w = start(problem)
    W, b = w[:12].reshape(3, 4), w[12:]
    loss, gradient = problem.loss_and_gradient(w)
    value, slope = other.loss_and_gradient(np.vstack([W.T, b]).ravel())
    assert loss == pytest.approx(value, rel=1e-13)
    both = np.vstack([gradient[:12].reshape(3, 4).T, gradient[12:]]).ravel()
    np.testing.assert_allclose(both, slope, rtol=1e-12, atol=1e-14)
    assert problem.accuracy(w) == other.accuracy(np.vstack([W.T, b]).ravel())


@pytest.mark.parametrize("count", [ROWS - 1, ROWS, ROWS + 1, 2 * ROWS + 3])
@pytest.mark.parametrize("dropout", [0.0, (0.2, 0.0)])
def test_more_samples_than_fit_at_a_time(count, dropout):
    rng = np.random.default_rng(2)
    inputs, labels = rng.normal(size=(count, 3)), rng.integers(0, 2, size=count)
    problem = DenseNetwork(inputs, labels, 2, hidden=(4,), dropout=dropout, seed=0, dtype=np.float64)
    w = start(problem)
    parts = [
        DenseNetwork(inputs[k : k + 100], labels[k : k + 100], 2, hidden=(4,), dtype=np.float64)
        for k in range(0, count, 100)
    ]
    each = [(part.samples, *part.loss_and_gradient(w)) for part in parts]
    loss, gradient = problem.loss_and_gradient(w)
    assert loss == pytest.approx(sum(n * value for n, value, _ in each) / count, rel=1e-12)
    np.testing.assert_allclose(gradient, sum(n * g for n, _, g in each) / count, rtol=1e-11, atol=1e-13)
    scores = np.vstack([problem.predict(w, inputs[k : k + 100]) for k in range(0, count, 100)])
    np.testing.assert_allclose(problem.predict(w, inputs), scores, rtol=1e-13, atol=1e-14)

    def noisy(point):
        return problem.loss_and_gradient(point, np.random.default_rng(1), count + 5)

    entries = np.arange(0, w.size, 5)
    slopes = differences(lambda point: noisy(point)[0], w, entries)
    np.testing.assert_allclose(noisy(w)[1][entries], slopes, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("classes", [1, 2])
@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_one_sample(classes, batch_size):
    problem = DenseNetwork([[0.5, -1.0]], [0], classes, hidden=(3,), dropout=0.5, seed=0)
    loss, gradient = problem.loss_and_gradient(start(problem), np.random.default_rng(0), batch_size)
    assert (loss == 0.0 and not gradient.any()) if classes == 1 else loss > 0.0
    assert gradient.shape == (problem.dimension,)


# -- dropout --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("thin", "dtype"), [(kernels.thin, np.float64), (kernels.thin_single, np.float32)], ids=["64", "32"]
)
@pytest.mark.parametrize("rate", [0.1, 0.3, 0.9])
def test_masks_have_their_rate_and_are_independent(thin, dtype, rate):
    rows, width, scale = 500, 120, 1.0 / (1.0 - rate)

    def mask(key):
        ones = np.ones((rows, width), dtype)
        thin(ones, int(rate * 2**32), scale, key)
        assert set(np.unique(ones)) == {0.0, dtype(scale)}
        return ones > 0

    keys = np.random.default_rng(1).integers(2**63, size=3).tolist()
    first, other, third = (mask(key) for key in keys)
    assert np.array_equal(first, mask(keys[0]))
    margin = 6.0 / np.sqrt(rows * width)  # six deviations

    def correlation(a, b):
        return abs(np.corrcoef(a.ravel(), b.ravel())[0, 1])

    assert abs(first.mean() - (1 - rate)) < margin * np.sqrt(rate * (1 - rate))
    assert correlation(first, mask(keys[0])) > 0.99  # the control
    for a, b in (
        (first, other), (other, third), (first[:, 1:], first[:, :-1]), (first[1:], first[:-1]),
        (first[2:], first[:-2]), (first[:, 8:], first[:, :-8]), (mask(keys[0] + 1), first),
    ):  # fmt: skip
        assert correlation(a, b) < margin
    assert first.mean(axis=0).std() < 1.5 * np.sqrt(rate * (1 - rate) / rows)  # no unit is favoured


def test_dropout_keeps_the_mean_of_what_a_layer_passes_on():
    rng = np.random.default_rng(0)
    values, bias = rng.normal(size=(1, 40)), rng.normal(size=40)
    many = np.repeat(values, 20_000, axis=0)
    kernels.rectify(many, bias, int(0.3 * 2**32), 1 / 0.7, 99)
    wanted = np.maximum(values[0] + bias, 0.0)
    deviation = wanted * np.sqrt(0.3 / 0.7 / 20_000)
    assert (np.abs(many.mean(axis=0) - wanted) <= 5 * deviation).all()


def test_the_same_stream_gives_the_same_gradient():
    problem = network(dropout=RATES, dtype=np.float32)
    w = start(problem)
    one, again, other = (problem.loss_and_gradient(w, np.random.default_rng(s), 20)[1] for s in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_there_is_no_dropout_without_a_stream():
    w = start(network())
    with_rates, without = network(dropout=RATES), network()
    assert with_rates.loss_and_gradient(w)[0] == without.loss_and_gradient(w)[0]
    assert with_rates.loss_and_gradient(w, np.random.default_rng(0))[0] != without.loss_and_gradient(w)[0]


def test_one_rate_is_for_hidden_units_alone():
    assert network(dropout=0.2).dropout == (0.0, 0.2, 0.2)


# -- what the driver needs ------------------------------------------------------------------------


def test_first_weights_are_uniform_as_those_of_torch():
    problem = DenseNetwork(np.ones((1, 100)), [0], 2, hidden=(400,))
    w = problem.initial_point(np.random.default_rng(0))
    assert np.array_equal(w, problem.initial_point(np.random.default_rng(0)))
    assert not np.array_equal(w, problem.initial_point(np.random.default_rng(1)))
    first, last = w[: 101 * 400], w[101 * 400 :]
    for part, inputs in ((first, 100), (last, 400)):
        bound = 1 / np.sqrt(inputs)
        assert 0.99 * bound < np.abs(part).max() <= bound
        assert part.std() == pytest.approx(bound / np.sqrt(3), rel=0.05)
    seeded = DenseNetwork(np.ones((1, 100)), [0], 2, hidden=(400,), seed=4)
    points = [seeded.initial_point(np.random.default_rng(s)) for s in (0, 1)]
    assert np.array_equal(*points)


def test_calls_from_several_threads_do_not_meet():
    problems = [network(hidden=(40, 30), dropout=RATES, dtype=np.float32, l2=0.01 * j) for j in range(4)]
    w = start(problems[0])

    def work(number):
        problem = problems[number % 4]
        return problem.loss_and_gradient(w, np.random.default_rng(number), 32)

    alone = [work(number) for number in range(200)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(work, range(200)))
    for (loss, gradient), (other, slope) in zip(alone, together, strict=True):
        assert loss == other
        assert np.array_equal(gradient, slope)


def test_gradients_of_two_problems_are_two_arrays():
    w = start(network())
    first = network().loss_and_gradient(w)[1]
    kept = first.copy()
    network(l2=1.0).loss_and_gradient(w + 1.0)
    assert np.array_equal(first, kept)


def test_a_network_is_trained():
    inputs = np.random.default_rng(3).normal(size=(200, 2))
    labels = (inputs[:, 0] * inputs[:, 1] > 0).astype(int)  # no linear model does better than chance
    problems = [DenseNetwork(inputs[k::2], labels[k::2], 2, hidden=(16,), seed=0) for k in range(2)]
    assert isinstance(problems[0], Problem)
    config = AspireModels(iterations=1500, batch_size=20, model_step=0.05)
    result = solve(problems, Box([0.2, 0.2], [0.8, 0.8]), algorithm=config, engine=VirtualEngine(seed=1))
    assert min(problem.accuracy(result.w) for problem in problems) > 0.9


def test_a_diverged_model_has_no_finite_loss():
    problem = network(dtype=np.float32)
    for size in (1e300, np.inf, np.nan):  # without a warning
        assert not np.isfinite(problem.loss_and_gradient(np.full(problem.dimension, size))[0])


def test_a_pickled_network_computes_the_same():
    problem = network(dropout=RATES)
    w = start(problem)
    loss, gradient = problem.loss_and_gradient(w, np.random.default_rng(0), 9)
    other, slope = pickle.loads(pickle.dumps(problem)).loss_and_gradient(w, np.random.default_rng(0), 9)
    assert loss == other
    assert np.array_equal(gradient, slope)


def test_fingerprints_tell_networks_apart():
    changes = [{}, {"hidden": (5, 6)}, {"dropout": 0.1}, {"l2": 0.1}, {"dtype": np.float32}]
    assert len({network(**change).fingerprint() for change in changes}) == len(changes)
    assert network(seed=5).fingerprint() == network().fingerprint()  # the first weights do not count


BAD = {
    "hidden": ({"hidden": (3, 0)}, r"hidden must be whole numbers >= 1, got \(3, 0\)"),
    "rates": ({"dropout": (0.1, 0.2)}, r"dropout must be one rate in \[0, 1\), or 3, .* got \(0.1, 0.2\)"),
    "all dropped": ({"dropout": 1.0}, r"dropout must be one rate in \[0, 1\)"),
    "dtype": ({"dtype": np.float16}, "dtype must be float32 or float64, got <class 'numpy.float16'>"),
    "l2": ({"l2": -1.0}, "DenseNetwork: l2 must be a number >= 0"),
}


@pytest.mark.parametrize(("more", "message"), BAD.values(), ids=BAD)
def test_wrong_settings_are_refused(more, message):
    with pytest.raises(InvalidProblem, match=message):
        network(**more)


def test_wrong_samples_are_refused():
    with pytest.raises(InvalidProblem, match=r"DenseNetwork: y must hold whole numbers 0\.\.1, got 0\.\.2"):
        DenseNetwork(X, Y, 2)
    with pytest.raises(InvalidProblem, match="too large for float32; scale the features"):
        DenseNetwork(X * 1e39, Y, 3)
    with pytest.raises(InvalidProblem, match=r"inputs must be \(samples, 4\), got shape \(3,\)"):
        network().predict(np.zeros(network().dimension), [1.0, 2.0, 3.0])
