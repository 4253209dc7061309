"""An observer that raises: the run ends, everyone else finishes, and the error says who it was."""

from __future__ import annotations

import pytest

from fdro_core import Crash, ThreadEngine, VirtualEngine, resume, solve
from fdro_core.baselines import DRFAProx
from fdro_core.errors import DriverError, NoWorkersLeft, ObserverFailed, WorkerWarning
from fdro_core.observers import Checkpoint, HistoryFile, read_history
from tests.fdro_core.helpers import FORMS, Faulty, Quadratic, forms, middle_box, same, softmax_problems

N = 4
CONFIGS = {
    **dict(zip(FORMS, forms(iterations=60, report_interval=5), strict=True)),
    "drfa-prox": DRFAProx(iterations=60, report_interval=5),
}


class Clumsy:
    """Raises at an iteration, in `finish`, or both."""

    def __init__(self, error, at=None, in_finish=False):
        self.error, self.at, self.in_finish, self.finished = error, at, in_finish, 0

    def __call__(self, run, entry):
        if entry["iteration"] == self.at:
            raise self.error

    def finish(self, run):
        self.finished += 1
        if self.in_finish:
            raise self.error


class Calm:
    """Notes what it is told."""

    def __init__(self):
        self.seen, self.finished = [], 0

    def __call__(self, run, entry):
        self.seen.append(entry["iteration"])

    def finish(self, run):
        self.finished += 1


def run(*observers, config=CONFIGS["models"], engine=None):
    return solve(softmax_problems(N), middle_box(N), algorithm=config, engine=engine, observers=observers)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("first", [True, False])
def test_the_others_finish_and_the_checkpoint_goes_on_bit_for_bit(config, first, tmp_path):
    path, before, after = tmp_path / "run.npz", Calm(), Calm()
    clumsy = Clumsy(ZeroDivisionError("oops"), at=20)
    others = [before, Checkpoint(path, every=10**6), HistoryFile(tmp_path / "h.jsonl"), after]
    with pytest.raises(ObserverFailed, match=r"Clumsy.*ZeroDivisionError: oops") as caught:
        run(*([clumsy, *others] if first else [*others, clumsy]), config=config)
    assert caught.value.__cause__ is clumsy.error
    assert before.finished == after.finished == clumsy.finished == 1
    assert before.seen == after.seen == [5, 10, 15, 20]
    assert [entry["iteration"] for entry in read_history(tmp_path / "h.jsonl")] == before.seen
    assert caught.value.result.iterations == 20
    assert caught.value.result.stop_reason == "ObserverFailed"
    rest = resume(path, softmax_problems(N), middle_box(N), algorithm=config)
    same(run(config=config), rest)


def test_the_error_says_which_of_several_and_where_in_the_list():
    with pytest.raises(ObserverFailed, match=r"observers\[1\] \(Clumsy\)"):
        run(Calm(), Clumsy(OSError("x"), at=5), Calm())

    def watch(run, entry):
        raise OSError("no screen")

    with pytest.raises(ObserverFailed, match=r"observers\[0\] \(watch\) raised OSError: no screen"):
        run(watch)
    with pytest.raises(ObserverFailed, match="iteration 5"):
        run(watch)


def test_a_finish_that_raises():
    calm, clumsy = Calm(), Clumsy(OSError("disk gone"), in_finish=True)
    with pytest.raises(ObserverFailed, match=r"Clumsy\).*in its finish.*disk gone") as caught:
        run(clumsy, calm)
    assert calm.finished == 1
    assert caught.value.result.iterations == 60
    assert caught.value.result.stop_reason == "iterations"


def test_two_that_raise_are_both_named():
    first, second = Clumsy(OSError("one"), in_finish=True), Clumsy(KeyError("two"), in_finish=True)
    with pytest.raises(ObserverFailed, match=r"observers\[0\].*one(.|\n)*observers\[1\].*two") as caught:
        run(first, second)
    assert isinstance(caught.value.__cause__, ExceptionGroup)
    assert caught.value.__cause__.exceptions == (first.error, second.error)


def test_one_that_raises_twice_is_told_twice():
    with pytest.raises(ObserverFailed) as caught:
        run(Clumsy(OSError("again"), at=20, in_finish=True))
    assert str(caught.value).count("again") == 2


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("in_finish", [False, True])
def test_an_exit_passes_through_after_the_others_have_finished(kind, in_finish, tmp_path):
    path, calm = tmp_path / "run.npz", Calm()
    leaving = Clumsy(kind(3), at=None if in_finish else 20, in_finish=in_finish)
    with pytest.raises(kind) as caught:
        run(leaving, calm, Checkpoint(path, every=10**6))
    assert caught.value is leaving.error
    assert calm.finished == 1
    same(run(), resume(path, softmax_problems(N), middle_box(N), algorithm=CONFIGS["models"]))


def test_an_exit_names_the_others_that_failed():
    with pytest.raises(SystemExit) as caught:
        run(Clumsy(SystemExit(3), at=20), Clumsy(OSError("disk gone"), in_finish=True))
    assert "disk gone" in caught.value.__notes__[0]


def test_all_notices_of_an_event_are_kept(aspire):
    """The first of two notices kills an observer: the second still reaches the history and the others."""
    problems = [Quadratic([0.0]), Quadratic([1.0]), Faulty([2.0], bad=[20])]
    config, calm = aspire(iterations=150, max_bad_updates=1), []

    def clumsy(run, entry):
        if entry["event"] == "bad-update":
            raise ValueError("never seen that")

    with pytest.warns(WorkerWarning, match="worker-dropped"), pytest.raises(ObserverFailed) as caught:
        solve(
            problems,
            middle_box(3),
            algorithm=config,
            observers=[clumsy, lambda run, entry: calm.append(entry["event"])],
        )
    assert calm[-2:] == ["bad-update", "worker-dropped"]
    assert [entry["event"] for entry in caught.value.result.history] == calm


def test_a_run_that_fails_by_itself_stays_that_error():
    calm, clumsy = Calm(), Clumsy(OSError("disk gone"), in_finish=True)
    engine = VirtualEngine(crashes=[Crash(j, 10.0) for j in range(N)])
    with pytest.raises(NoWorkersLeft) as caught:
        run(clumsy, calm, engine=engine)
    assert calm.finished == 1
    assert any("observers[0] (Clumsy)" in note and "disk gone" in note for note in caught.value.__notes__)
    assert caught.value.result is not None


def test_an_exit_while_a_failed_run_finishes():
    engine = VirtualEngine(crashes=[Crash(j, 10.0) for j in range(N)])
    with pytest.raises(SystemExit) as caught:
        run(Clumsy(SystemExit(3), in_finish=True), engine=engine)
    assert isinstance(caught.value.__cause__, NoWorkersLeft)


def test_on_threads(tmp_path, aspire):
    path, calm = tmp_path / "run.npz", Calm()
    config = aspire(active_workers=N, iterations=40, report_interval=5)
    observers = [Clumsy(OSError("x"), at=20), Checkpoint(path), calm]
    with pytest.raises(ObserverFailed) as caught:
        run(*observers, config=config, engine=ThreadEngine(2))
    assert caught.value.result.iterations == 20
    assert calm.finished == 1
    rest = resume(path, softmax_problems(N), middle_box(N), algorithm=config, engine=ThreadEngine(2))
    assert rest.iterations == 40


def test_it_is_a_driver_error():
    assert issubclass(ObserverFailed, DriverError)
