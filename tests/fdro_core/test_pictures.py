"""Pictures of runs: what is drawn is what the history says."""

from __future__ import annotations

import numpy as np
import pytest

from fdro_core import AspireModels, Crash, LeastSquares, VirtualEngine, solve
from fdro_core.errors import InvalidSetting
from fdro_core.observers import HistoryFile
from fdro_core.observers.files import read_history
from fdro_core.pictures import draw_active_workers, draw_convergence, draw_planes, draw_run, draw_staleness
from uncertainty_sets import KL

pyplot = pytest.importorskip("matplotlib.pyplot")

COUNTS = {draw_planes: "planes", draw_active_workers: "active_workers", draw_staleness: "staleness"}


@pytest.fixture(autouse=True)
def _close():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Three workers, one of which dies half-way."""
    problems = [LeastSquares([[1.0]], [target], intercept=False) for target in (0.0, 1.0, 3.0)]
    path = tmp_path_factory.mktemp("run") / "history.jsonl"
    result = solve(
        problems,
        KL(np.full(3, 1 / 3), 0.2),
        algorithm=AspireModels(iterations=60, active_workers=3, deadline=5.0),
        engine=VirtualEngine(seed=0, crashes=[Crash(2, at=20.0)]),
        observers=[HistoryFile(path)],
    )
    return result, path


def column(result, key):
    return [entry[key] for entry in result.history if entry["event"] == "report"]


@pytest.mark.parametrize("over", ["iteration", "clock", "gradients"])
@pytest.mark.parametrize("draw", COUNTS)
def test_counts(run, draw, over):
    ax = draw(run[0], over=over)
    x, y = ax.lines[0].get_data()
    np.testing.assert_array_equal(x, column(run[0], over))
    np.testing.assert_array_equal(y, column(run[0], COUNTS[draw]))
    assert ax.get_ylim()[0] == 0.0


def test_convergence_with_the_range_of_losses(run):
    ax = draw_convergence(run[0])
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), column(run[0], "objective"))
    assert {text.get_text() for text in ax.texts} == {"objective", "largest loss", "least loss"}
    low, high = ax.get_ylim()
    losses = np.array(column(run[0], "losses"))
    assert low <= losses.min()
    assert losses.max() <= high


def test_the_dead_worker_is_seen(run):
    ax = draw_active_workers(run[0])
    alive = ax.lines[1].get_ydata()
    assert alive[0] == 3
    assert alive[-1] == 2
    assert {text.get_text() for text in ax.texts} == {"alive", "S"}


def test_several_runs_by_name_from_results_and_files(run):
    ax = draw_convergence({"live": run[0], "from the file": read_history(run[1])})
    first, second = ax.lines
    np.testing.assert_array_equal(first.get_ydata(), second.get_ydata())
    assert first.get_linestyle() != second.get_linestyle(), "colour alone tells nobody"
    ax.figure.canvas.draw()
    one, other = (text.get_window_extent() for text in ax.texts)
    assert not one.overlaps(other)


def test_all_four_at_once(run):
    figure = draw_run(run[0], over="clock")
    assert [ax.get_ylabel() for ax in figure.axes] == [
        "expected loss",
        "active planes",
        "workers",
        "staleness, iterations",
    ]


def test_what_cannot_be_drawn(run):
    for nothing, message in (([], "no reports"), ({}, "no run"), ([{"event": "worker-lost"}], "no reports")):
        with pytest.raises(InvalidSetting, match=message):
            draw_planes(nothing)
    with pytest.raises(InvalidSetting, match="'epoch'; draw over one of iteration, clock, gradients"):
        draw_planes(run[0], over="epoch")
    assert not pyplot.get_fignums()
