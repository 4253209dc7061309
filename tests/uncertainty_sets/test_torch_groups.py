"""The group loss in torch, against a NumPy statement of its running averages and weights."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from uncertainty_sets import KL, Box, CDNorm, Penalised
from uncertainty_sets.errors import BackendMissing, InvalidInput, InvalidLosses
from uncertainty_sets.torch import GroupRobustLoss

ROOT = Path(__file__).resolve().parents[2]
NEAR = KL([0.4, 0.3, 0.2, 0.1], radius=0.1)
COUNTS = [50, 30, 15, 5]


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(BackendMissing, match=r'GroupRobustLoss needs torch: pip install "fdro\[torch\]"'):
        GroupRobustLoss(NEAR, 4)


def test_without_torch_the_module_imports():
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from uncertainty_sets.torch import GroupRobustLoss, robust_loss\n"
        "try: GroupRobustLoss(None, 2, update='online')\n"
        "except ImportError as error: print(error)"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "fdro[torch]" in answer.stdout


torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _one_thread():
    """Small tensors gain nothing from threads and lose much where the cores are busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Reference:
    """What the class docstring says, in NumPy, with groups as lists of samples."""

    def __init__(self, momentum=0.1, adjustment=0.0, step_size=None):
        self.momentum, self.step_size = momentum, step_size
        self.running = {}
        self.p = np.full(4, 0.25)
        self.extra = (adjustment / np.sqrt(COUNTS)).astype(np.float32)  # the module keeps it so

    def step(self, losses, membership, sample_weight):
        means = {}
        for g in range(4):
            weight = membership[:, g] * sample_weight
            if weight.sum() > 0:
                means[g] = np.average(losses, weights=weight)
                old = self.running.get(g, means[g])
                self.running[g] = (1 - self.momentum) * old + self.momentum * means[g]
        unknown = np.mean(list(self.running.values()))
        known = np.array([self.running.get(g, unknown) for g in range(4)])
        if self.step_size is None:
            self.p = NEAR.worst_case(known + self.extra).p
        else:
            self.p = self.p * np.exp(self.step_size * (known + self.extra))
            self.p /= self.p.sum()
        return sum(self.p[g] * means.get(g, known[g]) for g in range(4))


def batches(count, rng, samples=6):
    """Losses and labels; small groups are often absent, and the last one is absent at first."""
    for k in range(count):
        shares = np.array([0.5, 0.3, 0.2, 0.0 if k < 3 else 0.1])
        yield rng.gamma(2.0, size=samples), rng.choice(4, size=samples, p=shares / shares.sum())


@pytest.mark.parametrize("update", ["oracle", "online"])
@pytest.mark.parametrize("kind", ["labels", "matrix", "weighted", "overlapping"])
def test_running_losses_weights_and_value(update, kind):
    rng = np.random.default_rng(0)
    settings = {"momentum": 0.3, "adjustment": 2.0}
    expected = Reference(**settings, step_size=0.5 if update == "online" else None)
    chosen = None if update == "online" else NEAR
    loss = GroupRobustLoss(chosen, COUNTS, update=update, step_size=0.5, **settings).double()
    absent = 0
    for each, labels in batches(12, rng):
        membership = np.eye(4)[labels]
        sample_weight = rng.random(6) if kind in {"weighted", "overlapping"} else np.ones(6)
        if kind == "overlapping":
            membership[:, 0] = rng.random(6) < 0.5  # some samples are in two groups, some in none
            membership[0] = 0.0
        value = loss(
            torch.tensor(each),
            torch.tensor(membership if kind in {"matrix", "overlapping"} else labels),
            torch.tensor(sample_weight) if kind in {"weighted", "overlapping"} else None,
        )
        assert value.item() == pytest.approx(expected.step(each, membership, sample_weight), rel=1e-9)
        np.testing.assert_allclose(loss.weights, expected.p, rtol=1e-9)
        running = [expected.running.get(g, 0.0) for g in range(4)]
        np.testing.assert_allclose(loss.running_loss, running, rtol=1e-12)
        assert loss.seen.tolist() == [g in expected.running for g in range(4)]
        absent += int((membership.sum(0) == 0).sum())
    assert absent >= 5, "the batches must lack groups, or this tests little"


def test_the_online_update_is_group_dro_if_no_group_is_absent():
    """Sagawa et al. (2020), algorithm 1: q_g ∝ q_g·exp(η·loss_g), and the loss is qᵀ(group losses)."""
    q = np.full(3, 1 / 3)
    loss = GroupRobustLoss(None, 3, update="online", step_size=0.1, momentum=1.0).double()
    for each in np.random.default_rng(1).gamma(2.0, size=(20, 9)):
        means = each.reshape(3, 3).mean(axis=0)
        q = q * np.exp(0.1 * means)
        q /= q.sum()
        assert loss(torch.tensor(each), torch.arange(9) % 3).item() == pytest.approx(q @ means, rel=1e-12)
    np.testing.assert_allclose(loss.weights, q, rtol=1e-12)


@pytest.mark.parametrize("update", ["oracle", "online"])
def test_gradient_is_the_weighted_sum_of_group_gradients(update):
    """By differences of Σ p_g·(mean of group g), with the weights that the step chose."""
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(10, 3)), rng.normal(size=10)
    groups = np.array([0, 0, 1, 1, 1, 2, 2, 0, 1, 0])  # group 3 is absent
    w = torch.tensor(rng.normal(size=3), requires_grad=True)
    loss = GroupRobustLoss(None if update == "online" else NEAR, 4, update=update).double()
    loss(torch.tensor([9.0], dtype=torch.float64), torch.tensor([3]))
    before = loss.running_loss[3].item()
    loss((torch.tensor(X) @ w - torch.tensor(y)) ** 2, torch.tensor(groups)).backward()
    p = loss.weights.numpy().copy()

    def objective(point):
        each = (X @ point - y) ** 2
        return sum(p[g] * each[groups == g].mean() for g in range(3))

    at = w.detach().numpy()
    numeric = [(objective(at + e) - objective(at - e)) / 2e-6 for e in 1e-6 * np.eye(3)]
    np.testing.assert_allclose(w.grad, numeric, rtol=1e-6)
    assert loss.running_loss[3].item() == before == 9.0
    assert p[3] > 0.1, "the absent group keeps its weight"


def test_samples_of_absent_or_no_groups_and_empty_batches():
    loss = GroupRobustLoss(NEAR, 4)
    nothing = torch.zeros(0, requires_grad=True)
    loss(nothing, torch.zeros(0, dtype=torch.long)).backward()
    assert not loss.seen.any()
    each = torch.tensor([1.0, 5.0], requires_grad=True)
    loss(each, torch.tensor([[1, 0, 0, 0], [0, 0, 0, 0]])).backward()
    assert each.grad[0] > 0
    assert each.grad[1] == 0
    state = copy.deepcopy(loss.state_dict())
    value = loss(nothing, torch.zeros(0, 4))
    value.backward()
    assert value.item() == pytest.approx(1.0), "all running losses are 1"
    assert all(torch.equal(state[name], loss.state_dict()[name]) for name in state)


def test_a_loss_that_is_not_finite_is_seen_and_not_kept():
    loss = GroupRobustLoss(NEAR, 4)
    loss(torch.tensor([1.0, 2.0]), torch.tensor([0, 1]))
    before = loss.running_loss.clone()
    assert not loss(torch.tensor([float("inf"), 2.0]), torch.eye(4)[:2]).isfinite()
    assert not loss(torch.tensor([float("nan"), 2.0]), torch.tensor([0, 1])).isfinite()
    assert torch.equal(loss.running_loss, before)
    assert loss(torch.tensor([1.0, 2.0]), torch.tensor([0, 1])).isfinite()


def test_evaluation_changes_nothing():
    loss = GroupRobustLoss(NEAR, 4)
    loss(torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.arange(4))
    state = copy.deepcopy(loss.state_dict())
    value = loss.eval()(torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.arange(4))
    assert value.item() == pytest.approx((state["weights"] @ torch.tensor([4.0, 3.0, 2.0, 1.0])).item())
    assert all(torch.equal(state[name], loss.state_dict()[name]) for name in state)


@pytest.mark.parametrize("restore", ["state_dict", "deepcopy", "pickle"])
def test_a_restored_loss_goes_on_alike(restore):
    rng = np.random.default_rng(3)
    loss = GroupRobustLoss(NEAR, COUNTS, adjustment=1.0)
    for each, labels in batches(5, rng):
        loss(torch.tensor(each), torch.tensor(labels))
    if restore == "state_dict":
        other = GroupRobustLoss(NEAR, COUNTS, adjustment=1.0)
        other.load_state_dict(loss.state_dict())
        assert set(loss.state_dict()) == {"running_loss", "weights", "seen"}
    else:
        other = copy.deepcopy(loss) if restore == "deepcopy" else pickle.loads(pickle.dumps(loss))
    for each, labels in batches(5, rng):
        one, two = (made(torch.tensor(each), torch.tensor(labels)) for made in (loss, other))
        assert one.item() == two.item()
    assert torch.equal(loss.weights, other.weights)


def test_a_copy_does_not_need_the_first():
    """The operator finds sets by number, and does not keep them alive."""
    loss = GroupRobustLoss(KL([0.5, 0.5], 0.1), 2)
    other = copy.deepcopy(loss)
    del loss
    assert other(torch.tensor([1.0, 2.0]), torch.tensor([0, 1])).isfinite()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_added_up_in_float32(dtype):
    kind = getattr(torch, dtype)
    each = torch.full((3000,), 1.0, dtype=kind, requires_grad=True)  # 3000 is beyond the integers of float16
    loss = GroupRobustLoss(NEAR, 4)
    for groups in (torch.arange(3000) % 4, torch.eye(4, dtype=kind)[torch.arange(3000) % 4]):
        value = loss(each, groups)
        assert value.dtype == torch.float32
        assert value.item() == pytest.approx(1.0, rel=1e-6)
    value.backward()
    assert each.grad.dtype == kind


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_training_with_autocast_adam_and_accumulated_gradients(dtype):
    """Four mini-batches per step, each without two of the groups; one batch with a loss that overflows."""
    kind = getattr(torch, dtype)
    torch.manual_seed(0)
    X, groups = torch.randn(64, 3), (torch.arange(64) % 2) + 2 * (torch.arange(64) >= 32)
    y = (X[:, 0] > 0).long()
    model, loss = torch.nn.Linear(3, 2), GroupRobustLoss(NEAR, 4)
    optimiser, scaler = torch.optim.Adam(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    means = []
    for step in range(20):
        optimiser.zero_grad()
        before = copy.deepcopy(model.state_dict())
        values = []
        for rows in torch.arange(64).split(16):
            with torch.autocast("cpu", dtype=kind):
                each = torch.nn.functional.cross_entropy(model(X[rows]), y[rows], reduction="none").to(kind)
                value = loss(each * (float("inf") if step == 10 else 1.0), torch.eye(4)[groups[rows]])
            assert value.dtype == torch.float32
            values.append(value.item())
            scaler.scale(value / 4).backward()
        scaler.step(optimiser)
        scaler.update()
        same = all(torch.equal(before[name], model.state_dict()[name]) for name in before)
        assert same == (step == 10), "the scaler skips the step that overflowed, and no other"
        means.append(np.mean(values))
    assert means[-1] < 0.5 * means[0]


def test_several_batches_before_one_backward():
    """The weights of a later batch do not disturb the graph of an earlier one."""
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = GroupRobustLoss(None, 2, update="online", step_size=1.0)
    parts, chosen = [], []
    for _ in range(2):
        parts.append(loss(w * w, torch.tensor([0, 1])))
        chosen.append(loss.weights.clone())
    sum(parts).backward()
    np.testing.assert_allclose(w.grad, 2 * w.detach() * sum(chosen), rtol=1e-6)
    assert not torch.equal(*chosen)


@pytest.mark.parametrize("update", ["oracle", "online"])
def test_compiled_as_one_graph(update):
    """fullgraph=True raises at a graph break; the oracle is an operator, so there is none."""
    chosen = None if update == "online" else NEAR
    plain, made = (GroupRobustLoss(chosen, 4, update=update) for _ in range(2))
    compiled = torch.compile(made, fullgraph=True, backend="aot_eager")
    for each, labels in batches(6, np.random.default_rng(4)):
        one, two = (torch.tensor(each, requires_grad=True) for _ in range(2))
        plain(one, torch.tensor(labels)).backward()
        compiled(two, torch.tensor(labels)).backward()
        np.testing.assert_allclose(one.grad, two.grad, rtol=1e-6)
    np.testing.assert_allclose(made.weights, plain.weights, rtol=1e-6)
    np.testing.assert_allclose(made.running_loss, plain.running_loss, rtol=1e-6)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed")
def test_two_processes_step_as_one_would_on_all_samples(tmp_path):
    from tests.uncertainty_sets import two_processes

    store = str(tmp_path / "store")
    command = [sys.executable, two_processes.__file__, store]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}) as other:
        with two_processes.joined(0, store):
            shared = two_processes.steps(two_processes.PARTS[0], parallel=True)
            values = torch.tensor(shared.pop("value"))
            torch.distributed.all_reduce(values)
        assert other.wait(60) == 0
    alone = two_processes.steps(slice(None), parallel=False)
    assert values.item() / 2 == pytest.approx(alone.pop("value"), rel=1e-6)
    for name in alone:
        np.testing.assert_allclose(shared[name], alone[name], rtol=1e-12, err_msg=name)


def draw(n, agreement, seed):
    """A feature that predicts the label for most of the samples, and five weaker ones that always do."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    shortcut = np.where(rng.random(n) < agreement, y, 1 - y)
    signal = (2 * y - 1)[:, None] * 0.5 + rng.normal(size=(n, 5))
    X = np.column_stack([signal, 3.0 * (2 * shortcut - 1) + 0.1 * rng.normal(size=n)])
    return torch.tensor(X), torch.tensor(y), torch.tensor(2 * y + shortcut)


def worst_held_out_accuracy(loss, seed):
    X, y, groups = draw(1000, 0.95, seed)
    torch.manual_seed(seed)
    model = torch.nn.Linear(6, 2).double()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(12):
        for rows in torch.randperm(len(X)).split(50):
            each = torch.nn.functional.cross_entropy(model(X[rows]), y[rows], reduction="none")
            optimiser.zero_grad()
            (each.mean() if loss is None else loss(each, groups[rows])).backward()
            optimiser.step()
    X, y, groups = draw(4000, 0.5, seed + 100)
    right = model(X).argmax(1) == y
    return min(right[groups == g].double().mean().item() for g in range(4))


@pytest.mark.parametrize("update", ["oracle", "online"])
def test_the_worst_group_gains_on_held_out_data(update):
    """By at least 10 points for each of four seeds."""
    chosen = None if update == "online" else CDNorm([0.25] * 4, spread=0.5, budget=2.0)
    for seed in range(4):
        loss = GroupRobustLoss(chosen, 4, update=update, step_size=0.05)
        gain = worst_held_out_accuracy(loss, seed) - worst_held_out_accuracy(None, seed)
        assert gain > 0.1


@pytest.mark.parametrize("made", [Box([0.0] * 4, [1.0] * 4), Penalised("kl", [0.25] * 4, 0.5)])
def test_any_oracle_will_do(made):
    loss = GroupRobustLoss(made, 4)
    loss(torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.arange(4))
    np.testing.assert_allclose(loss.weights, made.worst_case([1.0, 2.0, 3.0, 4.0]).p, rtol=1e-6)
    assert "groups=4" in repr(loss)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"uncertainty_set": None}, 'update="oracle" needs an uncertainty set'),
        ({"uncertainty_set": "kl"}, "needs an uncertainty set.*got 'kl'"),
        ({"groups": 3}, "must have 3 entries, one per group"),
        ({"uncertainty_set": KL([[0.25] * 4] * 2, 0.1)}, "one row of parameters"),
        ({"update": "exact"}, '"oracle" or "online", got \'exact\''),
        ({"update": "online"}, "give None in place of the set"),
        ({"momentum": 0.0}, r"momentum must be in \(0, 1\], got 0.0"),
        ({"momentum": float("nan")}, "momentum must be in"),
        ({"step_size": -1.0}, "step_size must be a finite number > 0, got -1.0"),
        ({"adjustment": -1.0}, "adjustment must be a number >= 0"),
        ({"adjustment": 1.0}, r"give groups=\[n_0, n_1, …\].*instead of groups=4"),
        ({"groups": 0}, "at least 1, got 0"),
        ({"groups": 2.5}, "the number of groups, at least 1, got 2.5"),
        ({"groups": [3, 0, 1, 2]}, "one number of training samples > 0 per group"),
    ],
)
def test_settings_that_cannot_be_used(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        GroupRobustLoss(**{"uncertainty_set": NEAR, "groups": 4, **arguments})


@pytest.mark.parametrize(
    ("losses", "groups", "sample_weight", "message"),
    [
        (torch.tensor(1.0), torch.tensor([0]), None, "reduction='none', got torch.float32 of shape"),
        ([1.0], torch.tensor([0]), None, "got list"),
        (
            torch.ones(2),
            torch.tensor([0]),
            None,
            r"integers of shape \(2,\).*got torch.int64 of shape \(1,\)",
        ),
        (torch.ones(2), torch.ones(2), None, "got torch.float32"),
        (torch.ones(2), [0, 1], None, r"matrix of shape \(2, 4\), got list"),
        (torch.ones(2), torch.ones(2, 3), None, r"matrix of shape \(2, 4\)"),
        (torch.ones(2), torch.tensor([0, 4]), None, "from 0 to 3, got 0 to 4"),
        (torch.ones(2), torch.tensor([0, -1]), None, "from 0 to 3, got -1 to 0"),
        (torch.ones(2), -torch.ones(2, 4), None, "membership matrix must be finite and not negative"),
        (
            torch.ones(2),
            torch.tensor([0, 1]),
            torch.ones(3),
            r"sample_weight must be a tensor of shape \(2,\)",
        ),
        (torch.ones(2), torch.tensor([0, 1]), torch.tensor([1.0, -1.0]), "sample_weight must be finite"),
    ],
)
def test_batches_that_cannot_be_used(losses, groups, sample_weight, message):
    loss = GroupRobustLoss(NEAR, 4)
    with pytest.raises(InvalidInput, match=message) as caught:
        loss(losses, groups, sample_weight)
    assert isinstance(caught.value, InvalidLosses) == ("reduction" in str(caught.value))
    assert not loss.seen.any()
