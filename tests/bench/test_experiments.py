"""The experiments: parts by hand."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import numpy as np
import pytest

from bench.__main__ import commands, overview
from bench.datasets import Client, load
from bench.experiments.commands import efficiency, quote, race, rehearse
from bench.experiments.presentation import paper_numbers, tables
from bench.experiments.runs import backdoor, compare, methods, search, sets, stopping
from bench.experiments.runs.models import Perceptron, Softmax
from bench.experiments.runs.parts import Evaluator, cut, worst_fifth
from bench.experiments.runs.perform import perform
from bench.experiments.runs.task import Records, Task, key, read
from fdro_core import SoftmaxRegression
from fdro_core.errors import DriverError
from tests.bench.short import SHORT
from uncertainty_sets import KL


def client(labels) -> Client:
    y = np.asarray(labels)
    return Client("one", np.arange(y.size, dtype=float)[:, None], y, np.zeros((1, 1)), y[:1])


def test_held_out_data_is_a_share_of_every_label_in_blocks():
    (part,) = cut([client([0] * 160 + [1] * 80)], seed=3)
    held = part.held[0].ravel().astype(int)
    assert sorted([*part.train[0].ravel(), *held]) == list(range(240))
    assert np.bincount(part.held[1]).tolist() == [32, 16]  # 2 of 10 blocks of 16, 1 of 5
    starts = np.flatnonzero(np.diff(held, prepend=-9) != 1)
    assert (held[starts] % 16 == 0).all()
    again, other = (cut([client([0] * 160 + [1] * 80)], seed=seed)[0].held[0].ravel() for seed in (3, 4))
    assert np.array_equal(again, held)
    assert not np.array_equal(other, held)


@pytest.mark.parametrize("labels", [[0, 1], [0] * 3, [0, 1, 2, 3, 4]])
def test_a_client_with_few_samples_is_cut_too(labels):
    (part,) = cut([client(labels)], seed=0)
    assert len(part.train[1]) >= 1
    assert len(part.held[1]) >= 1


def test_few_samples_of_every_label_are_cut_by_the_share_and_the_seed():
    """As on MNIST by writer: eight digits of each label. Half of them, the same for all seeds, were held."""
    labels = np.tile(np.arange(10), 8)
    held = [cut([client(labels)], seed=seed)[0].held[0].ravel().astype(int) for seed in range(20)]
    assert {rows.size for rows in held} == {16}
    assert len({tuple(rows) for rows in held}) > 10
    assert all((np.diff(np.sort(rows)) == 1).sum() >= 14 for rows in held)  # side by side, around the end


def test_scores_by_hand():
    # one feature, two classes, w = (0, 1; bias 0, 0): score 1 is x, so x > 0 is class 1
    X, y = np.array([[2.0], [-1.0], [3.0]]), np.array([1, 1, 0])
    part = cut([Client("a", X, y, X, y), Client("b", X[:2], y[:2], X[:2], y[:2])], seed=0)
    scores = Evaluator(part, Softmax(2))(np.array([0.0, 1.0, 0.0, 0.0]))
    assert scores.test_accuracy.tolist() == [1 / 3, 1 / 2]
    losses = np.log1p(np.exp([-2.0, 1.0, 3.0]))
    for found, (_, labels), own in zip(scores.train_loss, [p.train for p in part], [y, y[:2]], strict=True):
        assert 0 < found <= losses.max()
        assert len(labels) < len(own)


def test_the_worst_fifth_by_hand():
    assert worst_fifth(np.array([0.5])) == 0.5
    assert worst_fifth(np.array([0.9, 0.3, 0.8, 0.7, 0.6])) == 0.3
    assert worst_fifth(np.linspace(1, 0, 11)) == pytest.approx((0 + 0.1 + 0.2) / 3)  # 3 of 11
    record = perform(SHORT)
    accuracies = sorted(record["metrics"]["accuracies"])
    assert record["metrics"]["acc_20"] == pytest.approx(accuracies[0], abs=1e-4)  # one of two workers
    assert len(record["curve"]["held_acc_20"]) == len(record["curve"]["bits"]) == 4
    assert record["curve"]["bits"] == sorted(record["curve"]["bits"])


def test_every_rule_by_hand():
    accuracy = [0.1, 0.8, 0.2, 0.5, 0.6, 0.5, 0.5, 0.0, 0.1, 0.1, 0.1, 0.1]
    loss = [1.0, 3.0, 0.2, 0.1, 0.2, 0.4, 0.5, 0.5, 0.6, 0.7, 0.8, 0.9]
    windows = {name: stopping.choose(accuracy, loss, name) for name in stopping.RULES}
    assert {name: (window.start, window.stop) for name, window in windows.items()} == {
        "the last look": (11, 12),
        "the best look": (1, 2),
        "the middle of the best 3 looks": (5, 6),  # 0.6, 0.5, 0.5; the earlier 0.5, 0.6, 0.5 is as good
        "the mean of the best 3 looks": (4, 7),
        "the mean of the best 6 looks": (1, 7),
        "the mean of the best 10 looks": (1, 11),
        "the mean of the 3 looks of least loss": (2, 5),
        "the mean of the 6 looks of least loss": (2, 8),
        "the mean of the last 10 looks": (2, 12),
    }
    for name in stopping.RULES:
        assert stopping.choose([0.3], [1.0], name) == slice(0, 1)
        assert stopping.choose([], [], name) is None


def test_the_model_is_the_mean_of_the_window_and_is_scored_as_that():
    rows = [
        {"held_acc_w": held, "held_loss_w": 1.0, "acc_w": 0.0, "loss_w": 1.0, "std": 0.0}
        | {"acc_20": 0.0, "held_acc_20": 1.0 - held}
        | {"gradients": 10 * (k + 1), "clock": k, "bits": 0, "planes": 0, "scores": None}
        for k, held in enumerate([0.1, 0.6, 0.9, 0.6, 0.2])
    ]
    models = [np.full(2, float(k)) for k in range(5)]
    seen = []

    def score(w):
        seen.append(w)
        scores = Evaluator(cut([client([0, 1, 0, 1])], seed=0), Softmax(2))(np.zeros(4))
        return {"acc_w": 0.75, "held_acc_w": 0.5, "scores": scores}

    found, w = stopping.metrics(rows, [*models[:-1], np.full(2, 7.0)], score, "the mean of the best 3 looks")
    assert w.tolist() == [2.0, 2.0] == seen[0].tolist()
    assert (found["acc_w"], found["held_acc_w"], found["gradients"]) == (0.75, 0.5, 40)
    assert found["held_acc_w_last"] == 0.2
    _, w = stopping.metrics(rows, models, score, "the best look", judge="acc_20")
    assert w.tolist() == [0.0, 0.0]  # where the worst fifth of the held-out data is best


def test_a_rehearsal_never_sees_the_test_data():
    data = load("digits", digits=[3, 8])
    away = rehearse.put_away(data, seed=5)
    for before, after in zip(data.clients, away.clients, strict=True):
        together = np.concatenate([after.X_train, after.X_test])
        assert sorted(map(bytes, together)) == sorted(map(bytes, before.X_train))
        assert 0.1 < len(after.y_test) / len(before.y_train) < 0.3
    record = rehearse.rehearse(replace(SHORT, gradients=20, points=2))
    assert list(record["rules"]) == list(stopping.RULES)


def test_every_method_is_searched_alike():
    known = methods.registry(4)
    for method in known.values():
        tried = search.candidates(method, trials=5, seed=1)
        assert len(tried) == 5
        assert tried[0] == dict(method.default)
        assert all(set(settings) == set(method.search) == set(method.default) for settings in tried)
        assert search.candidates(method, trials=5, seed=1) == tried
    for trials in (2, 4, 9):
        tried = search.candidates(known["max{Ind}"], trials)
        assert [settings["worker"] for settings in tried] == [k % 4 for k in range(max(4, trials))]


def test_paired_tests():
    found = tables.paired([5.0, 6.0, 7.5, 9.0], [4.0, 4.5, 5.0, 5.0])
    assert found.difference == 2.25
    gaps = np.array([1.0, 1.5, 2.5, 4.0])
    t = gaps.mean() / (gaps.std(ddof=1) / 2)
    assert found.t == pytest.approx(2 * (1 - _student(t, 3)), rel=1e-6)
    assert found.wilcoxon == 0.125  # 2 · 2⁻⁴
    assert tables.paired([1.0], [2.0]) is None
    assert tables.paired([1.0, 2.0], [0.0, 1.0]).t == 0.0
    assert tables.summary([None, 2.0, 4.0]) == tables.Summary(3.0, pytest.approx(2**0.5), 2)
    assert tables.summary([None]) is None


def _student(t: float, freedom: int) -> float:
    from scipy.integrate import quad
    from scipy.special import gamma

    scale = gamma((freedom + 1) / 2) / (np.sqrt(freedom * np.pi) * gamma(freedom / 2))
    return 0.5 + scale * quad(lambda x: (1 + x * x / freedom) ** (-(freedom + 1) / 2), 0, t)[0]


def test_the_papers_numbers():
    cell = paper_numbers.find(paper_numbers.HETEROGENEITY, "ASPIRE-EASE_per", "sc-ma", "std")
    assert cell == (3.48, 0.0)
    assert paper_numbers.find(paper_numbers.ATTACK, "AFL", "person-activity", "success") == (43.66, 3.87)
    assert paper_numbers.find(paper_numbers.HETEROGENEITY, "max{Ind}", "fashion-mnist", "acc_w") is None
    assert paper_numbers.find(paper_numbers.HETEROGENEITY, "AFL", "digits", "acc_w") is None


@pytest.mark.parametrize("name", sets.SETS)
def test_the_last_size_is_the_whole_simplex(name):
    q = np.full(4, 0.25)
    whole = sets.make(name, sets.sizes(name, 4, 3)[-1], q)
    for corner in np.eye(4):
        assert whole.contains(corner, tol=1e-7)
    point = sets.make(name, 0.0, q)
    assert point.contains(q)
    assert not point.contains(np.eye(4)[0])


@pytest.mark.parametrize("kind", backdoor.TRIGGERS)
def test_an_attack_adds_strangers_that_the_prior_distrusts(kind):
    data = load("digits")
    attack = backdoor.prepare(data, backdoor.settings(data, kind))
    assert len(attack.clients) == 12
    assert attack.prior.sum() == pytest.approx(1.0)
    assert attack.prior[-1] == pytest.approx(0.1 * attack.prior[0])
    stranger = attack.clients[-1]
    assert set(stranger.y_train) == {0}
    assert np.ptp(stranger.X_train, axis=0).min() == 0.0  # the trigger is the same on all
    assert attack.success(lambda X: np.zeros(len(X), dtype=int)) == 1.0
    assert attack.success(lambda X: np.ones(len(X), dtype=int)) == 0.0


def test_the_same_task_gives_the_same_record():
    first, second = (perform(SHORT) for _ in range(2))
    for record in (first, second):
        del record["seconds"], record["cpu"]
    assert first == second
    assert first["metrics"]["accuracies"]
    assert len(first["curve"]["held_acc_w"]) == 4
    assert perform(replace(SHORT, seed=1))["curve"] != first["curve"]


def test_a_whole_curve_has_the_test_data_and_changes_nothing_else():
    """`whole` says what is looked at, not what is run: same key, same metrics, a longer curve."""
    task = replace(SHORT, points=12)
    brief, whole = perform(task), perform(replace(task, whole=True))
    assert task.key() == replace(task, whole=True).key()
    assert brief["metrics"] == whole["metrics"]
    assert {"acc_w", "acc_w_last", "acc_w_tail", "loss_w", "loss_w_last", "std"} <= set(brief["metrics"])
    added = {"loss_w", "acc_w", "acc_20", "std"}
    assert set(whole["curve"]) - set(brief["curve"]) == added
    assert brief["curve"] == {name: whole["curve"][name] for name in brief["curve"]}
    assert whole["metrics"]["acc_w_tail"] == pytest.approx(np.mean(whole["curve"]["acc_w"][-2:]), abs=1e-3)


def test_test_data_is_scored_for_what_is_reported_alone(monkeypatch):
    asked = []
    of = Evaluator.of
    monkeypatch.setattr(Evaluator, "of", lambda self, name, w: asked.append(name) or of(self, name, w))
    perform(replace(SHORT, points=10))
    assert (asked.count("held"), asked.count("test"), asked.count("train")) == (10 + 3, 3, 3)


@pytest.mark.parametrize("method", ["Mix_Even", "DRFA-Prox", "max{Ind}", "ASPIRE-EASE", "AspireModels-ADP"])
def test_every_method_ends_at_its_budget(method):
    settings = dict(methods.registry(2)[method].default)
    record = perform(replace(SHORT, method=method, settings=settings))
    assert record["stop"] == "budget"
    assert 60 <= record["curve"]["gradients"][-1] < 60 + 2 * 10
    assert 0 <= record["metrics"]["acc_w"] <= 1


def test_a_run_that_diverges_is_a_bad_trial():
    record = perform(replace(SHORT, method="Mix_Even", settings={"step": 1e308}))
    assert record["stop"] == "NoWorkersLeft"
    assert record["metrics"]["acc_w"] <= 0.5


@pytest.mark.parametrize("method", ["AFL", "AspireModels", "ASPIRE-EASE"])
def test_a_mistake_in_the_code_is_not_taken_for_divergence(method, monkeypatch):
    def batches_fail(self, w, rng=None, batch_size=None):
        if rng is not None:
            raise AttributeError("no such name")
        return usual(self, w)

    usual = SoftmaxRegression.loss_and_gradient
    monkeypatch.setattr(SoftmaxRegression, "loss_and_gradient", batches_fail)
    settings = dict(methods.registry(2)[method].default)
    with pytest.raises(DriverError, match="no such name"):
        perform(replace(SHORT, method=method, settings=settings))


def test_the_perceptron_learns():
    pytest.importorskip("torch")
    data = load("digits", digits=(3, 8))
    model = Perceptron(64, 2, seed=0, hidden=(8,) * 3)
    (part, _) = cut(data.clients, seed=0)
    problem = model.problem(*part.train)
    w = problem.initial_point(np.random.default_rng(0))
    assert model.scores(w, part.test[0]).shape == (len(part.test[1]), 2)
    assert np.array_equal(w, model.problem(*part.train).initial_point(np.random.default_rng(1)))
    record = perform(replace(SHORT, model="mlp-8", gradients=20, points=2))
    assert record["metrics"]["loss_w"] > 0


def test_records_survive_a_cut_line(tmp_path):
    path = tmp_path / "runs.jsonl"
    records = Records(path)
    records.add(perform(SHORT))
    with path.open("a") as file:
        file.write('{"schema": 1, "data": "dig')
    again = Records(path)
    assert again.resumed == 1
    assert again.get(SHORT) is not None
    assert again.get(replace(SHORT, seed=5)) is None
    assert len(read(path)) == len(path.read_text().splitlines()) == 1
    path.write_text(path.read_text().replace(stopping.RULE, "the last look"))
    assert Records(path).resumed == 0  # another rule's numbers are not taken for this one's
    assert Records(path, fresh=True).resumed == 0


def test_the_commands_are_found_and_listed_by_folder():
    assert {"heterogeneity", "attack", "robustness", "optimum"} <= set(commands())
    shown = overview(commands())
    assert "\nexperiments:\n  adaptive " in shown
    assert all(f"\n  {name} " in shown for name in commands())


def test_two_commands_of_one_name_are_refused(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.py").write_text("\ndef main(arguments):\n    return 0\n")
    with pytest.raises(ValueError, match=r"two commands are called 'same': .*one\.same and .*two\.same"):
        commands(tmp_path)


def holds_tasks(path):
    """Whether a results file is of tasks; `bench groups` and `bench actors` have records of their own."""
    with path.open(encoding="utf-8") as lines:
        return "experiment" in json.loads(next(lines))


RESULTS = [path for path in sorted(quote.RESULTS.glob("*/runs.jsonl")) if holds_tasks(path)]


EARLIER = {"ACE + P", "AFL + P", "AspireModels", "AspireModels_per", "DRFA-Prox + P", "FedAsync", "FedBuff"}
"""Methods whose ranges changed after the committed searches: tables made anew (--fresh) empty this set."""


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.parent.name)
@pytest.mark.few(1)
def test_committed_records_are_of_tasks_that_the_methods_still_have(path):
    """The settings that a search tried are those that it would try today, so that a second start goes on."""
    records = read(path)
    assert len(records) == len(path.read_text(encoding="utf-8").splitlines())
    seed = min(
        (record["seed"] for record in records if record["stage"] == "run"), default=0
    )  # of the command
    counts = {record["data"]: len(record["weights"]) for record in records if record.get("weights")}
    for record in records:
        workers = counts.get(record["data"], 3)  # a run that diverged has no weights
        names = {each.name for each in fields(Task)} & set(record)
        task = Task(**{name: record[name] for name in names})
        known = compare.methods_of(task, workers)
        if record["experiment"] in {"efficiency", "networks"}:
            known = efficiency.one_problem(task, workers)
        if record["experiment"] == "race":
            known = race.rivals(task, workers)
        assert key(record) == task.key()
        method = known[record["method"]]
        if record["stage"] != "tune" or record["method"] in EARLIER:
            continue
        if record["settings"] not in search.candidates(method, 12, seed):
            spaces = method.search.items()
            beyond = [search.side(space, record["settings"][name]) for name, space in spaces]
            assert any(beyond), "neither drawn nor beyond an end of a range"


def test_a_record_without_a_field_of_today_is_found():
    record = perform(SHORT)
    for name in ("virtual_seconds", "stragglers", "held"):
        del record[name]
    assert key(record) == SHORT.key()
    del record["data"]
    with pytest.raises(KeyError, match="data"):
        key(record)


def test_adp_has_one_rule_the_papers():
    setup = methods.Setup(np.full(3, 1 / 3), 10, None, 0, lambda: np.ones(3))
    adaptive = methods.registry(3)["ASPIRE-ADP"].config(setup, {}).adaptive
    assert (adaptive.rule, adaptive.threshold) == ("mean", 2.0)


@pytest.mark.parametrize("seconds", [0.0, 20.0])
def test_a_methods_own_set_is_used_whatever_ends_the_run(seconds, monkeypatch):
    monkeypatch.setattr(methods, "_registered", {})
    prior_alone = methods.Method(
        "prior alone",
        methods.ease(),
        {"step": methods.Range(0.1, 1.0)},
        {"step": 0.5},
        make_set=lambda setup, settings: KL(setup.prior, 0.0),
    )
    methods.register(prior_alone)
    record = perform(replace(SHORT, method="prior alone", settings={"step": 0.5}, virtual_seconds=seconds))
    assert record["stop"] == ("time" if seconds else "budget")
    assert record["weights"] == [0.5, 0.5]


def test_an_attack_on_the_clock_is_judged_too():
    data = load("digits", digits=[3, 8])
    record = perform(replace(SHORT, attack=backdoor.settings(data), virtual_seconds=10.0))
    assert 0 <= record["metrics"]["success"] <= 1
