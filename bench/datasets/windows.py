"""Windows of sensor signals: cutting them without overlap, and what is measured in each."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.datasets.federation import Client, Labels
from fdro_core.errors import InvalidData
from uncertainty_sets.arrays import Array

BANDS = ((0.3, 1.5), (1.5, 3.0), (3.0, 6.0), (6.0, 12.0))
"""Hertz: posture and sway, steps, their harmonics, tremor and impacts."""


def runs(labels: NDArray[Any]) -> list[tuple[int, int]]:
    """Start and end of every stretch of one label.

    >>> runs(np.array([1, 1, 3, 3, 3, 1]))
    [(0, 2), (2, 5), (5, 6)]
    """
    edges = np.flatnonzero(np.diff(labels)) + 1
    bounds = [0, *edges.tolist(), len(labels)]
    return [(start, end) for start, end in pairwise(bounds) if end > start]


def cut(signal: Array, labels: Labels, window: int, test_share: float) -> tuple[Array, Labels, NDArray[Any]]:
    """Windows (n, window, channels) inside stretches of one label, their labels, and which are for test.

    Windows do not overlap. In every stretch the first ones are for training and the last `test_share` for
    test, so no reading is in both and the test lies later. Rests shorter than a window are left out; so are
    windows with NaN. Label 0 is "no activity" and is left out.
    """
    if window < 4:
        raise InvalidData(f"window must be at least 4 readings, got {window}")
    if not 0 < test_share < 1:
        raise InvalidData(f"test_share must be in (0, 1), got {test_share}")
    pieces, own, test = [], [], []
    for start, end in runs(labels):
        many = (end - start) // window
        if labels[start] == 0 or many == 0:
            continue
        stretch = signal[start : start + many * window].reshape(many, window, signal.shape[1])
        late = np.arange(many) >= many - int(np.floor(test_share * many + 0.5))
        whole = np.isfinite(stretch).all(axis=(1, 2))
        pieces.append(stretch[whole])
        own.append(np.full(int(whole.sum()), labels[start] - 1, dtype=np.int64))
        test.append(late[whole])
    if not pieces:
        raise InvalidData(f"no stretch of one activity is as long as a window of {window} readings")
    return np.concatenate(pieces), np.concatenate(own), np.concatenate(test)


def statistics(windows: Array, hertz: float) -> Array:
    """What is measured in a window (n, window, channels), 8 numbers a channel and a few more.

    The magnitude √Σc² joins the channels. Of each: mean, deviation, least, greatest, both quartiles, mean
    |step to the next reading|, and how often it crosses its mean. Then the correlations of the channels, and
    the logarithm of the magnitude's power in four frequency bands.
    """
    magnitude = np.sqrt(np.sum(windows**2, axis=2, keepdims=True))
    signals = np.concatenate([windows, magnitude], axis=2)
    mean, deviation = signals.mean(axis=1), signals.std(axis=1)
    swing = signals - mean[:, None]
    parts = [
        mean,
        deviation,
        signals.min(axis=1),
        signals.max(axis=1),
        *np.quantile(signals, (0.25, 0.75), axis=1),
        np.abs(np.diff(signals, axis=1)).mean(axis=1),
        np.mean(swing[:, 1:] * swing[:, :-1] < 0, axis=1),
    ]
    channels = windows.shape[2]
    for one in range(channels):
        for other in range(one + 1, channels):
            scale = deviation[:, one] * deviation[:, other]
            product = np.mean(swing[:, :, one] * swing[:, :, other], axis=1)
            parts.append(np.divide(product, scale, out=np.zeros_like(scale), where=scale > 0)[:, None])
    power = np.abs(np.fft.rfft(swing[:, :, -1], axis=1)) ** 2 / windows.shape[1]
    frequencies = np.fft.rfftfreq(windows.shape[1], 1.0 / hertz)
    for low, high in BANDS:
        inside = (frequencies >= low) & (frequencies < high)
        parts.append(np.log1p(power[:, inside].sum(axis=1, keepdims=True)))
    return np.concatenate(parts, axis=1)


def as_client(name: str, X: Array, y: Labels, test: NDArray[Any]) -> Client:
    """The client of windows' features, labels and test marks."""
    test = test.astype(bool)
    return Client(name, X[~test], y[~test], X[test], y[test])
