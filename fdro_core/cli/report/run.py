"""What the report shows of a run: its files, read once, and which workers are gone or worst."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fdro_core.cli.reading import read_text
from fdro_core.cli.runs.folder import ORIGIN, RESULT, RUN_FILE, RunFolder
from uncertainty_sets.arrays import Array

Entry = dict[str, Any]

WORST = {"worst_test_accuracy": ("test_accuracy", np.nanmin), "worst_loss": ("loss", np.nanmax)}
"""The figures about one worker: its number in the table, and which of them counts."""


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        name: what the page calls it.
        result: the numbers of `result.json`.
        history: reports and notices, in order.
        origin: the versions in use.
        run_file: the text of the run file.
    """

    name: str
    result: dict[str, Any]
    history: list[Entry]
    origin: dict[str, Any]
    run_file: str

    @classmethod
    def read(cls, folder: RunFolder, name: str = "") -> Run:
        """Read the files of a folder; raise if one is missing."""
        folder.check(RUN_FILE, ORIGIN, RESULT)
        name = name or folder.path.resolve().name
        result = folder.result()
        history = folder.history(len(result["workers"]))
        return cls(name, result, history, folder.origin(), read_text(folder.run_file))

    @property
    def workers(self) -> list[Entry]:
        """The numbers by worker."""
        workers: list[Entry] = self.result["workers"]
        return workers

    @cached_property
    def names(self) -> list[str]:
        """The workers' names."""
        return [worker["name"] for worker in self.workers]

    @cached_property
    def reports(self) -> list[Entry]:
        """The reports among the history."""
        return [entry for entry in self.history if entry["event"] == "report"]

    @cached_property
    def gone(self) -> dict[int, Entry]:
        """The workers that were lost and did not come back: by worker, the notice of the loss."""
        found: dict[int, Entry] = {}
        for entry in self.history:
            if entry["event"] in {"worker-lost", "worker-dropped"}:
                found[entry["worker"]] = entry
            elif entry["event"] == "worker-back":
                found.pop(entry["worker"], None)
        return dict(sorted(found.items()))

    def worst(self, figure: str) -> list[int]:
        """The workers that a figure in WORST is about: one, or those that share the worst number."""
        key, pick = WORST[figure]
        values = column(self.workers, key)
        return np.flatnonzero(values == pick(values)).tolist() if np.isfinite(values).any() else []

    @property
    def headline(self) -> str:
        """The figure in WORST that the page puts first."""
        return next((figure for figure in WORST if self.worst(figure)), "worst_loss")


def column(workers: list[dict[str, Any]], key: str) -> Array:
    """One number per worker from `result.json`; NaN if unknown.

    >>> column([{"loss": 0.5}, {"loss": None}], "loss")
    array([0.5, nan])
    """
    return np.array([each.get(key) for each in workers], dtype=np.float64)
