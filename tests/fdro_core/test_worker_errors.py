"""A worker's exception reaches the user, with its traceback: at the start, later, and when nobody is left."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fdro_core import Crash, ProblemFrom, VirtualEngine, solve
from fdro_core.baselines import AFL, QFFL, DRFAProx, FedAvg, FedProx, Scaffold, ScaffPD
from fdro_core.engines.wall_clock.host import portable
from fdro_core.errors import NoWorkersLeft, WorkerFailed, WorkerWarning
from fdro_core.protocol.failures import traceback_of, words
from tests.fdro_core.command import RUN_FILE, fdro
from tests.fdro_core.engine_kinds import EVERY, THREAD, VIRTUAL, happened, kinds
from tests.fdro_core.helpers import Faulty, Mishap, Quadratic, broken_shard, middle_box
from tests.fdro_core.twisted import Mute, NoTraveller, Raising

N = 3


def with_one(problem):
    return [Quadratic([0.0, 1.0]), problem, Quadratic([2.0, 2.0])]


# -- at the start -----------------------------------------------------------------------------------

FAILING = {
    "its factory": lambda: ProblemFrom(broken_shard, "nowhere.npz"),
    "its metric": lambda: Raising([1.0, 0.0], KeyError("age"), metric=True),
    "its first gradient": lambda: Raising([1.0, 0.0], KeyError("age"), at=1),
    "its second gradient": lambda: Raising([1.0, 0.0], KeyError("age"), at=2),
}

# On Ray in one form only, to save time: engines know nothing of forms.
in_both_forms = pytest.mark.parametrize(
    ("kind", "aspire"), [*kinds("models"), (VIRTUAL, "admm"), (THREAD, "admm")], indirect=["aspire"]
)


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("where", FAILING)
def test_a_failure_before_the_first_step_ends_the_run(kind, where, make):
    with pytest.raises(
        WorkerFailed, match=r"worker 1 failed before the first step: (KeyError|FileNotFound)"
    ) as caught:
        solve(with_one(FAILING[where]()), middle_box(N), engine=make(kind))
    assert caught.value.worker == 1
    assert isinstance(caught.value.__cause__, KeyError | FileNotFoundError)
    assert "on_failed_start" in str(caught.value)
    printed = traceback_of(caught.value)
    assert "helpers.py" in printed or "twisted.py" in printed  # where it was raised, from another process too


@in_both_forms
@pytest.mark.parametrize("where", FAILING)
def test_the_run_goes_on_where_that_is_asked_for(kind, where, make, aspire):
    config = aspire(iterations=60, on_failed_start="warn")
    with pytest.warns(
        WorkerWarning, match=r"(?s)worker 1.*(twisted|helpers)\.py.*(KeyError|FileNotFound)"
    ) as told:
        result = solve(with_one(FAILING[where]()), middle_box(N), algorithm=config, engine=make(kind))
    assert len(told) == 1
    (dropped,) = happened(result, "worker-dropped")
    assert dropped["worker"] == 1
    assert "Traceback" in dropped["traceback"]
    assert result.weights[1] == 0
    assert not result.proved
    assert result.known_at[1] == -1
    assert "a guess for worker 1, which never answered" in result.caveat()


@pytest.mark.parametrize("method", [FedAvg, FedProx, AFL, DRFAProx, QFFL, Scaffold, ScaffPD])
def test_baselines_do_the_same(method):
    problems = with_one(Raising([1.0, 0.0], KeyError("age"), at=1))
    with pytest.raises(WorkerFailed, match="worker 1"):
        solve(problems, middle_box(N), algorithm=method(iterations=20))
    problems = with_one(Raising([1.0, 0.0], KeyError("age"), at=1))
    with pytest.warns(WorkerWarning, match="KeyError: 'age'"):
        result = solve(problems, middle_box(N), algorithm=method(iterations=20, on_failed_start="warn"))
    assert result.weights[1] == 0
    assert result.weights.sum() == pytest.approx(1.0)
    assert result.known_at[1] == -1


def test_a_worker_that_never_answered_follows_the_others(aspire):
    """Its loss is a guess, the mean of the others' now; at the start that mean was 100 times larger."""
    problems = [Quadratic([0.0]), Raising([1.0], KeyError("age"), at=1), Quadratic([1.0])]
    config = aspire(on_failed_start="warn")
    with pytest.warns(WorkerWarning):
        result = solve(problems, middle_box(N), algorithm=config, start=[10.0])
    alone = solve([problems[0], problems[2]], middle_box(2), start=[10.0])
    assert result.w == pytest.approx(alone.w, abs=1e-6)
    assert result.objective <= alone.objective + 1e-6


def test_all_that_failed_are_named(aspire):
    problems = [Quadratic([0.0]), *[Raising([1.0], KeyError("age"), at=1) for _ in range(3)]]
    with pytest.raises(WorkerFailed, match=r"worker 1 failed.*so did 2 and 3"):
        solve(problems, middle_box(4))
    with pytest.raises(NoWorkersLeft, match="every worker failed before the first step") as caught:
        solve(problems[1:], middle_box(3), algorithm=aspire(on_failed_start="warn"))
    assert isinstance(caught.value.__cause__, KeyError)


# -- later ------------------------------------------------------------------------------------------


@in_both_forms
def test_a_later_failure_warns_once_with_the_traceback(kind, make, tmp_path, aspire):
    problems = with_one(Mishap([1.0, 0.0], tmp_path, "raise", at=20, times=3))
    config = aspire(iterations=400)
    with pytest.warns(WorkerWarning, match=r"(?s)worker 1.*helpers\.py.*OSError: disk gone") as told:
        result = solve(problems, middle_box(N), algorithm=config, engine=make(kind))
    assert len([each for each in told if each.category is WorkerWarning]) == 1
    for lost in happened(result, "worker-lost"):
        assert "_happen" in lost["traceback"]


@in_both_forms
def test_nobody_left_names_and_chains_the_last_exception(kind, make, tmp_path, aspire):
    problems = [Mishap([float(j), 0.0], tmp_path, "raise", at=20 + j, times=99) for j in range(N)]
    with pytest.warns(WorkerWarning), pytest.raises(NoWorkersLeft, match="OSError: disk gone") as caught:
        solve(problems, middle_box(N), algorithm=aspire(), engine=make(kind, restarts=0))
    assert isinstance(caught.value.__cause__, OSError)
    assert "_happen" in traceback_of(caught.value)


def test_an_exception_before_a_crash_is_not_lost(aspire):
    problems = with_one(Faulty([1.0, 0.0], broken=[20]))
    engine = VirtualEngine(crashes=[Crash(0, 60.0), Crash(2, 61.0)])
    with (
        pytest.warns(WorkerWarning),
        pytest.raises(
            NoWorkersLeft, match="worker 2: crashed; the last exception was worker 1's: OSError"
        ) as caught,
    ):
        solve(problems, middle_box(N), algorithm=aspire(), engine=engine)
    assert isinstance(caught.value.__cause__, OSError)


def test_a_worker_that_fails_when_it_is_probed(aspire):
    problems = with_one(Raising([1.0, 0.0], KeyError("age"), at=10**9))

    def break_it(run, entry):
        if entry["iteration"] >= 40:
            problems[1].at = 0
            return "enough"
        return None

    with pytest.warns(WorkerWarning, match="(?s)probe-failed.*KeyError"):
        result = solve(problems, middle_box(N), algorithm=aspire(), observers=[break_it])
    assert np.isnan(result.losses[1])
    assert result.stationarity == np.inf  # the sums have it in them, and its part is not known
    assert "with the last known loss of worker 1 from iteration" in result.caveat()


# -- exceptions of an awkward kind ------------------------------------------------------------------


@in_both_forms
@pytest.mark.parametrize("error", [Mute, partial(NoTraveller, 1, 2)])
def test_awkward_exceptions_reach_the_user_too(kind, error, make, aspire):
    name = type(error()).__name__
    with pytest.raises(WorkerFailed, match=name) as caught:
        solve(with_one(Raising([1.0, 0.0], error, at=1)), middle_box(N), engine=make(kind))
    assert "twisted.py" in traceback_of(caught.value)
    with pytest.warns(WorkerWarning, match=name):
        solve(
            with_one(Raising([1.0, 0.0], error, at=12)),  # soon: the deadline τ makes it reply that often
            middle_box(N),
            algorithm=aspire(iterations=200),
            engine=make(kind, restarts=0),
        )


def test_words_are_safe():
    assert "cannot be shown" in words(Mute())
    assert words(KeyError("age")) == "KeyError: 'age'"
    assert words(OSError()) == "OSError"


def test_an_exception_that_travels_often_does_not_grow():
    error = KeyError("age")
    lengths = {len(str(portable(error).__notes__)) for _ in range(5)}
    assert len(lengths) == 1


# -- the command line -------------------------------------------------------------------------------

OWN = """
from fdro_core import LeastSquares


class Broken(LeastSquares):
    def loss_and_gradient(self, *arguments):
        return {}["age"]


def make():
    kinds = (LeastSquares, Broken, LeastSquares)
    return [kind([[1.0]], [float(j)], intercept=False) for j, kind in enumerate(kinds)]
"""


@pytest.mark.usefixtures("place")
def test_the_command_shows_the_traceback():
    Path("failing_problems.py").write_text(OWN)
    text = RUN_FILE.replace('"samples.csv"', '"failing_problems:make"').replace("[model]\nl2 = 0.01\n", "")
    Path("run.toml").write_text(text)
    answer = fdro("train", "run.toml", code=1)
    assert 'return {}["age"]' in answer.stderr
    assert "worker 1 failed before the first step: KeyError: 'age'" in answer.stderr
    told = json.loads(fdro("train", "run.toml", "--force", "--json", code=1).stderr)
    assert told["kind"] == "WorkerFailed"
    assert "KeyError" in told["traceback"]
    Path("run.toml").write_text(
        text.replace("iterations = 120", 'iterations = 120\non_failed_start = "warn"')
    )
    with pytest.warns(WorkerWarning, match="KeyError"):
        shown = fdro("train", "run.toml", "--force").stdout
    assert "NOT PROVED" in shown
    assert "a guess for worker 1, which never answered" in shown
