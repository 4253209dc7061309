"""The entry point of `fdro`: loads the commands, and ends without a traceback if Ctrl-C comes meanwhile."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

MISSING, INTERRUPTED = 3, 130
NEEDED = ("typer", "rich")


def _leave(number: int, frame: FrameType | None) -> None:
    """End at once: an exception inside an import may be caught, replaced or printed by a library."""
    del number, frame
    os._exit(INTERRUPTED)


def main() -> None:
    """Run the `fdro` command."""
    heeds = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a shell may have it ignored
    if heeds:
        signal.signal(signal.SIGINT, _leave)
    try:
        from fdro_core.cli.app import app
    except ModuleNotFoundError as error:  # an install of the oracles alone
        if error.name not in NEEDED:
            raise
        print(f'error: the command fdro needs {error.name}: pip install "fdro[cli]"', file=sys.stderr)
        sys.exit(MISSING)
    from fdro_core.files import FULL

    if heeds:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        app()
    except OSError as error:  # outside of a command, which has a guard: the help, to a full disk
        if error.errno not in FULL:
            raise
        sys.exit(f"error: standard output could not be written ({error.strerror})")


if __name__ == "__main__":
    main()
