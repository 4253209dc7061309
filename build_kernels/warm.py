"""Let numba compile every kernel of this checkout once, before many processes ask for them at the same time.

`python -m build_kernels.warm PROCESSES` (`make test`). Processes that find a kernel missing compile it, also
if another one is about to: the processes of a test run would spend most of their first minutes on the same
kernels. What was compiled before is found on disk (uncertainty_sets/kernels/cache.py).
"""

from __future__ import annotations

import multiprocessing
import sys
from collections import defaultdict
from pathlib import Path

from build_kernels.library import PACKAGES, ROOT
from build_kernels.lower import arguments_of, entries
from uncertainty_sets import compiled


def compile_file(names: list[str]) -> None:
    """Compile the entries of one file, which have most of their callees in common."""
    from numba import config

    from uncertainty_sets.kernels import jit

    entries(list(PACKAGES))
    for name in [] if config.DISABLE_JIT else names:
        function = jit.ENTRIES[name].function
        function.compile(arguments_of(name))  # type: ignore[attr-defined]  # numba has no types


def main(processes: int) -> None:
    """Compile the largest files first, so that no process is left with one at the end."""
    by_file: dict[Path, list[str]] = defaultdict(list)
    for name in entries([each for each in PACKAGES if compiled.kernels(each).library is None]):
        by_file[ROOT / f"{name.rpartition('.')[0].replace('.', '/')}.py"].append(name)
    files = sorted(by_file, key=lambda file: -file.stat().st_size)
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        pool.map(compile_file, [by_file[file] for file in files], chunksize=1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
