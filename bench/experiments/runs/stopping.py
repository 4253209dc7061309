"""The stopping rule, the same for all methods: choose a model by the scores on held-out training data.

A rule picks a window of consecutive looks, and the model is the mean of the models in it. The test data
decides neither the window nor the rule, which was chosen by `python -m bench rehearse` without it. Metrics
called `last` are those of the last look, to show what the rule changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from uncertainty_sets.arrays import Array

Rule = Callable[[Array, Array], slice]
"""From the worst worker's accuracies and losses on held-out data, look by look, to a window of looks."""


def _window(scores: Array, width: int) -> slice:
    """The window of that many looks with the largest mean, the last among equals."""
    width = min(width, scores.size)
    means = np.convolve(scores, np.full(width, 1 / width), mode="valid")
    first = int(means.size - 1 - np.argmax(means[::-1].round(12)))
    return slice(first, first + width)


def _middle(scores: Array, width: int) -> slice:
    window = _window(scores, width)
    place = (window.start + window.stop) // 2
    return slice(place, place + 1)


RULES: dict[str, Rule] = {
    "the last look": lambda accuracy, loss: slice(accuracy.size - 1, accuracy.size),
    "the best look": lambda accuracy, loss: _window(accuracy, 1),
    "the middle of the best 3 looks": lambda accuracy, loss: _middle(accuracy, 3),
    "the mean of the best 3 looks": lambda accuracy, loss: _window(accuracy, 3),
    "the mean of the best 6 looks": lambda accuracy, loss: _window(accuracy, 6),
    "the mean of the best 10 looks": lambda accuracy, loss: _window(accuracy, 10),
    "the mean of the 3 looks of least loss": lambda accuracy, loss: _window(-loss, 3),
    "the mean of the 6 looks of least loss": lambda accuracy, loss: _window(-loss, 6),
    "the mean of the last 10 looks": lambda accuracy, loss: slice(max(0, accuracy.size - 10), accuracy.size),
}
RULE = "the mean of the best 3 looks"


def choose(accuracy: Sequence[float], loss: Sequence[float], rule: str = RULE) -> slice | None:
    """Return which looks the rule takes, None if there are none.

    >>> choose([0.1, 0.5, 0.9, 0.5, 0.1], [1, 1, 1, 1, 1], "the mean of the best 3 looks")
    slice(1, 4, None)
    >>> choose([0.2, 0.9, 0.1, 0.6, 0.6, 0.6], [1, 1, 1, 1, 1, 1], "the middle of the best 3 looks")
    slice(4, 5, None)
    """
    if not accuracy:
        return None
    return RULES[rule](np.asarray(accuracy, dtype=float), np.asarray(loss, dtype=float))


def tail(looks: int) -> slice:
    """Return the last fifth of so many looks, one at least.

    >>> tail(30), tail(3)
    (slice(24, 30, None), slice(2, 3, None))
    """
    return slice(looks - max(1, looks // 5), looks)


def metrics(
    rows: Sequence[Mapping[str, Any]],
    models: Sequence[Array],
    score: Callable[[Array], dict[str, Any]],
    rule: str = RULE,
    judge: str = "acc_w",
) -> tuple[dict[str, Any], Array | None]:
    """Return the metrics of the rule's model and of the last look; and that model.

    Args:
        rows: the looks, with everything that `score` gives in their last fifth.
        models: the model at each look.
        score: from a model to the entries of a look that depend on it; those on held-out data at least.
        rule: a name of RULES.
        judge: the accuracy that the rule goes by, "acc_w" or "acc_20".
    """
    window = choose([row[f"held_{judge}"] for row in rows], [row["held_loss_w"] for row in rows], rule)
    if window is None:
        nothing = dict.fromkeys(("acc_w", "acc_20", "held_acc_w", "held_acc_20"), 0.0)
        return {**nothing, "loss_w": None, "std": None}, None
    w = np.mean(models[window], axis=0)
    row, last = {**rows[window.stop - 1], **score(w)}, rows[-1]
    scores = ("acc_w", "acc_20", "loss_w", "std", "held_acc_w", "held_acc_20")
    names = (*scores, "held_loss_w", "gradients", "clock", "bits", "planes")
    found = {name: row[name] for name in names if name in row}
    found |= {f"{name}_last": last[name] for name in scores if name in last}
    if "scores" not in row:  # a look at held-out data alone
        return found, w
    found["acc_w_tail"] = float(np.mean([one["acc_w"] for one in rows[tail(len(rows))]]))
    found["accuracies"] = row["scores"].test_accuracy.round(4).tolist()
    found["losses"] = row["scores"].train_loss.round(4).tolist()
    return found, w
