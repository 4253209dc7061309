"""The command `fdro`.

In the order in which one would read:

- `__main__` is where it starts, and `app` gathers the commands;
- `commands` has them, a file each; `command` says what makes a function one of them;
- `output` is what they print; `written` and `reading` are what people give them, in words and in files;
- `runs` has run files, what they train, and the folders that they write; `report` the HTML page of one.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed


def version() -> str:
    """The installed distribution's version; "unknown" if fdro is not installed."""
    try:
        return installed("fdro")
    except PackageNotFoundError:
        return "unknown"
