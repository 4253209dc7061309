"""What the tests find of mistakes planted in kernels, each in a copy of the checkout.

A mistake is one operator, comparison or function turned into its opposite. `make test` is stopped at its
first failure; what it does not find is given to the rest of `make test-all`, since some mistakes change
nothing. A process that spends fifteen minutes of processor time is in a search that does not end.
"""

from __future__ import annotations

import ast
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
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
FIRST = (("tests/uncertainty_sets/test_properties.py",), ("tests/uncertainty_sets", "uncertainty_sets/sets"))
"""Where most mistakes in kernels are found, the nearest first."""
ENDLESS = 900
"""Processor seconds of one process, several times what it needs: a busy machine finds nothing by waiting."""


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


def found(mutation: Mutation, everything: bool) -> bool:
    """Whether a test fails, in a copy of the checkout that has this mistake."""
    with tempfile.TemporaryDirectory(prefix="fdro-mutation-") as folder:
        here = Path(folder)
        subprocess.run(["git", "checkout-index", "--all", f"--prefix={here}/"], cwd=ROOT, check=True)
        file = here / mutation.file
        source = file.read_bytes()
        file.write_bytes(source[: mutation.start] + mutation.text + source[mutation.end :])
        environment = os.environ | {"PYTHONPATH": str(here)}
        line = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "2", "-p", "no:cacheprovider"]
        if everything:
            environment["HYPOTHESIS_PROFILE"] = "thorough"
            line += ["-m", "thorough or property"]
        for places in (*FIRST, ()):
            done = subprocess.run(
                [*line, *places], cwd=here, env=environment, capture_output=True, check=False,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (ENDLESS, ENDLESS)),
            )  # fmt: skip
            if done.returncode:
                return True
    return False


def measure(seed: int, count: int, say: Say) -> Iterable[Row]:
    """How many mistakes each target finds."""
    quick, more = 0, 0
    missed: list[str] = []
    _without_a_mistake(everything=False, say=say)
    for number, each in enumerate(planted(seed, count), 1):
        say(f"mistake {number} of {count}: {each}")
        if found(each, everything=False):
            quick += 1
            continue
        if not missed:
            _without_a_mistake(everything=True, say=say)
        say(f"make test did not find it; the rest of make test-all: {each}")
        if found(each, everything=True):
            more += 1
            missed.append(f"{each} (test-all finds it)")
        else:
            missed.append(str(each))
    group = f"mistakes planted in kernels, {count}"
    yield Row(group, "found by make test", quick, "", quick + more, at_least=True, note="; ".join(missed))
    yield Row(group, "found by make test-all only", more, "", 0)


def _without_a_mistake(everything: bool, say: Say) -> None:
    """Stop if the tests fail in a copy as it is: they would find every mistake."""
    say("a copy without a mistake")
    if found(Mutation("README.md", 1, 0, 0, b""), everything):
        raise RuntimeError("the tests fail in a copy of the checkout without a mistake; run make test-all")
