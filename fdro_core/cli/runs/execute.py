"""Execute a run file: train or resume in the run's folder, test on the way, and write the result there."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fdro_core.cli.output import to_json
from fdro_core.cli.runs.fields import Section, read_source
from fdro_core.cli.runs.folder import CHECKPOINT, HISTORY, ORIGIN, RUN_FILE, RunFolder
from fdro_core.cli.runs.run_file import FOLDER, USUAL_ALGORITHM, RunSetup, find_class, load
from fdro_core.cli.runs.summary import summary
from fdro_core.errors import CheckpointMismatch, DriverError, InvalidSetting
from fdro_core.observers import Checkpoint, HistoryFile
from fdro_core.outside import command
from fdro_core.protocol.algorithm import ALGORITHMS
from fdro_core.protocol.observer import Observer
from fdro_core.result import Result
from fdro_core.solving import resume, solve

if TYPE_CHECKING:
    from fdro_core.cli.runs.workers import Workers
    from fdro_core.protocol.observer import RunView

TESTS = 100
"""How often a run is tested on held-out samples, about."""


def train(
    run_file: Path,
    output: Path | None = None,
    *,
    force: bool = False,
    observers: Sequence[Observer] = (),
    algorithm: str | None = None,
) -> tuple[RunFolder, dict[str, Any]]:
    """Execute a run file from the start; return the folder and the numbers of `result.json`.

    `algorithm` is the name of one to use in place of the file's.
    """
    setup = load(run_file, _base(run_file), algorithm)
    folder = RunFolder(setup.output if output is None else output)
    folder.begin(setup.source.text, setup.folder, force=force)
    return folder, _run(setup, folder, observers, solve)


def check_against(run_file: Path, output: Path | None, algorithm: str, *, force: bool) -> str:
    """Raise before the first of two runs if the second could not begin; return its algorithm's name."""
    name, _ = find_class(ALGORITHMS, algorithm)
    source, base = read_source(run_file), _base(run_file) or run_file.parent
    setting = Section(source, source.values)
    own = setting.section("algorithm").read("name", str, USUAL_ALGORITHM)
    if find_class(ALGORITHMS, own, base)[0] == name:
        raise InvalidSetting(f"--against {algorithm}: the run file has this algorithm too; name another")
    folder = base / setting.section("output").read("folder", str, FOLDER) if output is None else output
    source.raise_mistakes()
    if not force:
        RunFolder(folder).beside(name).check_free()
    return name


def _base(run_file: Path) -> Path | None:
    """The folder that the paths of a run folder's copy are relative to; None for other run files."""
    parent = RunFolder(run_file.parent)
    return Path(parent.origin()["folder"]) if os.path.isfile(parent / ORIGIN) else None


def continue_run(
    path: Path,
    iterations: int | None = None,
    *,
    force: bool = False,
    observers: Sequence[Observer] = (),
) -> tuple[RunFolder, dict[str, Any]]:
    """Continue an interrupted run, or a finished one with more iterations.

    `force` continues although run file or data are not those that the checkpoint was written with.
    """
    folder = RunFolder(path)
    folder.check(RUN_FILE, ORIGIN, CHECKPOINT)
    setup = load(folder.run_file, Path(folder.origin()["folder"]))
    if iterations is not None:
        if not hasattr(setup.algorithm, "iterations"):
            raise InvalidSetting(f"{setup.algorithm_name} has no `iterations` to change")
        setup = dataclasses.replace(
            setup, algorithm=dataclasses.replace(setup.algorithm, iterations=iterations)
        )
    checkpoint = folder / CHECKPOINT
    try:
        return folder, _run(
            setup, folder, observers, lambda **common: resume(checkpoint, force=force, **common)
        )
    except CheckpointMismatch as error:
        if error.differences:
            error.add_note(f"On the command line: `{command('fdro', 'resume', folder, '--force')}`")
        raise


def _run(
    setup: RunSetup,
    folder: RunFolder,
    observers: Sequence[Observer],
    start: Callable[..., Result],
) -> dict[str, Any]:
    all_observers: list[Any] = [
        Evaluate(setup.workers),
        HistoryFile(folder / HISTORY),
        Checkpoint(folder / CHECKPOINT, every=setup.checkpoint_every),
        *setup.stops,
        *observers,
    ]
    began = time.perf_counter()
    try:
        result = start(
            problems=setup.workers.problems,
            uncertainty_set=setup.uncertainty_set,
            algorithm=setup.algorithm,
            engine=setup.engine,
            observers=all_observers,
        )
    except DriverError as error:
        if error.result is not None:  # the last good state is worth keeping
            try:
                _write(setup, folder, error.result, time.perf_counter() - began)
                error.add_note(
                    f"the last good state is in {folder}; `{command('fdro', 'report', folder)}` shows it"
                )
            except OSError as another:  # for example the full disk that ended the run
                error.add_note(f"the last good state could not be written: {another}")
        raise
    return _write(setup, folder, result, time.perf_counter() - began)


def _write(setup: RunSetup, folder: RunFolder, result: Result, seconds: float) -> dict[str, Any]:
    numbers = to_json(summary(setup, result, seconds))
    arrays = {
        "w": result.w,
        "losses": result.losses,
        "weights": result.weights,
        "planes": result.planes,
        "p": result.worst_case.p,
        **setup.workers.model,
    }
    folder.write(numbers, arrays)
    return dict(numbers)


class Evaluate:
    """Add `test_loss` and `test_accuracy` (lists, one number per worker) to some reports.

    It must be the first observer, so that the history file and checkpoints have them. A test costs one pass
    over the held-out samples.

    Args:
        workers: whose held-out samples to use.
        tests: the number of tests per run, about.
    """

    def __init__(self, workers: Workers, tests: int = TESTS) -> None:
        self.workers = workers
        self.tests = tests
        self._tested: int | None = None  # the iteration of the last test

    def __call__(self, run: RunView, entry: dict[str, Any]) -> None:
        """Test the model if the next test is due."""
        if entry["event"] != "report":
            return
        iteration, last = entry["iteration"], run.master.last
        if self._tested is not None and (iteration - self._tested) * self.tests < last:
            return
        self._tested = iteration
        losses, accuracies = self.workers.test(run.master.z)
        for name, values in (("test_loss", losses), ("test_accuracy", accuracies)):
            if np.isfinite(values).any():
                entry[name] = [float(value) if np.isfinite(value) else None for value in values]
