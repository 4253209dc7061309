"""Check a checkpoint's state before it is restored: what must be there, shapes, ranges, sums.

The digest finds damage to a file as it was written. This finds what was wrong before, or was changed on
purpose. States of other algorithms and engines than fdro's are not checked.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from math import isfinite, isnan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.errors import CheckpointDamaged, CheckpointMismatch, CheckpointWarning
from fdro_core.history import largest_loss
from fdro_core.protocol.forms import LARGEST, LARGEST_INT, LARGEST_SQ

SQUARES = ("_sq", "squares")  # in the names of what may be as large as squares are
AGREE = 1e-6  # of what was summed: running sums lose a few digits to rounding in a long run, not ten
ROSTER_LISTS: Mapping[str, type] = {
    "alive": bool,
    **dict.fromkeys(("tickets", "sent_in", "visited", "bad"), int),
    **dict.fromkeys(("sent_at", "delays", "mean_interval", "patience", "limits"), float),
}
"""What the roster keeps of each worker."""

OF_SOME_ROUNDS = {
    **dict.fromkeys(
        (f"master.state.{name}" for name in ("marked", "squares", "average", "metric", "moved")), "p"
    ),
    "master.state.controls": "N p",
    "master.state.earlier": "N",
    "master.job.control": "p",
}
"""The shapes of what a method in rounds may keep: None or absent if it does not."""

LEAST = {"master.state.squares": 0.0, "master.state.metric": np.finfo(np.float64).tiny}


class Saved:
    """A state by dotted names, with errors that name the file and the entry.

    Attributes:
        sizes: what the letters of shapes stand for: N, the number of workers, is given; any other letter
            gets the first size that is found for it.
    """

    def __init__(
        self, path: str | Path, state: Mapping[str, Any], sizes: dict[str, int], force: bool
    ) -> None:
        self.path = path
        self.state = state
        self.sizes = sizes
        self.force = force

    def error(self, name: str, words: str) -> CheckpointDamaged:
        """The error for a wrong entry."""
        return CheckpointDamaged(f"{self.path} is not a sound checkpoint: {name} {words}")

    def agree(self, name: str, off: float, scale: float, words: str) -> None:
        """Refuse a sum that is off by more than rounding; with `force`, warn."""
        if off <= AGREE * scale:
            return
        error = self.error(name, words)
        if not self.force:
            raise error
        warnings.warn(str(error), CheckpointWarning, stacklevel=6)

    def get(self, name: str) -> Any:
        """An entry."""
        value: Any = self.state
        for key in name.split("."):
            if not isinstance(value, Mapping) or key not in value:
                raise self.error(name, "is missing")
            value = value[key]
        return value

    def count(self, name: str, least: int = 0) -> int:
        """A whole number."""
        value = self.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.error(name, f"must be a whole number >= {least}, got {value!r:.80}")
        if value > LARGEST_INT:
            raise self.error(name, f"is a number of {value.bit_length()} bits, which no count is")
        return value

    def number(self, name: str, above: float = -np.inf) -> float:
        """A finite number."""
        value = self.get(name)
        if not _is_finite(value) or not value > above:
            bound = "" if above == -np.inf else f" > {above:g}"
            raise self.error(name, f"must be a finite number{bound}, got {value!r:.80}")
        return float(value)

    def array(self, name: str, *shape: str, value: Any = None) -> NDArray[np.float64]:
        """An array of finite numbers with that shape."""
        array = self.get(name) if value is None else value
        if not isinstance(array, np.ndarray) or array.dtype != np.float64 or array.ndim != len(shape):
            raise self.error(name, f"must be an array ({', '.join(shape)}) of float64")
        for letter, size in zip(shape, array.shape, strict=True):
            if self.sizes.setdefault(letter, size) != size:
                raise self.error(name, f"has {size} entries where {letter} is {self.sizes[letter]}")
        if not np.isfinite(array).all():
            raise self.error(name, "holds NaN or infinity")
        most = LARGEST_SQ if name.endswith(SQUARES) else LARGEST
        if array.size and np.abs(array).max() > most:
            raise self.error(name, f"holds numbers beyond {most:g}, with which no run can go on")
        return array

    def listing(self, name: str, length: str | None = None) -> list[Any]:
        """A list, of a length if one is given."""
        value = self.get(name)
        if not isinstance(value, list):
            raise self.error(name, f"must be a list, got a {type(value).__name__}")
        if length is not None and len(value) != self.sizes[length]:
            raise self.error(name, f"has {len(value)} entries where {length} is {self.sizes[length]}")
        return value

    def entries(self, name: str, values: list[Any], kind: type) -> None:
        """Check that all values are of one kind, for float: numbers that are not NaN."""
        for value in values:
            good = type(value) is kind or (kind is float and type(value) is int)
            if not good or isnan(value) or (type(value) is int and abs(value) > LARGEST_INT):
                raise self.error(name, f"holds {value!r:.40}, where every entry is a {kind.__name__}")

    def floats(self, name: str, value: Any) -> None:
        """Check that every array in a part is of float64, as kernels take them."""
        if isinstance(value, np.ndarray) and value.dtype != np.float64:
            raise self.error(name, f"holds an array of {value.dtype}, and float64 is needed")
        for part in value.values() if isinstance(value, Mapping) else []:
            self.floats(name, part)
        for part in value if isinstance(value, list | tuple) else []:
            self.floats(name, part)

    def workers(self, name: str, among: list[Any] | None = None) -> None:
        """Check that a list names existing workers."""
        for j in self.listing(name) if among is None else among:
            if type(j) is not int or not 0 <= j < self.sizes["N"]:
                raise self.error(name, f"names a worker {j!r}; there are 0..{self.sizes['N'] - 1}")


def _is_finite(value: Any) -> bool:
    """Whether it is a finite number, and no whole number beyond what a float holds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= LARGEST_SQ


def check(
    path: str | Path, state: Mapping[str, Any], workers: int, dimensions: set[int], *, force: bool
) -> None:
    """Refuse a state that does not fit the number of workers, or that contradicts itself.

    With `force`, sums that do not agree are accepted with a warning.
    """
    saved = Saved(path, state, {"N": workers}, force)
    for part in ("master", "engine"):
        if not isinstance(saved.get(part), Mapping):
            raise saved.error(part, "must be a dict")
    _history(saved)
    master, engine = saved.get("master"), saved.get("engine")
    form = next((FORMS[key] for key in FORMS if key in master), None)
    if form is None:
        return
    model, check_form = form
    saved.floats("master", master)
    _counts(saved)
    size = saved.array(model, "p").size
    if dimensions and dimensions != {size}:
        here = ", ".join(map(str, sorted(dimensions)))
        raise CheckpointMismatch(f"the model of {path} has {size} parameters and the problems have {here}")
    _roster(saved)
    _outliers(saved)
    check_form(saved)
    if "events" in engine:
        _virtual(saved)
    elif "memory" in engine:
        saved.listing("engine.memory.pasts", "N")
        saved.listing("engine.memory.under_way", "N")
        saved.workers("engine.away")
        saved.number("engine.clock")


def _history(saved: Saved) -> None:
    for name in ("count", "stride"):
        saved.count(f"history.{name}", least=int(name == "stride"))
    layout = saved.listing("history.layout")
    kinds = {"text": str, "whole": int, "number": int, "vector": int}
    if not all(
        isinstance(part, list)
        and len(part) == 3
        and part[1] in kinds
        and type(part[0]) is str
        and type(part[2]) is kinds[part[1]]
        for part in layout
    ):
        raise saved.error("history.layout", "must be lists of a name, a kind and its text or size")
    rows = saved.get("history.rows")
    if not isinstance(rows, np.ndarray) or rows.dtype != np.float64 or rows.ndim != 2:
        raise saved.error("history.rows", "must be an array of reports by columns of float64")
    width = sum(size for _, kind, size in layout if kind != "text")
    if len(rows) and rows.shape[1] != width:
        raise saved.error("history.rows", f"has {rows.shape[1]} columns where {width} are needed")
    others = saved.listing("history.others")
    total = len(rows) + len(others)
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in others):
        raise saved.error("history.others", "must be pairs of a place and an entry")
    places = [place for place, _ in others]
    if not all(type(place) is int and 0 <= place < total for place in places) or len(set(places)) < len(
        places
    ):
        raise saved.error("history.others", f"must name places below {total}, each once")
    if not all(isinstance(entry, Mapping) and "event" in entry for _, entry in others):
        raise saved.error("history.others", "must hold dicts, each with its event")
    if len(rows) and ["event", "text", "report"] not in layout:
        raise saved.error("history.layout", "must be one of reports")


def _counts(saved: Saved) -> None:
    for name in ("iteration", "sent", "received", "gradients", "next_report"):
        saved.count(f"master.{name}")
    saved.number("master.time")
    saved.listing("master.notices")


def _roster(saved: Saved) -> None:
    known = len(saved.listing("master.roster.alive"))
    if known != saved.sizes["N"]:
        raise CheckpointMismatch(
            f"the checkpoint has {known} workers and there are {saved.sizes['N']} problems: give the same "
            "problems and algorithm as the first time"
        )
    for name, kind in ROSTER_LISTS.items():
        saved.entries(f"master.roster.{name}", saved.listing(f"master.roster.{name}", "N"), kind)
    for name in () if "job" in saved.get("master") else ("sent_in", "visited"):  # rounds count their phases
        latest, now = max(saved.get(f"master.roster.{name}")), saved.get("master.iteration")
        if latest > now:
            raise saved.error(f"master.roster.{name}", f"has iteration {latest}, and the run is at {now}")
    for name in ("dropped", "under_way"):
        saved.workers(f"master.roster.{name}")
    for name in ("pending", "asked"):
        pairs = saved.listing(f"master.roster.{name}")
        saved.workers(f"master.roster.{name}", [pair[0] for pair in pairs])
    asked = saved.listing("master.roster.asked")
    saved.entries("master.roster.asked", [number for pair in asked for number in pair], int)
    for time, *rest in saved.listing("master.roster.retries"):
        saved.entries("master.roster.retries", [time], float)
        saved.entries("master.roster.retries", rest, int)
        saved.workers("master.roster.retries", rest[:1])
    live, alive = saved.count("master.roster.live"), sum(saved.get("master.roster.alive"))
    if live != alive:
        raise saved.error("master.roster.live", f"is {live}, and {alive} workers are alive")
    if saved.get("master.roster.look_at") is not None:
        saved.number("master.roster.look_at")
    saved.workers("master.roster.expected")
    saved.count("master.roster.active", least=1)
    saved.count("master.roster.stalest")
    busy = {*saved.get("master.roster.under_way"), *(pair[0] for pair in saved.get("master.roster.pending"))}
    resting = set(_resting(saved))
    alive_ones = [j for j, lives in enumerate(saved.get("master.roster.alive")) if lives]
    idle = [j for j in alive_ones if j not in busy | (resting if busy else set())]
    everyone = "job" not in saved.get("master")  # in rounds a worker may be left out
    if idle and (everyone or not busy):
        raise saved.error("master.roster.under_way", f"leaves out workers {idle}, who would wait forever")


def _resting(saved: Saved) -> list[int]:
    """The workers that rest, of `AspireModels` with mini-batches."""
    if "resting" not in saved.get("master"):
        return []
    workers = [pair[0] for pair in saved.listing("master.resting")]
    saved.workers("master.resting", workers)
    return workers


def _outliers(saved: Saved) -> None:
    saved.array("master.outliers.books", "N", "columns of books")
    for name in ("scale", "baseline"):
        saved.number(f"master.outliers.{name}")
    saved.workers("master.outliers.told")


def _aspire(saved: Saved) -> None:
    saved.array("master.weights", "N")
    saved.count("master.theorem_numbers")
    duals = saved.array("master.consensus.U", "N", "p")
    total = saved.array("master.consensus.total", "p")
    if not (saved.array("master.consensus.metric", "p") > 0).all():
        raise saved.error("master.consensus.metric", "must be > 0")
    penalty = saved.number("master.consensus.penalty", above=0.0)
    points = saved.listing("master.consensus.w", "N")
    for w in points:
        saved.array("master.consensus.w", "p", value=w)
    live = saved.count("master.consensus.live")
    if live != saved.get("master.roster.live"):
        raise saved.error(
            "master.consensus.live", f"is {live}, and the roster's {saved.get('master.roster.live')}"
        )
    alive = np.asarray(saved.get("master.roster.alive"), dtype=bool)
    parts = np.asarray(points)[alive] - duals[alive] / penalty
    off = np.abs(parts.sum(axis=0) - total).max(initial=0.0)
    # At least 1: a model that is at 0 now was elsewhere when its sum was rounded.
    scale = max(1.0, np.abs(parts).sum(axis=0).max(initial=0.0))
    saved.agree("master.consensus.total", off, scale, "is not the sum of what the workers sent")
    _adversary(saved)


def _adversary(saved: Saved) -> None:
    at = "master.adversary"
    for name in ("losses", "gradient_sq", "curvature"):
        saved.array(f"{at}.{name}", "N")
    for name in ("value", "objective", "step", "caution"):
        saved.number(f"{at}.{name}")
    saved.array(f"{at}.stiffness", "stiffness", "stiffness")
    _plane_losses(saved, f"{at}.losses", f"{at}.planes", _planes(saved, f"{at}.planes"))


def _planes(saved: Saved, at: str) -> NDArray[np.float64]:
    """Check the planes; the active ones, (N, |A|)."""
    table = saved.array(f"{at}.table", "N", "capacity")
    for name in ("_multipliers", "_previous", "_losses"):
        saved.array(f"{at}.{name}", "capacity")
    saved.array(f"{at}.dropped", "dropped", "N")
    for name in ("peak", "added", "returned", "limit"):
        saved.count(f"{at}.{name}")
    if not isinstance(saved.get(f"{at}.keep_all"), bool):
        raise saved.error(f"{at}.keep_all", "must be true or false")
    size = saved.count(f"{at}.size", least=1)
    if size > saved.sizes["capacity"]:
        raise saved.error(f"{at}.size", f"is {size}, with room for {saved.sizes['capacity']}")
    if saved.get(f"{at}.kept") is not None:
        saved.listing(f"{at}.kept", "N")
        saved.array(f"{at}.whole", "N", "capacity")
    planes = table[:, :size]
    if np.abs(planes.sum(axis=0) - 1.0).max() > AGREE or planes.min() < -AGREE:
        raise saved.error(f"{at}.table", "holds a plane that is not a distribution")
    return planes


def _plane_losses(saved: Saved, name: str, at: str, planes: NDArray[np.float64]) -> None:
    """Check P·f against the workers' losses."""
    losses = saved.get(name)
    off = np.abs(losses @ planes - saved.get(f"{at}._losses")[: planes.shape[1]]).max()
    scale = max(np.abs(losses).max(), largest_loss(saved.get("history")), 1.0)  # as large as they were
    saved.agree(f"{at}._losses", off, scale, "do not agree with the planes and the workers' losses")


def _models(saved: Saved) -> None:
    """Check `AspireModels`; these check their shapes themselves."""
    at = "master.models"
    numbers = (
        "objective",
        "value",
        *(f"convergence.{name}" for name in ("epochs", "highest", "scale", "size", "floor")),
    )
    for name in numbers:
        saved.number(f"master.{name}")
    if not isinstance(saved.get("master.violation"), float) or not saved.get("master.violation") >= 0.0:
        raise saved.error("master.violation", f"must be a number >= 0, got {saved.get('master.violation')!r}")
    for record in saved.listing("master.convergence.records"):
        if not isinstance(record, list) or len(record) != 2 or not np.isfinite(record).all():
            raise saved.error("master.convergence.records", f"must be pairs of numbers, got {record!r}")
    if not (saved.array("master.metric", "p") > 0).all():
        raise saved.error("master.metric", "must be > 0")
    for name in ("master.sent_points", f"{at}.X", f"{at}.G"):
        saved.array(name, "N", "p")
    _claims(saved)
    for name in ("master.reach", f"{at}.losses"):
        saved.array(name, "N")
    planes = _planes(saved, "master.planes")
    multipliers = saved.get("master.planes._multipliers")[: planes.shape[1]]
    if abs(multipliers.sum() - 1.0) > AGREE or multipliers.min() < 0.0:
        raise saved.error("master.planes._multipliers", "is not a distribution")
    saved.sizes["planes"] = planes.shape[1]
    if "curvature" in saved.get(at):  # full batches
        curvature = saved.array(f"{at}.curvature", "N")
        if not (curvature > 0).all():
            raise saved.error(f"{at}.curvature", "must be > 0")
        off = np.abs(curvature @ planes - saved.array(f"{at}.C", "planes")).max()
        words = "do not agree with the planes and the workers' curvatures"
        saved.agree(f"{at}.C", off, curvature.max(), words)
    else:
        _plane_losses(saved, f"{at}.losses", "master.planes", planes)


def _claims(saved: Saved) -> None:
    """Check what the end of a run is judged by."""
    saved.array("master.start_point", "p")
    begun = saved.get("master.start_losses")
    if not isinstance(begun, np.ndarray) or begun.shape != (saved.sizes["N"],) or np.isinf(begun).any():
        raise saved.error("master.start_losses", "must be a number or NaN for every worker")
    if not isinstance(saved.get("master.start_objective"), float) or np.isnan(
        saved.get("master.start_objective")
    ):
        raise saved.error("master.start_objective", "must be a number")
    left = saved.get("master.convergence.left")
    if not isinstance(left, float) or not left >= 0.0:
        raise saved.error("master.convergence.left", f"must be a number >= 0, got {left!r}")


def _rounds(saved: Saved) -> None:
    for name in ("weights", "prior", "shares", "losses"):
        saved.array(f"master.state.{name}", "N")
    for name in ("weights", "prior", "shares"):
        values = saved.get(f"master.state.{name}")
        if abs(values.sum() - 1.0) > AGREE or values.min() < -AGREE:
            raise saved.error(f"master.state.{name}", "is not a distribution")
    for name, shape in OF_SOME_ROUNDS.items():
        part, _, key = name.rpartition(".")
        if saved.get(part).get(key) is not None:
            values = saved.array(name, *shape.split())
            if name in LEAST and not values.min() >= LEAST[name]:
                raise saved.error(name, f"must be >= {LEAST[name]:g}")
    if saved.get("master.job").get("control") is not None:
        saved.array("master.state.controls", "N", "p")
    saved.number("master.state.step", above=0.0)
    saved.workers("master.job.workers")
    for name in ("steps", "mark"):
        saved.count(f"master.job.{name}")
    counts, drawn = saved.listing("master.job.counts"), saved.get("master.job.workers")
    if len(counts) != len(drawn) and (counts or saved.get("master.job.mark")):
        raise saved.error("master.job.counts", f"has {len(counts)} entries for {len(drawn)} workers")
    saved.count("master.phase")
    saved.count("master.opened")
    if (
        saved.get("master.roster.look_at") is not None
    ):  # a round has no delays to look at, and would tick for ever
        raise saved.error("master.roster.look_at", "must be None in rounds")


def _arrivals(saved: Saved) -> None:
    """Check an asynchronous baseline; what the method remembers is checked number by number."""
    saved.array("master.state.losses", "N")
    weights = saved.array("master.state.weights", "N")
    if abs(weights.sum() - 1.0) > AGREE or weights.min() < -AGREE:
        raise saved.error("master.state.weights", "is not a distribution")
    for name in ("squares", "average", "moved"):  # None if the method does not use them
        kept = saved.get(f"master.state.{name}")
        if kept is not None and saved.array(f"master.state.{name}", "p").min() < 0 and name == "squares":
            raise saved.error("master.state.squares", "must be >= 0")
    saved.number("master.state.step", above=0.0)
    pairs = saved.listing("master.dispatched")
    saved.workers("master.dispatched", [pair[0] for pair in pairs])
    busy = {*saved.get("master.roster.under_way"), *(pair[0] for pair in saved.get("master.roster.pending"))}
    unknown = busy - {pair[0] for pair in pairs}
    if unknown:
        raise saved.error("master.dispatched", f"leaves out workers {sorted(unknown)}, which are under way")
    for _, message in pairs:
        saved.array("master.dispatched' w", "p", value=message["w"])
    _memory(saved, "master.state.memory", saved.get("master.state.memory"))


def _memory(saved: Saved, name: str, value: Any) -> None:
    """Check that vectors have p entries, and numbers are finite."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            _memory(saved, f"{name}.{key}", part)
    elif isinstance(value, np.ndarray):
        saved.array(name, "p", value=value)
    elif isinstance(value, int | float) and not isfinite(value):
        raise saved.error(name, f"must be a finite number, got {value!r}")


def _virtual(saved: Saved) -> None:
    saved.number("engine.clock")
    saved.count("engine.order")
    for name in ("life", "away", "workers"):
        saved.listing(f"engine.{name}", "N")
    for event in saved.listing("engine.events"):
        if not isinstance(event, list) or len(event) != 6 or not isfinite(event[0]):
            raise saved.error("engine.events", "must be lists of six: a time, and what happens then")
        saved.workers("engine.events", [event[3]])
    for worker in saved.get("engine.workers"):
        if isinstance(worker, Mapping):
            for name in {"w", "gradient", "metric", "inverse"} & worker.keys():
                saved.array(f"engine.workers' {name}", "p", value=worker[name])


FORMS: Mapping[str, tuple[str, Callable[[Saved], None]]] = {
    "consensus": ("master.consensus.z", _aspire),
    "models": ("master.models.z", _models),
    "job": ("master.state.w", _rounds),
    "dispatched": ("master.state.w", _arrivals),
}
"""By a part that only its master has: where a form's model is, and what checks the rest of its state."""
