"""From an experiment to a finished run in its folder."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fdro_core.solving import Observer, resume, solve
from fdro_core.errors import CheckpointMismatch, DriverError, InvalidSetting
from fdro_core.app.runs.config import Experiment, load
from fdro_core.app.runs.evaluate import Evaluate
from fdro_core.app.runs.folder import CHECKPOINT, CONFIG, HISTORY, ORIGIN, RunFolder
from fdro_core.observers import Checkpoint, HistoryFile
from fdro_core.app.plain import plain
from fdro_core.result import Result


def train(
    config: Path, output: Path | None = None, *, force: bool = False, observers: Sequence[Observer] = ()
) -> tuple[RunFolder, dict[str, Any]]:
    """Run a config file from the start: the folder, and the numbers of `result.json`."""
    beside = RunFolder(config.parent)  # a config inside a run's folder still means its first place
    experiment = load(config, Path(beside.origin()["folder"]) if (beside / ORIGIN).is_file() else None)
    folder = RunFolder(experiment.output if output is None else output)
    folder.begin(experiment.source.text, experiment.folder, force=force)
    return folder, _run(experiment, folder, observers, solve)


def go_on(
    path: Path,
    iterations: int | None = None,
    *,
    force: bool = False,
    observers: Sequence[Observer] = (),
) -> tuple[RunFolder, dict[str, Any]]:
    """Go on with an interrupted run, or beyond its end with more iterations.

    `force` goes on although config or data are not those that the checkpoint was written with.
    """
    folder = RunFolder(path)
    folder.check(CONFIG, ORIGIN, CHECKPOINT)
    experiment = load(folder / CONFIG, Path(folder.origin()["folder"]))
    if iterations is not None:
        if not hasattr(experiment.algorithm, "iterations"):
            raise InvalidSetting(f"{experiment.algorithm_name} has no `iterations` to change")
        experiment = dataclasses.replace(
            experiment, algorithm=dataclasses.replace(experiment.algorithm, iterations=iterations)
        )
    checkpoint = folder / CHECKPOINT
    try:
        return folder, _run(
            experiment, folder, observers, lambda **common: resume(checkpoint, force=force, **common)
        )
    except CheckpointMismatch as error:
        if error.differences:
            error.add_note(f"For the command: `fdro resume {folder} --force`")
        raise


def _run(
    experiment: Experiment,
    folder: RunFolder,
    observers: Sequence[Observer],
    start: Callable[..., Result],
) -> dict[str, Any]:
    task = experiment.task
    watching: list[Any] = [
        Evaluate(task),
        HistoryFile(folder / HISTORY),
        Checkpoint(folder / CHECKPOINT, every=experiment.checkpoint_every),
        *experiment.stops,
        *observers,
    ]
    began = time.perf_counter()
    try:
        result = start(
            problems=task.problems,
            uncertainty_set=experiment.uncertainty_set,
            algorithm=experiment.algorithm,
            engine=experiment.engine,
            observers=watching,
        )
    except DriverError as error:
        if error.result is not None:  # the last good state is worth keeping
            try:
                _write(experiment, folder, error.result, time.perf_counter() - began)
                error.add_note(f"the last good state is in {folder}; `fdro report {folder}` shows it")
            except OSError as another:  # a disk that is full ended the run, and is full still
                error.add_note(f"and the last good state could not be kept: {another}")
        raise
    return _write(experiment, folder, result, time.perf_counter() - began)


def _write(experiment: Experiment, folder: RunFolder, result: Result, seconds: float) -> dict[str, Any]:
    numbers = plain(summary(experiment, result, seconds))
    arrays = {
        "w": result.w,
        "losses": result.losses,
        "weights": result.weights,
        "planes": result.planes,
        "p": result.worst_case.p,
        **experiment.task.model,
    }
    folder.write(numbers, arrays)
    return dict(numbers)


def summary(experiment: Experiment, result: Result, seconds: float) -> dict[str, Any]:
    """The numbers of `result.json`."""
    task, answer = experiment.task, result.worst_case
    test_loss, test_accuracy = task.judge(result.w)
    accuracy = task.training_accuracies(result.w)
    prior = experiment.uncertainty_set.reference()
    columns = {
        "samples": task.samples,
        "test_samples": task.tested,
        "loss": result.losses,
        "accuracy": accuracy,
        "test_loss": test_loss,
        "test_accuracy": test_accuracy,
        "prior": prior,
        "weight": result.weights,
        "worst_case_p": answer.p,
        "loss_known_at": result.known_at,
    }
    return {
        "stop_reason": result.stop_reason,
        "objective": result.objective,
        "proved": result.proved,
        "caveat": result.caveat(task.names),
        "suspicious": {task.names[j]: what for j, what in result.suspicious.items()},
        "upper_bound": answer.upper_bound,
        "gap": answer.gap,
        "violation": answer.violation,
        "stationarity": result.stationarity,
        "worst_loss": _most(result.losses),
        "worst_test_loss": _most(test_loss),
        "worst_test_accuracy": -_most(-test_accuracy),
        "mean_test_accuracy": float(np.nanmean(test_accuracy))
        if np.isfinite(test_accuracy).any()
        else np.nan,
        "planes": len(result.planes),
        "iterations": result.iterations,
        "gradients": result.gradients,
        "clock": result.clock,
        "seconds": seconds,
        "set": {"name": experiment.set_name, "as": repr(experiment.uncertainty_set)},
        "algorithm": {"name": experiment.algorithm_name, **settings_of(experiment.algorithm)},
        "engine": {"name": experiment.engine_name, "as": repr(experiment.engine)},
        "parameters": int(result.w.size),
        "workers": [
            {"name": name, **{key: column[j] for key, column in columns.items()}}
            for j, name in enumerate(task.names)
        ],
    }


def settings_of(algorithm: Any) -> dict[str, Any]:
    """An algorithm's settings; objects among them as they print themselves."""
    if not dataclasses.is_dataclass(algorithm):
        return {}
    found = {item.name: getattr(algorithm, item.name) for item in dataclasses.fields(algorithm)}
    simple = (type(None), bool, int, float, str)
    return {name: value if isinstance(value, simple) else repr(value) for name, value in found.items()}


def _most(values: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    return float(np.nanmax(values)) if np.isfinite(values).any() else np.nan
