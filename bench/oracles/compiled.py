"""Kernels compiled ahead of time: the first answer of a new process, and speed over numba's own."""

from __future__ import annotations

import importlib
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from bench.measuring import cases
from bench.measuring.targets import Row, row
from bench.measuring.timing import Spread, interleave
from bench.oracles.process import ROOT, run
from uncertainty_sets import UncertaintySet, available_sets, get_set
from uncertainty_sets.arrays import Array
from uncertainty_sets.kernels import jit
from uncertainty_sets.kernels.native import library
from uncertainty_sets.kernels.native.sources import kernel_files

FIRST_ANSWER, HELP, ORACLE, OVER_NUMBA = 0.35, 0.4, 0.6, 1.05

FIRST = """
import json, sys, time
import numpy as np
import uncertainty_sets as us
q, f, points = np.full(10, 0.1), np.cos(np.arange(10.0)), np.arange(10.0)
special = {
    "cd-norm, any spreads": lambda: us.CDNorm(q, 0.01 * (1 + points), 2.0),
    "ellipsoid, dense": lambda: us.Ellipsoid(q, np.diag(q) + 0.01, 0.1),
    "wasserstein-1, matrix": lambda: us.Wasserstein1(q, 0.3, np.abs(points[:, None] - points)),
}
name = sys.argv[1]
(special[name]() if name in special else us.get_set(name).example(10)).worst_case(f)
print(json.dumps([time.process_time(), "numba" in sys.modules]))
"""
SPECIAL = ("cd-norm, any spreads", "ellipsoid, dense", "wasserstein-1, matrix")
ASKED = ("oracle", "--set", "kl", "--losses", "0.9,1.4,0.3,2", "--radius", "0.1")


def first_answers(rounds: int, with_numba: bool, say: Callable[[str], None]) -> list[Row]:
    """CPU seconds from the start of a new process to its first answer, with libraries and by numba.

    Args:
        rounds: processes for each set.
        with_numba: measure numba too, one process each; this takes minutes.
        say: told what is being done.
    """
    group, rows = "CPU time of a new process", []
    ready = _all_compiled()
    for label in (*filter(lambda name: get_set(name).has_closed_form, available_sets()), *SPECIAL):
        say(f"first answer: {label}")
        note = ""
        if with_numba:
            seconds, _ = _first(label, FDRO_JIT="1")
            note = f"by numba {seconds:.1f} s"
        if ready:
            seen = [_first(label) for _ in range(rounds)]
            if any(loaded for _, loaded in seen):
                note = "loads numba; " + note
            spread = Spread.of([seconds for seconds, _ in seen])
            rows.append(row(group, f"{label}: first answer", spread, "s", FIRST_ANSWER, note=note))
        elif with_numba:
            rows.append(Row(group, f"{label}: first answer", seconds, "s", note="no `make kernels`"))
    for name, arguments, limit in (("--help", ("--help",), HELP), ("oracle", ASKED, ORACLE)):
        say(f"fdro {name}")
        spread = Spread.of([_command(*arguments) for _ in range(rounds)])
        note = "" if ready else "no `make kernels`"
        rows.append(row(group, f"fdro {name}", spread, "s", limit if ready else None, note=note))
    return rows


def _all_compiled() -> bool:
    files = kernel_files("uncertainty_sets", ROOT)
    return all(library.find(name, str(file)) for name, file in files.items())


def _first(label: str, **environment: str) -> tuple[float, bool]:
    with tempfile.TemporaryDirectory() as folder:
        if environment:  # with nothing kept
            environment["FDRO_CACHE"] = folder
        seconds, loaded = run(FIRST, label, **environment)
    return float(seconds), bool(loaded)


def _command(*arguments: str) -> float:
    """CPU seconds of `fdro` with these arguments."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "fdro_core.cli", *arguments]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def over_numba(largest: int, rounds: int, seed: int, say: Callable[[str], None]) -> list[Row]:
    """Time of every kernel from the library over the same kernel by numba, on the same arguments."""
    if not _all_compiled():
        return []
    group, rows = "kernels compiled ahead of time over numba's", []
    rng = np.random.default_rng([seed, largest])
    for case in cases.ALL:
        many = min(largest, case.largest, 300 if case.largest < largest else largest)
        for shape in ((10,), (1_000, 10), (many,)):
            say(f"library over numba: {case.label}, {shape}")
            q = cases.center(shape[-1], rng)
            name, arguments = _call_of(case.make(q, "middle", rng), rng.normal(size=shape))
            entry: Any = jit.ENTRIES[name]
            made = library.find(entry.function.__module__, entry.function.__wrapped__.__code__.co_filename)
            ours = None if made is None else getattr(made, name.rpartition(".")[2])
            if ours is None:
                rows.append(
                    Row(group, f"{case.label}, {shape}", float("nan"), "×", note="not in the library")
                )
                continue
            samples = interleave(
                {"library": partial(ours, *arguments), "numba": partial(entry.function.by_numba, *arguments)},
                rounds,
            )
            ratio = samples.ratio("library", "numba")
            note = f"{samples.time('library').median * 1e6:,.1f} µs"
            what = f"{case.label}, {' × '.join(f'{n:,}' for n in shape)}"
            rows.append(row(group, what, ratio, "×", OVER_NUMBA, note=note))
    return rows


def _call_of(uncertainty_set: UncertaintySet, losses: Array) -> tuple[str, tuple[Any, ...]]:
    """The kernel that answers, and the arguments it is called with."""
    seen: list[tuple[str, tuple[Any, ...]]] = []

    def recording(name: str, kernel: Callable[..., None]) -> Callable[..., None]:
        def record(*arguments: Any) -> None:
            seen.append((name, arguments))
            kernel(*arguments)

        return record

    uncertainty_set.worst_case(losses)  # imports the kernel's file
    places = {name: name.rsplit(".", 1) for name in jit.ENTRIES if name.endswith("rows")}
    modules = {name: importlib.import_module(module) for name, (module, _) in places.items()}
    kept: dict[str, Any] = {name: getattr(modules[name], own) for name, (_, own) in places.items()}
    try:
        for name, (_, own) in places.items():
            setattr(modules[name], own, recording(name, kept[name]))
        uncertainty_set.worst_case(losses)
    finally:
        for name, (_, own) in places.items():
            setattr(modules[name], own, kept[name])
    return seen[0]
