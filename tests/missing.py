"""Hide installed packages from a process, as if they had never been installed.

Run as a script: `python missing.py "numba scipy" program.py`; the names are those to import.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Collection, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class FinderWithout(PathFinder):
    """Finds what Python finds on sys.path, but for the hidden packages."""

    hidden: Collection[str] = ()

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] in cls.hidden:
            return None
        return super().find_spec(fullname, path, target)


def hide(packages: Collection[str]) -> None:
    """Make imports of these fail from now on, with Python's own error."""
    loaded = sorted(name for name in packages if name in sys.modules)
    assert not loaded, f"{loaded} cannot be hidden: already imported"
    FinderWithout.hidden = packages
    sys.meta_path[:] = [FinderWithout if each is PathFinder else each for each in sys.meta_path]
    assert FinderWithout in sys.meta_path


if __name__ == "__main__":
    hide(sys.argv[1].split())
    program = sys.argv[2]
    sys.argv = sys.argv[2:]
    runpy.run_path(program, run_name="__main__")
