"""Compiled kernels on disk, so that the next process does not compile them again. Nothing depends on them.

numba's own cache has one index per function and numbered data files, and can load wrong code: it compares a
function's own file only, so it misses an edit of a callee in another file; it writes the index before the
data, so a process killed in between leaves an index that names data of an earlier version; and two processes
that write at once may choose the same number. A truncated file raises an error.

Here every compiled function is one file, named by a hash of all that it depends on, and verified when it is
read. A file that is missing, truncated, damaged or of other sources is compiled again, and one that cannot be
written is done without. Versions of the package that share a folder do not see each other's files.
"""

from __future__ import annotations

import glob
import os
import pickle
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile

KEPT = 16
"""Files kept per function: those of other versions, processors and argument types; older ones are deleted."""

DIGEST = sha256().digest_size


class KernelFiles(IndexDataCacheFile):  # type: ignore[misc]  # numba has no types
    """The files of one function: what numba asks of a cache file, without an index."""

    def save(self, key: Any, data: Any) -> None:
        """Write one compiled function: to a temporary file that then takes its name, so never in part."""
        content = self._dump((self._source_stamp, key, data))
        with self._open_for_write(str(self._path(key))) as file:
            file.write(sha256(content).digest() + content)
        self._drop_old_files()

    def load(self, key: Any) -> Any:
        """The compiled function, or None if there is none that can be used."""
        try:
            content = self._path(key).read_bytes()
        except OSError:  # not there, or not to be read
            return None
        if sha256(content[DIGEST:]).digest() != content[:DIGEST]:  # truncated or damaged
            return None
        stamp, written_for, data = pickle.loads(content[DIGEST:])
        return data if (stamp, written_for) == (self._source_stamp, key) else None

    def flush(self) -> None:
        """Forget the function, as its `recompile()` asks for."""
        for path in self._files():
            path.unlink(missing_ok=True)

    def _path(self, key: Any) -> Path:
        dependencies = sha256(repr((self._version, self._source_stamp, key)).encode()).hexdigest()
        base = self._index_name.removesuffix(".nbi")
        return Path(self._cache_path, f"{base}.{dependencies[:24]}.nbc")

    def _files(self) -> list[Path]:
        """All files of the function, also of versions in which it began at another line."""
        name = self._index_name.rpartition("-")[0]
        return list(Path(self._cache_path).glob(f"{glob.escape(name)}-*"))

    def _drop_old_files(self) -> None:
        by_age = sorted(self._files(), key=lambda path: path.stat().st_mtime)
        for path in by_age[:-KEPT]:
            path.unlink(missing_ok=True)


class KernelCache(FunctionCache):  # type: ignore[misc]
    """A function's cache, in the folder that numba chooses; RuntimeError if there is none to write to."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        folder = os.path.dirname(os.path.abspath(function.__code__.co_filename))
        self._cache_file = KernelFiles(self.cache_path, self._impl.filename_base, sources(folder))

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write one compiled function if that is possible."""
        with suppress(OSError):  # a full disk, a folder taken away: the next process compiles again
            super().save_overload(sig, data)


@cache
def sources(folder: str) -> bytes:
    """A hash of the contents of all files with functions that a kernel of that folder may call.

    These are the files of this folder, those beside the kernel, and the `kernels` of its package. Contents
    and not times and sizes, since copies and container layers keep or change times as they like; 26
    files take 1 ms.
    """
    paths = {*_beside(os.path.dirname(os.path.abspath(__file__))), *_beside(folder), *_kernels_of(folder)}
    total = sha256()
    for path in sorted(paths):
        content = Path(path).read_bytes()
        total.update(f"{os.path.basename(path)} {len(content)}\n".encode() + content)
    return total.digest()


def _beside(folder: str) -> Iterator[str]:
    return (os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".py"))


def _kernels_of(folder: str) -> Iterator[str]:
    """The files `kernels.py` and `kernels/*.py` of the package that has the folder, if one has."""
    package = None
    while os.path.exists(os.path.join(folder, "__init__.py")):
        package, folder = folder, os.path.dirname(folder)
    if package is None:
        return
    for place, folders, names in os.walk(package):
        folders[:] = [each for each in folders if each != "__pycache__"]
        inside = "kernels" in os.path.relpath(place, package).split(os.sep)
        for name in names:
            if name == "kernels.py" or (inside and name.endswith(".py")):
                yield os.path.join(place, name)
