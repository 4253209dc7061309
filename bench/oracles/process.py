"""Measurements that need a separate process: import time, the kernels' cache, peak memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.measuring.targets import Row, row
from bench.measuring.timing import Spread

ROOT = Path(__file__).resolve().parents[2]

IMPORT = """
import json, sys, time
start = time.perf_counter()
__import__(sys.argv[1])
print(json.dumps(time.perf_counter() - start))
"""

FIRST_CALLS = """
import importlib, json, pkgutil, time
import numpy as np
start = time.perf_counter()
from bench.measuring import cases
rng = np.random.default_rng(0)
for case in cases.ALL:
    for size in (1, 10, 3000 if case.largest > 3000 else 300):
        f, q = cases.losses(size, rng), cases.center(size, rng)
        answer = case.make(q, "middle", rng).worst_case(f)
        case.make(q, "middle", rng).worst_case(f, warm_start=answer)
        case.make(q, "middle", rng).worst_case(np.stack([f, f]))
seconds = time.perf_counter() - start
import uncertainty_sets.kernels as kernels
hits = misses = 0
seen = set()
for found in pkgutil.iter_modules(kernels.__path__, kernels.__name__ + "."):
    for value in vars(importlib.import_module(found.name)).values():
        if hasattr(value, "stats") and hasattr(value, "py_func") and id(value) not in seen:
            seen.add(id(value))
            hits += sum(value.stats.cache_hits.values())
            misses += sum(value.stats.cache_misses.values())
print(json.dumps({"hits": hits, "misses": misses, "seconds": seconds}))
"""

MEMORY = """
import json, sys
import numpy as np
from bench.measuring import cases
from bench.measuring.timing import peak_of
from uncertainty_sets import Wasserstein1
size, level = int(sys.argv[1]), sys.argv[2]
rng = np.random.default_rng(0)
Wasserstein1(cases.center(1000, rng), 0.5).worst_case(cases.losses(1000, rng))
q, f = cases.center(size, rng), cases.losses(size, rng)
answer, peak = peak_of(lambda: Wasserstein1(q, cases.line_radius(level, size)).worst_case(f))
print(json.dumps(peak))
"""


def run(script: str, *arguments: str, **environment: str) -> Any:
    """The JSON that a fresh Python process prints last."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    result = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(result.stdout.strip().splitlines()[-1])


def imports(rounds: int, say: Callable[[str], None]) -> list[Row]:
    """`import uncertainty_sets` over `import cvxpy`, each in a separate process, in turn."""
    say("import times")
    run(IMPORT, "uncertainty_sets")  # byte code and the file cache
    run(IMPORT, "cvxpy")
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(float(run(IMPORT, "uncertainty_sets")))
        theirs.append(float(run(IMPORT, "cvxpy")))
    ratio = Spread.of([a / b for a, b in zip(ours, theirs, strict=True)])
    note = f"{Spread.of(ours).median:.3f} s against {Spread.of(theirs).median:.3f} s"
    return [row("processes", "import uncertainty_sets over import cvxpy", ratio, "×", 0.25, note=note)]


def cache(fresh: bool, say: Callable[[str], None]) -> list[Row]:
    """Count what the first calls in a second process compile.

    Args:
        fresh: start from an empty cache, so that the first process compiles everything.
        say: told what is being done.
    """
    say("kernel cache: a first and a second process")
    with tempfile.TemporaryDirectory() as folder:
        environment = {"FDRO_JIT": "1"} | ({"NUMBA_CACHE_DIR": folder} if fresh else {})
        first = run(FIRST_CALLS, **environment)
        second = run(FIRST_CALLS, **environment)
    what = "an empty cache" if fresh else "the cache as it was"
    note = (
        f"{second['hits']} loaded; first calls take {first['seconds']:.1f} s from {what} "
        f"({first['misses']} compiled), {second['seconds']:.1f} s in a second process"
    )
    return [Row("processes", "kernels compiled in a second process", second["misses"], "", 0.0, note=note)]


def memory(size: int, say: Callable[[str], None]) -> list[Row]:
    """Peak memory over the inputs of Wasserstein-1 on a line, the set's own arrays included.

    The child asks for the peak of its own address space: the maximum that getrusage reports starts, for a
    new process, at what its parent once held.
    """
    say(f"memory of Wasserstein-1 on a line at N = {size:,}")
    group, rows = "processes", []
    for level in ("small", "middle", "large"):
        peak = run(MEMORY, str(size), level)
        used = float("nan") if peak is None else peak / 1e6
        note = "not available on this system" if peak is None else ""
        limit = None if peak is None else 200.0
        what = f"Wasserstein1 line, N = {size:,}: peak over inputs, {level} set"
        rows.append(Row(group, what, used, "MB", limit, note=note))
    return rows
