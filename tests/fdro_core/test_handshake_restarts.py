"""Before the first step a lost worker is waited for as `restarts` and `patience` say."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

import numpy as np
import pytest

from fdro_core import AspireModels, ProblemFrom, RayEngine, solve
from fdro_core.engines.wall_clock import Answer, WallEngine, WorkersLost, WorkersReady
from fdro_core.errors import NoWorkersLeft, WorkerFailed
from tests.fdro_core.engine_kinds import needs_ray
from tests.fdro_core.helpers import Quadratic, middle_box


class Fragile(WallEngine):
    """Workers in this process; the host of worker 1 dies the first `deaths` times that it is asked."""

    def __init__(self, deaths, **settings):
        super().__init__(**{"restart_after": 0.001, "patience": 0.2} | settings)
        self.deaths, self.died = deaths, 0

    def _open(self, factories):
        self._workers, self._arrived = [make() for make in factories], deque()

    def _post(self, worker, number, message):
        if worker == 1 and self.died < self.deaths:
            self.died += 1
            self._arrived.append(WorkersLost([1], "host 1 died: killed"))
        else:
            self._arrived.append(Answer(number, self._workers[worker].handle(message)))

    def _collect(self, seconds):
        found = list(self._arrived)
        self._arrived.clear()
        return found

    def _remake(self, records, *, afresh):
        self._arrived.append(WorkersReady(list(records)))

    def _close(self):
        self._workers = []


def problems():
    return [Quadratic([0.0, 1.0]), Quadratic([1.0, 0.0]), Quadratic([2.0, 2.0])]


@pytest.mark.parametrize("deaths", [1, 3, 6, 10])
def test_a_host_may_die_as_often_as_restarts_says(deaths):
    engine = Fragile(deaths, restarts=10)
    result = solve(problems(), middle_box(3), algorithm=AspireModels(iterations=20), engine=engine)
    assert engine.died == deaths
    assert not [entry for entry in result.history if entry["event"] == "worker-dropped"]
    assert np.isfinite(result.losses).all()


@pytest.mark.parametrize("restarts", [0, 1, 4])
def test_then_it_is_given_up_by_the_name_of_the_setting(restarts):
    engine = Fragile(100, restarts=restarts, patience=30.0)
    with pytest.raises(
        (WorkerFailed, NoWorkersLeft), match="worker 1 is lost: host 1 died: killed"
    ) as caught:
        solve(problems(), middle_box(3), algorithm=AspireModels(iterations=20), engine=engine)
    assert engine.died == restarts + 1
    assert "patience" not in str(caught.value)
    assert (f"made again {restarts} times in a row (`restarts`)" in str(caught.value)) == (restarts > 0)


def test_the_pauses_between_attempts_are_no_silence():
    """They grow beyond `patience`, which is for workers that do not answer."""
    engine = Fragile(5, restarts=10, patience=0.02, restart_after=0.01)
    solve(problems(), middle_box(3), algorithm=AspireModels(iterations=20), engine=engine)
    assert engine.died == 5


def dying(folder, times):
    """A problem whose process ends while it is made, the first few times."""
    tries = len(list(Path(folder).iterdir()))
    (Path(folder) / str(tries)).touch()
    if tries < times:
        os._exit(1)
    return Quadratic([1.0, 0.0])


@needs_ray
@pytest.mark.thorough
@pytest.mark.usefixtures("local_ray")
def test_actors_that_die_while_they_start(tmp_path):
    """Five times: it was given up after three."""
    sources = [Quadratic([0.0, 1.0]), ProblemFrom(dying, str(tmp_path), 5)]
    engine = RayEngine(hosts=2, restart_after=0.01)
    result = solve(sources, middle_box(2), algorithm=AspireModels(iterations=20), engine=engine)
    assert np.isfinite(result.losses).all()
    assert len(list(tmp_path.iterdir())) == 6
