"""Differential privacy, piece by piece: clipping, noise, the accountant, the budget and its ledger."""

from __future__ import annotations

import json
import os
from math import exp, log, sqrt

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import beta, kstest, norm

from fdro_core import HuberRegression, LeastSquares, Privacy, PrivacyPolicy, SoftmaxRegression
from fdro_core.errors import InvalidData, InvalidSetting
from fdro_core.privacy import accounting
from fdro_core.privacy.account import Account, Ledger
from fdro_core.privacy.mechanism import SeededEntropy, SystemEntropy, clipped_sums, release
from uncertainty_sets.errors import BackendMissing

dp_accounting = pytest.importorskip("dp_accounting")

USUAL = {"epsilon": 4.0, "noise": 2.0, "bound": 0.5, "loss_bound": 3.0}


# -- clipping ---------------------------------------------------------------------------------------


def test_sums_are_clipped_sample_by_sample():
    """By hand: (3, 4) has norm 5 and becomes (0.3, 0.4); (0, 0.1) stays; losses -1, 7 and 1 are 0, 2, 1."""
    losses, gradients = np.array([-1.0, 7.0, 1.0]), np.array([[3.0, 4.0], [0.0, 0.1], [0.0, -0.2]])
    loss, gradient = clipped_sums(losses, gradients, bound=0.5, loss_bound=2.0)
    assert loss == (0 - 1) + (2 - 1) + (1 - 1)
    assert gradient == pytest.approx([0.3, 0.4 + 0.1 - 0.2])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
def test_a_sample_that_is_out_of_range_counts_no_more_than_another(bad):
    loss, gradient = clipped_sums(np.array([bad]), np.array([[bad, 1.0]]), bound=0.5, loss_bound=2.0)
    assert abs(loss) <= 1.0
    assert np.linalg.norm(gradient) <= 0.5
    assert clipped_sums(np.empty(0), np.empty((0, 3)), 0.5, 2.0)[1].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "problem",
    [
        SoftmaxRegression([[1.0, 2.0], [0.5, -1.0], [3.0, 0.0]], [0, 2, 1], classes=3, l2=0.1),
        LeastSquares([[1.0, 2.0], [0.5, -1.0], [3.0, 0.0]], [1.0, -2.0, 0.3], l2=0.1),
        HuberRegression([[1.0, 2.0], [0.5, -1.0], [3.0, 0.0]], [1.0, -9.0, 0.3], epsilon=0.5, l2=0.1),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_samples_and_penalty_add_up_to_the_loss(problem):
    w = np.random.default_rng(0).normal(size=problem.dimension)
    losses, gradients = problem.sample_gradients(w, np.arange(3))
    value, slope = problem.penalty(w)
    loss, gradient = problem.loss_and_gradient(w)
    assert losses.mean() + value == pytest.approx(loss)
    assert gradients.mean(axis=0) + slope == pytest.approx(gradient)
    alone = problem.sample_gradients(w, np.array([1]))
    assert alone[0][0] == pytest.approx(losses[1])
    assert alone[1][0] == pytest.approx(gradients[1])


# -- noise ------------------------------------------------------------------------------------------

DRAWS, WIDTH = 200, 100
MARGIN = 5.0 / sqrt(2 * DRAWS * WIDTH)  # five deviations of a standard deviation from so many numbers


def spread(privacy, entropy):
    """Standard deviations of gradients and of losses that are nothing but noise."""
    nothing = np.full(1, 0.5 * privacy.loss_bound), np.zeros((1, WIDTH))
    drawn = [release(*nothing, 4.0, privacy, entropy) for _ in range(DRAWS)]
    gradients = np.array([gradient for _, gradient in drawn])
    return float(gradients.std()), float(np.std([loss for loss, _ in drawn]))


@pytest.fixture
def fixed_system(monkeypatch):
    """The operating system's numbers, from a seed."""
    rng = np.random.default_rng(5)
    monkeypatch.setattr(os, "urandom", rng.bytes)


@pytest.mark.usefixtures("fixed_system")
@pytest.mark.parametrize("entropy", [SystemEntropy(), SeededEntropy(3)], ids=["system", "seeded"])
def test_the_noise_has_the_deviation_that_the_formula_states(entropy):
    privacy = Privacy(**USUAL, loss_share=0.36)
    gradient, loss = spread(privacy, entropy)
    expected = 2.0 * 0.5 / sqrt(0.64) / 4.0
    assert gradient == pytest.approx(expected, rel=MARGIN)
    assert loss == pytest.approx(2.0 * 1.5 / 0.6 / 4.0, rel=5.0 / sqrt(2 * DRAWS))
    weaker = Privacy(**USUAL | {"noise": 2.0 * (1 - 2 * MARGIN)}, loss_share=0.36)  # the control
    assert spread(weaker, entropy)[0] != pytest.approx(expected, rel=MARGIN)


@pytest.mark.usefixtures("fixed_system")
def test_the_systems_numbers_are_normal_and_uniform():
    entropy = SystemEntropy()
    assert kstest(entropy.normal(20_000), norm.cdf).pvalue > 1e-3
    uniform = entropy.uniform(20_000)
    assert kstest(uniform, "uniform").pvalue > 1e-3
    assert 0 < uniform.min() <= uniform.max() < 1
    assert kstest(sqrt(12) * (uniform - 0.5), norm.cdf).pvalue < 1e-3  # the control


def test_the_system_gives_no_number_twice():
    assert not np.array_equal(SystemEntropy().normal(4), SystemEntropy().normal(4))


def found_epsilon(privacy, delta, draws=8_000):
    """A proved lower bound on ε by an attack: tell a worker with the worst sample from one without it."""
    entropy, gradient = SeededEntropy(1), np.array([[privacy.bound, 0.0]])
    loss = np.array([privacy.loss_bound])
    # The likelihood ratio of the two is monotone in this sum.
    weigh = privacy.bound / privacy.gradient_noise**2, 0.5 * privacy.loss_bound / privacy.loss_noise**2

    def score(*sample):
        noised, slope = release(*sample, 1.0, privacy, entropy)
        return weigh[0] * slope[0] + weigh[1] * noised

    empty = np.empty(0), np.empty((0, 2))
    with_it = np.array([score(loss, gradient) for _ in range(draws)])
    without = np.array([score(*empty) for _ in range(draws)])
    threshold = float(np.quantile(without, 0.99))
    hits, alarms = int((with_it > threshold).sum()), int((without > threshold).sum())
    power = float(beta.ppf(1e-4, hits, draws - hits + 1))  # Clopper and Pearson, one-sided
    false = float(beta.ppf(1 - 1e-4, alarms + 1, draws - alarms))
    return log(max(power - delta, 1e-12) / false)


def test_an_attack_finds_no_more_than_the_accountant_says():
    delta = 1e-5
    privacy = Privacy(**USUAL | {"noise": 1.0})
    stated = accounting.epsilon([(1.0, 1.0, 1)], delta)
    assert found_epsilon(privacy, delta) <= stated
    assert found_epsilon(Privacy(**USUAL | {"noise": 0.3}), delta) > 0.6 * stated  # the attack does attack
    tight = accounting.epsilon([(1.0, 3.0, 1)], delta)
    assert found_epsilon(privacy, delta) > tight  # the control: a third of the noise that was stated


# -- the accountant ---------------------------------------------------------------------------------


def exact(sigma, count, delta):
    """ε of Gaussian mechanisms without sampling, by the formula of Balle and Wang (2018)."""
    shift = sqrt(count) / sigma

    def excess(epsilon):
        tail = norm.cdf(shift / 2 - epsilon / shift)
        return tail - exp(epsilon) * norm.cdf(-shift / 2 - epsilon / shift) - delta

    return brentq(excess, 0.0, 100.0)


@pytest.mark.parametrize(("sigma", "count"), [(1.0, 1), (10.0, 100), (4.0, 3), (30.0, 50)])
def test_epsilon_is_between_the_exact_one_and_that_of_zcdp(sigma, count):
    delta = 1e-5
    found = accounting.epsilon([(1.0, sigma, count)], delta)
    rho = count / (2 * sigma**2)
    assert exact(sigma, count, delta) <= found <= rho + 2 * sqrt(rho * log(1 / delta))


def test_epsilon_is_the_librarys_and_above_its_tighter_accountant():
    dp, delta = dp_accounting, 1e-6
    event = dp.PoissonSampledDpEvent(0.05, dp.GaussianDpEvent(1.3))
    own = dp.rdp.RdpAccountant().compose(event, 300).get_epsilon(delta)
    found = accounting.epsilon([(0.05, 1.3, 300)], delta)
    assert found == pytest.approx(own, rel=1e-12)
    tight = dp.pld.PLDAccountant().compose(event, 300).get_epsilon(delta)
    assert tight < found < 1.25 * tight
    both = dp.rdp.RdpAccountant().compose(event, 300).compose(dp.GaussianDpEvent(9.0), 7).get_epsilon(delta)
    assert accounting.epsilon([(0.05, 1.3, 300), (1.0, 9.0, 7)], delta) == pytest.approx(both, rel=1e-12)
    assert accounting.epsilon([(0.05, 1.3, 0)], delta) == 0.0


@pytest.mark.parametrize("rate", [1.0, 0.1])
def test_the_most_releases_are_those_that_fit(rate):
    count = accounting.most_releases(3.0, 1e-5, rate, 5.0)
    assert accounting.epsilon([(rate, 5.0, count)], 1e-5) <= 3.0
    assert accounting.epsilon([(rate, 5.0, count + 1)], 1e-5) > 3.0
    rest = accounting.most_releases(3.0, 1e-5, rate, 5.0, ((rate, 5.0, count - 2),))
    assert rest == 2
    assert accounting.most_releases(1e-3, 1e-5, rate, 0.5) == 0


@pytest.mark.parametrize(("rate", "releases"), [(1.0, 100), (0.1, 50)])
def test_the_noise_for_a_number_of_releases(rate, releases):
    noise = Privacy.noise_for(2.0, releases, rate=rate)
    assert 1.99 < accounting.epsilon([(rate, noise, releases)], 1e-5) <= 2.0
    assert accounting.most_releases(2.0, 1e-5, rate, noise) == releases
    with pytest.raises(InvalidSetting, match="0 < rate <= 1"):
        Privacy.noise_for(2.0, releases, rate=1.5)


def test_without_the_library_the_error_names_the_extra(monkeypatch):
    def gone(name):
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(accounting, "import_module", gone)
    with pytest.raises(BackendMissing, match=r'pip install "fdro\[privacy\]"'):
        Privacy(**USUAL).check()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epsilon": 0.0}, r"Privacy\.epsilon must be a finite number > 0"),
        ({"delta": 1.0}, r"Privacy\.delta must be a number > 0 and < 1, got 1\.0"),
        ({"loss_share": 0.0}, r"Privacy\.loss_share must be a number > 0 and < 1, got 0\.0"),
        ({"unit": "person"}, r"Privacy\.unit must be one of sample, client, got 'person'"),
        ({"noise_seed": -1}, r"Privacy\.noise_seed must be a whole number >= 0"),
    ],
)
def test_settings_that_cannot_work_are_refused(given, message):
    with pytest.raises(InvalidSetting, match=message):
        Privacy(**USUAL | given).check()


# -- the budget and its ledger ----------------------------------------------------------------------


def ledger(path, **given):
    """The ledger of a machine whose owner allows ε = 4."""
    return Ledger(path, PrivacyPolicy(**{"epsilon": 4.0, "ledger": str(path)} | given))


def test_an_account_stops_at_the_limit(tmp_path):
    privacy, path = Privacy(**USUAL | {"noise": 10.0}), tmp_path / "ledger.jsonl"
    allowed = accounting.most_releases(4.0, 1e-5, 1.0, 10.0)
    for account in (Account(privacy, 1.0), Account(privacy, 1.0, ledger(path))):
        assert sum(account.charge() for _ in range(allowed + 5)) == allowed
        assert account.releases == ((1.0, 10.0, allowed),)
    assert not Account(privacy, 1.0, ledger(path)).charge()  # in a new process
    assert Account(privacy, 1.0, ledger(tmp_path / "another")).charge()


def test_a_ledger_counts_other_runs_and_other_processes(tmp_path):
    path = tmp_path / "ledger.jsonl"
    first, second = Privacy(**USUAL | {"noise": 10.0}), Privacy(**USUAL | {"noise": 20.0})
    one = Account(first, 1.0, ledger(path))
    two = Account(second, 0.5, ledger(path))
    assert one.charge()
    assert two.charge()
    assert one.charge()  # reads what the other wrote
    assert one.releases == ((0.5, 20.0, 1), (1.0, 10.0, 2))
    assert one.limit == accounting.most_releases(4.0, 1e-5, 1.0, 10.0, ((0.5, 20.0, 1),))


def test_a_ledger_keeps_its_promise_and_its_lines(tmp_path):
    path = tmp_path / "deep" / "ledger.jsonl"
    kept = ledger(path)
    kept.append(0.1, 2.0)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0]) == {"delta": 1e-5, "epsilon": 4.0, "unit": "sample"}
    assert json.loads(lines[1]) == [0.1, 2.0]
    with pytest.raises(InvalidSetting, match="make the two the same"):
        ledger(path, epsilon=5.0)
    path.write_text(path.read_text(encoding="utf-8") + "[0.1, ", encoding="utf-8")
    with pytest.raises(InvalidData, match="is damaged"):
        ledger(path)


NO_RELEASES = (
    "[0.1, Infinity]", "[0.1, NaN]", "[0.1, 0]", "[0.1, -2]", "[0, 2.0]", "[1.5, 2.0]", "[NaN, 2.0]",
    "[0.1, 1e999]",
    "[0.1]", "[0.1, 2.0, 1]", "[true, 2.0]", "[0.1, true]", '["0.1", "2.0"]', "{}", "0.1", "", "x",
    "[" * 90_000, "[0.1, " + "9" * 5_000 + "]", "[0.1, 10[0.1, 2.0]",
)  # fmt: skip


@pytest.mark.parametrize("line", NO_RELEASES, ids=lambda line: line[:20])
def test_a_line_that_is_no_release_is_damage(line, tmp_path):
    """Never one that costs nothing: σ = inf would hide a release, NaN every one."""
    path = tmp_path / "ledger.jsonl"
    kept = ledger(path)
    good = path.read_text(encoding="utf-8")
    path.write_text(f"{good}{line}\n[0.1, 2.0]\n", encoding="utf-8")
    with pytest.raises(InvalidData, match="is damaged"):
        ledger(path)
    for _ in range(2):  # and while a run goes on, not once only
        with pytest.raises(InvalidData, match="is damaged"):
            kept.read()
    path.write_text(f"{good}[0.1, 2.0]\n", encoding="utf-8")
    assert kept.read() == ((0.1, 2.0, 1),)


@pytest.mark.parametrize(
    "promise",
    ["", "[]", "{}", "[" * 90_000, '{"delta": 1e-05, "epsilon": NaN, "unit": "sample"}', "{" * 200],
    ids=lambda text: text[:20],
)
def test_a_promise_that_is_none_is_refused(promise, tmp_path):
    path = tmp_path / "ledger.jsonl"
    path.write_text(f"{promise}\n[0.1, 2.0]\n", encoding="utf-8")
    with pytest.raises((InvalidData, InvalidSetting), match=r"is damaged|make the two the same"):
        ledger(path)


def test_a_release_does_not_read_the_ledger_again(tmp_path):
    """What is read per release is what was written since the last one, however long the file is."""
    path = tmp_path / "ledger.jsonl"
    account = Account(Privacy(**USUAL | {"noise": 1e6}), 1.0, ledger(path))
    read = []
    for length in (10, 1000):
        with path.open("a", encoding="utf-8") as file:
            file.write("[1.0, 1000000.0]\n" * length)
        account.charge()
        before = account.ledger._place
        account.charge()
        read.append(account.ledger._place - before)
    assert read[0] == read[1] < 40
    assert account.count == 1014


def test_a_ledger_that_was_put_back_from_a_backup_is_read_anew(tmp_path):
    path = tmp_path / "ledger.jsonl"
    account = Account(Privacy(**USUAL | {"noise": 10.0}), 1.0, ledger(path))
    assert account.charge()
    assert account.charge()
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    backup = tmp_path / "backup"
    backup.write_text("".join([lines[0], lines[1] * 50]), encoding="utf-8")
    backup.replace(path)
    assert account.charge()
    assert account.count == 51
