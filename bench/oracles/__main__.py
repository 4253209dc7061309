"""Measure the oracles against their targets: exactness, speed, small calls, imports, memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bench.measuring import targets
from bench.measuring.targets import Row, Say
from bench.oracles import certificates
from bench.oracles import compiled as oracle_compiled
from bench.oracles import process as oracle_process
from bench.oracles import ragged as oracle_ragged
from bench.oracles import rows as oracle_rows
from bench.oracles import solvers as oracle_solvers
from bench.oracles import speed as oracle_speed


def measurements(quick: bool, seed: int, scale: float, say: Say) -> dict[str, Callable[[], Iterable[Row]]]:
    """What is measured, by name; `scale` shrinks the sizes (for tests; the numbers then mean nothing)."""

    def n(size: int) -> int:
        return max(10, int(size * scale))

    few, many = (5, 7) if quick else (11, 21)
    sizes = [size for size in certificates.SIZES if size <= max(10, 10**6 * scale)]
    return {
        "exact": lambda: certificates.exactness(sizes, seed, say),
        "argsort": lambda: oracle_speed.against_argsort(n(10**6), few, seed, say),
        "radius-for": lambda: oracle_speed.radius_for(n(5 * 10**5), few, seed, say),
        "cd-norm": lambda: oracle_speed.every_kind(n(10**6), few, seed, say),
        "line": lambda: oracle_speed.line_losses(n(10**6), few, seed, say),
        "hard": lambda: [
            *oracle_speed.against_ordinary(n(10**5), few, seed, say),
            *oracle_speed.against_selection(n(10**6), few, seed, say),
        ],
        "clipped": lambda: oracle_speed.clipped_balls(n(10**5), few, seed, say),
        "small": lambda: oracle_speed.small_calls(many, seed, say),
        "batch": lambda: oracle_speed.batches(n(10**5), few, seed, say),
        "rows": lambda: oracle_rows.measure(n(10**6 if not quick else 10**5), few, seed, say),
        "ragged": lambda: oracle_ragged.measure(n(10**5 if quick else 10**6), few, seed, say),
        "clarabel": lambda: oracle_solvers.against_clarabel(n(10**3 if quick else 10**4), few, seed, say),
        "programs": lambda: oracle_solvers.small_problems(
            n(60 if quick else 200), n(200 if quick else 500), few, seed, say
        ),
        "polyhedron": lambda: oracle_solvers.polyhedron(n(10**3), n(200), many, seed, say),
        "first": lambda: oracle_compiled.first_answers(3 if quick else 9, not quick, say),
        "compiled": lambda: oracle_compiled.over_numba(n(10**6), many, seed, say),
        "plugins": lambda: oracle_solvers.plugin_rows(n(100), 10, few, seed, say),
        "import": lambda: oracle_process.imports(3 if quick else 9, say),
        "cache": lambda: oracle_process.cache(fresh=not quick, say=say),
        "memory": lambda: oracle_process.memory(n(10**6), say),
    }


def main(arguments: list[str]) -> int:
    """Measure and print the table."""
    quick = "fewer repeats, smaller programs for the solvers"
    return targets.run(arguments, "oracles", "The oracles' numbers", str(__doc__), quick, measurements)
