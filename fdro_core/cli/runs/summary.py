"""The numbers of a run: what `result.json` holds, and how commands and report label and format them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fdro_core.cli.output import number, percent

if TYPE_CHECKING:
    from fdro_core.cli.runs.run_file import RunSetup
    from fdro_core.result import Result
    from uncertainty_sets.arrays import Array

NOT_COVERED = "accuracies, test losses, and the features' mean and scale: `fdro train` has all data at hand"
"""What the folder of a private run holds beside what the workers released."""

Format = Callable[[Any], str]

FIGURES: dict[str, tuple[str, Format]] = {
    "worst_test_accuracy": ("test accuracy, worst worker", percent),
    "mean_test_accuracy": ("test accuracy, mean over workers", percent),
    "worst_test_loss": ("test loss, worst worker", number),
    "objective": ("worst expected loss over the set", number),
    "gap": ("gap to the proved bound", partial(number, digits=2)),
    "optimality_gap": ("proved gap to the optimum", partial(number, digits=2)),
    "proved": ("proved for all workers", lambda value: "yes" if value else "no"),
    "worst_loss": ("loss, worst worker", number),
    "stationarity": ("stationarity", partial(number, digits=3)),
    "planes": ("planes at the end", number),
    "iterations": ("iterations", lambda value: f"{value:,}"),
    "gradients": ("gradients", lambda value: f"{value:,}"),
    "clock": ("seconds on the engine's clock", number),
    "seconds": ("seconds of computing", partial(number, digits=3)),
    "stop_reason": ("stopped by", str),
}
"""Label and format of the numbers of a run, by their key in `result.json`."""

WORKER_COLUMNS: dict[str, tuple[str, Format]] = {
    "samples": ("samples", partial(number, digits=7)),
    "loss": ("loss", partial(number, digits=4)),
    "accuracy": ("accuracy", percent),
    "test_loss": ("test loss", partial(number, digits=4)),
    "test_accuracy": ("test accuracy", percent),
    "prior": ("prior", percent),
    "weight": ("weight", percent),
}
"""Label and format of the numbers of a worker, by their key in `result.json`."""


def over_samples(workers: Sequence[Mapping[str, Any]]) -> float | None:
    """The test accuracy over all samples together, from the workers of `result.json`; None if unknown.

    >>> over_samples([{"test_accuracy": 1.0, "test_samples": 3}, {"test_accuracy": 0.0, "test_samples": 1}])
    0.75
    """
    known = [(each["test_accuracy"], each["test_samples"]) for each in workers]
    right = [(share, count) for share, count in known if share is not None and count]
    total = sum(count for _, count in right)
    return sum(share * count for share, count in right) / total if total else None


def summary(setup: RunSetup, result: Result, seconds: float) -> dict[str, Any]:
    """The numbers of `result.json`."""
    import numpy as np

    workers, answer = setup.workers, result.worst_case
    test_loss, test_accuracy = workers.test(result.w)
    columns = {
        "samples": workers.samples,
        "test_samples": workers.test_samples,
        "loss": result.losses,
        "accuracy": workers.training_accuracies(result.w),
        "test_loss": test_loss,
        "test_accuracy": test_accuracy,
        "prior": setup.uncertainty_set.reference(),
        "weight": result.weights,
        "worst_case_p": answer.p,
        "loss_known_at": result.known_at,
    }
    return {
        "stop_reason": result.stop_reason,
        "objective": result.objective,
        "proved": result.proved,
        "caveat": result.caveat(workers.names),
        "suspicious": {workers.names[j]: what for j, what in result.suspicious.items()},
        "upper_bound": answer.upper_bound,
        "gap": answer.gap,
        "violation": answer.violation,
        "lower_bound": result.lower_bound,
        "optimality_gap": result.gap,
        "stationarity": result.stationarity,
        "model": result.model,
        "privacy": _privacy(result),
        "worst_loss": _known(np.nanmax, result.losses),
        "worst_test_loss": _known(np.nanmax, test_loss),
        "worst_test_accuracy": _known(np.nanmin, test_accuracy),
        "mean_test_accuracy": _known(np.nanmean, test_accuracy),
        "planes": len(result.planes),
        "iterations": result.iterations,
        "planned": result.planned,
        "gradients": result.gradients,
        "clock": result.clock,
        "seconds": seconds,
        "set": {"name": setup.set_name, "as": repr(setup.uncertainty_set)},
        "algorithm": {"name": setup.algorithm_name, **settings_of(setup.algorithm)},
        "engine": {"name": setup.engine_name, "as": repr(setup.engine)},
        "parameters": int(result.w.size),
        "workers": [
            {"name": name, **{key: column[j] for key, column in columns.items()}}
            for j, name in enumerate(workers.names)
        ],
    }


def settings_of(algorithm: Any) -> dict[str, Any]:
    """An algorithm's settings; objects among them as their repr."""
    if not dataclasses.is_dataclass(algorithm):
        return {}
    found = {item.name: getattr(algorithm, item.name) for item in dataclasses.fields(algorithm)}
    simple = (type(None), bool, int, float, str)
    return {name: value if isinstance(value, simple) else repr(value) for name, value in found.items()}


def _privacy(result: Result) -> dict[str, Any] | None:
    """The guarantee of a private run, and which numbers of the folder it does not cover."""
    if result.privacy is None:
        return None
    return {**result.privacy.as_dict(), "not_covered": NOT_COVERED}


def _known(pick: Callable[[Array], Any], values: Array) -> float:
    """The largest, smallest or mean of the numbers that are known; NaN if none is."""
    import numpy as np

    return float(pick(values)) if np.isfinite(values).any() else np.nan
