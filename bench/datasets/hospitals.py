"""Eight made-up hospitals whose patients conflict: those of `fdro train --example`. No download.

- Source: made here, `fdro_core.problems.samples.make_hospitals`, under the licence of the project.
- Labels: 0 healthy, 1 ill.
- Features: six; one tells at every hospital, one is a shortcut that misleads at the smallest, four are noise.
- Split: seeded, 70 % for training.
- Differs from real hospitals in everything but the conflict.
"""

from __future__ import annotations

import numpy as np

from bench.datasets.federation import Federation, split_clients
from bench.datasets.registry import dataset
from fdro_core.problems.samples import make_hospitals


@dataset(
    "hospitals",
    clients="8 made-up hospitals",
    features="6 numbers",
    split="seeded, by label, 30 % test",
    order=12,
)
def hospitals(test_share: float = 0.3, seed: int = 0) -> Federation:
    """Load one client per hospital.

    Args:
        test_share: of every hospital's patients, by label.
        seed: of the patients and of the split.
    """
    X, ill, hospital = make_hospitals(seed)
    y = ill.astype(np.int64)
    parts = ((str(name), X[hospital == name], y[hospital == name]) for name in np.unique(hospital))
    return Federation(
        "hospitals", tuple(split_clients(parts, test_share, seed)), 2, ("healthy", "ill"), about=__doc__ or ""
    )
