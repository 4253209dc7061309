"""PyTorch where it is hard: wrong sets, transformed functions, infinite and huge losses."""

from __future__ import annotations

import gc

import pytest

from uncertainty_sets import KL, Polyhedron
from uncertainty_sets.errors import BackendUnsuitable, InvalidInput

torch = pytest.importorskip("torch")

from uncertainty_sets.torch import GroupRobustLoss, robust_loss, solve, worst_case_weights  # noqa: E402

BALL = KL([0.2, 0.3, 0.5], 0.1)
BATCH = torch.tensor([[1.0, 2.0, 4.0], [3.0, 0.0, -1.0]], dtype=torch.float64)


@pytest.mark.parametrize("function", [robust_loss, worst_case_weights])
@pytest.mark.parametrize(("given", "shown"), [(None, "None"), (KL, "the class KL"), ("kl", "'kl'")])
def test_what_is_no_set_is_refused(function, given, shown):
    with pytest.raises(InvalidInput, match=f"must be .*, got {shown}.*: write"):
        function(BATCH[0], given)


def test_vmap_is_a_batch():
    def value(f):
        return robust_loss(f, BALL)

    each = torch.stack([value(f) for f in BATCH])
    torch.testing.assert_close(torch.func.vmap(value)(BATCH), each)
    torch.testing.assert_close(torch.func.vmap(value, in_dims=1)(BATCH.T), each)
    weights = torch.stack([worst_case_weights(f, BALL) for f in BATCH])
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(value))(BATCH), weights)
    torch.testing.assert_close(torch.func.vmap(lambda f: worst_case_weights(f, BALL))(BATCH), weights)
    both = torch.func.jacrev(value)(BATCH)
    torch.testing.assert_close(both[0, 0], weights[0])
    assert not both[0, 1].any()


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch's own, in forward mode
@pytest.mark.parametrize("form", ["hessian", "jacfwd", "jvp"])
def test_what_needs_more_than_a_first_derivative_is_refused_without_a_closed_form(form):
    def value(f):
        return robust_loss(f, Polyhedron([[1.0, 0.0, 0.0]], [0.5]))

    def call():
        if form == "jvp":
            return torch.func.jvp(value, (BATCH[0],), (BATCH[1],))
        return getattr(torch.func, form)(value)(BATCH[0])

    with pytest.raises(BackendUnsuitable, match="first derivatives only"):
        call()


@pytest.mark.parametrize("size", [1e30, 1e38, 3e38])
@pytest.mark.parametrize("step_size", [0.01, 1.0, 100.0])
def test_online_weights_at_huge_losses_are_a_distribution(size, step_size):
    loss = GroupRobustLoss(None, 3, update="online", step_size=step_size, momentum=0.5)
    for sign in (1.0, -1.0, 1.0, -1.0):
        losses = torch.tensor([size, -size, 1.0]) * sign
        assert torch.isfinite(loss(losses, torch.arange(3))) or size == 3e38
        assert torch.isfinite(loss.weights).all()
        assert torch.isfinite(loss.running_loss).all()
        assert float(loss.weights.sum()) == pytest.approx(1.0)


def test_a_group_without_weight_adds_nothing():
    loss = GroupRobustLoss(KL([0.5, 0.5], 0.1), 2).eval()
    loss.weights.copy_(torch.tensor([0.0, 1.0]))
    losses = torch.tensor([float("inf"), 3.0], requires_grad=True)
    value = loss(losses, torch.arange(2))
    value.backward()
    assert float(value.detach()) == 3.0
    assert losses.grad.tolist() == [0.0, 1.0]
    assert torch.isnan(loss(torch.tensor([float("nan"), 3.0]), torch.arange(2)))
    loss.weights.copy_(torch.tensor([0.5, 0.5]))
    assert torch.isinf(loss(losses, torch.arange(2)))


def test_losses_of_one_set_share_a_number_and_leave_nothing_behind():
    gc.collect()
    before = len(solve.sets)
    ball = KL([0.5, 0.5], 0.1)
    losses = [GroupRobustLoss(ball, 2) for _ in range(50)]
    assert len(solve.sets) == before + 1
    assert len({each._number for each in losses}) == 1
    del losses, ball
    gc.collect()
    assert len(solve.sets) == before


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("momentum", (True, "a", None, 0.0, 1.5)),
        ("step_size", (True, "a", None, 0.0, float("inf"))),
        ("adjustment", (True, "a", None, -1.0)),
        ("groups", (True, "a", None, 2.5, 0)),
    ],
)
def test_settings_that_are_none_are_refused(name, values):
    for value in values:
        given = {"groups": [3.0, 4.0], name: value}
        with pytest.raises(InvalidInput) as caught:
            GroupRobustLoss(KL([0.5, 0.5], 0.1), **given)
        assert caught.value.parameter == name


@pytest.mark.parametrize("huge", [1e39, 1e300, 1e308, -1e300])
@pytest.mark.parametrize("update", ["online", "oracle"])
def test_losses_beyond_the_range_of_the_buffers(update, huge):
    """Losses of float64 beside running losses of float32: they count as the largest number there."""
    subject = None if update == "online" else KL([0.5, 0.3, 0.2], 0.1)
    robust = GroupRobustLoss(subject, 3, update=update)
    for _ in range(3):
        losses = torch.tensor([1.0, 2.0, huge], dtype=torch.float64)
        value = robust(losses, torch.arange(3))
        assert torch.isfinite(robust.weights).all()
        assert torch.isfinite(robust.running_loss).all()
        assert float(robust.weights.sum()) == pytest.approx(1.0, abs=1e-6)
        assert float(value) == pytest.approx(float(robust.weights.double() @ losses), rel=1e-6)
    largest = int(losses.argmax())
    assert int((robust.weights / torch.tensor([0.5, 0.3, 0.2] if subject else [1.0] * 3)).argmax()) == largest
