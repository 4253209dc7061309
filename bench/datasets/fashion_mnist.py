"""Fashion-MNIST: 70,000 images of clothes, 28 × 28 pixels, ten classes; one class per worker.

- Source: Xiao, Rasul and Vollgraf 2017, github.com/zalandoresearch/fashion-mnist. Licence MIT.
- Clients: "fashion-mnist" has three, T-shirt/top, pullover and shirt (labels 0, 1, 2), as in agnostic
  federated learning and the paper; "fashion-mnist-10" has all ten classes.
- Features: 784 pixels, 0..255 divided by 255.
- Split: the original one, 6,000 training and 1,000 test images per class.
- Differs from the original: nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.datasets import files
from bench.datasets.federation import Federation, one_class_clients
from bench.datasets.files import listed, locate
from bench.datasets.registry import dataset

LABELS = (
    "T-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
WHERE = "Get it from https://github.com/zalandoresearch/fashion-mnist (data/fashion)."
SUMS = {
    "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
}
ADDRESSES = (
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
)
FILES = listed("fashion_mnist", SUMS, WHERE, ADDRESSES)


def _federation(name: str, classes: Sequence[int], pool: int, verify: bool) -> Federation:
    train_images, train_labels, test_images, test_labels = (
        files.read_idx(locate(file, verify=verify)) for file in FILES
    )
    parts = []
    for images, labels in ((train_images, train_labels), (test_images, test_labels)):
        rows = np.isin(labels, classes)
        parts.append((files.pixels(images[rows], pool), labels[rows].astype(np.int64)))
    clients = one_class_clients(parts[0], parts[1], classes, LABELS)
    return Federation(
        name, clients, len(clients), tuple(client.name for client in clients), about=__doc__ or ""
    )


@dataset(
    "fashion-mnist",
    clients="3: T-shirt/top, pullover, shirt",
    features="784 pixels",
    split="the original",
    files=FILES,
    order=20,
)
def three(classes: Sequence[int] = (0, 2, 6), pool: int = 1, verify: bool = True) -> Federation:
    """Load T-shirts, pullovers and shirts, one class per client.

    Args:
        classes: which of the ten, in the order of the clients.
        pool: average over pool × pool pixels.
        verify: refuse files with other checksums than the published ones.
    """
    return _federation("fashion-mnist", classes, pool, verify)


@dataset(
    "fashion-mnist-10",
    clients="10, one class each",
    features="784 pixels",
    split="the original",
    files=FILES,
    order=21,
)
def ten(pool: int = 1, verify: bool = True) -> Federation:
    """Load all ten classes, one per client."""
    return _federation("fashion-mnist-10", range(10), pool, verify)
