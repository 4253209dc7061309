"""The workers' problems made from data and model, and how a model is judged on samples kept aside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.app.runs.catalogue import is_reference, load_reference
from fdro_core.app.runs.data import Data, WorkerData
from fdro_core.errors import InvalidData
from fdro_core.problems import LeastSquares, SoftmaxRegression
from uncertainty_sets.arrays import Array

if TYPE_CHECKING:
    from fdro_core.app.runs.section import Section

Judge = Callable[[Array], tuple[float, float]]
"""Test loss and accuracy of one worker at w; NaN for what there is not."""

SOFTMAX, SQUARES = "softmax", "least-squares"


@dataclass(frozen=True)
class Task:
    """What is to be learnt.

    Attributes:
        names: of the workers.
        problems: one a worker.
        samples: how many each worker trains on; NaN where a problem does not say.
        tested: how many are kept aside.
        judges: one a worker, for samples kept aside.
        model: arrays that a reader of the model needs beside w: classes, mean, scale.
    """

    names: list[str]
    problems: list[Any]
    samples: Array
    tested: Array
    judges: list[Judge]
    model: dict[str, NDArray[Any]] = field(default_factory=dict)

    def judge(self, w: Array) -> tuple[Array, Array]:
        """Every worker's test loss and test accuracy."""
        pairs = np.array([judge(w) for judge in self.judges])
        return pairs[:, 0], pairs[:, 1]

    def training_accuracies(self, w: Array) -> Array:
        """Every worker's accuracy on what it trained on; NaN where the problem has none."""
        return np.array([_own_accuracy(problem, w) for problem in self.problems])


def make_task(section: Section, data: Data | list[Any], folder: Path) -> Task:
    """What [model] describes, on the data given."""
    if isinstance(data, list):
        section.finish()
        return _from_problems(data)
    kind = section.take("kind", str, SOFTMAX)
    l2 = section.take("l2", float, 1e-3)
    if not l2 >= 0:
        raise section.error(f"must be a number >= 0, got {l2}", "l2")
    if is_reference(kind):
        arguments = section.take("arguments", dict, {})
        section.finish()
        with section.at("kind"):
            make = load_reference(kind, folder)
            return _torch(data, make, arguments, l2)
    if kind not in {SOFTMAX, SQUARES}:
        section.choice("kind", [SOFTMAX, SQUARES, "module:function"])
    intercept = section.take("intercept", bool, True)
    section.finish()
    with section.at("kind"):
        return softmax(data, l2, intercept) if kind == SOFTMAX else _squares(data, l2, intercept)


def softmax(data: Data, l2: float, intercept: bool = True) -> Task:
    """Softmax regression for every worker, over the classes that occur anywhere."""
    coded, classes = _classes(data)

    def problem(X: Array, y: Array, ridge: float) -> SoftmaxRegression:
        return SoftmaxRegression(X, y, len(classes), l2=ridge, intercept=intercept)

    def judge(worker: WorkerData) -> Judge:
        if not len(worker.X_test):
            return _unknown
        test = problem(worker.X_test, worker.y_test, 0.0)
        return lambda w: (test.loss_and_gradient(w)[0], test.accuracy(w))

    problems = [problem(worker.X, worker.y, l2) for worker in coded]
    return _task(data, problems, [judge(worker) for worker in coded], classes=classes)


def _squares(data: Data, l2: float, intercept: bool) -> Task:
    for worker in data.workers:
        if worker.y.dtype.kind not in "fiub":
            raise InvalidData(
                f"least-squares needs numbers as labels, got {worker.y[0]!r} at worker {worker.name}"
            )

    def judge(worker: WorkerData) -> Judge:
        if not len(worker.X_test):
            return _unknown
        test = LeastSquares(worker.X_test, worker.y_test, intercept=intercept)
        return lambda w: (test.loss_and_gradient(w)[0], np.nan)

    problems = [LeastSquares(worker.X, worker.y, l2=l2, intercept=intercept) for worker in data.workers]
    return _task(data, problems, [judge(worker) for worker in data.workers])


def _torch(data: Data, make: Callable[..., Any], arguments: dict[str, Any], l2: float) -> Task:
    """A module for all workers, made by the user's function of (features, classes)."""
    from fdro_core.problems.torch import TorchProblem

    coded, classes = _classes(data)
    module = make(coded[0].X.shape[1], len(classes), **arguments)
    problems = [TorchProblem(module, worker.X, worker.y, l2=l2) for worker in coded]

    def judge(problem: TorchProblem, worker: WorkerData) -> Judge:
        if not len(worker.X_test):
            return _unknown
        return lambda w: _cross_entropy(problem.predict(w, worker.X_test), worker.y_test)

    judges = [judge(problem, worker) for problem, worker in zip(problems, coded, strict=True)]
    return _task(data, problems, judges, classes=classes)


def _from_problems(problems: list[Any]) -> Task:
    """Problems that a function of the user's made; one with `accuracy(w)` is asked for it."""
    unknown = np.full(len(problems), np.nan)
    names = [str(getattr(problem, "name", j)) for j, problem in enumerate(problems)]
    return Task(names, problems, unknown, unknown, [_unknown for _ in problems])


def _task(data: Data, problems: list[Any], judges: list[Judge], **model: NDArray[Any]) -> Task:
    return Task(
        [worker.name for worker in data.workers],
        problems,
        np.array([len(worker.X) for worker in data.workers], dtype=np.float64),
        np.array([len(worker.X_test) for worker in data.workers], dtype=np.float64),
        judges,
        {"mean": data.mean, "scale": data.scale, **model},
    )


def _classes(data: Data) -> tuple[list[WorkerData], NDArray[Any]]:
    """The workers with labels coded 0, 1, …, and the labels in that order."""
    classes = np.unique(np.concatenate([part for w in data.workers for part in (w.y, w.y_test)]))
    if len(classes) < 2:
        raise InvalidData(f"a classifier needs at least two labels, and all samples have {classes[0]!r}")
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
    rows = np.arange(len(labels))
    shifted = outputs - outputs.max(axis=1, keepdims=True)
    loss = np.log(np.exp(shifted).sum(axis=1)) - shifted[rows, labels]
    return float(loss.mean()), float(np.mean(outputs.argmax(axis=1) == labels))


def _own_accuracy(problem: Any, w: Array) -> float:
    accuracy = getattr(problem, "accuracy", None)
    return float(accuracy(w)) if callable(accuracy) else np.nan


def _unknown(w: Array) -> tuple[float, float]:
    """A worker without samples kept aside."""
    return np.nan, np.nan
