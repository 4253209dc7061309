"""Measure what everyone who changes a line waits for: clone, build, first answer, tests, imports.

Processor seconds, user and system, of a process and all that it starts. The parts clone, ci and mutations
take from minutes to an hour.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bench.loop import mutations
from bench.measuring import targets
from bench.measuring.targets import Row, Say, row
from bench.measuring.timing import Spread
from uncertainty_sets import available_sets, get_set

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = {
    "PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "FDRO_CACHE", "FDRO_JIT", "FDRO_CPU_LEVEL", "FDRO_KERNELS",
    "VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL",
}  # fmt: skip

FIRST = """
import sys
import numpy as np
import uncertainty_sets
cls = uncertainty_sets.get_set(sys.argv[1]) if len(sys.argv) > 1 else uncertainty_sets.KL
cls.example(10).worst_case(np.cos(np.arange(10.0)))
"""

SPEED = """
import json, sys, time
import numpy as np
from uncertainty_sets import KL, Box, CDNorm, ChiSquare, Ellipsoid, TotalVariation, Wasserstein1
rng = np.random.default_rng(0)
found = {}
for n, times in ((10, 4000), (1000, 600), (10**6, 3)):
    q, f = rng.dirichlet(np.ones(n)), rng.normal(size=n)
    sets = {
        "box": Box(q / 2, np.minimum(1.0, 2 * q)), "kl": KL(q, 0.1), "chi-square": ChiSquare(q, 0.1),
        "total-variation": TotalVariation(q, 0.1), "cd-norm": CDNorm(q, q * rng.uniform(0.1, 0.5, n), n / 4),
        "ellipsoid": Ellipsoid(q, q, 0.1), "wasserstein-1": Wasserstein1(q, 0.1),
    }
    for name, each in sets.items():
        each.worst_case(f)
        spans = []
        for _ in range(7):
            began = time.perf_counter()
            for _ in range(times):
                each.worst_case(f)
            spans.append((time.perf_counter() - began) / times)
        found[f"{name}, N = {n:,}"] = min(spans)
print(json.dumps(found))
"""


def spent(line: list[str], folder: Path = ROOT, **more: str) -> float:
    """Processor seconds of a command and of all that it starts; an error if it fails."""
    environment = {name: value for name, value in os.environ.items() if name not in LEFT_OUT} | more
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(line)} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def median(times: int, line: list[str], **more: str) -> Spread:
    """Of that many runs of one command."""
    return Spread.of([spent(line, ROOT, **more) for _ in range(times)])


@contextmanager
def empty_cache() -> Iterator[str]:
    """A folder for the kernels of one measurement."""
    with tempfile.TemporaryDirectory(prefix="fdro-loop-") as folder:
        yield folder


def clone(say: Say) -> Iterable[Row]:
    """The README's two commands in a clean clone and a clean environment, and the second once more."""
    group = "a fresh clone, nothing cached but pip's wheels"
    with empty_cache() as cache, tempfile.TemporaryDirectory(prefix="fdro-clone-") as folder:
        here = Path(folder) / "fdro"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(here)], check=True)
        for words, target, limit in (
            ("make demo, with installation", "demo", 90.0),
            ("make test, with installation and kernels", "test", 700.0),
            ("make test, the second time", "test", 420.0),
        ):
            say(words)
            began = time.monotonic()
            seconds = spent(["make", target], here, FDRO_CACHE=cache)
            wall = time.monotonic() - began
            yield Row(group, words, seconds, "s", limit, note=f"{wall:.0f} s of wall time")
        yield Row(group, "make test, the second time: wall time", wall, "s", 240.0)


def ci(say: Say) -> Iterable[Row]:
    """All of CI in a clean clone."""
    say("bash .ci/run")
    with tempfile.TemporaryDirectory(prefix="fdro-clone-") as folder:
        here = Path(folder) / "fdro"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(here)], check=True)
        began = time.monotonic()
        seconds = spent(["bash", ".ci/run"], here)
        minutes = (time.monotonic() - began) / 60.0
    yield Row("CI", "bash .ci/run: wall time", minutes, "min", 12.0, note=f"{seconds:.0f} processor seconds")


def kernels(say: Say) -> Iterable[Row]:
    """All libraries: for this processor, found again, and for a wheel."""
    group = "kernels"
    build = [sys.executable, "-m", "uncertainty_sets.kernels.native"]
    with empty_cache() as cache:
        say("all kernels of the host level")
        yield Row(group, "all, host level", spent([*build, "--workers", "1"], FDRO_CACHE=cache), "s", 120.0)
        yield row(group, "all, found in the cache", median(3, build, FDRO_CACHE=cache), "s", 3.0)
    with empty_cache() as cache:
        say("a wheel's libraries, three levels")
        into = str(Path(cache) / "wheel")
        seconds = spent([*build, "--workers", "1", "--into", into], FDRO_CACHE=cache)
        yield Row(group, "all, three levels, for a wheel", seconds, "s", 300.0)


def first(rounds: int, say: Say) -> Iterable[Row]:
    """The first answer of a new process."""
    group = "first answer of a new process"
    ask = [sys.executable, "-c", FIRST]
    with empty_cache() as cache:
        say("first answer, nothing cached")
        yield Row(group, "KL, nothing cached", spent(ask, FDRO_CACHE=cache), "s", 4.0)
        yield row(group, "KL, from the cache", median(rounds, ask, FDRO_CACHE=cache), "s", 0.5)
    for name in filter(lambda each: get_set(each).has_closed_form, available_sets()):
        say(f"first answer of {name}")
        spent([*ask, name])
        yield row(group, f"{name}, with the library", median(rounds, [*ask, name]), "s", 0.35)


def imports(rounds: int, say: Say) -> Iterable[Row]:
    """The command's help and the packages' imports."""
    say("imports")
    group = "import and command line"
    run = [sys.executable, "-c"]
    help_line = [*run, "from fdro_core.cli.__main__ import main; main()", "--help"]
    yield row(group, "fdro --help", median(rounds, help_line), "s", 0.35)
    yield row(group, "import fdro_core", median(rounds, [*run, "import fdro_core"]), "s", 0.3)


def speed(rounds: int, say: Say) -> Iterable[Row]:
    """Time of a call over that in another checkout, which the variable FDRO_AGAINST names, run in turn."""
    other = os.environ.get("FDRO_AGAINST")
    if not other:
        return
    seen: dict[str, list[list[float]]] = {}
    for number in range(rounds):
        say(f"calls here and in {other}, {number + 1} of {rounds}")
        for place, folder in enumerate((ROOT, Path(other))):
            done = subprocess.run(
                [sys.executable, "-c", SPEED], cwd=folder, capture_output=True, text=True, check=True,
                env=os.environ | {"PYTHONPATH": str(folder)},
            )  # fmt: skip
            for name, seconds in json.loads(done.stdout).items():
                seen.setdefault(name, [[], []])[place].append(seconds)
    for name, (ours, theirs) in seen.items():
        limit = 1.08 if name.endswith("N = 10") else 1.03
        ratio = Spread.of(list(np.divide(ours, theirs)))
        yield row("time of a call over the other checkout's", name, ratio, "×", limit)


def measurements(quick: bool, seed: int, scale: float, say: Say) -> dict[str, Callable[[], Iterable[Row]]]:
    """What is measured, by name."""
    rounds = 3 if quick else 9
    return {
        "imports": lambda: imports(rounds, say),
        "first": lambda: first(rounds, say),
        "speed": lambda: speed(rounds, say),
        "kernels": lambda: kernels(say),
        "clone": lambda: clone(say),
        "ci": lambda: ci(say),
        "mutations": lambda: mutations.measure(seed, 5 if quick else 30, say),
    }


def main(arguments: list[str]) -> int:
    """Measure and print the table."""
    return targets.run(
        arguments, "loop", "The loop of a change", __doc__ or "", "fewer repeats", measurements
    )
