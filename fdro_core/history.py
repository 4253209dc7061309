"""The history of a run: reports and notices, fewer of them if it is long, and how a checkpoint keeps them.

Up to `REPORTS` reports are all kept. Beyond that every second one is left out, then three of four, and so on,
so that those left are evenly spaced; the first and the last are always among them. Of `NOTICES` notices the
older half is left out, except those that a result is judged by. So a run of any length needs bounded memory.

In a checkpoint the reports are rows of one array. A row is made once, so a checkpoint after every report
costs the same at any time of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fdro_core.protocol.saved import Form, Kept, Saved, anything, listing, whole
from uncertainty_sets.arrays import Array

REPORTS = 4096  # a run of the default length has 1,500
NOTICES = 4096
LASTING = {"suspicious", "clipped", "contradiction", "worker-dropped", "budget-spent", "back-at-start"}
EXACT = 2**53  # whole numbers below that are the same as a float

Entry = dict[str, Any]
Layout = list[list[Any]]
"""Of every key of a report its name, its kind ("text", "whole", "number", "vector"), and its text or size."""


def _part(saved: Saved, name: str, value: Any) -> None:
    """One part of the layout of reports."""
    kinds = {"text": str, "whole": int, "number": int, "vector": int}
    if not (
        isinstance(value, list)
        and len(value) == 3
        and value[1] in kinds
        and type(value[0]) is str
        and type(value[2]) is kinds[value[1]]
    ):
        raise saved.error(name, "must be lists of a name, a kind and its text or size")


class History(Kept):
    """Reports and notices in order.

    Attributes:
        entries: those that are kept.
        count: reports so far.
        stride: of so many reports one is kept.
    """

    saved: ClassVar[Form] = {
        "count": whole(),
        "stride": whole(1),
        "layout": listing("", _part),
        "rows": anything,
        "others": listing(),
    }

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.count = 0
        self.stride = 1
        self._numbers: list[int] = []  # of each entry: its number among all reports from 0, -1 for a notice
        self._last = -1  # the place of the last report
        self._notices = 0
        self._forget_rows()

    def _forget_rows(self) -> None:
        self._packed = 0  # so many entries are rows, or among the others
        self._layout: Layout = []
        self._rows = np.empty((0, 0))
        self._used = 0
        self._others: list[list[Any]] = []  # [place, entry]

    def add(self, entry: Entry) -> None:
        """Add a report or notice; another may be left out for it."""
        number = -1
        if entry["event"] == "report":
            if self._last >= 0 and self._numbers[self._last] % self.stride:
                del self.entries[self._last], self._numbers[self._last]
            number, self._last = self.count, len(self.entries)
            self.count += 1
        else:
            self._notices += 1
        self.entries.append(entry)
        self._numbers.append(number)
        if len(self.entries) - self._notices > REPORTS:
            self.stride *= 2
            self._leave_out(
                {k for k, n in enumerate(self._numbers) if n > 0 and n % self.stride} - {self._last}
            )
        if self._notices > NOTICES:
            old = [k for k, n in enumerate(self._numbers) if n < 0][: NOTICES // 2]
            self._leave_out({k for k in old if self.entries[k]["event"] not in LASTING})

    def _leave_out(self, places: set[int]) -> None:
        left = [k for k in range(len(self.entries)) if k not in places]
        self.entries[:] = [self.entries[k] for k in left]
        self._numbers = [self._numbers[k] for k in left]
        self._notices = sum(number < 0 for number in self._numbers)
        self._last = max((k for k, number in enumerate(self._numbers) if number >= 0), default=-1)
        self._forget_rows()

    # -- checkpoints ----------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The history as one array of numbers, and what does not fit in it."""
        for place in range(self._packed, max(self._last, 0)):  # the last may still change, or be left out
            self._pack(place)
        tail = [[place, self.entries[place]] for place in range(self._packed, len(self.entries))]
        return {
            "count": self.count,
            "stride": self.stride,
            "layout": self._layout,
            "rows": self._rows[: self._used],
            "others": self._others + tail,
        }

    def _pack(self, place: int) -> None:
        entry = self.entries[place]
        if not self._layout and entry["event"] == "report":
            self._layout = _layout(entry)
            self._rows = np.empty((64, _width(self._layout)))
        row = _row(entry, self._layout)
        if row is None:
            self._others.append([place, entry])
        else:
            if self._used == len(self._rows):
                self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
            self._rows[self._used] = row
            self._used += 1
        self._packed = place + 1

    @classmethod
    def check_saved(cls, saved: Saved, name: str, value: Any) -> None:
        """Check that rows and other entries make up a history."""
        super().check_saved(saved, name, value)
        layout, rows, others = value["layout"], value["rows"], value["others"]
        if not isinstance(rows, np.ndarray) or rows.dtype != np.float64 or rows.ndim != 2:
            raise saved.error(f"{name}.rows", "must be an array of reports by columns of float64")
        if len(rows) and rows.shape[1] != _width(layout):
            raise saved.error(
                f"{name}.rows", f"has {rows.shape[1]} columns where {_width(layout)} are needed"
            )
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in others):
            raise saved.error(f"{name}.others", "must be pairs of a place and an entry")
        places, total = [place for place, _ in others], len(rows) + len(others)
        known = all(type(place) is int and 0 <= place < total for place in places)
        if not known or len(set(places)) < len(places):
            raise saved.error(f"{name}.others", f"must name places below {total}, each once")
        if not all(isinstance(entry, Mapping) and "event" in entry for _, entry in others):
            raise saved.error(f"{name}.others", "must hold dicts, each with its event")
        if len(rows) and ["event", "text", "report"] not in layout:
            raise saved.error(f"{name}.layout", "must be one of reports")

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> History:
        """The history of a snapshot."""
        history = cls()
        rows = [_entry(row, state["layout"]) for row in state["rows"]]
        others = dict(state["others"])
        following = iter(rows)
        for place in range(len(rows) + len(others)):
            history.entries.append(others[place] if place in others else next(following))
        history.count, history.stride = state["count"], state["stride"]
        number = 0
        for entry in history.entries:
            report = entry["event"] == "report"
            history._numbers.append(number if report else -1)
            number += history.stride if report else 0
        history._notices = sum(n < 0 for n in history._numbers)
        history._last = max((k for k, n in enumerate(history._numbers) if n >= 0), default=-1)
        if history._last >= 0:
            history._numbers[history._last] = history.count - 1
        return history


def largest_loss(state: Mapping[str, Any]) -> float:
    """The largest |f_j| in the reports of a snapshot, 0 without any."""
    found, at = 0.0, 0
    for name, _, size in state["layout"]:
        width = size if isinstance(size, int) else 0
        if name == "losses":
            found = float(np.abs(state["rows"][:, at : at + width]).max(initial=0.0))
        at += width
    return max(
        [found, *(float(np.abs(entry["losses"]).max()) for _, entry in state["others"] if "losses" in entry)]
    )


def _layout(entry: Entry) -> Layout:
    """What a row is made of, for reports like this one; [] if it has other things than numbers."""
    layout: Layout = []
    for name, value in entry.items():
        kind = _kind(value)
        if not kind:
            return []
        layout.append([name, kind, value if kind == "text" else len(value) if kind == "vector" else 1])
    return layout


def _kind(value: Any) -> str:
    if type(value) is str:
        return "text"
    if type(value) is int:
        return "whole" if abs(value) < EXACT else ""
    if type(value) is float:
        return "number"
    plain = isinstance(value, np.ndarray) and value.dtype == np.float64 and value.ndim == 1
    return "vector" if plain else ""


def _width(layout: Layout) -> int:
    return sum(size for _, kind, size in layout if kind != "text")


def _row(entry: Entry, layout: Layout) -> Array | None:
    """The numbers of a report in the order of the layout, None if it is not like the others."""
    if _layout(entry) != layout or not layout:
        return None
    parts = [np.atleast_1d(entry[name]) for name, kind, _ in layout if kind != "text"]
    return np.concatenate(parts, dtype=np.float64)


def _entry(row: Array, layout: Layout) -> Entry:
    """The report of a row."""
    entry: Entry = {}
    at = 0
    for name, kind, size in layout:
        if kind == "text":
            entry[name] = size
            continue
        part = row[at : at + size]
        entry[name] = part.copy() if kind == "vector" else int(part[0]) if kind == "whole" else float(part[0])
        at += size
    return entry
