"""The samples of every worker: built-in data, a CSV or npz file, or a user's function."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.cli.reading.tables import Table, read_text
from fdro_core.cli.references import load_reference
from fdro_core.errors import InvalidData
from fdro_core.files import arrays_of
from fdro_core.problems.samples import load_digits, make_hospitals, mean_and_scale
from uncertainty_sets.arrays import Array
from uncertainty_sets.discovery import is_reference
from uncertainty_sets.names import instead, nearest

if TYPE_CHECKING:
    from fdro_core.cli.runs.section import Section

Labels = NDArray[Any]

TABLES = (".csv", ".tsv", ".txt")
DIGITS, HOSPITALS = "digits", "hospitals"


@dataclass(frozen=True)
class Samples:
    """All samples, before they are split by worker: features, labels as given, and the worker of each."""

    X: Array
    y: Labels
    worker: Labels


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
    """Every worker's samples, and the mean and scale by which features were standardised (0 and 1 if not)."""

    workers: list[WorkerData]
    mean: Array
    scale: Array


def load_data(section: Section, folder: Path) -> Data | list[Any]:
    """Load what [data] describes: samples split by worker, or the problems that a user's function made."""
    where = section.read("source", str)
    fraction = section.read("test_fraction", float, 0.25)
    seed = section.read("seed", int, 0)
    if not 0 <= fraction < 1:
        raise section.error(
            f"must be in [0, 1): the share of samples held out, got {fraction}", "test_fraction"
        )
    if seed < 0:
        raise section.error(f"must be a whole number >= 0, got {seed}", "seed")
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
        label = f"{name:g}" if isinstance(name, float) else str(name)
        workers.append(
            WorkerData(label, samples.X[train], samples.y[train], samples.X[test], samples.y[test])
        )
    features = samples.X.shape[1]
    mean, scale = np.zeros(features), np.ones(features)
    if standardise:
        mean, scale = mean_and_scale([worker.X for worker in workers])
        workers = [
            WorkerData(w.name, (w.X - mean) / scale, w.y, (w.X_test - mean) / scale, w.y_test)
            for w in workers
        ]
    return Data(workers, mean, scale)


def _from_file(section: Section, where: str, folder: Path) -> Samples:
    path = folder / where
    if path.suffix not in {*TABLES, ".npz"}:
        hint = nearest(where, [DIGITS, HOSPITALS]) or "."
        raise section.error(
            f'must be "{DIGITS}", "{HOSPITALS}", a file (.csv, .tsv, .txt, .npz) or "module:function", got '
            f"{where!r}{hint}",
            "source",
        )
    worker = section.read("worker", str, "worker")
    label = section.read("label", str, "label" if path.suffix in TABLES else "y")
    if path.suffix == ".npz":
        return _from_npz(section, path, worker, label, section.read("features", str, "X"))
    features = section.read("features", list, None)
    with section.at("source"):
        table = Table(read_text(path), str(path))
    for field, column in (("worker", worker), ("label", label)):
        with section.at(field):
            table.place(column)
    with section.at("features"):
        chosen = features if features is not None else [n for n in table.names() if n not in {worker, label}]
        if not chosen:
            raise InvalidData(f"{path} has no column other than worker and label to learn from")
        X = np.column_stack([_feature(table, str(name)) for name in chosen])
    return Samples(X, _values(table, label), _values(table, worker))


def _feature(table: Table, name: str) -> Array:
    """A column of finite numbers."""
    try:
        column = table.numbers(name)
    except InvalidData as error:
        if name not in table.names():
            raise
        raise InvalidData(f"{error}. Code it as numbers, or list the columns to use in `features`") from None
    if not np.isfinite(column).all():
        line = table.lines[int(np.argmin(np.isfinite(column)))]
        raise InvalidData(
            f"{table.origin}, line {line}, column {name!r}: NaN or infinity; drop or fill that row"
        )
    return column


def _values(table: Table, name: str) -> Labels:
    """A column as numbers if all cells are numbers, else as text; an empty cell is an error."""
    cells = table.text(name)
    if "" in cells:
        line = table.lines[cells.index("")]
        raise InvalidData(
            f"{table.origin}, line {line}, column {name!r}: the cell is empty; fill it or drop the row"
        )
    return table.numbers(name) if table.is_numeric(name) else np.array(cells)


def _from_npz(section: Section, path: Path, worker: str, label: str, features: str) -> Samples:
    with section.at("source"):
        if not os.path.isfile(path):
            read_text(path)  # raises the error that says what is wrong
        try:
            with path.open("rb") as file:
                arrays = arrays_of(file)
        except (ValueError, OSError) as error:
            raise InvalidData(f"{path} is not an npz file of plain arrays: {error}") from error
    for field, name in (("features", features), ("label", label), ("worker", worker)):
        if name not in arrays:
            raise section.error(
                f"{path} has no array {name!r}{instead(name, list(arrays), 'It has')}",
                field,
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
