"""scikit-learn's digits, some of them rotated by quarter turns; one client per angle. No download.

- Source and licence: those of `digits`. Licence CC BY 4.0.
- Features: 64 pixels, 0..16 divided by 16, turned by 0, 90, 180 or 270 degrees.
- Split: seeded, by digit in each client, 70 % for training. The angle of each image is drawn with the seed:
  70, 15, 10 and 5 percent of the images.
- Differs from the original: the turns.
"""

from __future__ import annotations

import numpy as np

from bench.datasets.federation import Federation, split_clients
from bench.datasets.registry import dataset
from fdro_core.problems.samples import load_digits

SHARES = (0.7, 0.15, 0.1, 0.05)


@dataset(
    "digits-rotated",
    clients="4 angles, 70 to 5 % of the images",
    features="64 pixels",
    split="seeded, by digit, 30 % test",
    order=11,
)
def digits_rotated(test_share: float = 0.3, seed: int = 0) -> Federation:
    """Load one client per angle.

    Args:
        test_share: of every client's images, by digit.
        seed: of the angles and of the split.
    """
    X, y = load_digits()
    turns = np.random.default_rng(seed).choice(len(SHARES), size=y.size, p=SHARES)
    images = X.reshape(-1, 8, 8)
    parts = (
        (
            f"{90 * turn} degrees",
            np.rot90(images[turns == turn], turn, axes=(1, 2)).reshape(-1, 64),
            y[turns == turn],
        )
        for turn in range(len(SHARES))
    )
    clients = tuple(split_clients(parts, test_share, seed))
    return Federation("digits-rotated", clients, 10, tuple(map(str, range(10))), about=__doc__ or "")
