"""Ending processes that the test bed has started."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from typing import Any


def end_family(process: subprocess.Popen[Any]) -> None:
    """Kill a process with all that it has started."""
    import psutil

    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(process.pid)
        family = [*parent.children(recursive=True), parent]
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.kill()
    process.wait()
