"""`python -m build_kernels` compiles the kernels of this checkout, in place."""

from __future__ import annotations

import sys

from build_kernels.library import ROOT, CannotBuild, build

if __name__ == "__main__":
    try:
        made = build(ROOT)
    except CannotBuild as error:
        sys.exit(f"The kernels were not compiled ahead of time; numba compiles them when first used. {error}")
    for file in made.values():
        print(f"{file.relative_to(ROOT)}: {file.stat().st_size // 1024} KB")
