"""The stopping rule, the same for all methods: "best on held-out training data".

The model is the one with the best worst-worker accuracy on data held out of training, averaged over three
looks in a row; among equals the last. The test data has no say. `last` metrics are those of the end of the
run, so that it can be seen what the rule does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

NAME = "best worst-worker accuracy on held-out training data, mean of three looks"
SMOOTHING = 3


def choose(held: list[float]) -> int | None:
    """Which look the rule takes, None where there was none.

    >>> choose([0.1, 0.5, 0.9, 0.5, 0.1])
    2
    >>> choose([0.2, 0.9, 0.1, 0.6, 0.6, 0.6])
    4
    """
    if not held:
        return None
    values = np.asarray(held)
    width = min(SMOOTHING, values.size)
    means = np.convolve(values, np.full(width, 1 / width), mode="valid")
    best = int(values.size - width - np.argmax(means[::-1].round(12)))  # the last among equals
    return best + width // 2


def metrics(rows: list[dict[str, Any]]) -> tuple[dict[str, Any], int | None]:
    """What the tables show, of the look that the rule takes and of the last one; and which look it was."""
    best = choose([row["held_acc_w"] for row in rows])
    if best is None:
        return {"acc_w": 0.0, "loss_w": None, "std": None, "held_acc_w": 0.0}, None
    row, last = rows[best], rows[-1]
    names = ("acc_w", "loss_w", "std", "held_acc_w", "held_loss_w", "gradients", "clock", "bits", "planes")
    found = {name: row[name] for name in names}
    found |= {f"{name}_last": last[name] for name in ("acc_w", "loss_w", "std", "held_acc_w")}
    found["acc_w_tail"] = float(np.mean([one["acc_w"] for one in rows[-max(1, len(rows) // 5) :]]))
    found["accuracies"] = row["scores"].test_accuracy.round(4).tolist()
    found["losses"] = row["scores"].train_loss.round(4).tolist()
    return found, best
