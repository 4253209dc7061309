"""One run as data, with all that fixes its numbers; and its record in a file, which a second start reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from bench.datasets import Federation, load
from bench.experiments.runs.parts import HELD_OUT
from bench.experiments.runs.stopping import RULE

SCHEMA = 1


@dataclass(frozen=True)
class Task:
    """All that fixes a run; the same task gives the same numbers.

    A run ends after `gradients` local gradients, or after `virtual_seconds` if that is positive.

    Attributes:
        experiment: the command that the run belongs to.
        data: a name that `bench.datasets.load` knows.
        method: a name of `methods.registry`.
        settings: the method's settings.
        stage: "tune" for a trial of the search, "run" for a result.
        seed: of the held-out part, the mini-batches and the delays.
        gradients: local gradients to take, all workers together.
        batch: samples per gradient; None: all.
        model: a name that `models.make` knows.
        l2: the model's ridge.
        points: how often the model is looked at.
        options: the loader's.
        attack: settings of `backdoor.Attack`, or None.
        uncertainty: a set other than the method's own: (name, radius), for `sets.make`.
        virtual_seconds: end of the run on the virtual clock; 0: the gradients end it.
        until: on the virtual clock, stop before if the pooled test accuracy reaches this.
        delay: median and sigma of the log-normal delay of a message.
        stragglers: (worker, factor, from, to); "to" None: until the end.
        held: share of the training data held out.
        parts: of "train" and "held", what is looked at beside the test data on the virtual clock.
        budget: Γ of the CD-norm set if the settings have none; None: the whole simplex.
        spread: its largest deviations as a multiple of the prior; None: as in `Setup.limits`.
        compute: virtual seconds per gradient, on top of a message's delay.
        judge: what search and stopping rule go by, on held-out data: "acc_w", or "acc_20" where workers have
            so few samples that the worst one's accuracy is noise.
        early: on the virtual clock, look more often at the start, where fast methods rise.
        whole: whether curves over gradients have the test and training data too; not part of the key, since
            the run is the same.
    """

    experiment: str
    data: str
    method: str
    settings: Mapping[str, Any]
    stage: str
    seed: int
    gradients: int
    batch: int | None
    model: str = "softmax"
    l2: float = 0.0
    points: int = 40
    options: Mapping[str, Any] = field(default_factory=dict)
    attack: Mapping[str, Any] | None = None
    uncertainty: tuple[str, float] | None = None
    virtual_seconds: float = 0.0
    until: float | None = None
    delay: tuple[float, float] = (1.0, 0.5)
    stragglers: tuple[tuple[int, float, float, float | None], ...] = ()
    held: float = HELD_OUT
    parts: tuple[str, ...] = ("train", "held")
    budget: float | None = None
    spread: float | None = None
    compute: float = 0.0
    judge: str = "acc_w"
    early: bool = False
    whole: bool = field(default=False, compare=False)

    def key(self) -> str:
        """Return the same text for the same task."""
        return key(asdict(self))


def key(record: Mapping[str, Any]) -> str:
    """Return the key of the task that a record belongs to.

    A field that the record does not have is the task's default: records written before the field existed
    are still found.
    """
    names = [each.name for each in fields(Task) if each.compare]
    full = {name: record[name] if name in record else _DEFAULTS[name] for name in names}
    return json.dumps(full, sort_keys=True)


_DEFAULTS = {
    each.name: each.default_factory() if each.default_factory is not MISSING else each.default
    for each in fields(Task)
    if each.default is not MISSING or each.default_factory is not MISSING
}


@lru_cache(maxsize=4)
def _federation(name: str, options: str) -> Federation:
    return load(name, **json.loads(options))


def federation(task: Task) -> Federation:
    """Load the data of a task; kept between tasks of one process."""
    return _federation(task.data, json.dumps(dict(task.options), sort_keys=True))


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
