"""The robust loss in torch: value, gradient, types, batches, and what it refuses."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tests.uncertainty_sets.plugins import TotalVariation
from uncertainty_sets import KL, Box, Polyhedron, available_sets, get_set
from uncertainty_sets.errors import BackendMissing, BackendUnsuitable, InvalidInput, InvalidLosses
from uncertainty_sets.torch import robust_loss, worst_case_weights

NEAR = KL([0.5, 0.3, 0.2], radius=0.1)


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(BackendMissing, match=r"fdro\[torch\]"):
        robust_loss(None, NEAR)


torch = pytest.importorskip("torch")


@pytest.mark.parametrize("name", available_sets())
def test_value_and_gradient_are_the_oracles(name):
    uncertainty_set = get_set(name).example(6, np.random.default_rng(0))
    f = np.random.default_rng(1).normal(size=6)
    losses = torch.tensor(f, requires_grad=True)
    value = robust_loss(losses, uncertainty_set)
    (3.0 * value).backward()
    answer = uncertainty_set.worst_case(f)
    assert value.item() == answer.value
    np.testing.assert_array_equal(losses.grad.numpy(), 3.0 * answer.p)
    weights = worst_case_weights(losses, uncertainty_set).detach().numpy()
    np.testing.assert_allclose(weights, answer.p, atol=1e-13)  # of a set made of sets, multiplied by torch


def test_gradient_by_differences():
    start = torch.rand(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.autograd.gradcheck(lambda f: robust_loss(f, NEAR), start.requires_grad_())


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_the_type_of_the_losses_is_kept(dtype):
    kind = getattr(torch, dtype)
    losses = torch.tensor([1.0, 2.0, 4.0], dtype=kind, requires_grad=True)
    value = robust_loss(losses, NEAR)
    value.backward()
    assert value.dtype == losses.grad.dtype == kind
    assert value.item() == pytest.approx(
        NEAR.worst_case([1.0, 2.0, 4.0]).value, rel=4.0 * torch.finfo(kind).eps
    )


def test_leading_axes_are_a_batch():
    losses = torch.rand(2, 4, 3, dtype=torch.float64)
    values = robust_loss(losses, NEAR)
    assert values.shape == (2, 4)
    for k in range(2):
        for j in range(4):
            assert values[k, j].item() == pytest.approx(NEAR.worst_case(losses[k, j].numpy()).value)
    view = torch.rand(3, 4, dtype=torch.float64).T  # not contiguous
    np.testing.assert_allclose(robust_loss(view, NEAR), NEAR.worst_case(view.numpy().copy()).value)


def test_parameters_that_differ_by_row():
    rows = KL([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]], radius=[0.1, 0.2])
    losses = torch.rand(2, 3, dtype=torch.float64)
    np.testing.assert_allclose(robust_loss(losses, rows), rows.worst_case(losses.numpy()).value)
    with pytest.raises(InvalidLosses, match="2 rows"):
        robust_loss(losses[0], rows)


def test_a_training_loop_equalises_the_groups():
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(200, 3, generator=generator, dtype=torch.float64)
    group = torch.arange(200) % 2
    target = torch.where(group == 0, X[:, 0], X[:, 0] + 2.0)
    weight = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([weight], lr=0.02)
    anywhere = Box([0.0, 0.0], [1.0, 1.0])
    for _ in range(600):
        each = (X @ weight[:3] + weight[3] - target) ** 2
        losses = torch.stack([each[group == g].mean() for g in (0, 1)])
        optimiser.zero_grad()
        robust_loss(losses, anywhere).backward()
        optimiser.step()
    assert abs(losses[0].item() - losses[1].item()) < 0.1
    assert losses.max().item() < 1.05, "the best constant between 0 and 2 leaves a loss of 1"


def test_a_plug_in_and_a_backend_by_name():
    losses = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64, requires_grad=True)
    value = robust_loss(losses, TotalVariation([0.5, 0.3, 0.2], 0.1), backend="clarabel")
    value.backward()
    assert value.item() == pytest.approx(2.2, abs=1e-6)
    np.testing.assert_allclose(losses.grad, [0.4, 0.3, 0.3], atol=1e-6)


def test_a_second_backward_pass_is_refused_without_a_closed_form():
    losses = torch.tensor([1.0, 2.0, 4.0], requires_grad=True)
    rows = Polyhedron([[1.0, 0.0, 0.0]], [0.5])
    (gradient,) = torch.autograd.grad(robust_loss(losses, rows), losses, create_graph=True)
    with pytest.raises(BackendUnsuitable, match="first derivatives only"):
        (gradient**2).sum().backward()

    with pytest.raises(BackendUnsuitable, match="worst_case_weights none"):
        (worst_case_weights(losses, rows) ** 2).sum().backward()


def test_a_centre_without_a_sum_is_named():
    losses, center = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([1.0, -1.0, 0.0])
    with pytest.raises(InvalidInput, match="center is divided by its sum, which is 0"):
        robust_loss(losses, NEAR, center=center)


def test_functional_gradients():
    gradient = torch.func.grad(lambda f: robust_loss(f, NEAR))(torch.tensor([1.0, 2.0, 4.0]))
    np.testing.assert_allclose(gradient, [0.3313, 0.2836, 0.3851], atol=1e-4)


def test_no_gradient_where_none_is_asked_for():
    losses = torch.tensor([1.0, 2.0, 4.0], requires_grad=True)
    with torch.no_grad():
        assert not robust_loss(losses, NEAR).requires_grad
        assert not worst_case_weights(losses, NEAR).requires_grad


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        ([1.0, 2.0, 4.0], "torch tensor, got list"),
        (np.ones(3), "torch tensor, got ndarray"),
        ("ints", "floating point, got torch.int64"),
        ("mean", "reduction='none'"),
        ("nan", "finite"),
        ("long", "3 entries"),
    ],
)
def test_what_cannot_be_used(losses, message):
    made = {
        "ints": lambda: torch.tensor([1, 2, 3]),
        "mean": lambda: torch.tensor(1.0),
        "nan": lambda: torch.tensor([1.0, float("nan"), 2.0]),
        "long": lambda: torch.zeros(4),
    }
    given = made[losses]() if isinstance(losses, str) else losses
    with pytest.raises(InvalidLosses, match=message):
        robust_loss(given, NEAR)
