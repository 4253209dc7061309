"""The arrays that a dense network computes in: made once per thread, used by every problem of that thread.

Workers of one process take their turns in the same arrays, which so stay in the processor's cache. What a
problem returns is never one of them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.arrays import Array

Floats = NDArray[Any]
"""An array of float32 or float64."""

ROWS = 512  # samples at a time: more of them would not be faster, and would leave the cache


class Layer(NamedTuple):
    """W (outputs, inputs) and b as views of a flat vector."""

    W: Floats
    b: Floats


def split(flat: Floats, widths: Sequence[int]) -> list[Layer]:
    """The layers of a flat vector.

    >>> [layer.W.shape for layer in split(np.zeros(17), (2, 3, 2))]
    [(3, 2), (2, 3)]
    """
    layers, begin = [], 0
    for before, after in pairwise(widths):
        end = begin + before * after
        layers.append(Layer(flat[begin:end].reshape(after, before), flat[end : end + after]))
        begin = end + after
    return layers


class Room:
    """The arrays for one network in one arithmetic.

    Attributes:
        weights, slope: w and the gradient, flat.
        layers, slopes: their layers, views.
    """

    def __init__(self, widths: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.widths, self.dtype = widths, dtype
        size = sum((before + 1) * after for before, after in pairwise(widths))
        self.weights, self.slope = np.empty(size, dtype), np.empty(size, dtype)
        self.layers, self.slopes = split(self.weights, widths), split(self.slope, widths)
        self._outputs, self._back = self._tables(0), self._tables(0)

    def _tables(self, rows: int) -> list[Floats]:
        return [np.empty((rows, width), self.dtype) for width in self.widths]

    def _reserve(self, rows: int) -> None:
        if len(self._outputs[0]) < rows:
            self._outputs, self._back = self._tables(rows), self._tables(rows)

    def load(self, w: Array) -> None:
        """Take w in, in this arithmetic."""
        np.copyto(self.weights, w, casting="same_kind")

    def gather(self, X: Floats, rows: NDArray[np.int64]) -> Floats:
        """The rows of X, a copy that may be changed."""
        self._reserve(rows.size)
        return np.take(X, rows, axis=0, out=self.outputs(0, rows.size), mode="clip")

    def copy(self, X: NDArray[Any]) -> Floats:
        """All of X, a copy that may be changed."""
        self._reserve(len(X))
        out = self.outputs(0, len(X))
        np.copyto(out, X, casting="unsafe")
        return out

    def outputs(self, place: int, rows: int) -> Floats:
        """Room for what a layer gives; place 0 is for the inputs."""
        self._reserve(rows)
        return self._outputs[place][:rows]

    def back(self, place: int, rows: int) -> Floats:
        """Room for the slope in what a layer gives."""
        return self._back[place][:rows]


_kept = threading.local()


def room(widths: tuple[int, ...], dtype: np.dtype[Any]) -> Room:
    """This thread's room for a network; the one before is given up if it was for another."""
    known: Room | None = getattr(_kept, "room", None)
    if known is None or known.widths != widths or known.dtype != dtype:
        known = _kept.room = Room(widths, dtype)
    return known
