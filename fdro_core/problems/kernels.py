"""The passes over samples and weights that the shipped problems make, in numba: nothing is checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from uncertainty_sets.arrays import Array, Cube, Indices, Matrix, SingleMatrix, SingleVector, Vector
from uncertainty_sets.kernels.exponential import exp, log
from uncertainty_sets.kernels.jit import entry, summing
from uncertainty_sets.kernels.scan import larger, largest, smaller

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


# -- linear models of all groups at once ----------------------------------------------------------------
# Samples are taken in blocks: a block's rows are still in the cache when the slopes are known, so that X is
# read once for losses and gradients.

BLOCK = 128
LOGISTIC, SQUARED, HUBER, ABSOLUTE, SMOOTHED, SOFTMAX = 0, 1, 2, 3, 4, 5
"""What a sample loses at its score s and its number y: log(1 + e^(-ys)); of the residual r = s - y the losses
of linear.py, with `width` for Huber's epsilon and the smoothed loss's width; or the cross-entropy of label y,
with one score for each class."""


# Loops start at 0: numba looks for negative indices in others, which keeps them from vector units.


@summing
def _logistic(y: Array, slopes: Array, losses: Array, bends: Array) -> None:
    for i in range(losses.size):
        m = -y[i] * slopes[i]
        e = exp(-abs(m))
        share = 1.0 / (1.0 + e)
        losses[i] = larger(m, 0.0) + log(1.0 + e)
        slopes[i] = -y[i] * (share if m >= 0.0 else e * share)
        bends[i] = y[i] * y[i] * (e * share) * share


@summing
def _squared(y: Array, slopes: Array, losses: Array, bends: Array) -> None:
    for i in range(losses.size):
        r = slopes[i] - y[i]
        losses[i] = 0.5 * r * r
        slopes[i] = r
        bends[i] = 1.0


@summing
def _huber(y: Array, width: float, slopes: Array, losses: Array, bends: Array) -> None:
    for i in range(losses.size):
        r = slopes[i] - y[i]
        s = smaller(larger(r, -width), width)
        losses[i] = s * (r - 0.5 * s)
        slopes[i] = s
        bends[i] = 1.0 if abs(r) <= width else 0.0


@summing
def _absolute(y: Array, slopes: Array, losses: Array, bends: Array) -> None:
    for i in range(losses.size):
        r = slopes[i] - y[i]
        losses[i] = abs(r)
        slopes[i] = 1.0 if r > 0.0 else (-1.0 if r < 0.0 else 0.0)
        bends[i] = 0.0


@summing
def _smoothed(y: Array, width: float, center: Array, slopes: Array, losses: Array, bends: Array) -> None:
    for i in range(losses.size):
        r = slopes[i] - y[i]
        s = smaller(larger(center[i] + r / width, -1.0), 1.0)
        move = s - center[i]
        losses[i] = s * r - 0.5 * width * move * move
        slopes[i] = s
        bends[i] = 1.0 / width if abs(s) < 1.0 else 0.0


@summing
def _softmax(y: Array, slopes: Array, losses: Array) -> None:
    classes = slopes.size // losses.size
    for i in range(losses.size):
        row = slopes[i * classes : (i + 1) * classes]
        top = largest(row)
        for c in range(classes):
            row[c] -= top
        losses[i] = -row[int(y[i])]
    for k in range(slopes.size):
        slopes[k] = exp(slopes[k])
    for i in range(losses.size):
        row = slopes[i * classes : (i + 1) * classes]
        mass = 0.0
        for c in range(classes):
            mass += row[c]
        for c in range(classes):
            row[c] /= mass
        row[int(y[i])] -= 1.0
        losses[i] += log(mass)


@summing
def _block(
    first: int, after: int, kind: int, y: Array, width: float, center: Array, slopes: Array, losses: Array,
    bends: Array,
) -> None:  # fmt: skip
    outputs = slopes.size // losses.size
    y, losses, bends = y[first:after], losses[first:after], bends[first:after]
    slopes = slopes[first * outputs : after * outputs]
    if kind == LOGISTIC:
        _logistic(y, slopes, losses, bends)
    elif kind == SQUARED:
        _squared(y, slopes, losses, bends)
    elif kind == HUBER:
        _huber(y, width, slopes, losses, bends)
    elif kind == ABSOLUTE:
        _absolute(y, slopes, losses, bends)
    elif kind == SMOOTHED:
        _smoothed(y, width, center[first:after], slopes, losses, bends)
    else:
        _softmax(y, slopes, losses)


@entry("slopes", "losses", "bends")
@summing
def sample_losses(
    kind: int, y: Vector, width: float, center: Vector, slopes: Vector, losses: Vector, bends: Vector
) -> None:
    """Each sample's loss, and its slope in place of its scores; its second derivative if it has one score.

    Args:
        kind: LOGISTIC, …, SOFTMAX.
        y: a number for each sample: ±y of the logistic loss, the target, or the label.
        width, center: of the kinds that have them; else `center` may be empty.
        slopes: the scores, one after the other for each sample.
        losses: one for each sample.
        bends: one for each sample; empty with SOFTMAX.
    """
    for first in range(0, losses.size, BLOCK):
        _block(first, min(first + BLOCK, losses.size), kind, y, width, center, slopes, losses, bends)


@entry("slopes", "losses", "bends", "jacobian", "means")
@summing
def linear_losses(
    X: Matrix, W: Matrix, kind: int, y: Vector, width: float, center: Vector, group: Indices, share: Vector,
    slopes: Vector, losses: Vector, bends: Vector, jacobian: Cube, means: Vector,
) -> None:  # fmt: skip
    """`sample_losses` at the scores X W' + b, and every group's loss and gradient in the same pass over X.

    Args:
        X: (samples, features).
        W: (outputs, features + 1), with b last.
        kind, y, width, center, slopes, losses, bends: see `sample_losses`; `slopes` need not hold scores.
        group: each sample's.
        share: of each sample in its group.
        jacobian: (groups, outputs, features + 1), 0 at first; without groups neither it nor `means` is made.
        means: every group's loss, 0 at first.
    """
    outputs, features = W.shape[0], X.shape[1]
    for first in range(0, losses.size, BLOCK):
        after = min(first + BLOCK, losses.size)
        for i in range(first, after):
            row = X[i]
            for c in range(outputs):
                weights, total = W[c], 0.0
                for j in range(features):
                    total += row[j] * weights[j]
                slopes[i * outputs + c] = total + weights[features]
        _block(first, after, kind, y, width, center, slopes, losses, bends)
        if jacobian.shape[0]:
            for i in range(first, after):
                row = X[i]
                means[group[i]] += share[i] * losses[i]
                for c in range(outputs):
                    part = share[i] * slopes[i * outputs + c]
                    sums = jacobian[group[i], c]
                    for j in range(features):
                        sums[j] += part * row[j]
                    sums[features] += part


@entry("jacobian")
@summing
def sparse_gradients(
    values: Vector, columns: Indices, starts: Indices, group: Indices, share: Vector, slopes: Vector,
    jacobian: Cube,
) -> None:  # fmt: skip
    """Add every group's gradient to `jacobian`, (groups, outputs, features + 1), for rows as in a CSR matrix.

    Args:
        values, columns, starts: the matrix.
        group, share, slopes: as in `linear_losses`, with the slopes made.
        jacobian: 0 at first.
    """
    outputs, features = jacobian.shape[1], jacobian.shape[2] - 1
    for i in range(group.size):
        for c in range(outputs):
            part = share[i] * slopes[i * outputs + c]
            sums = jacobian[group[i], c]
            for k in range(starts[i], starts[i + 1]):
                sums[columns[k]] += part * values[k]
            sums[features] += part


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
