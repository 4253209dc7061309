"""A network of dense layers as a local problem: products by BLAS, the passes between them compiled."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fdro_core import digests
from fdro_core.errors import InvalidProblem
from fdro_core.problems import kernels
from fdro_core.problems.kernels import cross_entropy, ridge
from fdro_core.problems.shared import as_labels, as_matrix, check_l2, draw
from uncertainty_sets.arrays import Array

# -- the arrays that it computes in --------------------------------------------------------------------
# Workers of one process take their turns in the same arrays, which so stay in the processor's cache. What a
# problem returns is never one of them.


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


# -- the problem ---------------------------------------------------------------------------------------


PASSES: dict[np.dtype[Any], tuple[Any, Any, Any]] = {
    np.dtype(np.float64): (kernels.thin, kernels.rectify, kernels.backward),
    np.dtype(np.float32): (
        kernels.thin_single,
        kernels.rectify_single,
        kernels.backward_single,
    ),
}
"""Dropout of the features, a hidden layer, and the way back through it, for each arithmetic."""

CHANCES = 2**32  # what a rate of dropout is a share of
KEYS = 2**63


class DenseNetwork:
    """f(w) = mean_i cross-entropy(y_i, network(x_i)) + l2/2·‖w‖²; layers h ← ReLU(Wh + b), the last Wh + b.

    w holds W (outputs, inputs) in C order and b of every layer in turn, as PyTorch's `parameters_to_vector`
    has it. Loss and gradient are float64, the arithmetic between is `dtype`. A gradient costs three products
    per layer, 6·samples·p operations, at the speed of BLAS; nothing of size is allocated but the gradient.

    Dropout is drawn with `rng`: without one, as for all data at once, the loss is the network's without
    dropout. Calls may come from several threads.

    Args:
        X: (samples, features).
        y: labels 0..classes-1.
        classes: C.
        hidden: widths of the hidden layers; none makes it softmax regression.
        dropout: rates before each layer, so one more than there are hidden ones, the first for the features;
            one number is for the hidden units alone.
        l2: the ridge, over every entry of w.
        seed: of the first weights, uniform within ±1/√inputs as in `torch.nn.Linear`; by default they are
            drawn with the driver's seed.
        dtype: float32, or float64, which converges furthest and takes twice as long.

    >>> problem = DenseNetwork([[1.0], [-1.0]], [0, 1], classes=2, hidden=(3,), seed=0)
    >>> problem.dimension
    14
    >>> loss, gradient = problem.loss_and_gradient(np.zeros(14))
    >>> round(loss, 6), gradient.shape
    (0.693147, (14,))
    """

    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: int,
        hidden: Sequence[int] = (64,),
        dropout: float | Sequence[float] = 0.0,
        l2: float = 0.0,
        seed: int | None = None,
        dtype: Any = np.float32,
    ) -> None:
        self.dtype = _arithmetic(dtype)
        self.X = _cast(as_matrix("DenseNetwork", X, intercept=False), self.dtype)
        self.y = as_labels("DenseNetwork", y, len(self.X), classes)
        self.classes = int(classes)
        self.widths = (self.X.shape[1], *_widths(hidden), self.classes)
        self.dropout = _rates(dropout, len(self.widths) - 1)
        self.l2 = check_l2("DenseNetwork", l2)
        self.seed = seed
        self.dimension = sum((before + 1) * after for before, after in pairwise(self.widths))
        self.samples = len(self.X)
        self._limits = [int(rate * CHANCES) for rate in self.dropout]
        self._scales = [1.0 / (1.0 - rate) for rate in self.dropout]

    def initial_point(self, rng: np.random.Generator) -> Array:
        """First weights and biases: uniform within ±1/√inputs of each layer."""
        own = rng if self.seed is None else np.random.default_rng(self.seed)
        layers = [
            own.uniform(-1.0, 1.0, size=(before + 1) * after) / np.sqrt(before)
            for before, after in pairwise(self.widths)
        ]
        return np.concatenate(layers)

    def loss_and_gradient(
        self, w: Array, rng: np.random.Generator | None = None, batch_size: int | None = None
    ) -> tuple[float, Array]:
        """f(w) and ∇f(w), on a mini-batch if `rng` and `batch_size` are given, with dropout if `rng` is."""
        drawn = draw(rng, batch_size, self.samples)
        count = self.samples if drawn is None else drawn.size
        work = room(self.widths, self.dtype)
        loss, gradient = 0.0, np.empty(0)
        with np.errstate(over="ignore", invalid="ignore"):  # a run that diverges shows it in the loss
            work.load(w)
            for begin in range(0, count, ROWS):
                part = slice(begin, begin + ROWS)
                rows = part if drawn is None else drawn[part]
                labels = self.y[rows]
                loss += self._evaluate(work, rows, labels, rng, labels.size / count)
                if begin:
                    gradient += work.slope
                else:
                    gradient = work.slope.astype(np.float64)
        if self.l2:
            loss += ridge(w, gradient, self.l2)
        return loss, gradient

    def _evaluate(
        self,
        work: Room,
        rows: slice | NDArray[np.int64],
        labels: NDArray[np.int64],
        rng: np.random.Generator | None,
        share: float,
    ) -> float:
        """The loss of some samples, times their share of the batch; `work.slope` becomes its gradient."""
        keys = None
        if rng is not None and any(self._limits):
            keys = rng.integers(KEYS, size=len(self._limits)).tolist()
        inputs = self.X[rows] if isinstance(rows, slice) else work.gather(self.X, rows)
        if keys is not None and self._limits[0]:
            if isinstance(rows, slice):
                inputs = work.copy(inputs)
            PASSES[self.dtype][0](inputs, self._limits[0], self._scales[0], keys[0])
        # 1. Forward; the scores become the slope of the loss in them.
        layers = self._forward(work, inputs, keys)
        scores = layers[-1].astype(np.float64)
        loss = cross_entropy(scores, labels)
        slope = np.multiply(scores, share, out=layers[-1], casting="same_kind")
        # 2. Backward, layer by layer: W, then b and the slope in the layer's inputs.
        for place in range(len(layers) - 1, 0, -1):
            np.matmul(slope.T, layers[place - 1], out=work.slopes[place - 1].W)
            if place == len(layers) - 1:
                np.add.reduce(slope, axis=0, out=work.slopes[place - 1].b)
            if place > 1:
                back = work.back(place - 1, len(labels))
                np.matmul(slope, work.layers[place - 1].W, out=back)
                scale = self._scales[place - 1] if keys is not None else 1.0
                PASSES[self.dtype][2](back, layers[place - 1], scale, work.slopes[place - 2].b)
                slope = back
        return loss * share

    def _forward(self, work: Room, inputs: Floats, keys: list[int] | None) -> list[Floats]:
        """The inputs, what every hidden layer gives, and the scores."""
        found = [inputs]
        for place, layer in enumerate(work.layers, start=1):
            out = work.outputs(place, len(inputs))
            np.matmul(found[-1], layer.W.T, out=out)
            if place == len(work.layers):
                np.add(out, layer.b, out=out)
            elif keys is None:
                PASSES[self.dtype][1](out, layer.b, 0, 1.0, 0)
            else:
                limit, scale = self._limits[place], self._scales[place]
                PASSES[self.dtype][1](out, layer.b, limit, scale, keys[place])
            found.append(out)
        return found

    def predict(self, w: Array, inputs: ArrayLike) -> Array:
        """The scores of every class at w, (samples, classes), without dropout."""
        samples = np.asarray(inputs)
        if samples.ndim != 2 or samples.shape[1] != self.widths[0]:
            raise InvalidProblem(
                f"DenseNetwork: inputs must be (samples, {self.widths[0]}), got shape {samples.shape}"
            )
        work = room(self.widths, self.dtype)
        scores = np.empty((len(samples), self.classes))
        with np.errstate(over="ignore", invalid="ignore"):
            work.load(np.asarray(w, dtype=np.float64))
            for begin in range(0, len(samples), ROWS):
                rows = slice(begin, begin + ROWS)
                scores[rows] = self._forward(work, work.copy(samples[rows]), None)[-1]
        return scores

    def accuracy(self, w: Array, X: ArrayLike | None = None, y: ArrayLike | None = None) -> float:
        """Return the share of correct predictions on its own samples or on (X, y)."""
        labels = self.y if y is None else np.asarray(y)
        return float(np.mean(np.argmax(self.predict(w, self.X if X is None else X), axis=1) == labels))

    def fingerprint(self) -> str:
        """A digest of samples, labels, layers, dropout, l2 and arithmetic, without the first weights."""
        return digests.short(
            X=self.X, y=self.y, widths=self.widths, dropout=self.dropout, l2=self.l2, dtype=str(self.dtype)
        )


def _arithmetic(dtype: Any) -> np.dtype[Any]:
    for known in PASSES:
        if dtype in (known, known.name):
            return known
    raise InvalidProblem(f"DenseNetwork: dtype must be float32 or float64, got {dtype!r}")


def _cast(X: Array, dtype: np.dtype[Any]) -> Floats:
    with np.errstate(over="ignore"):
        cast = X.astype(dtype, copy=False)
    if not np.isfinite(cast).all():
        raise InvalidProblem(
            "DenseNetwork: X holds numbers too large for float32; scale the features, or give dtype=float64"
        )
    return cast


def _widths(hidden: Sequence[int]) -> tuple[int, ...]:
    widths = tuple(hidden)
    if not all(isinstance(width, int | np.integer) and width >= 1 for width in widths):
        raise InvalidProblem(f"DenseNetwork: hidden must be whole numbers >= 1, got {hidden!r}")
    return tuple(int(width) for width in widths)


def _rates(dropout: float | Sequence[float], layers: int) -> tuple[float, ...]:
    rates = (0.0, *[float(dropout)] * (layers - 1)) if np.ndim(dropout) == 0 else tuple(dropout)  # type: ignore[arg-type]
    if len(rates) != layers or not all(0 <= rate < 1 for rate in rates):
        raise InvalidProblem(
            f"DenseNetwork: dropout must be one rate in [0, 1), or {layers}, one before each layer; got "
            f"{dropout!r}"
        )
    return tuple(float(rate) for rate in rates)
