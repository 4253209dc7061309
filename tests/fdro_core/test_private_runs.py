"""Private runs from end to end: what leaves a worker, what ends a run, and how it goes on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fdro_core import (
    AspireModels,
    DenseNetwork,
    LeastSquares,
    Privacy,
    SoftmaxRegression,
    ThreadEngine,
    VirtualEngine,
    resume,
    solve,
)
from fdro_core.aspire.models.messages import Begun, Inspect
from fdro_core.aspire.models.private import Accounted, AskAccount, PrivateWorker, Release, Released
from fdro_core.errors import DriverError, InvalidProblem, InvalidSetting, WorkerWarning
from fdro_core.observers import Checkpoint
from fdro_core.privacy import accounting
from fdro_core.privacy.policy import admitted
from fdro_core.protocol.messages import Introduction
from uncertainty_sets import KL

pytest.importorskip("dp_accounting")

N, CLASSES, FEATURES, SAMPLES = 3, 3, 4, 30
C, B = 0.5, 2.0
PRIVACY = Privacy(epsilon=6.0, noise=4.0, bound=C, loss_bound=B, noise_seed=7)
AROUND = KL(np.full(N, 1 / N), 0.2)


def samples(j):
    rng = np.random.default_rng(j)
    return rng.normal(size=(SAMPLES, FEATURES)), rng.integers(0, CLASSES, size=SAMPLES)


def softmax(X, y):
    return SoftmaxRegression(X, y, CLASSES, l2=0.01)


def problems():
    return [softmax(*samples(j)) for j in range(N)]


def algorithm(privacy=PRIVACY, **given):
    return AspireModels(**{"batch_size": 12, "iterations": 40, "privacy": privacy} | given)


class Recorder(VirtualEngine):
    """Keeps every message to a worker and every reply, of the run and of the rounds of questions."""

    def start(self, factories):
        super().start(factories)
        self.asked = [[] for _ in factories]
        self.replies = [[] for _ in factories]
        for worker, asked, replies in zip(self._workers, self.asked, self.replies, strict=True):
            worker.handle = self._recording(worker.handle, asked, replies)

    @staticmethod
    def _recording(handle, asked, replies):
        def recorded(message):
            asked.append(message)
            replies.append(handle(message))
            return replies[-1]

        return recorded


def recorded(privacy=PRIVACY, sources=None, **given):
    engine = Recorder(seed=1)
    result = solve(sources or problems(), AROUND, algorithm=algorithm(privacy, **given), engine=engine)
    return result, engine


# -- what leaves a worker ---------------------------------------------------------------------------


def test_a_run_sends_releases_only():
    result, engine = recorded()
    for replies in engine.replies:
        assert {type(reply) for reply in replies} == {Introduction, Begun, Released, Accounted}
        hello = replies[0]
        assert hello.fields() == {
            "dimension": 15, "identity": "SoftmaxRegression", "metric": None, "samples": None, "start": None
        }  # fmt: skip
        assert isinstance(replies[-1], Accounted)  # no exact loss at the end
    counts = [sum(isinstance(r, Begun | Released) for r in replies) for replies in engine.replies]
    assert result.privacy.releases.tolist() == counts
    assert np.isnan(result.losses).all()
    assert not result.proved
    assert result.stationarity == np.inf
    assert result.lower_bound == -np.inf
    assert "worst loss=unknown" in repr(result)


class Emptied(SoftmaxRegression):
    """The samples without the first: it counts, and its part of both sums is nothing."""

    def sample_gradients(self, w, rows):
        losses, gradients = super().sample_gradients(w, rows)
        losses[rows == 0], gradients[rows == 0] = 0.5 * B, 0.0
        return losses, gradients


def changed(j):
    """The samples with one that could not differ more."""
    X, y = samples(j)
    X[0], y[0] = 1e3, (y[0] + 1) % CLASSES
    return softmax(X, y)


def replayed(problem, asked, privacy=PRIVACY, index=0):
    worker = PrivateWorker(index, problem, privacy, batch_size=12)
    return [worker.handle(message) for message in asked]


@pytest.mark.parametrize(
    ("other", "distance"), [(Emptied(*samples(0), CLASSES, l2=0.01), 1), (changed(0), 2)]
)
def test_no_number_tells_more_of_a_sample_than_the_bounds_allow(other, distance):
    """Two neighbouring workers with the same noise get the messages of a run: all that they send is compared.

    An empty sample is at a distance of C and B/2, another one at twice that. The batch has 12 of 30.
    """
    _, engine = recorded()
    asked = engine.asked[0]
    mine, theirs = replayed(problems()[0], asked), replayed(other, asked)
    told = 0
    for one, two in zip(mine, theirs, strict=True):
        ours, others = one.fields(), two.fields()
        gradient, loss = ours.pop("gradient", None), ours.pop("loss", None)
        if gradient is not None:
            apart = float(np.linalg.norm(gradient - others.pop("gradient")))
            assert apart <= distance * C / 12 * (1 + 1e-9)
            assert abs(loss - others.pop("loss")) <= distance * 0.5 * B / 12 * (1 + 1e-9)
            told += apart > 0
        if isinstance(one, Begun):  # follows from the gradient that was sent
            assert ours.pop("gradient_sq") == pytest.approx(gradient @ gradient)
            others.pop("gradient_sq")
        assert str(ours) == str(others)  # everything else is the same
    assert told  # the sample was in some batches: the comparison is not empty


def test_the_control_shows_that_the_comparison_finds_exact_numbers():
    """Without privacy the same two data sets differ by far more, from the first message on."""
    engines = [Recorder(seed=1), Recorder(seed=1)]
    for engine, first in zip(engines, (problems()[0], changed(0)), strict=True):
        solve([first, *problems()[1:]], AROUND, algorithm=algorithm(None), engine=engine)
    hellos, begun = ([engine.replies[0][place] for engine in engines] for place in (0, 1))
    assert hellos[0].identity != hellos[1].identity
    assert not np.array_equal(hellos[0].metric, hellos[1].metric)
    assert np.linalg.norm(begun[0].gradient - begun[1].gradient) > 2 * C / 12


def test_of_a_client_no_more_is_told_than_the_bounds_allow():
    """Any two data sets, of any size: 2C and B."""
    privacy = replace(PRIVACY, unit="client", noise=60.0)
    _, engine = recorded(privacy)
    rng = np.random.default_rng(99)
    other = softmax(50 * rng.normal(size=(7, FEATURES)), np.zeros(7, dtype=int))
    one, two = (replayed(problem, engine.asked[0], privacy) for problem in (problems()[0], other))
    apart = 0.0
    for mine, theirs in zip(one, two, strict=True):
        if isinstance(mine, Begun | Released):
            apart = max(apart, float(np.linalg.norm(mine.gradient - theirs.gradient)))
            assert abs(mine.loss - theirs.loss) <= B + 1e-9
        else:
            assert str(mine.fields()) == str(theirs.fields())
    assert C < apart <= 2 * C + 1e-9


def test_of_a_clients_data_any_problem_may_be_private():
    X, y = samples(0)
    networks = [DenseNetwork(X, y, CLASSES, hidden=(3,), seed=0) for _ in range(N)]
    privacy = replace(PRIVACY, unit="client", noise=60.0)
    result = solve(networks, AROUND, algorithm=algorithm(privacy, iterations=6))
    assert result.privacy.unit == "client"
    releases = int(result.privacy.releases[0])
    assert result.privacy.spent[0] == accounting.epsilon([(1.0, 30.0, releases)], 1e-5)
    with pytest.raises(InvalidProblem, match=r"a DenseNetwork without `sample_gradients`"):
        solve(networks, AROUND, algorithm=algorithm())


def test_a_release_is_the_formula_of_the_page():
    """Sample by sample from the seed: the divisor is qn, which is known, and not the size of the batch."""
    X, y = samples(0)
    privacy, z = replace(PRIVACY, loss_share=0.2), np.linspace(-1.0, 1.0, FEATURES)
    worker = PrivateWorker(2, LeastSquares(X, y, intercept=False), privacy, batch_size=12)
    reply = worker.handle(Release(0, z))
    rng = np.random.default_rng([7, 2])
    batch = [i for i, chance in enumerate(rng.random(SAMPLES)) if chance < 12 / SAMPLES]
    draws = rng.standard_normal(FEATURES + 1)
    assert len(batch) != 12
    loss = 4.0 * B / (2 * 0.2**0.5) * draws[0]
    gradient = 4.0 * C / 0.8**0.5 * draws[1:]
    for i in batch:
        residual = sum(X[i][k] * z[k] for k in range(FEATURES)) - y[i]
        loss += min(0.5 * residual**2, B) - B / 2
        length = np.linalg.norm(residual * X[i])
        gradient += residual * X[i] * min(1.0, C / length)
    assert reply.loss == pytest.approx(loss / 12 + B / 2)
    assert reply.gradient == pytest.approx(gradient / 12)


def test_the_penalty_is_not_noised():
    X, y = samples(0)
    w = np.ones(FEATURES)
    plain, ridged = (LeastSquares(X, y, l2=l2, intercept=False) for l2 in (0.0, 3.0))
    one, two = (replayed(problem, [Release(0, w)])[0] for problem in (plain, ridged))
    assert two.loss - one.loss == pytest.approx(1.5 * FEATURES)
    assert two.gradient - one.gradient == pytest.approx(3.0 * w)


def test_a_repeated_message_gets_the_same_release_and_costs_nothing():
    worker = PrivateWorker(0, problems()[0], PRIVACY, batch_size=12)
    z = np.zeros(15)
    first = worker.handle(Release(3, z))
    again = worker.handle(Release(3, z.copy()))
    assert again.loss == first.loss
    assert np.array_equal(again.gradient, first.gradient)
    assert worker.account.count == 1
    other = worker.handle(Release(3, z + 1.0))  # the same number at another point is another question
    assert not np.array_equal(other.gradient, first.gradient)
    assert worker.account.count == 2


def test_exact_answers_are_refused_and_errors_keep_their_words():
    worker = PrivateWorker(0, problems()[0], PRIVACY, batch_size=12)
    with pytest.raises(InvalidSetting, match="is private and does not answer Inspect"):
        worker.handle(Inspect(np.zeros(15)))

    class Loud(SoftmaxRegression):
        def sample_gradients(self, w, rows):
            raise ValueError("patient 17 has no age")

    loud = PrivateWorker(0, Loud(*samples(0), CLASSES), PRIVACY, batch_size=12)
    with pytest.raises(DriverError, match="raised a ValueError") as caught:
        loud.handle(Release(0, np.zeros(15)))
    assert "patient" not in str(caught.value)
    assert caught.value.__context__ is None


def test_noise_without_a_seed_differs_and_a_seed_promises_nothing():
    secret = replace(PRIVACY, noise_seed=None)
    one, two = (recorded(secret)[0] for _ in range(2))
    assert not np.array_equal(one.w, two.w)
    assert one.privacy.epsilon == 6.0
    assert "ε = 6, δ = 1e-05" in one.privacy.sentence()
    seeded, again = (recorded()[0] for _ in range(2))
    assert np.array_equal(seeded.w, again.w)
    assert seeded.privacy.epsilon == np.inf
    assert seeded.privacy.sentence().startswith("not private")


# -- the budget -------------------------------------------------------------------------------------


def test_a_run_ends_when_a_budget_is_spent():
    result, engine = recorded(replace(PRIVACY, epsilon=2.0), iterations=5000)
    allowed = accounting.most_releases(2.0, 1e-5, 12 / 30, 4.0)
    assert result.stop_reason == "privacy budget"
    assert result.privacy.releases.max() == allowed
    assert result.privacy.spent == pytest.approx(
        [accounting.epsilon([(0.4, 4.0, count)], 1e-5) for count in result.privacy.releases]
    )
    assert result.privacy.spent.max() <= 2.0
    spent = [reply for replies in engine.replies for reply in replies if getattr(reply, "spent", False)]
    assert len(spent) == 1
    assert not spent[0].gradient.any()
    assert [entry["event"] for entry in result.history].count("budget-spent") == 1


def test_a_budget_for_nothing_is_an_error():
    with pytest.raises(InvalidSetting, match="0 releases are allowed and 0 were made"):
        recorded(replace(PRIVACY, epsilon=0.01, noise=0.5))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch_size": None}, "a batch_size .* got None and 1"),
        ({"local_steps": 2}, "every gradient is a release"),
        ({"privacy": replace(PRIVACY, noise=0.0)}, r"Privacy\.noise must be a finite number > 0"),
        ({"privacy": 4.0}, "an object of Privacy, or None"),
        ({"privacy": replace(PRIVACY, delta=0.1)}, "below 1 over the number of samples"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(given, message):
    with pytest.raises(InvalidSetting, match=message):
        solve(problems(), AROUND, algorithm=algorithm(**given))


# -- workers that are made again --------------------------------------------------------------------


@pytest.fixture
def policy(tmp_path, monkeypatch):
    """The owner's policy for this machine, with a ledger for each worker."""
    file = tmp_path / "policy.toml"
    file.write_text(
        f'epsilon = 6.0\nledger = "{tmp_path}/ledger/worker-{{worker}}.jsonl"\n', encoding="utf-8"
    )
    monkeypatch.setenv("FDRO_PRIVACY", str(file))


UNSEEDED = replace(PRIVACY, noise_seed=None)


def test_a_resumed_run_needs_the_ledger(tmp_path):
    path = tmp_path / "run.npz"
    solve(problems(), AROUND, algorithm=algorithm(), observers=[Checkpoint(path, every=1)])
    with pytest.raises(InvalidSetting, match="continue only where the worker has a ledger"):
        resume(path, problems(), AROUND, algorithm=algorithm(iterations=60))


@pytest.mark.usefixtures("policy")
def test_a_resumed_run_counts_everything(tmp_path):
    path = tmp_path / "run.npz"
    solve(problems(), AROUND, algorithm=algorithm(UNSEEDED), observers=[Checkpoint(path, every=1)])
    before = accounted(tmp_path)
    result = resume(path, problems(), AROUND, algorithm=algorithm(UNSEEDED, iterations=60))
    assert result.iterations == 60
    assert result.privacy.releases.tolist() == accounted(tmp_path)
    assert sum(accounted(tmp_path)) > sum(before)


def accounted(folder):
    """The releases of every worker, from the lines of its file."""
    files = [folder / "ledger" / f"worker-{j}.jsonl" for j in range(N)]
    return [len(file.read_text(encoding="utf-8").splitlines()) - 1 for file in files]


def test_a_worker_in_a_new_process_goes_on_only_with_its_ledger(request):
    _, engine = recorded()
    opening, last = engine.asked[0][:2], engine.replies[0][-2]
    fresh = PrivateWorker(0, problems()[0], PRIVACY, batch_size=12)
    fresh.recall((), None, 0)  # nothing was asked yet
    with pytest.raises(InvalidSetting, match="does not know how much it had released"):
        fresh.recall(opening, last, 5)
    request.getfixturevalue("policy")
    kept = admitted(algorithm(UNSEEDED).worker(0, problems()[0]))
    kept.recall(opening, last, 5)
    assert isinstance(kept.handle(AskAccount()), Accounted)


def test_it_runs_on_threads():
    secret = replace(PRIVACY, noise_seed=None)
    result = solve(problems(), AROUND, algorithm=algorithm(secret), engine=ThreadEngine(2))
    assert result.iterations == 40
    assert result.privacy.spent.max() <= 6.0
    assert (result.privacy.releases > 0).all()


class Fragile(SoftmaxRegression):
    """Fails at one evaluation; its worker is then made again, from the same object."""

    calls = 0

    def sample_gradients(self, w, rows):
        self.calls += 1
        if self.calls == 6:
            raise ValueError("patient 17 has no age")
        return super().sample_gradients(w, rows)


@pytest.mark.usefixtures("policy")
def test_a_worker_that_fails_comes_back_with_its_ledger(tmp_path):
    """The release under way when it failed counts too: it is on disk before the data are looked at."""
    fragile = Fragile(*samples(0), CLASSES)
    secret = replace(UNSEEDED, noise=300.0)
    method = algorithm(secret, iterations=100_000)  # the observer ends the run
    with pytest.warns(WorkerWarning, match="its message is not sent") as told:
        result = solve(
            [fragile, *problems()[1:]],
            AROUND,
            algorithm=method,
            engine=ThreadEngine(2, restart_after=0.01),
            observers=[lambda run, entry: "back" if entry["event"] == "worker-back" else None],
        )
    assert result.stop_reason == "back"
    assert "patient" not in "".join(str(warning.message) for warning in told)
    assert result.privacy.releases.tolist() == accounted(tmp_path)
    assert result.privacy.releases[0] == fragile.calls
