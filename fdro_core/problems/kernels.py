"""The passes over samples and weights that the shipped problems make, in numba: nothing is checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from uncertainty_sets.arrays import Array, Indices, Matrix, SingleMatrix, SingleVector, Vector
from uncertainty_sets.kernels.jit import entry, summing

# -- linear problems -----------------------------------------------------------------------------------


@entry("gradient")
@summing
def ridge(w: Vector, gradient: Vector, l2: float) -> float:
    """Return l2/2·‖w‖² and add its gradient to `gradient`."""
    total = 0.0
    for i in range(w.size):
        total += w[i] * w[i]
        gradient[i] += l2 * w[i]
    return 0.5 * l2 * total


@summing
def _one_sample(scores: Array, i: int, label: int, part: float) -> float:
    """A sample's cross-entropy; its row of the scores becomes part·(softmax - one-hot)."""
    classes = scores.shape[1]
    # 1. The largest score, which keeps every exponential within [0, 1].
    top = scores[i, 0]
    for c in range(1, classes):
        top = max(top, scores[i, c])
    # 2. The loss: log Σ exp(scores) minus the label's own score.
    mass = 0.0
    own = scores[i, label] - top
    for c in range(classes):
        scores[i, c] = np.exp(scores[i, c] - top)
        mass += scores[i, c]
    loss: float = np.log(mass) - own
    # 3. Its gradient in place of the scores.
    scale = part / mass
    for c in range(classes):
        scores[i, c] *= scale
    scores[i, label] -= part
    return loss


@entry("scores")
@summing
def cross_entropy(scores: Matrix, labels: Indices) -> float:
    """The mean cross-entropy of the samples; scores (n, C) become its gradient, (softmax - one-hot)/n."""
    share = 1.0 / labels.size
    total = 0.0
    for i in range(labels.size):
        total += _one_sample(scores, i, labels[i], share)
    return total * share


@entry("scores", "losses")
@summing
def cross_entropies(scores: Matrix, labels: Indices, losses: Vector) -> None:
    """Write each sample's cross-entropy into `losses`; the scores become its gradient, softmax - one-hot."""
    for i in range(labels.size):
        losses[i] = _one_sample(scores, i, labels[i], 1.0)


# -- networks ------------------------------------------------------------------------------------------
# A mask is not stored. Whether a unit is dropped follows from its place and a key, by a hash whose bits are
# as good as random (the finaliser of MurmurHash3); and a unit that was dropped shows in its output, which is
# 0. Each pass has a form in 64 and one in 32 bits.


@summing
def _bits(place: int, low: Any, high: Any) -> Any:
    """32 bits that look random, from a place and the two halves of a key."""
    x = np.uint32((np.uint32(place) + low) * np.uint32(0x9E3779B9))
    x = np.uint32((x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)) ^ high
    x = np.uint32((x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35))
    return np.uint32(x ^ (x >> np.uint32(16)))


@summing
def _thin(values: Any, limit: int, scale: Any, zero: Any, key: int) -> None:
    low, high, least = np.uint32(key), np.uint32(key >> 32), np.uint32(limit)
    width = values.shape[1]
    for i in range(values.shape[0]):
        for c in range(width):
            kept = _bits(i * width + c, low, high) >= least
            values[i, c] = scale * values[i, c] if kept else zero


@summing
def _rectify(values: Any, bias: Any, limit: int, scale: Any, zero: Any, key: int) -> None:
    low, high, least = np.uint32(key), np.uint32(key >> 32), np.uint32(limit)
    width = values.shape[1]
    for i in range(values.shape[0]):
        if limit == 0:
            for c in range(width):
                value = values[i, c] + bias[c]
                values[i, c] = zero if value < zero else value  # which keeps NaN
        else:
            for c in range(width):
                value = values[i, c] + bias[c]
                kept = _bits(i * width + c, low, high) >= least
                values[i, c] = zero if (value < zero or not kept) else scale * value


@summing
def _back(slopes: Any, outputs: Any, scale: Any, zero: Any, bias: Any) -> None:
    bias[:] = zero
    for i in range(slopes.shape[0]):
        for c in range(slopes.shape[1]):
            slope = scale * slopes[i, c] if outputs[i, c] > zero else zero
            slopes[i, c] = slope
            bias[c] += slope


@entry("values")
@summing
def thin(values: Matrix, limit: int, scale: float, key: int) -> None:
    """Dropout: an entry becomes 0 with probability limit/2³², else scale times itself."""
    _thin(values, limit, scale, 0.0, key)


@entry("values")
@summing
def thin_single(values: SingleMatrix, limit: int, scale: float, key: int) -> None:
    """`thin` in 32 bits."""
    _thin(values, limit, np.float32(scale), np.float32(0.0), key)


@entry("values")
@summing
def rectify(values: Matrix, bias: Vector, limit: int, scale: float, key: int) -> None:
    """values ← dropout(ReLU(values + bias)); without dropout if limit is 0."""
    _rectify(values, bias, limit, scale, 0.0, key)


@entry("values")
@summing
def rectify_single(values: SingleMatrix, bias: SingleVector, limit: int, scale: float, key: int) -> None:
    """`rectify` in 32 bits."""
    _rectify(values, bias, limit, np.float32(scale), np.float32(0.0), key)


@entry("slopes", "bias")
@summing
def backward(slopes: Matrix, outputs: Matrix, scale: float, bias: Vector) -> None:
    """From the slope in the outputs of `rectify` to that in its values, in place; bias ← its sum."""
    _back(slopes, outputs, scale, 0.0, bias)


@entry("slopes", "bias")
@summing
def backward_single(slopes: SingleMatrix, outputs: SingleMatrix, scale: float, bias: SingleVector) -> None:
    """`backward` in 32 bits."""
    _back(slopes, outputs, np.float32(scale), np.float32(0.0), bias)
