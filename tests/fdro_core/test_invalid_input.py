"""Input that Python itself would reject with an error of its own: fdro's says what is needed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fdro_core import AspireModels, LeastSquares, resume, solve
from fdro_core.baselines import FedAvg
from fdro_core.errors import FileNotWritten, InvalidProblem, InvalidSetting
from fdro_core.observers import Checkpoint, HistoryFile, StopAfter, StopAtLoss, StopWhenStationary
from tests.fdro_core.helpers import Quadratic, middle_box

LONG = "x" * 300
"""Longer than the 255 bytes that file systems allow for a name."""

HUGE = 10**400
"""A whole number that no float holds."""


def run(**arguments):
    return solve([Quadratic([0.0]), Quadratic([1.0])], middle_box(2), **arguments)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ("ab", "start must be numbers, one per parameter, got 'ab'"),
        (["a"], r"start must be numbers, one per parameter, got \['a'\]"),
        ([[1.0], [2.0, 3.0]], "start must be numbers, one per parameter: .*shape"),
        ([1j], "start must be numbers"),
        ([HUGE], "start must be numbers, one per parameter, got "),
        ([None], "start must be numbers"),
        ({"w": 1.0}, "start must be numbers"),
        ([np.nan], "must be 1 finite numbers"),
        ([1.0, 2.0], "start must have 1 entries"),
    ],
)
def test_start(start, words):
    with pytest.raises(InvalidProblem, match=words) as caught:
        run(start=start)
    assert len(str(caught.value)) < 300


def test_a_start_in_any_form_of_numbers():
    for start in ([2], np.array([2.0]), [[2.0]], np.float32(2.0)):
        assert run(start=start, algorithm=AspireModels(iterations=5)).iterations == 5


@pytest.mark.parametrize("samples", [HUGE, 2**63, -1, 2.5, True, "many"])
def test_a_number_of_samples_that_is_none(samples):
    class Counted(Quadratic):
        pass

    Counted.samples = samples
    with pytest.raises(InvalidProblem, match=r"problems\[0\].*\.samples must be a whole number in 0\.\.\d+"):
        solve([Counted([0.0]), Counted([1.0])], middle_box(2), algorithm=FedAvg(iterations=2))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Checkpoint("x", every="a"), "Checkpoint.every must be a whole number >= 1, got 'a'"),
        (lambda: Checkpoint("x", every=2.5), "Checkpoint.every must be a whole number >= 1, got 2.5"),
        (lambda: Checkpoint("x", every=True), "Checkpoint.every must be a whole number >= 1, got True"),
        (lambda: Checkpoint("x", every=0), "Checkpoint.every must be a whole number >= 1, got 0"),
        (lambda: Checkpoint(5), "Checkpoint.path must be the path of a file, got 5"),
        (lambda: Checkpoint("a\0b"), "Checkpoint.path must be the path of a file"),
        (lambda: HistoryFile(None), "HistoryFile.path must be the path of a file, got None"),
        (lambda: StopAfter("soon"), "StopAfter.seconds must be a number > 0, got 'soon'"),
        (lambda: StopAfter(HUGE), "StopAfter.seconds must be a number > 0, got 1000"),
        (lambda: StopAfter(0.0), "StopAfter.seconds must be a number > 0, got 0.0"),
        (lambda: StopAtLoss([1.0]), r"StopAtLoss.target must be a number, got \[1.0\]"),
        (lambda: StopAtLoss(float("nan")), "StopAtLoss.target must be a number, got nan"),
        (lambda: StopWhenStationary(None), "StopWhenStationary.epsilon must be a number > 0, got None"),
        (lambda: StopWhenStationary(1.0, every="a"), "StopWhenStationary.every must be a whole number"),
    ],
)
def test_settings_of_observers(make, words):
    with pytest.raises(InvalidSetting, match=words):
        make()


@pytest.mark.parametrize("observer", [Checkpoint, HistoryFile])
def test_a_file_name_that_is_too_long(observer, tmp_path):
    with pytest.raises(FileNotWritten, match=r"could not be written \(File name too long"):
        run(algorithm=AspireModels(iterations=8), observers=[observer(tmp_path / LONG)])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (Path(LONG), "cannot be opened: File name too long"),
        (LONG, "cannot be opened: File name too long"),
        (5, "cannot be opened"),
        (None, "cannot be opened"),
        ("a\0b", "cannot be opened"),
        ("nowhere.npz", "there is no checkpoint at nowhere.npz"),
    ],
)
def test_a_checkpoint_that_cannot_be_opened(path, words):
    with pytest.raises(InvalidSetting, match=words):
        resume(path, [LeastSquares([[1.0]], [0.0], intercept=False)] * 2, middle_box(2))


@pytest.mark.parametrize("observers", [print, "abc", [3], None])
def test_observers_that_cannot_be_called(observers):
    with pytest.raises(InvalidSetting, match="observers must be a list of callables") as caught:
        solve([Quadratic([0.0])] * 2, middle_box(2), observers=observers)
    assert caught.value.parameter == "observers"
