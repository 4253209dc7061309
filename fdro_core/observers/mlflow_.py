"""MLflow as an observer, to copy for other trackers: only `begin`, `_log` and `finish` know MLflow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fdro_core.protocol.observer import RunView
from uncertainty_sets.errors import BackendMissing


class MLflow:
    """Log every report of a run to MLflow: metrics by iteration, notices as tags, why it ended.

    Metrics: objective, worst_loss, mean_loss, planes, staleness, live_workers, gradients, clock; with
    `by_worker` also the loss and the weight of each worker. A run that is active is used and left open;
    otherwise one is begun and ended here, in the experiment and at the address that MLflow is set to.

    Args:
        name: of the run that is begun; MLflow makes one up by default.
        params: what to log as parameters, such as ``dataclasses.asdict(algorithm)``.
        by_worker: whether to log losses and weights of every worker.

    Needs ``pip install "fdro[mlflow]"``.
    """

    def __init__(
        self, name: str | None = None, params: Mapping[str, Any] | None = None, *, by_worker: bool = False
    ) -> None:
        self.name = name
        self.params = dict(params or {})
        self.by_worker = by_worker
        self._mlflow: Any = None
        self._ours = False
        self._notices = 0

    def begin(self) -> None:
        """Begin a run of MLflow before the workers are made, so that a wrong address ends nothing."""
        try:
            import mlflow
        except ImportError as error:
            raise BackendMissing('the observer MLflow needs mlflow: pip install "fdro[mlflow]"') from error
        self._mlflow = mlflow
        self._ours = mlflow.active_run() is None
        if self._ours:
            mlflow.start_run(run_name=self.name)
        mlflow.log_params(self.params)

    def __call__(self, run: RunView, entry: dict[str, Any]) -> None:
        """Log a report or a notice."""
        if entry["event"] != "report":
            self._notices += 1
            facts = {key: value for key, value in entry.items() if key not in {"event", "traceback"}}
            self._mlflow.set_tag(f"notice-{self._notices:03d}", f"{entry['event']}: {facts}"[:500])
            return
        losses = [float(loss) for loss in entry["losses"]]
        answered = [loss for loss in losses if math.isfinite(loss)]
        numbers = {
            key: entry.get(key)
            for key in ("objective", "planes", "staleness", "live_workers", "gradients", "clock")
        }
        if answered:
            numbers |= {"worst_loss": max(answered), "mean_loss": sum(answered) / len(answered)}
        if self.by_worker:
            numbers |= {f"loss-{j}": loss for j, loss in enumerate(losses)}
            numbers |= {f"weight-{j}": float(s) for j, s in enumerate(entry.get("weights", ()))}
        self._log(numbers, entry["iteration"])

    def _log(self, numbers: dict[str, Any], iteration: int) -> None:
        known = {key: float(value) for key, value in numbers.items() if value is not None}
        self._mlflow.log_metrics(
            {key: value for key, value in known.items() if math.isfinite(value)}, step=iteration
        )

    def finish(self, run: RunView) -> None:
        """Say why the run ended, and end MLflow's if it was begun here."""
        if self._mlflow is None:
            return
        self._mlflow.set_tag("stop_reason", run.stop_reason)
        if self._ours:
            self._mlflow.end_run("FAILED" if run.broken else "FINISHED")
