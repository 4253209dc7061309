"""Execute many tasks: those that have no record yet, on several processes, with a progress bar."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.experiments.runs import plugins
from bench.experiments.runs.perform import perform
from bench.experiments.runs.task import Records, Task

Perform = Callable[[Any], dict[str, Any]]
"""From a task to its record."""


THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**32)}
"""glibc: reuse what vectors of up to 32 MB leave; new pages cost a wide network a seventh of its time."""


def one_thread() -> None:
    """Let this process and those it starts compute with one thread: matrices here are too small for more.

    The variables reach libraries that are loaded later (torch), and other processes; of those that are there
    already, torch takes a call and BLAS threadpoolctl, which scikit-learn brings.
    """
    for name in THREADS:
        os.environ.setdefault(name, "1")
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    if find_spec("threadpoolctl") is not None:
        import_module("threadpoolctl").threadpool_limits(1)


def _begin(files: Sequence[Path]) -> None:
    """Prepare a process: Ctrl-C ends it without a traceback, since the command says what happened."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    plugins.load(files)


class Pool:
    """Processes that are started once per command, each with one thread for its arithmetic.

    Every process loads a data set once and measures curvatures once per data set, seed and model. Ctrl-C ends
    all of them at once; records that were written are kept.

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
        one_thread()
        if self.jobs > 1:
            os.environ.setdefault("NUMBA_NUM_THREADS", "1")
            os.environ.update(KEEP_MEMORY | os.environ)  # for the processes that are started here
            context = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(
                self.jobs, mp_context=context, initializer=_begin, initargs=(self.files,)
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
