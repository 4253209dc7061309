"""Files: replaced as a whole, and arrays in them read without trust.

After a crash there is the old file or the new one, never half of one.
"""

from __future__ import annotations

import errno
import io
import math
import os
import platform
import re
import secrets
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from fdro_core.errors import FileNotWritten

PART = ".part"
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}  # no space, or no more of it for this user or file
NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM}  # file systems that cannot


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """Open a new file that replaces `path` if the block succeeds and is deleted if it fails.

    File and folder are synchronised, so that the new file survives a power failure. Its temporary name is
    unique: two runs that write to one path do not disturb each other. If `path` is a link, the file that it
    points to is replaced.
    """
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():  # a rename would replace /dev/null by a file
            raise OSError(errno.EINVAL, "it is a folder" if target.is_dir() else "it is a device, not a file")
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_orphans(target)
        part = target.with_name(f"{target.name}.{_owner()}.{secrets.token_hex(4)}{PART}")
        try:
            with part.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        _sync_folder(target.parent)
    except OSError as error:
        kept = "; the previous file is unchanged" if os.path.isfile(target) else ""
        words = f"{path} could not be written ({error.strerror or error}){kept}"
        raise FileNotWritten(error.errno or errno.EIO, words, str(path)) from error


def check_writable(path: str | Path) -> None:
    """Raise `FileNotWritten` if `path` could not be replaced, found out with an empty file beside it."""
    with suppress(_Enough), replacing(path):
        raise _Enough


class _Enough(Exception):
    """Ends a trial before the file is replaced."""


@contextmanager
def naming_full_disk(path: str | Path) -> Iterator[None]:
    """Write to `path` inside; if the disk is full, the error names the path, which the system's does not."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL or isinstance(error, FileNotWritten):
            raise
        words = f"{path} could not be written ({error.strerror})"
        raise FileNotWritten(error.errno, words, str(path)) from error


def write_text(path: str | Path, text: str) -> None:
    """Replace a text file as a whole."""
    with replacing(path) as file:
        file.write(text.encode())


def _owner() -> str:
    """Machine and process, for temporary names."""
    return f"{re.sub('[^A-Za-z0-9]+', '-', platform.node())[:32]}-{os.getpid()}"


def _remove_orphans(target: Path) -> None:
    """Remove temporary files of `target` left by processes of this machine that were killed."""
    machine = _owner().rpartition("-")[0]
    wanted = re.compile(rf"{re.escape(f'{target.name}.{machine}-')}(\d+)\.[0-9a-f]+{re.escape(PART)}")
    for each in target.parent.iterdir():
        match = wanted.fullmatch(each.name)
        if match and not _runs(int(match[1])):
            with suppress(OSError):  # of another user, or already removed
                each.unlink()


def _runs(process: int) -> bool:
    """Whether that process runs on this machine; True if unknown."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _sync_folder(folder: Path) -> None:
    """Synchronise the folder's new entry to the disk, if the system can."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in NO_FOLDER_SYNC:
            raise
    finally:
        os.close(handle)


# -- arrays in files -----------------------------------------------------------------------------------


AnyArray = np.ndarray[Any, Any]

LONGEST_HEADER = 10_000
MAGIC = b"\x93NUMPY"


def array_of(content: bytes, name: str) -> AnyArray:
    """The array in the bytes of an npy file; `ValueError` if its header does not fit them.

    >>> array_of(b"text", "losses.npy")
    Traceback (most recent call last):
    ValueError: losses.npy is not an npy file
    """
    stream = io.BytesIO(content)
    if not content.startswith(MAGIC):
        raise ValueError(f"{name} is not an npy file")
    try:
        version = npy.read_magic(stream)
        read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
        shape, _, dtype = read(stream, max_header_size=LONGEST_HEADER)
    except KeyError:
        raise ValueError(f"{name} is in a version of the npy format that is not read") from None
    except Exception as error:  # NumPy reads the header as a Python literal, which fails in many ways
        raise ValueError(f"{name} has a damaged header: {str(error)[:80]}") from None
    if dtype.hasobject:
        raise ValueError(f"{name} holds objects, which are not read")
    rest = len(content) - stream.tell()
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != rest:
        raise ValueError(
            f"{name} has {rest} bytes, and does not hold the {shape} numbers that it claims"[:200]
        )
    stream.seek(0)
    return npy.read_array(stream, allow_pickle=False, max_header_size=LONGEST_HEADER)


def arrays_of(file: BinaryIO) -> dict[str, AnyArray]:
    """The arrays of an npz file by their names; `ValueError` for anything else."""
    try:
        with zipfile.ZipFile(file) as archive:
            return {
                name.removesuffix(".npy"): array_of(archive.read(name), name) for name in archive.namelist()
            }
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise ValueError(f"it is not an npz file, or is damaged: {error!s:.120}") from error
