"""The observer for MLflow, with the real package, in a file store."""

from __future__ import annotations

import sys

import pytest

from fdro_core import AspireModels, solve
from fdro_core.observers import MLflow, Progress, ProgressBar
from tests.fdro_core.helpers import middle_box, softmax_problems
from uncertainty_sets.errors import BackendMissing


def train(*observers):
    return solve(
        softmax_problems(3), middle_box(3), algorithm=AspireModels(iterations=40), observers=[*observers]
    )


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(BackendMissing, match=r'pip install "fdro\[mlflow\]"'):
        train(MLflow())


def test_a_progress_bar_by_either_name():
    assert ProgressBar is Progress


@pytest.fixture
def store(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    yield mlflow
    mlflow.set_tracking_uri(None)


@pytest.mark.thorough  # importing MLflow takes seconds
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_reports_become_metrics(store):
    result = train(MLflow("clinics", {"radius": 0.3}, by_worker=True))
    assert store.active_run() is None
    client = store.MlflowClient()
    [run] = client.search_runs(["0"])
    assert (run.info.run_name, run.info.status) == ("clinics", "FINISHED")
    assert run.data.params == {"radius": "0.3"}
    assert run.data.tags["stop_reason"] == result.stop_reason
    found = client.get_metric_history(run.info.run_id, "objective")
    assert [(each.step, each.value) for each in found] == [
        (entry["iteration"], pytest.approx(entry["objective"])) for entry in result.history
    ]
    last = result.history[-1]
    assert run.data.metrics["worst_loss"] == pytest.approx(max(last["losses"]))
    assert [run.data.metrics[f"loss-{j}"] for j in range(3)] == pytest.approx(list(last["losses"]))


@pytest.mark.thorough  # importing MLflow takes seconds
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_run_that_is_active_is_used_and_left_open(store):
    with store.start_run() as mine:
        train(MLflow())
        assert store.active_run().info.run_id == mine.info.run_id
    assert "objective" in store.MlflowClient().get_run(mine.info.run_id).data.metrics
