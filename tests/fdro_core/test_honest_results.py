""" "Proved" is said only of what is proved: in the result, on the command line, on the page, in tables."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fdro_core import AspireModels, Crash, VirtualEngine, resume, solve
from fdro_core.baselines import AFL, DRFAProx, FedAvg
from fdro_core.cli.commands.demo import show as show_demo
from fdro_core.errors import NoWorkersLeft
from fdro_core.observers import Checkpoint, StopWhenStationary
from fdro_core.result import NAMED, in_words
from tests.fdro_core.command import RUN_FILE, asked, fdro
from tests.fdro_core.engine_kinds import happened
from tests.fdro_core.helpers import Quadratic, forms, middle_box, same

N = 3
GONE = "crashes = [{ worker = 1, at = 20.0 }]"


def quadratics():
    return [Quadratic([0.0]), Quadratic([1.0]), Quadratic([8.0])]


def lossy(config=None, **engine):
    return solve(
        quadratics(),
        middle_box(N),
        algorithm=config,
        engine=VirtualEngine(crashes=[Crash(2, 4.0)], **engine),
    )


# -- the result -------------------------------------------------------------------------------------


def test_with_everyone_there_it_is_proved():
    result = solve(quadratics(), middle_box(N))
    assert result.proved
    assert result.caveat() == ""
    assert (result.known_at == result.iterations).all()
    assert "with the last" not in repr(result)


@pytest.mark.parametrize(
    "config",
    [
        *forms(iterations=300),
        *forms(iterations=100, active_workers=N),
        *forms(iterations=300, dead_losses="drop"),
        FedAvg(iterations=60),
        AFL(iterations=60),
        DRFAProx(iterations=60, step=0.05),
    ],
)
def test_a_dead_workers_loss_is_old_and_the_result_says_from_when(config):
    result = lossy(config)
    (lost,) = happened(result, "worker-lost")
    assert not result.proved
    assert np.isnan(result.losses[2])
    assert 0 <= result.known_at[2] <= lost["iteration"] + 1
    assert (result.known_at[:2] == result.iterations).all()
    assert result.caveat() == f"with the last known loss of worker 2 from {when(result.known_at[2])}"
    assert result.caveat() in repr(result)
    # The bound is not one of the model: what the dead worker has at w is far above it.
    measured = np.where(np.isnan(result.losses), 0.5 * (result.w[0] - 8.0) ** 2, result.losses)
    assert middle_box(N).worst_case(measured).value != pytest.approx(result.objective, rel=1e-6)


@pytest.mark.parametrize("dead_losses", ["freeze", "drop"])
def test_a_dead_workers_model_counts_in_the_history_and_its_last_loss_in_the_result(dead_losses):
    """On ½(w - c)² the master's model of a worker is its loss itself, wherever it was last asked."""
    result = lossy(AspireModels(iterations=300, report_interval=1, dead_losses=dead_losses))
    last = happened(result, "report")[-1]
    at_w = 0.5 * (result.w[0] - np.array([0.0, 1.0, 8.0])) ** 2
    reported = np.array([*at_w[:2], last["losses"][2]])
    assert abs(reported[2] - at_w[2]) > 0.5  # the model has moved on since the crash
    assert last["objective"] == pytest.approx(middle_box(N).worst_case(at_w).value, rel=1e-6)
    assert result.objective == pytest.approx(middle_box(N).worst_case(reported).value, rel=1e-6)


def test_without_models_both_objectives_have_the_last_loss():
    """FedAvg converges, so that the live workers' reported losses are those at w."""
    result = lossy(FedAvg(iterations=300))
    assert happened(result, "report")[-1]["objective"] == pytest.approx(result.objective, rel=1e-6)


def when(iteration):
    return f"iteration {iteration:,}" if iteration else "the start"


def test_the_iteration_is_that_of_the_last_report(aspire):
    """Every worker's last report is in the history: known_at names the one whose loss is used."""
    result = lossy(aspire(iterations=300, report_interval=1))
    at = result.known_at[2]
    losses = {entry["iteration"]: entry["losses"][2] for entry in happened(result, "report")}
    assert losses[at] == losses[300]  # frozen from there on
    assert losses[at - 1] != losses[at]


def test_a_worker_that_is_back_is_proved_again():
    engine = VirtualEngine(crashes=[Crash(2, 10.0, 30.0)])
    assert solve(quadratics(), middle_box(N), engine=engine).proved


def test_a_resumed_run_knows_it_still(tmp_path, aspire):
    path = tmp_path / "run.npz"
    engine = {"crashes": [Crash(2, 10.0)]}
    config, longer = (aspire(iterations=i) for i in (100, 300))
    box = middle_box(N)
    solve(quadratics(), box, algorithm=config, engine=VirtualEngine(**engine), observers=[Checkpoint(path)])
    rest = resume(path, quadratics(), box, algorithm=longer, engine=VirtualEngine(**engine))
    whole = solve(quadratics(), box, algorithm=longer, engine=VirtualEngine(**engine))
    same(rest, whole)
    assert np.array_equal(rest.known_at, whole.known_at)


def test_the_last_state_of_a_run_without_workers(aspire):
    engine = VirtualEngine(crashes=[Crash(j, 10.0 + j) for j in range(N)])
    with pytest.raises(NoWorkersLeft) as caught:
        solve(quadratics(), middle_box(N), algorithm=aspire(), engine=engine)
    result = caught.value.result
    assert not result.proved
    assert "worker 0" in result.caveat()
    assert repr(result)  # without a number to show


def test_words_for_many():
    assert in_words({}) == ""
    assert in_words({0: 0}, ["north"]) == "with the last known loss of worker north from the start"
    text = in_words(dict.fromkeys(range(100), 5))
    assert text.count("iteration 5") == NAMED
    assert text.endswith(f"and {100 - NAMED} more")


def test_stationary_is_not_said_while_a_worker_is_away(aspire):
    """A live worker that does not answer leaves ‖∇G‖² unknown."""
    config = aspire(iterations=2000)
    problems = quadratics()
    stop = StopWhenStationary(1e-3, every=1)
    result = solve(problems, middle_box(N), algorithm=config, observers=[stop])
    assert result.stop_reason == "stationary"

    class Silent(VirtualEngine):
        """Gives no answer of worker 2 to probes."""

        def ask(self, messages):
            replies = super().ask(messages)
            return replies if self.clock == 0 else replies | {2: TimeoutError("silent")}

    with pytest.warns(match="silent"):
        result = solve(problems, middle_box(N), algorithm=config, observers=[stop], engine=Silent())
    assert result.stop_reason == "iterations"
    assert result.stationarity == np.inf


# -- what people read -------------------------------------------------------------------------------


@pytest.fixture
def lost(place):
    """A run whose worker w1 dies, and one where nobody does."""
    text = RUN_FILE.replace("iterations = 120", "iterations = 300")
    Path("run.toml").write_text(text)
    fdro("train", "run.toml", "-o", "whole", "-q")
    Path("run.toml").write_text(text.replace("seed = 3", f"seed = 3\n{GONE}"))
    return fdro("train", "run.toml")


def test_the_command_does_not_say_proved(lost):
    numbers = json.loads(Path("run/result.json").read_text())
    caveat = f"with the last known loss of worker w1 from iteration {numbers['workers'][1]['loss_known_at']}"
    assert numbers["proved"] is False
    assert numbers["caveat"] == caveat
    assert "proved at most" not in lost.stdout
    assert f"NOT PROVED: at most {numbers['upper_bound']:.6g} {caveat}" in lost.stdout
    quiet = fdro("train", "run.toml", "--force", "--quiet").stdout
    assert f"(not proved: {caveat})" in quiet
    assert asked("train", "run.toml", "--force")["proved"] is False


def test_the_page_says_it_first(lost):
    caveat = json.loads(Path("run/result.json").read_text())["caveat"]
    fdro("report", "run")
    page = Path("run/report.html").read_text()
    assert f"Not proved: objective and bound were computed {caveat}." in page
    assert page.index('class="caveat"') < page.index('class="figures"')
    assert "gap to the proved bound" not in page
    fdro("report", "whole")
    page = Path("whole/report.html").read_text()
    assert '<p class="caveat">' not in page
    assert "gap to the proved bound" in page


def test_the_comparison_says_it(lost):
    answer = fdro("compare", "run", "whole")
    assert "proved for all workers" in answer.stdout
    assert "run: its objective was computed with the last known loss of worker w1" in answer.stderr
    assert asked("compare", "run", "whole")["proved"] == [False, True]


def test_the_demo_says_proved_only_then(capsys):
    from fdro_core.cli.output import Output

    class Workers:
        names = ("0", "1", "2")

    whole, dead = solve(quadratics(), middle_box(N)), lossy()
    accuracies = {key: np.ones(N) for key in ("fedavg", "robust")}
    for robust, proved in ((whole, True), (dead, False)):
        show_demo(
            Output(quiet=False, as_json=False), Workers(), {"fedavg": whole, "robust": robust}, accuracies
        )
        assert ("proved by a dual bound" in capsys.readouterr().out) is proved
