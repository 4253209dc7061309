"""Execute many tasks: those that have no record yet, on several processes, with a progress bar."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.experiments.runs import plugins
from bench.experiments.runs.perform import perform
from bench.experiments.runs.records import Records
from bench.experiments.runs.task import Task

Perform = Callable[[Any], dict[str, Any]]
"""From a task to its record."""


class Pool:
    """Processes that are started once per command, each with one thread for its arithmetic.

    Args:
        jobs: how many; 1 runs everything in this process.
        console: where the progress bar is shown.
        perform: from a task to its record.
        files: Python files that every process loads first, see `plugins`.
    """

    def __init__(
        self, jobs: int, console: Console, perform: Perform = perform, files: Sequence[Path] = ()
    ) -> None:
        self.jobs, self.console, self.perform, self.files = jobs, console, perform, files
        self._executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> Pool:
        if self.jobs > 1:
            for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
                os.environ.setdefault(name, "1")
            context = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(
                self.jobs, mp_context=context, initializer=plugins.load, initargs=(self.files,)
            )
        return self

    def __exit__(self, *exception: object) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def run(self, title: str, tasks: Sequence[Task], records: Records) -> list[dict[str, Any]]:
        """Execute the tasks without a record; return the records of all, in the order of the tasks."""
        missing = list({task.key(): task for task in tasks if records.get(task) is None}.values())
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.console, transient=True) as bar:
            line = bar.add_task(title, total=len(tasks), completed=len(tasks) - len(missing))
            if self._executor is None:
                for task in missing:
                    records.add(self.perform(task))
                    bar.advance(line)
            else:
                waiting = [self._executor.submit(self.perform, task) for task in missing]
                for future in as_completed(waiting):
                    records.add(future.result())
                    bar.advance(line)
        found = [record for task in tasks if (record := records.get(task)) is not None]
        assert len(found) == len(tasks)
        return found
