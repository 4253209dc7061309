"""Measure robust Markov decision processes against their targets: rows, sweeps, whole problems."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bench.mdp import solving, sweeps
from bench.measuring import command
from bench.measuring.command import Say
from bench.measuring.targets import Row


def measurements(quick: bool, seed: int, scale: float, say: Say) -> dict[str, Callable[[], Iterable[Row]]]:
    """What is measured, by name; `scale` shrinks the sizes (for tests; the numbers then mean nothing)."""
    rounds = 5 if quick else 15
    return {
        "rows": lambda: sweeps.per_row(max(60, int(5_000 * scale)), rounds, seed, say),
        "joint": lambda: sweeps.joint(max(20, int(100 * scale)), rounds, seed, say),
        "small": lambda: solving.small(max(20, int(100 * scale)), say),
        "large": lambda: solving.large(max(60, int((20_000 if quick else 100_000) * scale)), seed, say),
    }


def main(arguments: list[str]) -> int:
    """Measure and print the table."""
    title, quick = "Robust Markov decision processes", "fewer repeats, 20,000 states"
    return command.run(arguments, "mdp", title, str(__doc__), quick, measurements)
