"""How runs compare: the settings in which they differ, and whether their results differ by more than noise.

Runs whose run files differ in seeds only are repetitions of one method. If all methods have the same three or
more seeds, differences are paired over the seeds. Otherwise each run is a method: the difference of the worst
workers has an interval from the numbers of held-out samples, and that of the means is paired over workers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from fdro_core.cli.runs.fields import read_source
from fdro_core.cli.runs.folder import RunFolder
from fdro_core.cli.runs.run_file import USUAL_ALGORITHM
from fdro_core.cli.runs.summary import FIGURES

CONFIDENCE = 0.95
TIE = "no difference beyond noise"
FEWEST = 3
"""Seeds or workers for an interval from the spread of their differences: two may agree by accident."""

SAME = 1e-6
"""Losses that differ by at most this share are equal: a run stops at about this accuracy."""

ACCURACY, LOSSES = "worst_test_accuracy", ("worst_test_loss", "worst_loss")
MEAN = "mean_test_accuracy"

Result = Mapping[str, Any]


def fields_of(run: RunFolder) -> dict[str, Any]:
    """The fields of a run file by their dotted names."""
    return flat(read_source(run.run_file).values)


def differences(settings: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """The fields that differ: one value per run, None for a run file without it. Output folders do not count.

    >>> differences([{"set.radius": 0.1, "output.folder": "a"}, {"set.radius": 0.2, "output.folder": "b"}])
    {'set.radius': [0.1, 0.2]}
    """
    return {
        key: [each.get(key) for each in settings]
        for key in dict.fromkeys(key for each in settings for key in each)
        if len({repr(each.get(key)) for each in settings}) > 1 and not key.startswith("output.")
    }


def field_text(key: str, value: Any) -> str:
    """A field as text; a dash if a run file is without it, but the algorithm's name has a default.

    >>> field_text("set.radius", 0.1), field_text("set.radius", None), field_text("algorithm.name", None)
    ('0.1', '–', 'aspire-models (default)')
    """
    if value is None:
        return f"{USUAL_ALGORITHM} (default)" if key == "algorithm.name" else "–"
    return str(value)


def flat(tree: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Flatten nested tables to dotted names.

    >>> flat({"set": {"name": "kl"}})
    {'set.name': 'kl'}
    """
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= flat(value, f"{before}{key}.") if isinstance(value, dict) else {f"{before}{key}": value}
    return found


@dataclass(frozen=True)
class Method:
    """The runs of one method by their seeds, and the name of the first."""

    name: str
    runs: dict[tuple[Any, ...], Result]

    def mean(self, measure: str) -> float:
        """The mean over the runs."""
        return fmean(run[measure] for run in self.runs.values())


@dataclass(frozen=True)
class Difference:
    """By how much `first` is better than `second`.

    Attributes:
        measure: the key in `result.json`.
        difference: positive if `first` is better.
        low, high: the ends of the 95 % interval; None if the files do not tell.
        source: what the interval comes from.
    """

    measure: str
    first: str
    second: str
    difference: float
    low: float | None
    high: float | None
    source: str


@dataclass(frozen=True)
class Verdict:
    """The method that is best for its worst worker, if one is beyond noise.

    Attributes:
        best: its name; None if others are not beyond noise.
        leaders: the method with the best figure, and those that it does not beat beyond noise.
        differences: of the first leader to every other method; of the worst worker, then of the mean.
    """

    best: str | None
    leaders: list[str]
    differences: list[Difference]

    def as_data(self) -> dict[str, Any]:
        """For `--json`."""
        return {"best": self.best, "differences": [asdict(each) for each in self.differences]}


def judge(names: Sequence[str], settings: Sequence[Mapping[str, Any]], results: Sequence[Result]) -> Verdict:
    """Compare runs by their worst workers; `settings` are the run files with dotted names."""
    methods = _methods(names, settings, results)
    measure = next(
        (key for key in (ACCURACY, *LOSSES) if all(result.get(key) is not None for result in results)), None
    )
    if measure is None:
        return Verdict(None, list(names), [])
    sign = 1.0 if measure == ACCURACY else -1.0
    first = max(methods, key=lambda method: sign * method.mean(measure))
    others = [method for method in methods if method is not first]
    confidence = 1.0 - (1.0 - CONFIDENCE) / max(1, len(others))  # all intervals hold together
    worst = [_difference(measure, sign, first, other, confidence) for other in others]
    close = [each.second for each in worst if not _beyond_noise(each, first.mean(measure))]
    means = []
    if measure == ACCURACY:
        means = [_difference(MEAN, 1.0, first, other, confidence) for other in others]
    return Verdict(None if close else first.name, [first.name, *close], [*worst, *means])


def _beyond_noise(each: Difference, level: float) -> bool:
    """Whether the first is better beyond noise; if the noise is unknown, by more than the runs' accuracy."""
    return each.difference > SAME * abs(level) if each.low is None else each.low > 0.0


def _methods(
    names: Sequence[str], settings: Sequence[Mapping[str, Any]], results: Sequence[Result]
) -> list[Method]:
    """The methods, with their repetitions if there are enough of them to pair; otherwise one per run."""
    found: dict[str, Method] = {}
    for name, each, result in zip(names, settings, results, strict=True):
        seeds = tuple(each.get(f"{table}.seed", 0) for table in ("data", "engine", "algorithm"))
        rest = {
            key: value for key, value in each.items() if key[-5:] != ".seed" and not key.startswith("output.")
        }
        method = found.setdefault(repr(sorted(rest.items())), Method(name, {}))
        method.runs[seeds] = result
    methods = list(found.values())
    repeated = sum(len(method.runs) for method in methods) == len(results) and all(
        len(method.runs) >= FEWEST and method.runs.keys() == methods[0].runs.keys() for method in methods
    )
    if repeated and len(methods) > 1:
        return methods
    return [Method(name, {(): result}) for name, result in zip(names, results, strict=True)]


def _difference(measure: str, sign: float, first: Method, second: Method, confidence: float) -> Difference:
    pairs = [(run[measure], second.runs[seed][measure]) for seed, run in first.runs.items()]
    interval, source = None, "the files do not tell how much of it is noise"
    if len(pairs) >= FEWEST:
        interval = paired_interval([sign * (one - other) for one, other in pairs], confidence)
        source = f"paired over {len(pairs)} seeds"
    elif measure == ACCURACY:
        worst = [_worst(run) for method in (first, second) for run in method.runs.values()]
        if all(samples for _, samples in worst):
            interval = difference_of_shares(*worst[0], *worst[1], confidence)
            source = f"from {worst[0][1]:g} and {worst[1][1]:g} held-out samples of the worst workers"
    elif measure == MEAN:
        by_worker = _by_worker(*(next(iter(method.runs.values())) for method in (first, second)))
        if len(by_worker) >= FEWEST:
            interval = paired_interval(by_worker, confidence)
            source = f"paired over {len(by_worker)} workers"
    low, high = (None, None) if interval is None else interval
    value = fmean(sign * (one - other) for one, other in pairs)
    return Difference(measure, first.name, second.name, value, low, high, source)


def _worst(result: Result) -> tuple[float, float]:
    """Accuracy and number of held-out samples of the worst worker; of several, the one with most samples."""
    tested = [worker for worker in result["workers"] if worker["test_accuracy"] is not None]
    worst = min(tested, key=lambda worker: (worker["test_accuracy"], -(worker.get("test_samples") or 0)))
    return worst["test_accuracy"], worst.get("test_samples") or 0


def _by_worker(first: Result, second: Result) -> list[float]:
    """The differences of accuracy at the workers that both runs tested; none if the workers differ."""
    one, other = (
        {worker["name"]: worker["test_accuracy"] for worker in run["workers"]} for run in (first, second)
    )
    if one.keys() != other.keys():
        return []
    return [value - other[name] for name, value in one.items() if None not in {value, other[name]}]


def in_words(each: Difference) -> str:
    """A difference and its interval.

    >>> in_words(Difference("worst_test_accuracy", "a", "b", 0.02, -0.01, 0.05, "paired over 5 seeds"))
    'test accuracy, worst worker: a is 2.0 points above b (95 % interval -1.0 to 5.0, paired over 5 seeds)'
    """
    points = each.measure in {ACCURACY, MEAN}

    def shown(value: float) -> str:
        return f"{100 * value:.1f}" if points else f"{value:.4g}"

    unit = " points" if points else ""
    side = "above" if (each.difference >= 0) == points else "below"
    interval = ""
    if each.low is not None and each.high is not None:
        interval = f"{CONFIDENCE:.0%} interval {shown(each.low)} to {shown(each.high)}, ".replace("%", " %")
    amount = f"{shown(abs(each.difference))}{unit} {side}"
    if shown(abs(each.difference)) == shown(0.0):
        amount = "equal to"
    return f"{FIGURES[each.measure][0]}: {each.first} is {amount} {each.second} ({interval}{each.source})"


def paired_interval(differences: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Student's interval for the mean of differences.

    >>> low, high = paired_interval([0.1, 0.2, 0.3])
    >>> round(low, 4), round(high, 4)
    (-0.0484, 0.4484)
    """
    from scipy.special import stdtrit

    count = len(differences)
    width = float(stdtrit(count - 1, 0.5 + 0.5 * confidence)) * stdev(differences) / math.sqrt(count)
    return fmean(differences) - width, fmean(differences) + width


def difference_of_shares(
    first: float, n: float, second: float, m: float, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Newcombe's interval for the difference of two shares, of n and of m samples, from Wilson's for each.

    The samples count as independent. If both runs were tested on the same ones, the interval is too wide
    rather than too narrow as long as the runs tend to be right on the same samples.

    >>> low, high = difference_of_shares(56 / 70, 70, 48 / 80, 80)
    >>> round(low, 4), round(high, 4)
    (0.0524, 0.3339)
    """
    from fdro_core.result import wilson  # loads NumPy, which `fdro --help` does not

    low, high = (float(limit) for limit in wilson(first, n, confidence))
    lower, upper = (float(limit) for limit in wilson(second, m, confidence))
    difference = first - second
    return (
        difference - math.hypot(first - low, upper - second),
        difference + math.hypot(high - first, second - lower),
    )
