"""The workers of a run: a problem and a test for each, from [model] of the run file and the data."""

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
from fdro_core.cli.runs.data import Data, WorkerData, worker_name
from fdro_core.cli.written import load_reference
from fdro_core.errors import InvalidData
from fdro_core.problems import LeastSquares, SoftmaxRegression
from uncertainty_sets.arrays import Array
from uncertainty_sets.registry import is_reference

if TYPE_CHECKING:
    from fdro_core.cli.runs.columns import Preparation
    from fdro_core.cli.runs.fields import Section

Test = Callable[[Array], tuple[float, float]]
"""Test loss and test accuracy of one worker at w; NaN for one that does not exist."""

USUAL, SQUARES = SoftmaxRegression.kind, LeastSquares.kind
"""The kind of problem if a run file names none, and one for labels that are numbers."""


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
        preparation: what was learnt from the training samples; None if a function made the problems.
        class_counts: the number of samples of each class by its name, held out or not; empty without classes.
    """

    names: list[str]
    problems: list[Any]
    samples: Array
    test_samples: Array
    tests: list[Test]
    model: dict[str, NDArray[Any]] = field(default_factory=dict)
    preparation: Preparation | None = None
    class_counts: dict[str, int] = field(default_factory=dict)

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


def make_workers(section: Section, data: Data | list[Any] | None, folder: Path) -> Workers | None:
    """Make the workers' problems from [model] and the data.

    If the data could not be read, only [model] is checked; if its samples are not sound, there are workers
    without problems.
    """
    if isinstance(data, list):
        section.finish()
        return _from_problems(data)
    kind = section.read("kind", str, USUAL)
    l2 = section.read("l2", float, 1e-3)
    if not l2 >= 0:
        section.source.note(section.error(f"must be a number >= 0, got {l2}", "l2"))
        l2 = 0.0
    if is_reference(kind):
        arguments = section.read("arguments", dict, {})
        section.finish()
        with section.at("kind"):
            make = load_reference(kind, folder)
            if data is None or not data.sound:
                return _without_problems(data)
            return _torch(data, make, arguments, l2)
    known = kinds()
    if kind not in known:
        section.choice("kind", [*sorted(known, key=lambda name: name != USUAL), "module:function"], USUAL)
        return _without_problems(data)
    settings = section.arguments(known[kind], "X", "y", "classes", "l2")
    if data is None or not data.sound:
        return _without_problems(data)
    with section.at("kind"):
        return of_one_kind(known[kind], data, l2=l2, **settings)


def _without_problems(data: Data | None) -> Workers | None:
    if data is None:
        return None
    count = len(data.workers)
    return _workers(data, [None] * count, [_no_test] * count)


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
        {**data.preparation.model(), **model},
        data.preparation,
        _count(data) if "classes" in model else {},
    )


def _count(data: Data) -> dict[str, int]:
    """The number of samples of each class."""
    together = np.concatenate([part for worker in data.workers for part in (worker.y, worker.y_test)])
    classes, counts = np.unique(together, return_counts=True)
    return {worker_name(each.item()): int(count) for each, count in zip(classes, counts, strict=True)}


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
