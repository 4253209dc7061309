"""numba kernels: arrays in, arrays out, no classes, no validation.

numba's cache on disk looks at a kernel's own file only: an edit of a function that it calls in another file
would go unseen. So the cache of this folder is dropped whenever any file of it has changed.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def _drop_stale_cache(folder: Path) -> None:
    stamp = folder / "__pycache__" / "kernels.stamp"
    sources = sorted(folder.glob("*.py"))
    now = "\n".join(f"{path.name} {path.stat().st_mtime_ns} {path.stat().st_size}" for path in sources)
    if stamp.is_file() and stamp.read_text() == now:
        return
    for index in stamp.parent.glob("*.nbi"):
        index.unlink(missing_ok=True)
    stamp.parent.mkdir(exist_ok=True)
    stamp.write_text(now)


with suppress(OSError):  # a folder that cannot be written is a folder nobody edits
    _drop_stale_cache(Path(__file__).parent)
