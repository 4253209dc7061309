"""MNIST with QMNIST's knowledge of who wrote what: writers as clients, or 1,000 equal parts.

- Source: LeCun, Cortes and Burges, MNIST (its page states no licence; often given as CC BY-SA 3.0). Yadav
  and Bottou, "Cold case: the lost MNIST digits", 2019, github.com/facebookresearch/qmnist, BSD-style.
- Clients: "mnist-writers" has the 539 writers of the 60,000 training images, 19 to 131 images each;
  "mnist-1000" has 1,000 parts of 60 training and 10 test images.
- Features: 784 pixels, 0..255 divided by 255; `pool=2` averages 2 × 2 pixels into 196 features.
- Split: "mnist-writers" seeded and by digit within each writer, 80 % for training (the writers of the
  original test images are others, so they cannot test these clients); "mnist-1000" the original one.
- Differs from the original: the paper uses QMNIST. Its images are not read here: they are MNIST's, in the
  same order, and QMNIST re-made them within small differences of grey. The digits that both say are equal
  for all 70,000 (checked when writers are loaded).
"""

from __future__ import annotations

import numpy as np

from bench.datasets import files
from bench.datasets.federation import Client, Federation, stratified
from bench.datasets.files import File, locate
from bench.datasets.registry import dataset
from fdro_core.errors import InvalidData

LABELS = tuple(str(digit) for digit in range(10))
MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
QMNIST = "https://raw.githubusercontent.com/facebookresearch/qmnist/master/"
WRITER = 2  # the column of QMNIST's labels with the writer; column 0 is the digit


def _file(folder: str, name: str, md5: str, address: str) -> File:
    return File(f"{folder}/{name}", f"md5:{md5}", f"Get it from {address}{name}.", (address + name,))


TRAIN_IMAGES = _file("mnist", "train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", MIRROR)
TRAIN_LABELS = _file("mnist", "train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", MIRROR)
TEST_IMAGES = _file("mnist", "t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", MIRROR)
TEST_LABELS = _file("mnist", "t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", MIRROR)
QMNIST_LABELS = _file(
    "qmnist_labels", "qmnist-train-labels-idx2-int.gz", "0058f8dd561b90ffdd0f734c6a30e5e4", QMNIST
)
IMAGES = (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS)
FILES = (*IMAGES, QMNIST_LABELS)


@dataset(
    "mnist-writers",
    clients="539 writers",
    features="784 pixels",
    split="seeded, by digit in each writer, 20 % test",
    files=FILES,
    order=31,
)
def writers(
    writers: int | None = None, pool: int = 1, test_share: float = 0.2, seed: int = 0, verify: bool = True
) -> Federation:
    """Load one client per writer.

    Args:
        writers: how many, the first by QMNIST's number; None: all 539.
        pool: average over pool × pool pixels.
        test_share: of every writer's images, digit by digit.
        seed: of the split.
        verify: refuse files with other checksums than the published ones.
    """
    images, digits, facts = (
        files.read_idx(locate(file, verify=verify)) for file in (TRAIN_IMAGES, TRAIN_LABELS, QMNIST_LABELS)
    )
    if not np.array_equal(digits, facts[:, 0]):
        raise InvalidData("mnist-writers: MNIST's and QMNIST's labels are not of the same images")
    known = np.unique(facts[:, WRITER])
    if writers is not None and not 1 <= writers <= known.size:
        raise InvalidData(f"mnist-writers: writers must be in 1..{known.size}, got {writers}")
    clients = []
    for writer in known[:writers].tolist():
        rows = np.flatnonzero(facts[:, WRITER] == writer)
        X, y = files.pixels(images[rows], pool), digits[rows].astype(np.int64)
        train, test = stratified(y, test_share, np.random.default_rng([seed, writer]))
        clients.append(Client(f"writer {writer}", X[train], y[train], X[test], y[test]))
    return Federation("mnist-writers", tuple(clients), 10, LABELS, about=__doc__ or "")


@dataset(
    "mnist-1000",
    clients="1,000 equal parts, shuffled or sorted by label",
    features="784 pixels",
    split="the original",
    files=IMAGES,
    order=30,
)
def equal_parts(
    parts: int = 1000, by: str = "random", pool: int = 1, seed: int = 0, verify: bool = True
) -> Federation:
    """Load equal parts of the training and the test images.

    Args:
        parts: how many; must divide 60,000 and 10,000.
        by: "random" shuffles before cutting; "label" sorts, so that most parts hold one digit.
        pool: average over pool × pool pixels.
        seed: of the shuffle.
        verify: refuse files with other checksums than the published ones.
    """
    if parts < 1 or 10_000 % parts:
        raise InvalidData(f"mnist-1000: parts must divide 10,000, got {parts}")
    if by not in {"random", "label"}:
        raise InvalidData(f'mnist-1000: by must be "random" or "label", got {by!r}')
    halves = []
    for number, (images, labels) in enumerate(((TRAIN_IMAGES, TRAIN_LABELS), (TEST_IMAGES, TEST_LABELS))):
        digits = files.read_idx(locate(labels, verify=verify)).astype(np.int64)
        order = np.random.default_rng([seed, number]).permutation(digits.size)
        if by == "label":
            order = order[np.argsort(digits[order], kind="stable")]
        X = files.pixels(files.read_idx(locate(images, verify=verify))[order], pool)
        halves.append((np.split(X, parts), np.split(digits[order], parts)))
    (X_train, y_train), (X_test, y_test) = halves
    clients = tuple(Client(f"part {k}", X_train[k], y_train[k], X_test[k], y_test[k]) for k in range(parts))
    return Federation("mnist-1000", clients, 10, LABELS, about=__doc__ or "")
