"""A made-up group of 3 % for which every effect is reversed. No download.

- Source: made here, under the licence of the project.
- Labels: 0 or 1, logistic in the features with effects of norm 1.25; reversed at "island".
- Features: ten normal numbers.
- Split: seeded, 70 % for training.
- Differs from real groups in everything but this: no model with one set of coefficients serves both sides.
"""

from __future__ import annotations

import numpy as np

from bench.datasets.federation import Federation, split_clients
from bench.datasets.registry import dataset

SHARES = {"A": 0.30, "B": 0.22, "C": 0.17, "D": 0.13, "E": 0.10, "F": 0.05, "island": 0.03}
FEATURES = 10
EFFECT = 1.25


@dataset(
    "island",
    clients="7 made-up groups, 30 to 3 %",
    features="10 numbers",
    split="seeded, by label, 30 % test",
    order=11,
)
def island(test_share: float = 0.3, seed: int = 0, samples: int = 20_000) -> Federation:
    """Load one client per group.

    Args:
        test_share: of every group's samples, by label.
        seed: of the samples, their effects and the split.
        samples: of all groups together.
    """
    rng = np.random.default_rng(seed)
    group = rng.choice(len(SHARES), size=samples, p=list(SHARES.values()))
    effects = rng.normal(size=FEATURES)
    effects *= EFFECT / np.linalg.norm(effects)
    X = rng.normal(size=(samples, FEATURES))
    side = np.where(group == len(SHARES) - 1, -1.0, 1.0)
    y = (rng.random(samples) < 1.0 / (1.0 + np.exp(-side * (X @ effects)))).astype(np.int64)
    parts = ((name, X[group == g], y[group == g]) for g, name in enumerate(SHARES))
    return Federation(
        "island", tuple(split_clients(parts, test_share, seed)), 2, ("no", "yes"), about=__doc__ or ""
    )
