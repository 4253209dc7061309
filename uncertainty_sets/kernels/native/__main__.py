"""`python -m uncertainty_sets.kernels.native` compiles the kernels that are missing (`make kernels`)."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path

from uncertainty_sets.kernels.native import library
from uncertainty_sets.kernels.native.sources import ROOT, kernel_files


def main() -> None:
    """Compile the kernels, or those of one file."""
    parser = argparse.ArgumentParser(prog="python -m uncertainty_sets.kernels.native", description=__doc__)
    parser.add_argument("--only", metavar="MODULE", help="one file, in this process")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="libraries for all levels, as in a wheel")
    given = parser.parse_args()
    from uncertainty_sets.kernels.native.build import CannotBuild, _prepare, build, make

    if given.only:
        _prepare()
        found = importlib.util.find_spec(given.only)
        if found is None or found.origin is None:
            sys.exit(f"there is no file {given.only}")
        try:
            make(given.only, Path(found.origin).resolve())
        except CannotBuild as error:
            sys.exit(str(error))
        return
    files = {**kernel_files("uncertainty_sets", ROOT), **kernel_files("fdro_core", ROOT)}
    try:
        build(files, given.into, given.workers)
    except CannotBuild as error:
        sys.exit(f"The kernels were not compiled ahead of time; numba compiles them when first used. {error}")
    print(library.status())


if __name__ == "__main__":
    main()
