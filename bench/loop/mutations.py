"""What the tests find of mistakes planted in kernels, each in a copy of the checkout.

A mistake is one operator, comparison or function turned into its opposite. `make test` is stopped at its
first failure; what it does not find is given to the rest of `make test-all`, since some mistakes change
nothing. A copy without a mistake goes through the same tests.
"""

from __future__ import annotations

import ast
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.measuring.targets import Row, Say

ROOT = Path(__file__).resolve().parents[2]
OPPOSITE = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.Lt: ("<", ">"), ast.Gt: (">", "<"), ast.LtE: ("<=", ">"), ast.GtE: (">=", "<"),
    ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip
SWAPPED = {"min": "max", "max": "min"}


@dataclass(frozen=True)
class Mutation:
    """One mistake: in a file, from one byte to another, other text."""

    file: str
    line: int
    start: int
    end: int
    text: bytes

    def __str__(self) -> str:
        return f"{self.file}:{self.line}, {self.text.decode()} instead"


@dataclass(frozen=True)
class Stage:
    """Tests of `make test` in some places, or of what only `make test-all` runs.

    A process that needs more than `seconds` of processor time is in a search that does not end.
    """

    seconds: int
    places: tuple[str, ...] = ()
    everything: bool = False

    def __str__(self) -> str:
        where = " ".join(self.places) or "all places"
        return f"{'the rest of make test-all' if self.everything else 'make test'} in {where}"


NEAR = ("tests/uncertainty_sets", "uncertainty_sets/sets")
STAGES = (
    Stage(300, ("tests/uncertainty_sets/test_properties.py",)), Stage(1200, NEAR), Stage(1800),
    Stage(3600, NEAR, True), Stage(7200, (), True),
)  # fmt: skip
"""In the order of what finds most mistakes soonest; several times the seconds of a copy without a mistake."""
NONE = Mutation("README.md", 1, 0, 0, b"")


def planted(seed: int, count: int) -> list[Mutation]:
    """That many mistakes, as evenly over the files of kernels as possible."""
    rng = np.random.default_rng(seed)
    files = [*ROOT.glob("uncertainty_sets/kernels/*.py"), *ROOT.glob("fdro_core/**/*kernels*/**/*.py")]
    sites = {str(each.relative_to(ROOT)): list(_sites(each)) for each in sorted(files)}
    names = [name for name in sites if len(sites[name]) >= 5]
    order = [names[i] for i in rng.permutation(len(names))]
    chosen = [order[i % len(order)] for i in range(count)]
    return [sites[name][rng.integers(len(sites[name]))] for name in chosen]


def _sites(file: Path) -> Iterator[Mutation]:
    """Every place inside of a function that can be turned into its opposite."""
    source = file.read_bytes()
    starts = np.cumsum([0, *(len(line) for line in source.splitlines(keepends=True))])
    name = str(file.relative_to(ROOT))

    def place(line: int | None, column: int | None) -> int:
        return int(starts[(line or 1) - 1]) + (column or 0)

    functions = [each for each in ast.parse(source).body if isinstance(each, ast.FunctionDef)]
    for node in (each for function in functions for part in function.body for each in ast.walk(part)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SWAPPED:
            start = place(node.func.lineno, node.func.col_offset)
            yield Mutation(name, node.lineno, start, start + 3, SWAPPED[node.func.id].encode())
            continue
        if isinstance(node, ast.BinOp):
            left, operator, right = node.left, node.op, node.right
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, operator, right = node.left, node.ops[0], node.comparators[0]  # type: ignore[assignment]
        elif isinstance(node, ast.BoolOp):
            left, operator, right = node.values[0], node.op, node.values[1]  # type: ignore[assignment]
        else:
            continue
        if type(operator) not in OPPOSITE:
            continue
        old, new = OPPOSITE[type(operator)]
        start = place(left.end_lineno, left.end_col_offset)
        end = place(right.lineno, right.col_offset)
        at = source.find(old.encode(), start, end)
        if at >= 0:
            yield Mutation(name, node.lineno, at, at + len(old), new.encode())


def fails(mutation: Mutation, stage: Stage) -> bool:
    """Whether a test of the stage fails, in a copy of the checkout that has this mistake."""
    with tempfile.TemporaryDirectory(prefix="fdro-mutation-") as folder:
        here = Path(folder)
        subprocess.run(["git", "checkout-index", "--all", f"--prefix={here}/"], cwd=ROOT, check=True)
        file = here / mutation.file
        source = file.read_bytes()
        file.write_bytes(source[: mutation.start] + mutation.text + source[mutation.end :])
        profile = "thorough" if stage.everything else "default"
        chosen = ["-m", "thorough or property"] if stage.everything else []
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *chosen, *stage.places],
            cwd=here, env=os.environ | {"PYTHONPATH": str(here), "HYPOTHESIS_PROFILE": profile},
            capture_output=True, check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (stage.seconds, stage.seconds)),
        )  # fmt: skip
        return bool(done.returncode)


def measure(seed: int, count: int, say: Say) -> Iterable[Row]:
    """How many mistakes each target finds; two copies at a time."""
    mistakes = planted(seed, count)
    left, group = mistakes, f"mistakes planted in kernels, {count}"
    found: dict[bool, list[Mutation]] = {False: [], True: []}
    with ThreadPoolExecutor(2) as pool:
        for stage in STAGES:
            if not left:
                break
            say(f"{len(left)} mistakes: {stage}")
            failed = list(pool.map(lambda each, stage=stage: fails(each, stage), [NONE, *left]))
            if failed[0]:
                raise RuntimeError(f"without a mistake these fail in a copy of the checkout: {stage}")
            found[stage.everything] += [each for each, no in zip(left, failed[1:], strict=True) if no]
            left = [each for each, no in zip(left, failed[1:], strict=True) if not no]
    quick, more = len(found[False]), len(found[True])
    missed = [*(f"{each} (test-all finds it)" for each in found[True]), *map(str, left)]
    yield Row(group, "found by make test", quick, "", quick + more, at_least=True, note="; ".join(missed))
    yield Row(group, "found by make test-all only", more, "", 0)
