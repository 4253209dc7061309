"""Results as JSON lines: one line per run, written as soon as it ends, so that a second start continues."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.experiments.runs.stopping import RULE
from bench.experiments.runs.task import SCHEMA, Task, key


class Records:
    """The lines of one experiment.

    Args:
        path: the file; emptied first with `fresh`.
    """

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self.path = path
        self.known: dict[str, dict[str, Any]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if fresh:
            path.unlink(missing_ok=True)
        lines = read(path)
        for record in lines:
            self.known[key(record)] = record
        self.resumed = len(lines)
        if path.exists():  # without a last line that was cut short
            text = "".join(dump(record) for record in lines)
            path.write_text(text, encoding="utf-8")

    def get(self, task: Task) -> dict[str, Any] | None:
        """Return the record of a task, None if it was not run yet."""
        return self.known.get(task.key())

    def of(self, data: Sequence[str]) -> list[dict[str, Any]]:
        """Return all records on these data sets."""
        return [record for record in self.known.values() if record["data"] in data]

    def add(self, record: dict[str, Any]) -> None:
        """Write a record down."""
        self.known[key(record)] = record
        with self.path.open("a", encoding="utf-8") as file:
            file.write(dump(record))


def dump(record: dict[str, Any]) -> str:
    """Format a record as one line of the file."""
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"


def read(path: Path) -> list[dict[str, Any]]:
    """Read the records of a file, except a line cut short by a crash and those of another version or rule."""
    records = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            if _current(record):
                records.append(record)
    return records


def _current(record: dict[str, Any]) -> bool:
    """Whether a record is of this version and of the rule in use; a rehearsal's has all rules."""
    rule = RULE if "rules" in record else record.get("rule", RULE)
    return record.get("schema") == SCHEMA and rule == RULE
