"""The owner's policy: where it is in force, what it refuses, and that who trains cannot get around it."""

from __future__ import annotations

import logging
import pickle
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from fdro_core import (
    AspireEase,
    AspireModels,
    FlowerEngine,
    NamedProblem,
    Privacy,
    PrivacyPolicy,
    SoftmaxRegression,
    baselines,
    solve,
)
from fdro_core.aspire.models.private import PrivateWorker, Release
from fdro_core.engines.flower_ import wire
from fdro_core.engines.flower_.client import Node, _factories, client_app
from fdro_core.engines.flower_.problem import Allowed, describe
from fdro_core.engines.wall_clock.host import Host
from fdro_core.errors import InvalidSetting
from fdro_core.privacy.account import Ledger
from fdro_core.privacy.policy import VARIABLE, admitted, make_under, policy_at_worker, read
from fdro_core.protocol.messages import Begin
from tests.fdro_core.engine_kinds import THREAD, VIRTUAL, needs_flower
from tests.fdro_core.flower_loopback import LocalNodes
from uncertainty_sets import KL

pytest.importorskip("dp_accounting")

HERE, N = __name__, 2
AROUND = KL(np.full(N, 1 / N), 0.2)
PRIVACY = Privacy(epsilon=4.0, noise=20.0, bound=1.0, loss_bound=2.0)


def problem():
    rng = np.random.default_rng(0)
    return SoftmaxRegression(rng.normal(size=(30, 2)), rng.integers(0, 2, size=30), classes=2)


def untouchable():
    raise AssertionError("the data were looked at")


def private(privacy=PRIVACY, **given):
    return AspireModels(**{"batch_size": 30, "iterations": 12, "privacy": privacy} | given)


def written(folder, text=None, name="policy.toml"):
    """A policy's file; its ledger is beside it."""
    file = folder / name
    text = text or f'epsilon = 4.0\nledger = "{folder}/ledgers/{{worker}}.jsonl"\n'
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture
def in_force(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(written(tmp_path)))
    return tmp_path


def releases(folder):
    return [
        len((folder / "ledgers" / f"{j}.jsonl").read_text(encoding="utf-8").splitlines()) - 1
        for j in range(N)
    ]


# -- in processes of the trainer: virtual, threads, Ray ------------------------------------------------

OUTSIDE = [
    (None, "its owner allows private runs only"),
    (replace(PRIVACY, epsilon=4.1), r"allows epsilon = 4 at most, and the run asks for 4\.1"),
    (replace(PRIVACY, delta=1e-4), r"allows delta = 1e-05 at most, and the run asks for 0\.0001"),
    (replace(PRIVACY, unit="client"), 'wants unit="sample", and the run asks for "client"'),
    (replace(PRIVACY, noise_seed=3), "wants noise that nobody knows, and the run asks for noise_seed"),
]


@pytest.mark.parametrize(("asked", "reason"), OUTSIDE)
@pytest.mark.usefixtures("in_force")
def test_a_request_outside_the_policy_is_refused_before_data_are_looked_at(asked, reason, caplog):
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(InvalidSetting, match="refused at the worker: its owner"),
    ):
        admitted(private(asked).worker(0, untouchable))
    with pytest.raises(InvalidSetting, match=reason):
        admitted(private(asked).worker(0, untouchable))
    assert "fdro refused to make a worker" in caplog.text  # at its end, too


@pytest.mark.usefixtures("in_force")
def test_no_other_algorithm_is_let_in():
    for cls in [AspireEase, *(getattr(baselines, name) for name in baselines.__all__)]:
        with pytest.raises(InvalidSetting, match="private runs only"):
            admitted(cls().worker(0, untouchable))
    with pytest.raises(InvalidSetting, match="private runs only"):
        admitted(untouchable)


class Pretending(AspireModels):
    """Asks for privacy, and makes a worker that has none."""

    def worker(self, index, source):
        return partial(lambda *_: object(), index, source, self)


@pytest.mark.usefixtures("in_force")
def test_an_algorithm_that_only_says_private_is_refused():
    with pytest.raises(InvalidSetting, match="allows private workers only, and the algorithm makes others"):
        admitted(Pretending(batch_size=30, privacy=PRIVACY).worker(0, problem))


@pytest.mark.parametrize("kind", [VIRTUAL, THREAD])
def test_engines_make_their_workers_by_it(kind, in_force, make):
    with pytest.raises(InvalidSetting, match="private runs only"):
        solve([untouchable] * N, AROUND, algorithm=private(None), engine=make(kind))
    result = solve([problem] * N, AROUND, algorithm=private(), engine=make(kind))
    assert result.privacy.releases.tolist() == releases(in_force)


def test_a_host_of_ray_makes_its_workers_by_it(in_force):
    """In this process: those of Ray that run already do not have the variable."""
    host = Host(lambda reference: reference)
    made = {0: (private(None), untouchable), 1: (private(), problem)}
    failed = host.make(
        {j: (pickle.dumps(a.worker(j, f)), None, a.privacy is not None) for j, (a, f) in made.items()}
    )
    assert list(failed) == [0]
    assert "private runs only" in str(failed[0])
    assert (in_force / "ledgers" / "1.jsonl").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epsilon = 2.0", "must have epsilon and ledger"),
        ('epsilon = 2.0\nledger = "l"\nnoise = 3', "must have epsilon and ledger"),
        ('epsilon = inf\nledger = "l"', "epsilon must be a finite number"),
        ("epsilon = 2.0\nledger = 3", "ledger must be the path"),
        ('epsilon = 2.0\ndelta = 1\nledger = "l"', "delta must be a number > 0 and < 1, got 1"),
        ('epsilon = 2.0\nunit = "all"\nledger = "l"', "unit must be"),
        ("epsilon = " + "[" * 50_000, "cannot be read"),
        ("\0", "cannot be read"),
    ],
)
def test_a_policy_that_cannot_be_read_allows_nothing(text, message, tmp_path, monkeypatch, caplog):
    file = written(tmp_path, text)
    with pytest.raises(InvalidSetting, match=message):
        read(file)
    monkeypatch.setenv(VARIABLE, str(file))
    with pytest.raises(InvalidSetting, match="its privacy policy cannot be read; its log says why") as caught:
        admitted(private().worker(0, untouchable))
    assert str(tmp_path) not in str(caught.value)
    assert "fdro makes no worker" in caplog.text
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere.toml"))
    with pytest.raises(InvalidSetting, match="cannot be read"):
        policy_at_worker()


def test_the_ledger_is_the_owners(tmp_path):
    """Its path, its ε and its count; and one that is damaged lets nothing out."""
    policy = PrivacyPolicy(epsilon=4.0, ledger=str(tmp_path / "{worker}.jsonl"))
    worker = make_under(policy, private().worker(3, problem), number=7)
    point = np.zeros(worker.dimension)
    worker.handle(Begin(point, np.ones(point.size)))
    assert [file.name for file in tmp_path.iterdir()] == ["7.jsonl"]  # the machine's number, not the run's
    for ticket in range(3):
        worker.handle(Release(ticket, point))
    kept = Ledger(tmp_path / "7.jsonl", policy)
    assert kept.read() == ((1.0, 20.0, 4),)
    kept.path.write_text("damaged", encoding="utf-8")
    with pytest.raises(ValueError, match="worker 3 cannot count in its ledger") as caught:
        worker.handle(Release(9, point))
    assert str(tmp_path) not in str(caught.value)


def test_points_of_another_size_are_refused():
    """A kernel would read what lies behind a shorter vector."""
    worker = PrivateWorker(0, problem, PRIVACY, batch_size=30)
    size = worker.dimension
    good = np.zeros(size)
    odd = (
        np.zeros(size - 1),
        np.zeros(size + 1),
        np.zeros((size, 1)),
        np.zeros(size, dtype=np.float32),
        [0.0] * size,
    )
    for bad in (*odd, None):
        begin = Begin(good, np.ones(size))
        for name in ("z", "metric", "inverse"):
            changed = Begin.__new__(Begin)
            for field, value in (begin.fields() | {name: bad}).items():
                setattr(changed, field, value)
            with pytest.raises(InvalidSetting, match=f"is asked at {size} numbers"):
                worker.handle(changed)
        with pytest.raises(InvalidSetting, match=f"is asked at {size} numbers"):
            worker.handle(Release(0, bad))
    assert worker.account.count == 0


@pytest.mark.parametrize("bad", [{"noise": float("nan")}, {"bound": -1.0}, {"epsilon": float("inf")}])
def test_settings_that_came_from_elsewhere_are_checked(bad):
    with pytest.raises(InvalidSetting, match="must be a finite number"):
        PrivateWorker(0, problem, replace(PRIVACY, **bad), batch_size=30)
    for size in (0, -3, None, 2.5):
        with pytest.raises(InvalidSetting, match="batch_size must be a whole number >= 1"):
            PrivateWorker(0, problem, PRIVACY, batch_size=size)


# -- on Flower ----------------------------------------------------------------------------------------


def make_problem(node_config):
    return problem()


def app():
    return client_app([make_problem], keep=0)


@pytest.fixture
def nodes(tmp_path):
    """Two nodes whose owners have a policy, each with its own number and ledger."""
    made = LocalNodes(0, f"{HERE}:app", [HERE])
    for worker in range(N):
        made.join({"worker": worker, "privacy": str(written(tmp_path))})
    yield made
    made.close()


def on(nodes, **settings):
    return FlowerEngine(nodes.grid, poll=0.002, restart_after=0.01, patience=60.0, **settings)


NAMED = [NamedProblem(f"{HERE}:make_problem")] * N


@needs_flower
def test_a_node_answers_private_runs_within_its_policy(nodes, tmp_path):
    for asked in (None, replace(PRIVACY, epsilon=9.0)):
        with pytest.raises(InvalidSetting, match="refused at the worker: its owner allows"):
            solve(NAMED, AROUND, algorithm=private(asked), engine=on(nodes))
    assert not (tmp_path / "ledgers").exists()
    result = solve(NAMED, AROUND, algorithm=private(), engine=on(nodes))
    assert result.iterations == 12
    assert result.privacy.releases.tolist() == releases(tmp_path)  # in new processes for every message


class Context:
    run_id = 1

    def __init__(self, **node_config):
        self.node_config = node_config


class Letter:
    def __init__(self, content):
        self.content = content


def asked_as(worker, node, context):
    """What a node answers that is asked as some worker."""
    request = wire.Request(wire.MAKE, "s", worker, 5)
    request.description = describe(worker, private().worker(worker, NAMED[0]))
    return node._answer(wire.write_request(request), context).content


@needs_flower
def test_a_node_has_one_number_and_one_ledger(tmp_path):
    """Else a master would get a fresh budget by another number."""
    node = Node(_factories(Allowed([make_problem]), ()), details=True, keep=0, largest=2**20)
    file = str(written(tmp_path))
    assert asked_as(1, node, Context(worker=1, privacy=file)) is None
    other = asked_as(0, node, Context(worker=1, privacy=file))
    assert "this node is worker 1, and was asked as worker 0" in str(other)
    unnamed = asked_as(0, node, Context(privacy=file))
    assert "its ledger is one for each worker, and the node has no number" in str(unnamed)
    single = written(tmp_path, f'epsilon = 4.0\nledger = "{tmp_path}/one.jsonl"\n', "one.toml")
    assert asked_as(4, node, Context(privacy=str(single))) is None
    assert (tmp_path / "one.jsonl").exists()
    missing = asked_as(0, node, Context(privacy=str(tmp_path / "nowhere")))
    assert "cannot be read; its log says why" in str(missing)


@needs_flower
def test_the_nodes_own_policy_comes_before_that_of_the_app(tmp_path, monkeypatch):
    """The app may have been sent by who trains."""
    generous = PrivacyPolicy(epsilon=100.0, ledger=str(tmp_path / "generous.jsonl"))
    strict = str(written(tmp_path, f'epsilon = 1.0\nledger = "{tmp_path}/strict.jsonl"\n'))
    node = Node(
        _factories(Allowed([make_problem]), ()), details=True, keep=0, largest=2**20, privacy=generous
    )
    assert asked_as(0, node, Context(worker=0)) is None
    assert (tmp_path / "generous.jsonl").exists()
    for context in (Context(worker=0, privacy=strict), Context(worker=0)):
        assert "epsilon = 1 at most" in str(asked_as(0, node, context))
        monkeypatch.setenv(VARIABLE, strict)  # for the second
    with pytest.raises(InvalidSetting, match="cannot be read"):
        client_app([make_problem], privacy=tmp_path / "nowhere")
