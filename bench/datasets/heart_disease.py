"""Heart disease at four hospitals: Cleveland, Budapest, Zurich and Basel, Long Beach; one client each.

- Source: Janosi, Steinbrunn, Pfisterer and Detrano 1988, UCI 45, "Heart Disease" (the processed files with
  14 attributes). Licence CC BY 4.0 at UCI; publications are asked to name the four investigators.
- Labels: 0 no disease, 1 disease (the files' 1 to 4).
- Features: numbers and two-valued attributes as they are (a missing one is the median of all clients'
  training data), the others (chest pain, ECG, slope, thal) as one 0/1 column per value, all 0 if missing.
  One more 0/1 column marks "missing" for each attribute missing in more than 10 % of the training data.
  26 columns, standardised with the mean and deviation of all clients' training data.
- Split: seeded and by label, 70 % for training; the data has no dates.
- Differs from the original: a cholesterol or a blood pressure of 0 is taken as missing (all of Zurich and
  Basel has cholesterol 0). The files read here have a line of names on top, which may be there or not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bench.datasets.federation import Client, Federation, standardised, stratified
from bench.datasets.files import listed, locate
from bench.datasets.registry import dataset
from fdro_core.errors import InvalidData
from uncertainty_sets.arrays import Array

NAMES = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg"),
    *("thalach", "exang", "oldpeak", "slope", "ca", "thal", "target"),
)
KINDS = {"cp": (1, 2, 3, 4), "restecg": (0, 1, 2), "slope": (1, 2, 3), "thal": (3, 6, 7)}
NEVER_ZERO = ("trestbps", "chol")
LABELS = ("no disease", "disease")
OFTEN = 0.1  # an attribute missing more often than that has a column that marks it
WHERE = "Get it from https://archive.ics.uci.edu/dataset/45 (the processed files)."
HOSPITALS = {
    "Cleveland": ("cleveland", "417c9c9b4786a091ccd53c141513ffb1e5bd492afd4c01c87f76228d23c66910"),
    "Budapest": ("hungarian", "d5c34e6c57d3cb1213d542bab964eab45dfcc34dfaa9a4585861943ad7db63fb"),
    "Zurich and Basel": ("switzerland", "5c325b1a8ce31b82c58e0dbbe3e5e54f0f685fead727c228fcb22356de706c76"),
    "Long Beach": ("va", "7768a433fcb7971f4e3667e7ee081c84ac7bde9903e3dcc59cab887933a52da3"),
}
FILES = listed(
    "heart_disease_4sites",
    {f"processed.{name}.data": f"sha256:{checksum}" for name, checksum in HOSPITALS.values()},
    WHERE,
)


@dataset(
    "heart-disease",
    clients="4 hospitals",
    features="26 columns",
    split="seeded, by label, 30 % test",
    files=FILES,
    order=50,
)
def heart_disease(test_share: float = 0.3, seed: int = 0, verify: bool = True) -> Federation:
    """Load one client per hospital.

    Args:
        test_share: of every hospital's patients, by label.
        seed: of the split.
        verify: refuse files with other checksums than the known ones.
    """
    tables, splits = [], []
    for number, file in enumerate(FILES):
        table = _read(locate(file, verify=verify).read_text(encoding="ascii"), file.path)
        tables.append(table)
        splits.append(stratified(table[:, -1] > 0, test_share, np.random.default_rng([seed, number])))
    training = np.concatenate([table[train] for table, (train, _) in zip(tables, splits, strict=True)])
    clients = []
    for name, table, (train, test) in zip(HOSPITALS, tables, splits, strict=True):
        X, y = _columns(table, training), (table[:, -1] > 0).astype(np.int64)
        clients.append(Client(name, X[train], y[train], X[test], y[test]))
    return Federation("heart-disease", standardised(clients), 2, LABELS, about=__doc__ or "")


def _read(text: str, path: str) -> Array:
    """Read the table, with NaN for a missing value: "?", "", or a 0 that cannot be."""
    rows = [line.split(",") for line in text.split() if line]
    if rows and not rows[0][0][:1].isdigit():
        del rows[0]
    if not rows or any(len(row) != len(NAMES) for row in rows):
        raise InvalidData(f"{path}: every line needs {len(NAMES)} values")
    table = np.array([[np.nan if value in {"?", ""} else float(value) for value in row] for row in rows])
    for name in NEVER_ZERO:
        column = table[:, NAMES.index(name)]
        column[column == 0] = np.nan
    return table


def _columns(table: Array, training: Array) -> Array:
    """The features of the table's rows; medians and what is often missing come from the training rows."""
    columns: list[NDArray[np.float64]] = []
    for place, name in enumerate(NAMES[:-1]):
        values, gaps = table[:, place], np.isnan(table[:, place])
        if name in KINDS:
            columns.extend((values == kind).astype(np.float64) for kind in KINDS[name])
        else:
            columns.append(np.where(gaps, np.nanmedian(training[:, place]), values))
        if np.isnan(training[:, place]).mean() > OFTEN:
            columns.append(gaps.astype(np.float64))
    return np.stack(columns, axis=1)
