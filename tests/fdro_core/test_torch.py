"""The adapter for torch modules."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from fdro_core import SoftmaxRegression, solve
from fdro_core.errors import InvalidProblem
from fdro_core.problems.torch import TorchProblem
from tests.fdro_core.helpers import machines, middle_box
from uncertainty_sets.errors import BackendMissing

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(30, 4)), RNG.integers(0, 3, size=30)


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(BackendMissing, match=r"fdro\[torch\]"):
        TorchProblem(None, X, Y)


torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _one_thread():
    """A small network gains nothing from threads and loses much where the cores are busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def module(*extra):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), *extra, torch.nn.Linear(5, 3)).double()


def test_gradient_by_differences():
    problem = TorchProblem(module(), X, Y, l2=0.1)
    w = problem.initial_point(np.random.default_rng(0))
    _, gradient = problem.loss_and_gradient(w)
    numeric = [
        (problem.loss_and_gradient(w + e)[0] - problem.loss_and_gradient(w - e)[0]) / 2e-6
        for e in 1e-6 * np.eye(w.size)
    ]
    np.testing.assert_allclose(gradient, numeric, atol=1e-7)
    assert np.array_equal(w, problem.initial_point(np.random.default_rng(1))), "evaluations must not move it"


def test_a_linear_module_is_softmax_regression():
    linear = torch.nn.Linear(4, 3, bias=False).double()
    ours, theirs = SoftmaxRegression(X, Y, 3, intercept=False), TorchProblem(linear, X, Y)
    w = RNG.normal(size=12)
    loss, gradient = ours.loss_and_gradient(w)
    other, transposed = theirs.loss_and_gradient(w.reshape(4, 3).T.ravel())
    assert other == pytest.approx(loss)
    np.testing.assert_allclose(transposed.reshape(3, 4).T.ravel(), gradient, atol=1e-12)
    np.testing.assert_allclose(theirs.predict(w.reshape(4, 3).T.ravel(), X), X @ w.reshape(4, 3))


def test_dropout_repeats_with_the_seed():
    problem = TorchProblem(module(torch.nn.Dropout(0.5)), X, Y)
    w = problem.initial_point(np.random.default_rng(0))
    first, again, other = (problem.loss_and_gradient(w, np.random.default_rng(s), 10)[0] for s in (1, 1, 2))
    assert first == again != other


def test_a_network_is_trained_and_becomes_stationary(aspire):
    network = module()
    parts = [np.flatnonzero(k == Y) for k in range(3)]
    problems = [TorchProblem(network, X[rows], Y[rows], l2=1e-2) for rows in parts]
    config = aspire(active_workers=3, iterations=300)
    master, workers = machines(problems, middle_box(3), config)
    start = master.assess({j: workers[j].handle(probe) for j, probe in master.probes().items()})
    result = solve(problems, middle_box(3), algorithm=config)
    assert result.stationarity < 1e-2 * start.stationarity
    assert result.objective < np.log(3)


def test_the_trained_module_comes_back(aspire):
    """A copy at w, ready for predictions; neither the module that was given nor the problem changes."""
    given = module(torch.nn.BatchNorm1d(5), torch.nn.Dropout(0.5))
    given[0].bias.requires_grad_(False)
    problems = [TorchProblem(given, X, Y), TorchProblem(given, X, (Y + 1) % 3)]
    result = solve(problems, middle_box(2), algorithm=aspire(active_workers=2, iterations=20))
    trained = problems[0].module(result.w)
    np.testing.assert_array_equal(trained(torch.tensor(X)).detach().numpy(), problems[0].predict(result.w, X))
    assert not trained.training
    assert not torch.equal(trained[0].weight, given[0].weight)
    assert torch.equal(trained[0].bias, given[0].bias)
    loss, _ = problems[0].loss_and_gradient(result.w, np.random.default_rng(0))
    twin = problems[0].module(result.w)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert problems[0].loss_and_gradient(result.w, np.random.default_rng(0))[0] == loss
    twin.load_state_dict(trained.state_dict())
    np.testing.assert_array_equal(twin[0].weight.detach(), trained[0].weight.detach())
    with pytest.raises(InvalidProblem, match=r"w must have 48 entries.*got shape \(3,\)"):
        problems[0].module(np.zeros(3))


def test_bad_modules():
    with pytest.raises(InvalidProblem, match="no parameters"):
        TorchProblem(torch.nn.ReLU(), X, Y)
    with pytest.raises(InvalidProblem, match="same number of samples"):
        TorchProblem(module(), X, Y[:5])


def test_a_fingerprint_of_data_and_structure():
    """The same for the same problem, wherever training has taken it; another for other data or layers."""
    problem = TorchProblem(module(), X, Y)
    problem.loss_and_gradient(np.ones(problem.dimension))
    other_start = module()
    with torch.no_grad():
        other_start[0].weight += 1.0
    assert problem.fingerprint() == TorchProblem(other_start, X, Y).fingerprint()
    changed = X.copy()
    changed[3, 1] += 1e-9
    frozen, moved = module(), module()
    for each in (frozen, moved):
        each[0].weight.requires_grad_(False)
    with torch.no_grad():
        moved[0].weight += 1.0
    others = [
        TorchProblem(module(), changed, Y),
        TorchProblem(module(), X, (Y + 1) % 3),
        TorchProblem(module(), X, Y, l2=0.1),
        TorchProblem(module(), X, np.eye(3)[Y], loss=torch.nn.functional.mse_loss),
        TorchProblem(module(torch.nn.Dropout(0.1)), X, Y),
        TorchProblem(module(torch.nn.Dropout(0.2)), X, Y),
        TorchProblem(module().float(), X, Y),
        TorchProblem(frozen, X, Y),
        TorchProblem(moved, X, Y),
    ]
    prints = [each.fingerprint() for each in (problem, *others)]
    assert len(set(prints)) == len(prints)
