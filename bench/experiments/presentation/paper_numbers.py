"""The numbers that the paper prints, to stand beside ours: Table V and Table VI."""

from __future__ import annotations

DATA = ("SHL", "Person Activity", "SC-MA", "Fashion MNIST")
NAMES = {
    "shl": "SHL",
    "person-activity": "Person Activity",
    "sc-ma": "SC-MA",
    "fashion-mnist": "Fashion MNIST",
}
"""Our names of data sets and the paper's."""

Cell = tuple[float, float] | None
Numbers = dict[tuple[str, str], dict[str, Cell]]

_V = """\
max{Ind}        | 19.06±0.65 - 29.1           | 49.38±0.08 - 8.32           | 22.56±0.78 - 17.5           | - - -
Mix_Even        | 69.87±3.10 0.806±0.018 4.81 | 56.31±0.69 1.165±0.017 3.00 | 49.81±0.21 1.424±0.024 6.99 | 66.80±0.18 0.784±0.003 10.1
FedAvg          | 69.96±3.07 0.802±0.023 5.21 | 56.28±0.63 1.154±0.019 3.13 | 49.53±0.96 1.441±0.015 7.17 | 66.58±0.39 0.781±0.002 10.2
AFL             | 78.11±1.99 0.582±0.021 1.87 | 58.39±0.37 1.081±0.014 0.99 | 54.56±0.79 1.172±0.018 3.50 | 77.32±0.15 0.703±0.001 1.86
DRFA-Prox       | 78.34±1.46 0.532±0.034 1.85 | 58.62±0.16 1.096±0.037 1.26 | 54.61±0.76 1.151±0.039 4.69 | 77.95±0.51 0.702±0.007 1.34
ASPIRE-EASE     | 79.16±1.13 0.515±0.019 1.02 | 59.43±0.44 1.053±0.010 0.82 | 56.31±0.29 1.127±0.021 3.16 | 78.82±0.07 0.696±0.004 1.01
ASPIRE-EASE_per | 78.94±1.27 0.521±0.023 1.36 | 59.54±0.21 1.051±0.016 0.79 | 56.71±0.16 1.119±0.028 3.48 | 78.73±0.06 0.698±0.006 1.09
"""  # noqa: E501 - the lines of the paper's table

_VI = """\
Mix_Even    | 36.21±2.23 | 34.32±2.18 | 52.14±2.89 | 83.18±2.07
FedAvg      | 38.15±3.02 | 33.25±2.49 | 55.39±3.13 | 82.04±1.84
AFL         | 68.63±4.24 | 43.66±3.87 | 75.81±4.03 | 90.04±2.52
DRFA-Prox   | 21.23±3.63 | 27.27±3.31 | 30.79±3.65 | 63.24±2.47
ASPIRE-EASE |  9.17±1.65 | 22.36±2.33 | 14.51±3.21 | 45.10±1.64
"""


def _cell(text: str) -> Cell:
    if text == "-":
        return None
    mean, _, deviation = text.partition("±")
    return float(mean), float(deviation or 0.0)


def _read(table: str, columns: tuple[str, ...]) -> Numbers:
    found: Numbers = {}
    for line in table.splitlines():
        method, *groups = (part.strip() for part in line.split("|"))
        for data, group in zip(DATA, groups, strict=True):
            found[method, data] = dict(zip(columns, map(_cell, group.split()), strict=True))
    return found


HETEROGENEITY = _read(_V, ("acc_w", "loss_w", "std"))
"""Table V: (method, data) to Acc_w and Std in percent and Loss_w, each (mean, deviation) or None."""

ATTACK = _read(_VI, ("success",))
"""Table VI: (method, data) to the success attack rate in percent."""


def find(table: Numbers, method: str, data: str, metric: str) -> Cell:
    """Find a number of the paper by our names; None if it has none.

    >>> find(HETEROGENEITY, "ASPIRE-EASE", "fashion-mnist", "acc_w")
    (78.82, 0.07)
    """
    return table.get((method, NAMES.get(data, "")), {}).get(metric)
