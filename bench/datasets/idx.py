"""The IDX format of MNIST and its relatives: two zero bytes, a type, a rank, sizes, numbers, big-endian."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.errors import InvalidData

TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read(path: Path) -> NDArray[Any]:
    """Read the array of a gzipped IDX file."""
    try:
        with gzip.open(path) as stream:
            content = stream.read()
    except (OSError, EOFError) as error:
        raise InvalidData(f"{path} is not a gzip file: {error}") from error
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in TYPES:
        raise InvalidData(f"{path} is not an IDX file")
    rank = content[3]
    shape = np.frombuffer(content, ">i4", count=rank, offset=4)
    numbers = np.frombuffer(content, TYPES[content[2]], offset=4 + 4 * rank)
    if numbers.size != shape.prod():
        raise InvalidData(f"{path} holds {numbers.size} numbers, its header declares {tuple(shape)}")
    return numbers.reshape(shape)


def pixels(images: NDArray[Any], pool: int = 1) -> NDArray[np.float64]:
    """Images (n, h, w) of bytes as rows in [0, 1], averaged over pool × pool squares.

    >>> pixels(np.full((1, 4, 4), 255, dtype=np.uint8), pool=2)
    array([[1., 1., 1., 1.]])
    """
    n, height, width = images.shape
    if pool < 1 or height % pool or width % pool:
        raise InvalidData(f"pool must divide {height} and {width}, got {pool}")
    if pool == 1:
        return images.reshape(n, -1) / 255.0
    squares = images.reshape(n, height // pool, pool, width // pool, pool)
    means: NDArray[np.float64] = squares.mean(axis=(2, 4), dtype=np.float64) / 255.0
    return means.reshape(n, -1)
