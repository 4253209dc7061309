"""What the JSON files of a run folder hold: declared here, and checked here when they are read.

People edit these files, and disks damage them. Commands and pages get what is declared, or an error that
names file, line and entry; they check nothing themselves. What is not declared is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from math import isfinite, isnan
from pathlib import Path
from typing import Any

from fdro_core.cli.reading import read_json, read_text
from fdro_core.errors import InvalidData

LARGEST = 2**53  # of a count: beyond it a float has no whole numbers
LONGEST_TEXT = 1 << 22
SHOWN = 60

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

RESULT = table(
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

ORIGIN = table({"folder": PATH, "fdro": TEXT, "python": TEXT, "numpy": TEXT, "platform": TEXT})
"""`origin.json`."""

MOMENT = {"event": TEXT, "iteration": COUNT, "clock": NUMBER}

REPORT = table(
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
    "report": REPORT,
    "worker-lost": LOSS,
    "worker-dropped": LOSS,
    "worker-back": RETURN,
}
"""The lines of `history.jsonl` by their event; those of any other event are notices."""


def read_object(path: Path, form: Form) -> dict[str, Any]:
    """An object of that form; `InvalidData` for anything else."""
    content: dict[str, Any] = read_json(read_text(path), str(path))
    workers = content.get("workers") if isinstance(content, dict) else None
    _check(content, form, str(path), len(workers) if isinstance(workers, list) else 0)
    if isinstance(workers, list) and not workers:
        raise InvalidData(f"{path}: workers is empty")
    return content


def read_entries(path: Path, workers: int) -> list[dict[str, Any]]:
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
