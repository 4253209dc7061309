"""The passes over samples and weights that the shipped problems make, in numba: nothing is checked."""

from __future__ import annotations

import numpy as np

from uncertainty_sets.arrays import Array, Indices, Matrix, Vector
from uncertainty_sets.kernels.jit import entry, summing


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
