"""Files that are expensive to make, on disk under names that say all that they depend on.

Kernels in every form, and outputs of the documentation's notebooks, are kept here for all checkouts,
environments and wheels of one user: a name ends in a hash of all that the file depends on, so versions do
not see each other's files. The folder is `FDRO_CACHE`, or `fdro` in the user's cache folder. Nothing depends
on it: what is missing, truncated or damaged is made again, and what cannot be written is done without.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

KEPT = 8
"""Files kept of those that differ in their last part, the hash; older ones are deleted."""

DIGEST = sha256().digest_size


def folder() -> Path:
    """The folder, which may not exist."""
    if named := os.environ.get("FDRO_CACHE"):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base if os.path.isabs(base) else os.path.expanduser("~/.cache")) / "fdro"


def writable() -> bool:
    """Whether files can be kept; makes the folder if need be."""
    try:
        folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder()).close()
    except OSError:
        return False
    return True


def path(name: str) -> Path | None:
    """The file of that name if it is there and whole: data, then its hash."""
    file = folder() / name
    try:
        content = file.read_bytes()
    except OSError:
        return None
    return file if sha256(content[:-DIGEST]).digest() == content[-DIGEST:] else None


def read(name: str) -> bytes | None:
    """What was written under that name, or None."""
    file = path(name)
    return None if file is None else file.read_bytes()[:-DIGEST]


def write(name: str, data: bytes) -> None:
    """Keep data: in a temporary file that then takes its name, so never in part.

    Args:
        name: `what.hash.kind`; of all hashes, the newest are kept.
        data: the contents.
    """
    file = folder() / name
    fresh = None
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=".new-", delete=False) as fresh:
            fresh.write(data + sha256(data).digest())
        os.replace(fresh.name, file)
    except OSError:  # a full disk, a folder taken away
        if fresh is not None:
            with suppress(OSError):
                os.unlink(fresh.name)
        return
    _drop_old(file)


def _drop_old(file: Path) -> None:
    """Delete the oldest files that differ from this one in the hash alone."""
    what, _, kind = file.name.rsplit(".", 2)
    found = []
    for each in file.parent.iterdir():
        if each.name.rsplit(".", 2)[::2] == [what, kind]:
            with suppress(OSError):  # deleted by another process
                found.append((each.stat().st_mtime_ns, each))
    for _, each in sorted(found)[:-KEPT]:
        with suppress(OSError):
            each.unlink()
