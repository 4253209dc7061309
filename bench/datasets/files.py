"""Where a data set's files are: the folder FDRO_DATA, else a download that a public checksum proves.

Parsed arrays that took long to make are kept as .npz in the same cache folder as downloads
(FDRO_CACHE, or the user's cache folder).

What can be wrong with files is one branch of the tree in `uncertainty_sets.errors`::

    FdroError
    └── DataError (RuntimeError)
        ├── DataMissing (FileNotFoundError)  not in FDRO_DATA, and no download is possible
        └── DataCorrupt              a file's checksum is not the known one

An option or a content that cannot be used is `fdro_core.errors.InvalidData`.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.errors import InvalidData
from uncertainty_sets.errors import FdroError

__all__ = ["DataCorrupt", "DataError", "DataMissing"]


class DataError(FdroError, RuntimeError):
    """The files of a data set cannot be used."""


class DataMissing(DataError, FileNotFoundError):
    """The files were not found; the message says where to get them."""


class DataCorrupt(DataError):
    """A file's content differs from the one that the loader knows."""


FOLDER = "FDRO_DATA"
CACHE = "FDRO_CACHE"


@dataclass(frozen=True)
class File:
    """One file of a data set.

    Attributes:
        path: inside the folder FDRO_DATA.
        checksum: "md5:…" or "sha256:…".
        where: how to get the file by hand.
        urls: public addresses of exactly that file, tried in order; none if none is known to be right.
        plain: the checksum of the file unpacked, which may lie there instead, without ".xz".
    """

    path: str
    checksum: str
    where: str
    urls: tuple[str, ...] = ()
    plain: str = ""


def listed(
    folder: str, sums: Mapping[str, str], where: str, addresses: Sequence[str] = ()
) -> tuple[File, ...]:
    """The files of a folder by their names and checksums, each at every one of the addresses."""
    return tuple(
        File(f"{folder}/{name}", checksum, where, tuple(address + name for address in addresses))
        for name, checksum in sums.items()
    )


def folder() -> Path | None:
    """The folder that FDRO_DATA names, if it is set."""
    given = os.environ.get(FOLDER)
    return Path(given).expanduser() if given else None


def cache_folder() -> Path:
    """Where downloads and parsed arrays are kept."""
    given = os.environ.get(CACHE)
    return Path(given).expanduser() if given else Path(_pooch().os_cache("fdro"))


def locate(file: File, *, verify: bool = True) -> Path:
    """Return the file's path after checking its checksum; download it if that is possible."""
    base = folder()
    if base is not None:
        candidates = [(base / file.path, file.checksum)]
        if file.plain:
            candidates.append((base / file.path.removesuffix(".xz"), file.plain))
        for path, checksum in candidates:
            if path.is_file():
                if verify:
                    _check(path, checksum)
                return path
    if not file.urls:
        raise _missing(file, base)
    return _download(file, base)


def read_bytes(path: Path) -> bytes:
    """Return the content, unpacked if the name ends in .xz."""
    return lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()


def digest(path: Path, algorithm: str) -> str:
    """Return a file's checksum in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, algorithm).hexdigest()


def cached(
    name: str, sources: Sequence[Path], settings: dict[str, Any], make: Callable[[], dict[str, NDArray[Any]]]
) -> dict[str, NDArray[Any]]:
    """Return the arrays that `make` parses from the sources, cached for the next time.

    The kept file is named after what the sources hold and the settings: a change of either makes a new one.
    """
    key = hashlib.sha256(repr(sorted(settings.items())).encode())
    for path in sources:
        key.update(digest(path, "sha256").encode())
    try:
        kept = cache_folder() / "parsed" / f"{name}-{key.hexdigest()[:16]}.npz"
    except DataMissing:  # without pooch there is no cache folder; the files themselves are there
        return make()
    try:
        with np.load(kept, allow_pickle=False) as archive:
            return dict(archive)
    except (OSError, ValueError, zipfile.BadZipFile):
        pass  # not there, or half written by a process that died: made anew
    arrays = make()
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        draft = kept.with_suffix(f".{os.getpid()}.npz")
        np.savez(draft, allow_pickle=False, **arrays)
        os.replace(draft, kept)
    except OSError:
        pass  # a cache that cannot be written costs time, nothing else
    return arrays


def _pooch() -> Any:
    try:
        import pooch
    except ImportError as error:
        raise DataMissing('downloads and the cache folder need pooch: pip install "fdro[data]"') from error
    return pooch


def _check(path: Path, checksum: str) -> None:
    algorithm, _, expected = checksum.partition(":")
    found = digest(path, algorithm)
    if found != expected:
        raise DataCorrupt(
            f"{path} has {algorithm} {found}, and the loader knows the file with {expected}. Get it again, "
            "or load(…, verify=False) to take it as it is"
        )


def _missing(file: File, base: Path | None, tried: str = "") -> DataMissing:
    place = f"{FOLDER} is not set" if base is None else f"{base / file.path} does not exist"
    return DataMissing(
        f"{file.path}: {place}{tried}. {file.where} Put it at {file.path} in a folder and set the "
        f"environment variable {FOLDER} to that folder (docs/datasets.md)"
    )


def _download(file: File, base: Path | None) -> Path:
    pooch = _pooch()
    pooch.get_logger().setLevel("WARNING")
    target = cache_folder() / "downloads" / file.path
    reasons = []
    for url in file.urls:
        try:
            return Path(pooch.retrieve(url, known_hash=file.checksum, fname=target.name, path=target.parent))
        except ValueError as error:  # pooch: the hash differs
            raise DataCorrupt(f"{url} gave another file than the one known: {error}") from error
        except Exception as error:  # what requests, urllib3 and the system raise has no common base
            reasons.append(f"{url}: {type(error).__name__}")
    raise _missing(file, base, f", and no download worked ({'; '.join(reasons)})")


TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: Path) -> NDArray[Any]:
    """Read the array of a gzipped IDX file, the format of MNIST and its relatives.

    It has two zero bytes, a type, a rank, sizes, and numbers, big-endian.
    """
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
