"""The samples of a run, [data] of its file: built in, or from a file or function; split by worker."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.cli.reading import Table, read_npz, read_text
from fdro_core.cli.runs.columns import DROP, MEAN, REFUSE, Column, Preparation, is_gap, read_features
from fdro_core.cli.written import load_reference
from fdro_core.errors import InvalidData
from fdro_core.problems.samples import load_digits, make_hospitals
from uncertainty_sets.arrays import Array
from uncertainty_sets.registry import instead, is_reference, nearest

if TYPE_CHECKING:
    from fdro_core.cli.runs.fields import Section

Labels = NDArray[Any]

TABLES = (".csv", ".tsv", ".txt")
OTHER_TABLES = (".xlsx", ".xls", ".ods", ".parquet", ".feather", ".json", ".sav", ".dta")
DIGITS, HOSPITALS = "digits", "hospitals"


@dataclass(frozen=True)
class Samples:
    """All samples, before they are split by worker: features, labels as given, and the worker of each.

    `columns` is what is known of a table's features, `dropped` how many of a worker's rows were left out.
    Samples that are not sound stand for a table with mistakes; only the workers are as they are there.
    """

    X: Array
    y: Labels
    worker: Labels
    columns: list[Column] | None = None
    dropped: dict[str, int] = field(default_factory=dict)
    sound: bool = True


@dataclass(frozen=True)
class WorkerData:
    """One worker's samples: those to train on, and those held out for tests."""

    name: str
    X: Array
    y: Labels
    X_test: Array
    y_test: Labels


@dataclass(frozen=True)
class Data:
    """Every worker's samples, and what was learnt from those to train on."""

    workers: list[WorkerData]
    preparation: Preparation
    sound: bool = True


def load_data(section: Section, folder: Path) -> Data | list[Any]:
    """Load what [data] describes: samples split by worker, or the problems that a user's function made."""
    where = section.read("source", str)
    fraction = section.read("test_fraction", float, 0.25)
    seed = section.read("seed", int, 0)
    if not 0 <= fraction < 1:
        message = f"must be in [0, 1): the share of samples held out, got {fraction}"
        section.source.note(section.error(message, "test_fraction"))
        fraction = 0.0
    if seed < 0:
        section.source.note(section.error(f"must be a whole number >= 0, got {seed}", "seed"))
        seed = 0
    if is_reference(where):
        arguments = section.read("arguments", dict, {})
        standardise = section.read("standardise", bool, False)
        section.finish()
        with section.at("source"):
            samples = _from_function(where, arguments, folder)
        if not isinstance(samples, Samples):
            return samples
    elif where in {DIGITS, HOSPITALS}:
        standardise = section.read("standardise", bool, False)
        section.finish()
        samples = digits() if where == DIGITS else Samples(*make_hospitals(seed))
    else:
        standardise = section.read("standardise", bool, True)
        samples = _from_file(section, where, folder)
        section.finish()
    return split_by_worker(samples, fraction, seed, standardise)


def digits() -> Samples:
    """scikit-learn's 1,797 images of 8×8 pixels in [0, 1], one digit per worker."""
    pixels, labels = load_digits()
    return Samples(pixels, labels, labels)


def split_by_worker(samples: Samples, fraction: float, seed: int, standardise: bool) -> Data:
    """Split samples by worker, and hold out a random share of each worker's for tests."""
    rng = np.random.default_rng(seed)
    workers = []
    names, owner = np.unique(samples.worker, return_inverse=True)
    for j, name in enumerate(names):
        mine = rng.permutation(np.flatnonzero(owner == j))
        kept = min(round(fraction * len(mine)), len(mine) - 1)
        test, train = np.sort(mine[:kept]), np.sort(mine[kept:])
        workers.append(
            WorkerData(
                worker_name(name), samples.X[train], samples.y[train], samples.X[test], samples.y[test]
            )
        )
    columns = samples.columns or [Column("") for _ in range(samples.X.shape[1])]
    gaps = np.flatnonzero(np.isnan(samples.X).any(axis=0))
    learnt = Preparation.learn(columns, [worker.X for worker in workers], gaps, standardise, samples.dropped)
    prepared = [WorkerData(w.name, learnt.apply(w.X), w.y, learnt.apply(w.X_test), w.y_test) for w in workers]
    return Data(prepared, learnt, samples.sound)


def worker_name(given: Any) -> str:
    """A worker's name as it is shown.

    >>> worker_name(3.0), worker_name("north")
    ('3', 'north')
    """
    return f"{given:g}" if isinstance(given, float) else str(given)


def _from_file(section: Section, where: str, folder: Path) -> Samples:
    path = Path(_shown(folder / where))
    if path.suffix not in {*TABLES, ".npz"}:
        hint = nearest(where, [DIGITS, HOSPITALS]) or "."
        if path.suffix in OTHER_TABLES:
            hint = ": save that as CSV UTF-8, or read it in a function"
        raise section.error(
            f'must be "{DIGITS}", "{HOSPITALS}", a file (.csv, .tsv, .txt, .npz) or "module:function", got '
            f"{path.name!r}{hint}",
            "source",
        )
    worker = section.read("worker", str, "worker")
    label = section.read("label", str, "label" if path.suffix in TABLES else "y")
    if path.suffix == ".npz":
        return _from_npz(section, path, worker, label, section.read("features", str, "X"))
    with section.at("source"):
        text = read_text(path)
    return _from_table(section, Table(text, str(path)), worker, label)


def _from_table(section: Section, table: Table, worker: str, label: str) -> Samples:
    """Samples of a table; all its mistakes are noted."""
    features = section.read("features", list, None)
    categorical = section.read("categorical", list, [])
    missing = section.choice("missing", [REFUSE, MEAN, DROP], REFUSE)
    meant = {key: _meant(section, table, key, name) for key, name in (("worker", worker), ("label", label))}
    sound = meant == {"worker": worker, "label": label}
    worker, label = meant.values()
    chosen = [n for n in table.names() if n not in {worker, label}] if features is None else features
    _check_columns(section, table, {worker: "the worker", label: "the label"}, chosen, categorical)
    read, mistakes = read_features(table, chosen, categorical, missing)
    if not all(map(section.sound, ("features", "categorical", "missing"))):
        mistakes, sound = [], False  # cells may be right once those are
    if unclear := table.unclear(label):
        mistakes.append(InvalidData(unclear))
    owners, labels = table.text(worker), table.text(label)
    kept = np.ones(len(owners), dtype=np.bool_)
    if missing == DROP:
        known = [not is_gap(owner) and not is_gap(given) for owner, given in zip(owners, labels, strict=True)]
        kept = read.complete() & known
    else:
        mistakes += [each for name in (worker, label) if (each := table.first_gap(name, is_gap))]
    for mistake in mistakes:
        section.source.note(mistake)
    if mistakes or not sound:
        nothing = np.zeros((len(owners), 1))
        return Samples(nothing, nothing[:, 0], table.labels(worker), sound=False)
    lost = [owner for owner, stays in zip(owners, kept, strict=True) if not stays]
    gone = sorted(set(lost) - {owner for owner, stays in zip(owners, kept, strict=True) if stays})
    if gone and not all(map(is_gap, gone)):
        raise section.error(
            f'worker {gone[-1]!r} has no row without a gap: missing = "mean" keeps them', "missing"
        )
    dropped = {owner: lost.count(owner) for owner in sorted(set(lost))}
    return Samples(
        read.matrix[kept], table.labels(label, kept), table.labels(worker, kept), read.columns, dropped
    )


def _meant(section: Section, table: Table, key: str, name: str) -> str:
    """The column of that name; if there is none, which is noted, the nearest, to find more mistakes."""
    if name not in table.names() and (close := get_close_matches(name, table.names(), n=1)):
        section.source.note(
            section.error(
                f"{table.origin} has no column {name!r}{instead(name, table.names(), 'It has')}", key
            )
        )
        return close[0]
    with section.at(key):
        table.place(name)
    return name


def _check_columns(
    section: Section, table: Table, taken: dict[str, str], chosen: list[Any], categorical: list[Any]
) -> None:
    """Raise for columns that do not exist or cannot be features."""
    if not chosen:
        raise section.error(
            f"{table.origin} has no column beside {' and '.join(taken)} to learn from", "source"
        )
    for key, names in (("features", chosen), ("categorical", categorical)):
        for name in names:
            with section.at(key):
                table.place(str(name))
            if name in taken or name not in chosen:
                raise section.error(f"column {name!r} is {taken.get(name, 'not among `features`')}", key)
    if "" in chosen:
        raise InvalidData(
            f"{table.origin}: column {table.names().index('') + 1} has no name, like the row numbers that "
            "pandas writes. Delete it or name it, or list the columns to use in `features`"
        )


def _shown(path: Path) -> str:
    """A path for messages: relative to the current folder if it is inside."""
    inside = path.resolve().is_relative_to(Path.cwd())
    return str(path.resolve().relative_to(Path.cwd())) if inside else str(path)


def _from_npz(section: Section, path: Path, worker: str, label: str, features: str) -> Samples:
    with section.at("source"):
        arrays = read_npz(path)
    for key, name in (("features", features), ("label", label), ("worker", worker)):
        if name not in arrays:
            raise section.error(
                f"{path} has no array {name!r}{instead(name, list(arrays), 'It has')}",
                key,
            )
    with section.at("source"):
        return checked(arrays[features], arrays[label], arrays[worker], str(path))


def checked(X: Any, y: Any, worker: Any, origin: str) -> Samples:
    """Check features, labels and workers against each other."""
    try:
        if np.iscomplexobj(X):
            raise ValueError("complex numbers, of which the imaginary part would be lost")
        matrix = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidData(f"{origin}: the features must be a matrix of numbers: {error}") from error
    labels, owners = np.asarray(y), np.asarray(worker)
    if "c" in labels.dtype.kind + owners.dtype.kind:
        raise InvalidData(f"{origin}: labels and workers cannot be complex numbers")
    if matrix.ndim > 2:
        matrix = matrix.reshape(len(matrix), -1)
    if (
        matrix.ndim != 2
        or matrix.size == 0
        or labels.shape != (len(matrix),)
        or owners.shape != (len(matrix),)
    ):
        raise InvalidData(
            f"{origin}: features (samples, features), labels (samples,) and workers (samples,) are needed, "
            f"got shapes {matrix.shape}, {labels.shape} and {owners.shape}"
        )
    if not np.isfinite(matrix).all():
        row = int(np.argmin(np.isfinite(matrix).all(axis=1)))
        raise InvalidData(f"{origin}: sample {row} has NaN or infinity among its features; drop or fill it")
    return Samples(matrix, labels, owners)


def _from_function(reference: str, arguments: dict[str, Any], folder: Path) -> Samples | list[Any]:
    answer = load_reference(reference, folder)(**arguments)
    if isinstance(answer, dict) and {"X", "y", "worker"} <= set(answer):
        answer = (answer["X"], answer["y"], answer["worker"])
    if isinstance(answer, tuple) and len(answer) == 3:
        return checked(*answer, origin=reference)
    if isinstance(answer, list):
        return answer
    raise InvalidData(
        f"{reference} must return (X, y, worker), or a list with one problem per worker, got "
        f"{type(answer).__name__}"
    )
