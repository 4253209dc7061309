"""scikit-learn's digits: 1,797 hand-written digits of 8 × 8 pixels; one digit per worker. No download.

- Source: Alpaydin and Kaynak, "Optical recognition of handwritten digits", UCI 80 (its test part), as it
  comes with scikit-learn. Licence CC BY 4.0.
- Features: 64 pixels, 0..16 divided by 16.
- Split: seeded and by label, 70 % for training; the data has no time and no names of writers.
- Differs from the original: nothing is changed; the clients are made here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.datasets.federation import Federation, one_class_clients, stratified
from bench.datasets.registry import dataset
from fdro_core.problems.samples import load_digits


@dataset(
    "digits",
    clients="10, one digit each",
    features="64 pixels",
    split="seeded, by label, 30 % test",
    order=10,
)
def digits(digits: Sequence[int] = tuple(range(10)), test_share: float = 0.3, seed: int = 0) -> Federation:
    """Load one client per digit.

    Args:
        digits: which, in the order of the clients.
        test_share: of every digit's samples.
        seed: of the split.
    """
    X, y = load_digits()
    train, test = stratified(y, test_share, np.random.default_rng(seed))
    labels = tuple(str(digit) for digit in range(10))
    clients = one_class_clients((X[train], y[train]), (X[test], y[test]), digits, labels)
    return Federation(
        "digits", clients, len(clients), tuple(client.name for client in clients), about=__doc__ or ""
    )
