"""SHL: how people move, from phones in bag, hand, hips pocket and torso; one client per phone position.

- Source: Gjoreski et al., "The University of Sussex-Huawei locomotion and transportation dataset", IEEE
  Access 2018, www.shl-dataset.org. For research only, under SHL's own terms; registration, no checksums, so
  there is no download here and no file comes with the project.
- Layout, that of the public archives: folders USER/DATE/ anywhere below `shl/` of FDRO_DATA, each with
  Label.txt (time in ms, coarse label, …) and Bag_Motion.txt, Hand_Motion.txt, Hips_Motion.txt and
  Torso_Motion.txt (time in ms, acceleration x y z, gyroscope x y z, 16 more columns); 100 Hz, blanks
  between columns.
- Features: windows of 500 readings (5 s) without overlap inside stretches of one coarse label; the
  statistics of SC-MA (`windows.statistics`) of acceleration and of gyroscope, 78 numbers, standardised with
  the mean and deviation of all clients' training data.
- Split: by time. In every stretch of one activity the last 30 % of the windows are for test.
- Differs from the original: readings with label 0 (null) and windows with NaN are dropped. This loader was
  tried on small samples made in that layout only: the data itself was not at hand.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.datasets.federation import Federation, Labels, standardised
from bench.datasets.files import FOLDER, DataMissing, cached, folder
from bench.datasets.registry import dataset
from bench.datasets.windows import as_client, cut, statistics
from fdro_core.errors import InvalidData
from uncertainty_sets.arrays import Array

POSITIONS = ("Bag", "Hand", "Hips", "Torso")
LABELS = ("still", "walking", "run", "bike", "car", "bus", "train", "subway")
HERTZ = 100.0
PARSER = 1  # raised when the same files would be parsed into something else


@dataset(
    "shl",
    clients="4 phone positions",
    features="78 statistics of 5 s windows",
    split="by time, last 30 % of every stretch",
    files=["shl"],
    order=60,
)
def shl(
    root: str | Path | None = None,
    positions: tuple[str, ...] = POSITIONS,
    window: int = 500,
    test_share: float = 0.3,
) -> Federation:
    """Load one client per phone position.

    Args:
        root: the folder above the users'; None: shl in FDRO_DATA.
        positions: which phones, of Bag, Hand, Hips, Torso.
        window: readings in a window; 100 per second.
        test_share: of the windows of every stretch of one activity, its last.
    """
    if not positions or not set(positions) <= set(POSITIONS):
        raise InvalidData(f"shl: positions must be some of {', '.join(POSITIONS)}, got {positions}")
    days = _days(Path(root) if root is not None else None, positions)
    sources = [day / name for day in days for name in ("Label.txt", *(f"{p}_Motion.txt" for p in positions))]
    settings = {"parser": PARSER, "positions": positions, "window": window, "test_share": test_share}

    def parse() -> dict[str, NDArray[np.float64]]:
        arrays = {}
        for position in positions:
            parts = [_windows(day, position, window, test_share) for day in days]
            parts = [part for part in parts if part[1].size]
            if not parts:
                raise InvalidData(f"shl: no window of {window} readings of one activity for {position}")
            for name, pieces in zip("Xyt", zip(*parts, strict=True), strict=True):
                arrays[f"{name}{position}"] = np.concatenate(pieces)
        return arrays

    arrays = cached("shl", sources, settings, parse)
    clients = [as_client(p, arrays[f"X{p}"], arrays[f"y{p}"], arrays[f"t{p}"]) for p in positions]
    return Federation("shl", standardised(clients), len(LABELS), LABELS, about=__doc__ or "")


def _days(root: Path | None, positions: tuple[str, ...]) -> list[Path]:
    base = folder()
    place = root if root is not None else None if base is None else base / "shl"
    days = [] if place is None else sorted(path.parent for path in place.rglob("Label.txt"))
    days = [day for day in days if all((day / f"{p}_Motion.txt").is_file() for p in positions)]
    if not days:
        looked = f"{FOLDER} is not set" if place is None else f"there is no USER/DATE/Label.txt below {place}"
        raise DataMissing(
            f"shl: {looked} with {', '.join(p + '_Motion.txt' for p in positions)} beside it. Register and "
            "get it from http://www.shl-dataset.org, unpack it into shl/ in a folder and set the environment "
            f"variable {FOLDER} to that folder (docs/datasets.md)"
        )
    return days


def _windows(day: Path, position: str, window: int, share: float) -> tuple[Array, Labels, NDArray[np.bool_]]:
    """Features, labels and test marks of one phone on one day."""
    motion = np.loadtxt(day / f"{position}_Motion.txt", usecols=range(7), ndmin=2)
    marks = np.loadtxt(day / "Label.txt", usecols=(0, 1), ndmin=2)
    place = np.minimum(np.searchsorted(marks[:, 0], motion[:, 0]), len(marks) - 1)
    labels = np.where(marks[place, 0] == motion[:, 0], marks[place, 1], 0).astype(np.int64)
    try:
        pieces, own, test = cut(motion[:, 1:7], labels, window, share)
    except InvalidData:  # a day without a long enough stretch; the caller looks whether any day has one
        return np.empty((0, 0)), np.empty(0, dtype=np.int64), np.empty(0, dtype=bool)
    X = np.concatenate([statistics(pieces[:, :, :3], HERTZ), statistics(pieces[:, :, 3:], HERTZ)], axis=1)
    return X, own, test.astype(bool)
