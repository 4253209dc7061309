"""Eight made-up hospitals whose patients conflict: those of `fdro train --example`. No download.

- Source: made here, `fdro_core.problems.samples.make_hospitals`, under the licence of the project.
- Labels: 0 healthy, 1 ill.
- Features: six; one tells at every hospital, one is a shortcut that misleads at the smallest, four are noise.
- Split: seeded, 70 % for training.
- Differs from real hospitals in everything but the conflict.
"""

from __future__ import annotations

import numpy as np

from bench.datasets.federation import Client, Federation
from bench.datasets.registry import dataset
from bench.datasets.splits import stratified
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
    clients = []
    for number, name in enumerate(np.unique(hospital)):
        own, y = X[hospital == name], ill[hospital == name].astype(np.int64)
        train, test = stratified(y, test_share, np.random.default_rng([seed, number]))
        clients.append(Client(str(name), own[train], y[train], own[test], y[test]))
    return Federation("hospitals", tuple(clients), 2, ("healthy", "ill"), about=__doc__ or "")
