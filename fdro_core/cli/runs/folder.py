"""The folder of a run: its files, and how they are written and read.

============== =========================================================================
file           what
============== =========================================================================
run.toml       a copy of the run file
origin.json    the folder that its paths are relative to, and the versions in use
history.jsonl  one line per report or notice
checkpoint.npz everything that `fdro resume` needs
result.json    the numbers: certificate, losses, accuracies and weights by worker
result.npz     the arrays: w, losses, weights, planes, p, and mean, scale, classes of the model
report.html    from `fdro report`
============== =========================================================================

What the JSON files hold is declared here, and checked when they are read: people edit these files, and disks
damage them. Commands and pages get what is declared, or an error that names file, line and entry; they check
nothing themselves. What is not declared is left as it is.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite, isnan
from pathlib import Path
from typing import Any

import numpy as np

from fdro_core import files
from fdro_core.cli import version
from fdro_core.cli.reading import read_json, read_text
from fdro_core.errors import InvalidData, InvalidSetting
from fdro_core.outside import command
from uncertainty_sets.registry import nearest

RUN_FILE = "run.toml"
ORIGIN, HISTORY, CHECKPOINT = "origin.json", "history.jsonl", "checkpoint.npz"
RESULT, ARRAYS, REPORT = "result.json", "result.npz", "report.html"
OURS = (RUN_FILE, ORIGIN, HISTORY, CHECKPOINT, RESULT, ARRAYS, REPORT)

LARGEST = 2**53  # of a count: beyond it a float has no whole numbers
LONGEST_TEXT = 1 << 22
SHOWN = 60


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def __str__(self) -> str:
        """The path, relative to the current folder if it is inside."""
        path = self.path.resolve()
        return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(self.path)

    def beside(self, name: str) -> RunFolder:
        """The folder for the same run with the algorithm of that name."""
        return RunFolder(self.path.with_name(f"{self.path.name}-{name}"))

    def begin(self, run_file: str, base: Path, *, force: bool) -> None:
        """Make the folder for a new run; if it holds one already, raise, or delete that with `force`."""
        try:
            self._make_room(force=force)
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:  # no permission, a name that is too long
            raise InvalidSetting(
                f"{self} cannot be the folder of a run ({error.strerror}): choose another with --output"
            ) from error
        files.write_text(self / RUN_FILE, run_file)
        origin = {
            "folder": str(base),
            "fdro": version(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "platform": platform.platform(),
        }
        files.write_text(self / ORIGIN, json.dumps(origin, indent=1) + "\n")

    def check_free(self) -> None:
        """Raise if the folder is in use."""
        self._make_room(force=False)

    def _make_room(self, *, force: bool) -> None:
        """Raise if the folder is in use; with `force` delete the run in it."""
        if self.path.exists() and not self.path.is_dir():
            raise InvalidSetting(f"{self} is a file; the run needs a folder: choose another with --output")
        if any((self / name).exists() for name in (HISTORY, CHECKPOINT, RESULT)):
            if not force:
                raise InvalidSetting(
                    f"{self} already holds a run. Continue it with `{command('fdro', 'resume', self)}`, "
                    "write this one to another folder with --output OTHER, or replace it with --force"
                )
            for name in OURS:
                (self / name).unlink(missing_ok=True)
        elif self.path.is_dir() and not force and any(each.name not in OURS for each in self.path.iterdir()):
            raise InvalidSetting(
                f"{self} has other files in it: choose another folder with --output, or use this one "
                "with --force"
            )

    def check(self, *needed: str) -> None:
        """Raise if the folder lacks one of the files."""
        if not os.path.isdir(self.path):
            parent = self.path.parent
            names = [each.name for each in parent.iterdir() if each.is_dir()] if os.path.isdir(parent) else []
            raise InvalidSetting(f"there is no folder {self.path}{nearest(self.path.name, names)}")
        for name in needed:
            path = self.run_file if name == RUN_FILE else self / name
            if path.is_file():
                continue
            if name in {RUN_FILE, ORIGIN}:
                raise InvalidSetting(f"{self} has no {name}: it is not the folder of a run")
            if name != CHECKPOINT and os.path.isfile(self / CHECKPOINT):
                raise InvalidSetting(
                    f"{self} has no {name}: the run was stopped before it ended; continue with: "
                    f"{command('fdro', 'resume', self)}"
                )
            raise InvalidSetting(
                f"{self} has no {name}: the run ended before one was written; start again with "
                f"`{command('fdro', 'train', f'{self}/{self.run_file.name}', '--output', self, '--force')}`"
            )

    @property
    def run_file(self) -> Path:
        """The copy of the run file."""
        return self / RUN_FILE

    def origin(self) -> dict[str, Any]:
        """The folder of the original run file, and the versions in use."""
        return _read_object(self / ORIGIN, ORIGIN_FORM)

    def result(self) -> dict[str, Any]:
        """The numbers of the result."""
        return _read_object(self / RESULT, RESULT_FORM)

    def history(self, workers: int) -> list[dict[str, Any]]:
        """Reports and notices of a run with so many workers, in order."""
        return _read_entries(self / HISTORY, workers) if os.path.isfile(self / HISTORY) else []

    def write(self, numbers: dict[str, Any], arrays: dict[str, Any]) -> None:
        """Write the result; both files are on the disk before the first of them is replaced."""
        text = json.dumps(numbers, indent=1, allow_nan=False) + "\n"
        with files.replacing(self / ARRAYS) as file, files.replacing(self / RESULT) as result:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
            result.write(text.encode())


def check_different(folders: Sequence[RunFolder]) -> None:
    """Raise if one folder is given twice, whatever its spelling."""
    paths = [folder.path.resolve() for folder in folders]
    twice = next((folder for folder, path in zip(folders, paths, strict=True) if paths.count(path) > 1), None)
    if twice is not None:
        raise InvalidSetting(f"{twice} is given twice: name each run once")


Fault = str
Form = Callable[[Any, int], Fault]
"""What is wrong with a value, "" if nothing is; the second argument is the number of workers."""


def _form(words: str, good: Callable[[Any], bool]) -> Form:
    def check(value: Any, workers: int) -> Fault:
        return "" if good(value) else f" must be {words}, got {_shown(value)}"

    return check


def _is_number(value: Any) -> bool:
    if type(value) is int:
        return abs(value) <= LARGEST
    return type(value) is float and isfinite(value)


def _is_text(value: Any) -> bool:
    if type(value) is not str or len(value) > LONGEST_TEXT:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a character, which JSON can hold and no file
        return False
    return True


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST


def _is_any_number(value: Any) -> bool:
    return value is None or _is_number(value) or type(value) is float


TEXT = _form("a text", _is_text)
FLAG = _form("true or false", lambda value: type(value) is bool)
COUNT = _form("a whole number >= 0", _is_count)
NUMBER = _form("a finite number", _is_number)
KNOWN = _form("a finite number or null", lambda value: value is None or _is_number(value))
MEASURED = _form("a number", _is_any_number)  # of a history, whose losses may be NaN and infinite
SHARE = _form("a number in 0..1, or null", lambda v: v is None or (_is_number(v) and 0 <= v <= 1))
SHARE_OR_NAN = _form(
    "a number in 0..1, NaN or null",
    lambda v: v is None or (type(v) is float and isnan(v)) or (_is_number(v) and 0 <= v <= 1),
)
SIZE = _form("a number >= 0, or null", lambda v: v is None or (_is_number(v) and v >= 0))
PLAIN = _form(
    "a text, a number, true, false or null", lambda v: type(v) is bool or _is_any_number(v) or _is_text(v)
)
PATH = _form("a path", lambda value: _is_text(value) and "\0" not in value)


def worker(value: Any, workers: int) -> Fault:
    """The number of a worker."""
    good = _is_count(value) and value < workers
    return "" if good else f" must be a worker's number, 0..{workers - 1}, got {_shown(value)}"


def many(form: Form) -> Form:
    """A list."""

    def check(value: Any, workers: int) -> Fault:
        if type(value) is not list:
            return f" must be a list, got {_shown(value)}"
        return _first((f"[{place}]", form(each, workers)) for place, each in enumerate(value))

    return check


def by_worker(form: Form) -> Form:
    """A list with one entry for each worker."""

    def check(value: Any, workers: int) -> Fault:
        if type(value) is list and len(value) != workers:
            return f" has {len(value)} entries, and there are {workers} workers"
        return many(form)(value, workers)

    return check


def table(fields: Mapping[str, Form], rest: Form | None = None, optional: Mapping[str, Form] = {}) -> Form:
    """An object with these fields; `rest` is the form of all others, None if they do not matter."""

    def check(value: Any, workers: int) -> Fault:
        if type(value) is not dict:
            return f" must be an object, got {_shown(value)}"
        missing = next((name for name in fields if name not in value), None)
        if missing is not None:
            return f".{missing} is missing"
        known = {**optional, **fields}
        forms = ((name, known.get(name, rest)) for name in value)
        odd = next((name for name in value if not _is_text(name)), None)
        if odd is not None:
            return f" has a name that is no text: {_shown(odd)}"
        return _first((f".{name}", form(value[name], workers)) for name, form in forms if form is not None)

    return check


def maybe(form: Form) -> Form:
    """The form, or null."""
    return lambda value, workers: "" if value is None else form(value, workers)


def _first(found: Any) -> Fault:
    return next((f"{place[:SHOWN]}{fault}" for place, fault in found if fault), "")


def _shown(value: Any) -> str:
    if isinstance(value, list | dict):
        return f"a {'list' if isinstance(value, list) else 'object'}"
    if isinstance(value, int) and abs(value) > LARGEST:
        return f"a number of {value.bit_length()} bits"
    text = ascii(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


NAMED = table({"name": TEXT, "as": TEXT})

RESULT_FORM = table(
    {
        "stop_reason": TEXT,
        "proved": FLAG,
        "caveat": TEXT,
        "suspicious": table({}, rest=TEXT),
        **dict.fromkeys(("objective", "upper_bound", "gap", "optimality_gap", "stationarity"), KNOWN),
        **dict.fromkeys(("worst_loss", "worst_test_loss", "clock", "seconds"), KNOWN),
        **dict.fromkeys(("worst_test_accuracy", "mean_test_accuracy"), SHARE),
        **dict.fromkeys(("planes", "iterations", "gradients", "parameters"), COUNT),
        "set": NAMED,
        "engine": NAMED,
        "algorithm": table({"name": TEXT}, rest=PLAIN),
        "workers": many(
            table(
                {
                    "name": TEXT,
                    "samples": SIZE,
                    "test_samples": SIZE,
                    "loss": KNOWN,
                    "accuracy": SHARE,
                    "test_loss": KNOWN,
                    "test_accuracy": SHARE,
                    "prior": KNOWN,
                    "weight": KNOWN,
                }
            )
        ),
    },
    optional={
        "planned": COUNT,
        "privacy": maybe(table({"in_words": TEXT, "not_covered": TEXT})),
    },
)
"""`result.json`."""

ORIGIN_FORM = table({"folder": PATH, "fdro": TEXT, "python": TEXT, "numpy": TEXT, "platform": TEXT})
"""`origin.json`."""

MOMENT = {"event": TEXT, "iteration": COUNT, "clock": NUMBER}

REPORT_FORM = table(
    {
        **MOMENT,
        "objective": MEASURED,
        "losses": by_worker(MEASURED),
        **dict.fromkeys(("planes", "active_workers", "live_workers", "staleness"), COUNT),
        **dict.fromkeys(("bits_down", "bits_up"), COUNT),
    },
    optional={
        "weights": by_worker(MEASURED),
        "test_accuracy": by_worker(SHARE_OR_NAN),
        "test_loss": by_worker(MEASURED),
        **dict.fromkeys(("gradients", "bits_theorem_2", "bytes"), COUNT),
    },
)
LOSS = table({**MOMENT, "worker": worker, "reason": TEXT}, rest=PLAIN)
RETURN = table({**MOMENT, "worker": worker}, rest=PLAIN)
NOTICE = table(MOMENT, rest=PLAIN, optional={"worker": worker, "reason": TEXT, "traceback": TEXT})

ENTRIES: dict[str, Form] = {
    "report": REPORT_FORM,
    "worker-lost": LOSS,
    "worker-dropped": LOSS,
    "worker-back": RETURN,
}
"""The lines of `history.jsonl` by their event; those of any other event are notices."""


def _read_object(path: Path, form: Form) -> dict[str, Any]:
    """An object of that form; `InvalidData` for anything else."""
    content: dict[str, Any] = read_json(read_text(path), str(path))
    workers = content.get("workers") if isinstance(content, dict) else None
    _check(content, form, str(path), len(workers) if isinstance(workers, list) else 0)
    if isinstance(workers, list) and not workers:
        raise InvalidData(f"{path}: workers is empty")
    return content


def _read_entries(path: Path, workers: int) -> list[dict[str, Any]]:
    """The entries of a history; a last line that was cut short by a crash is left out."""
    text = read_text(path)
    lines = text.split("\n")
    whole, cut = lines[:-1], lines[-1]
    entries = [read_json(line, str(path), number) for number, line in enumerate(whole, start=1)]
    if cut:
        with suppress(InvalidData):
            entries.append(read_json(cut, str(path), len(lines)))
    for number, entry in enumerate(entries, start=1):
        event = entry.get("event") if isinstance(entry, dict) else None
        form = ENTRIES.get(event, NOTICE) if isinstance(event, str) else NOTICE
        _check(entry, form, f"{path}, line {number}", workers)
    return entries


def _check(content: Any, form: Form, origin: str, workers: int) -> None:
    fault = form(content, workers)
    if fault:
        raise InvalidData(f"{origin}: {fault.removeprefix('.').strip()}")
