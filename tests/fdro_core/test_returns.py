"""A run whose workers are all away goes on while one of them is to return."""

from __future__ import annotations

import numpy as np
import pytest

from fdro_core import Constant, Crash, VirtualEngine, resume, solve
from fdro_core.baselines import AFL, QFFL, DRFAProx, FedAvg, Individual, MixEven, Scaffold, ScaffPD
from fdro_core.errors import NoWorkersLeft, WorkerWarning
from fdro_core.protocol.engine import Back, Event, Lost
from tests.fdro_core.engine_kinds import happened, quadratics
from tests.fdro_core.helpers import FORMS, Faulty, Quadratic, forms, machines, middle_box, same

N = 3
ALL_AWAY = [Crash(0, 10.0, 80.0), Crash(1, 20.0, 60.0), Crash(2, 30.0, 70.0)]
CONFIGS = [
    *forms(iterations=900),
    *forms(iterations=300, active_workers=N),
    *forms(iterations=300, active_workers=N, deadline=5.0, resends=0),
    *forms(iterations=900, dead_losses="drop"),
    FedAvg(iterations=300),
    MixEven(iterations=300),
    AFL(iterations=300, weight_step=0.02),
    DRFAProx(iterations=300, weight_step=0.02),
    QFFL(iterations=300),
    Scaffold(iterations=300),
    ScaffPD(iterations=300, weight_step=0.02),
    Individual(iterations=300, worker_index=1),
]


@pytest.mark.parametrize("config", CONFIGS, ids=repr)
def test_virtual_time_goes_on_to_the_first_return(config):
    engine = VirtualEngine(seed=1, delays=Constant(1.0), crashes=ALL_AWAY)
    result = solve(quadratics(), middle_box(N), algorithm=config, engine=engine)
    assert result.stop_reason == "iterations"
    assert {entry["worker"] for entry in happened(result, "worker-lost")} == {0, 1, 2}
    assert {entry["worker"] for entry in happened(result, "worker-back")} == {0, 1, 2}
    assert not [e for e in happened(result, "report") if 30.0 < e["clock"] < 60.0]
    clean = solve(
        quadratics(), middle_box(N), algorithm=config, engine=VirtualEngine(seed=1, delays=Constant(1.0))
    )
    assert result.objective == pytest.approx(clean.objective, rel=1e-2)


@pytest.mark.parametrize("config", CONFIGS, ids=repr)
def test_the_run_ends_when_nobody_is_to_return(config):
    crashes = [*ALL_AWAY[:2], Crash(2, 100.0), Crash(1, 110.0), Crash(0, 120.0)]
    engine = VirtualEngine(seed=1, delays=Constant(1.0), crashes=crashes)
    with pytest.raises(NoWorkersLeft) as caught:
        solve(quadratics(), middle_box(N), algorithm=config, engine=engine)
    assert np.isfinite(caught.value.result.w).all()
    assert caught.value.result.clock == 120.0


def test_somebody_is_dropped_and_the_others_return(aspire):
    """The engine cannot know whom the master dropped: the master waits for the others all the same."""
    problems = [*quadratics()[:2], Faulty([2.0, 2.0], bad=range(15, 10**6))]
    engine = VirtualEngine(seed=1, delays=Constant(1.0), crashes=[Crash(0, 40.0, 60.0), Crash(1, 41.0, 50.0)])
    with pytest.warns(WorkerWarning, match="worker 2, iteration .*: worker-dropped"):
        result = solve(problems, middle_box(N), algorithm=aspire(iterations=300), engine=engine)
    assert result.stop_reason == "iterations"
    assert [entry["worker"] for entry in happened(result, "worker-dropped")] == [2]
    assert {entry["worker"] for entry in happened(result, "worker-back")} == {0, 1}


@pytest.mark.parametrize("config", [*CONFIGS[:4], FedAvg(iterations=300)], ids=repr)
def test_a_checkpoint_written_while_everybody_is_away(config, tmp_path):
    def engine():
        return VirtualEngine(seed=1, crashes=ALL_AWAY)

    path, saved = tmp_path / "run.npz", []

    def save(run, entry):
        if entry["event"] == "worker-lost" and not any(run.master.roster.alive):
            run.save(path)
            saved.append(entry["clock"])

    whole = solve(quadratics(), middle_box(N), algorithm=config, engine=engine(), observers=[save])
    assert saved == [30.0]
    same(whole, resume(path, quadratics(), middle_box(N), algorithm=config, engine=engine()))


@pytest.mark.parametrize("config", [*forms(), FedAvg()], ids=[*FORMS, "fedavg"])
def test_a_return_that_comes_to_nothing_ends_the_wait(config):
    master, _ = machines([Quadratic([0.0]), Quadratic([1.0])], middle_box(2), config)
    master.start()
    assert master.handle(Event(1.0, 0, Lost("raised OSError: disk gone", returns=True))) == []
    assert master.handle(Event(2.0, 1, Lost("host died", returns=True))) == []
    assert master.handle(Event(3.0, 1, Lost("given up"))) == []
    with pytest.raises(NoWorkersLeft):
        master.handle(Event(4.0, 0, Lost("given up too")))
    master, _ = machines([Quadratic([0.0]), Quadratic([1.0])], middle_box(2), config)
    master.start()
    for j in (0, 1):
        master.handle(Event(1.0 + j, j, Lost("crashed", returns=True)))
    assert [j for j, _ in master.handle(Event(3.0, 1, Back()))] == [1]
