"""The machine and versions that a result belongs to, without names of hosts or paths."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "scipy", "numba", "cvxpy", "clarabel", "highspy", "scs", "pot")


def describe() -> dict[str, Any]:
    """Processor, cores, memory, system, versions and the date."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "processor": _processor(),
        "cores": cores(),
        "memory_gb": _memory(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
    }


def line(machine: dict[str, Any]) -> str:
    """One line for under a table."""
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB, {machine['system']}, "
        f"Python {machine['python']}, {versions}; {machine['date']}"
    )


def busy(machine: dict[str, Any]) -> str:
    """A sentence for under a table if other programs ran meanwhile, else "".

    >>> busy({"load": 9.5, "cores": 2})
    'The machine was busy (load 9.5 on 2 cores): compare ratios, which are medians of interleaved rounds.'
    >>> busy({"load": 1.2, "cores": 2})
    ''
    """
    load, count = machine.get("load"), machine["cores"]
    if load is None or load <= count:
        return ""
    return (
        f"The machine was busy (load {load:g} on {count} cores): compare ratios, which are medians of "
        "interleaved rounds."
    )


def cores() -> int:
    """Return the number of processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for entry in information.read_text(encoding="utf-8").splitlines():
            if entry.startswith("model name"):
                return " ".join(entry.partition(":")[2].split())
    return platform.processor() or "unknown processor"


def _memory() -> int | None:
    if sys.platform == "win32":
        return None
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
