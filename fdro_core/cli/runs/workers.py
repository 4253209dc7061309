"""The workers of a run: their samples, built in or from a file or function, and their problems and tests."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fdro_core import problems
from fdro_core.cli.reading import Table, read_npz, read_text
from fdro_core.cli.written import load_reference
from fdro_core.errors import InvalidData
from fdro_core.problems import LeastSquares, SoftmaxRegression
from fdro_core.problems.samples import load_digits, make_hospitals, mean_and_scale
from uncertainty_sets.arrays import Array
from uncertainty_sets.registry import instead, is_reference, nearest

if TYPE_CHECKING:
    from fdro_core.cli.runs.fields import Section

Labels = NDArray[Any]

TABLES = (".csv", ".tsv", ".txt")
DIGITS, HOSPITALS = "digits", "hospitals"
CODE_IT = ". Code it as numbers, or list the columns to use in `features`"


Test = Callable[[Array], tuple[float, float]]
"""Test loss and test accuracy of one worker at w; NaN for one that does not exist."""

USUAL, SQUARES = SoftmaxRegression.kind, LeastSquares.kind
"""The kind of problem if a run file names none, and one for labels that are numbers."""


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
    for name, column in (("worker", worker), ("label", label)):
        with section.at(name):
            table.place(column)
    with section.at("features"):
        chosen = features if features is not None else [n for n in table.names() if n not in {worker, label}]
        if not chosen:
            raise InvalidData(f"{path} has no column other than worker and label to learn from")
        X = np.column_stack([table.finite(str(name), CODE_IT) for name in chosen])
    return Samples(X, table.labels(label), table.labels(worker))


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


@dataclass(frozen=True)
class Workers:
    """All workers of a run, in order.

    Attributes:
        names: one per worker.
        problems: one per worker.
        samples: the number of training samples per worker; NaN if unknown.
        test_samples: the number of held-out samples per worker; NaN if unknown.
        tests: one per worker, on its held-out samples.
        model: the arrays beside w that are needed to use the model: classes, mean, scale.
    """

    names: list[str]
    problems: list[Any]
    samples: Array
    test_samples: Array
    tests: list[Test]
    model: dict[str, NDArray[Any]] = field(default_factory=dict)

    def test(self, w: Array) -> tuple[Array, Array]:
        """Every worker's test loss and test accuracy at w."""
        pairs = np.array([test(w) for test in self.tests])
        return pairs[:, 0], pairs[:, 1]

    def training_accuracies(self, w: Array) -> Array:
        """Every worker's accuracy on its training samples; NaN if the problem has none."""
        return np.array([_own_accuracy(problem, w) for problem in self.problems])


def kinds() -> dict[str, type[Any]]:
    """The problems that a run file can name: the classes in the files of `fdro_core.problems` with a `kind`.

    >>> sorted(kinds())
    ['huber', 'least-squares', 'softmax']
    """
    found: dict[str, type[Any]] = {}
    for file in pkgutil.iter_modules(problems.__path__, f"{problems.__name__}."):
        for each in vars(importlib.import_module(file.name)).values():
            if isinstance(each, type) and "kind" in vars(each):
                found[vars(each)["kind"]] = each
    return found


def make_workers(section: Section, data: Data | list[Any], folder: Path) -> Workers:
    """Make the workers' problems from [model] and the data."""
    if isinstance(data, list):
        section.finish()
        return _from_problems(data)
    kind = section.read("kind", str, USUAL)
    l2 = section.read("l2", float, 1e-3)
    if not l2 >= 0:
        raise section.error(f"must be a number >= 0, got {l2}", "l2")
    if is_reference(kind):
        arguments = section.read("arguments", dict, {})
        section.finish()
        with section.at("kind"):
            make = load_reference(kind, folder)
            return _torch(data, make, arguments, l2)
    known = kinds()
    if kind not in known:
        section.choice("kind", [*sorted(known, key=lambda name: name != USUAL), "module:function"])
    settings = section.arguments(known[kind], "X", "y", "classes", "l2")
    with section.at("kind"):
        return of_one_kind(known[kind], data, l2=l2, **settings)


def of_one_kind(cls: type[Any], data: Data, **settings: Any) -> Workers:
    """A problem of that class for every worker.

    If it takes `classes`, they are those that occur at any worker; otherwise labels must be numbers.
    """
    coded, model = data.workers, {}
    if "classes" in inspect.signature(cls).parameters:
        coded, model["classes"] = _classes(data)
        settings["classes"] = len(model["classes"])
    else:
        _check_numbers(data, cls.kind)

    def test_of(worker: WorkerData) -> Test:
        if not len(worker.X_test):
            return _no_test
        test = cls(worker.X_test, worker.y_test, **settings | {"l2": 0.0})
        return lambda w: (test.loss_and_gradient(w)[0], _own_accuracy(test, w))

    made = [cls(worker.X, worker.y, **settings) for worker in coded]
    return _workers(data, made, [test_of(worker) for worker in coded], **model)


def _check_numbers(data: Data, kind: str) -> None:
    for worker in data.workers:
        if worker.y.dtype.kind not in "fiub":
            raise InvalidData(f"{kind} needs numbers as labels, got {worker.y[0]!r} at worker {worker.name}")


def _torch(data: Data, make: Callable[..., Any], arguments: dict[str, Any], l2: float) -> Workers:
    """One module for all workers, made by the user's function of (features, classes)."""
    from fdro_core.problems.torch import TorchProblem

    coded, classes = _classes(data)
    module = make(coded[0].X.shape[1], len(classes), **arguments)
    made = [TorchProblem(module, worker.X, worker.y, l2=l2) for worker in coded]

    def test_of(problem: TorchProblem, worker: WorkerData) -> Test:
        if not len(worker.X_test):
            return _no_test
        return lambda w: _cross_entropy(problem.predict(w, worker.X_test), worker.y_test)

    tests = [test_of(problem, worker) for problem, worker in zip(made, coded, strict=True)]
    return _workers(data, made, tests, classes=classes)


def _from_problems(made: list[Any]) -> Workers:
    """Workers for problems that the user's function made; nothing is held out."""
    unknown = np.full(len(made), np.nan)
    names = [str(getattr(problem, "name", j)) for j, problem in enumerate(made)]
    return Workers(names, made, unknown, unknown, [_no_test for _ in made])


def _workers(data: Data, made: list[Any], tests: list[Test], **model: NDArray[Any]) -> Workers:
    return Workers(
        [worker.name for worker in data.workers],
        made,
        np.array([len(worker.X) for worker in data.workers], dtype=np.float64),
        np.array([len(worker.X_test) for worker in data.workers], dtype=np.float64),
        tests,
        {"mean": data.mean, "scale": data.scale, **model},
    )


def _classes(data: Data) -> tuple[list[WorkerData], NDArray[Any]]:
    """The workers with labels coded as 0, 1, …, and the labels in that order."""
    classes = np.unique(np.concatenate([part for w in data.workers for part in (w.y, w.y_test)]))
    if len(classes) < 2:
        raise InvalidData(f"a classifier needs at least two labels; all samples have {classes[0]!r}")
    if classes.dtype.kind == "f" and len(classes) > 100:
        raise InvalidData(
            f"the labels are {len(classes)} different numbers: take another label column, or "
            f'kind = "{SQUARES}" for a regression'
        )
    coded = [
        WorkerData(w.name, w.X, np.searchsorted(classes, w.y), w.X_test, np.searchsorted(classes, w.y_test))
        for w in data.workers
    ]
    return coded, classes


def _cross_entropy(outputs: Array, labels: NDArray[Any]) -> tuple[float, float]:
    each = np.arange(len(labels))
    shifted = outputs - outputs.max(axis=1, keepdims=True)
    loss = np.log(np.exp(shifted).sum(axis=1)) - shifted[each, labels]
    return float(loss.mean()), float(np.mean(outputs.argmax(axis=1) == labels))


def _own_accuracy(problem: Any, w: Array) -> float:
    accuracy = getattr(problem, "accuracy", None)
    return float(accuracy(w)) if callable(accuracy) else np.nan


def _no_test(w: Array) -> tuple[float, float]:
    """The test of a worker without held-out samples."""
    return np.nan, np.nan
