"""What the audit promises, measured: s-values, bounds, conformal sets, groups, other libraries, time."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.audit import coverage, peers, population
from bench.display.tables import Table, console
from uncertainty_sets import KL, ChiSquare, CVaR
from uncertainty_sets.audit import Audit, compare
from uncertainty_sets.audit.conformal import ball_threshold
from uncertainty_sets.audit.families import family_of

PARTS = ("s-values", "bounds", "conformal", "control", "groups", "clusters", "peers", "times")


def times(n: int, rounds: int) -> Table:
    """Processor seconds of each question, the median; every audit is new, so nothing is kept from before."""
    rng = np.random.default_rng(0)
    losses, other, group = rng.beta(1, 4, n), rng.beta(2, 8, n), rng.integers(0, 50, n)

    def proved() -> object:
        audit = Audit(losses)
        assert audit._evidence is not None
        return audit._evidence.worst_at_most(family_of(KL), 0.1, 0.05)

    def sample_only(kind: object, size: float) -> Callable[[], object]:
        audit = Audit(losses, bounds=None)
        return lambda: audit.worst(kind, size)

    questions: dict[str, Callable[[], object]] = {
        "worst, KL, in the sample": sample_only(KL, 0.1),
        "worst, CVaR, in the sample": sample_only(CVaR, 0.1),
        "betting bound at all radii, KL": proved,
        "worst with all bounds, KL": lambda: Audit(losses).worst(KL, 0.1),
        "worst with all bounds, χ²": lambda: Audit(losses).worst(ChiSquare, 0.1),
        "worst with all bounds, CVaR": lambda: Audit(losses).worst(CVaR, 0.1),
        "radius to failure, in the sample": lambda: Audit(losses, bounds=None).radius_to_failure(KL, 0.3),
        "radius to failure with all bounds": lambda: Audit(losses).radius_to_failure(KL, 0.3),
        "50 groups, KL, with all bounds": lambda: Audit(losses, groups=group).worst_groups(KL, 0.1),
        "compare two models, 60 radii": lambda: compare({"a": losses, "b": other}),
        "compare over 50 groups, 60 radii": lambda: compare({"a": losses, "b": other}, groups=group),
        "conformal threshold, KL": lambda: ball_threshold(losses, 0.1, family_of(KL), 0.1),
    }
    rows: list[list[str]] = []
    for name, ask in questions.items():
        took = []
        for _ in range(rounds):
            begun = time.process_time()
            ask()
            took.append(time.process_time() - begun)
        rows.append([name, f"{np.median(took):.3f} s"])
    return Table(f"processor time at N = {n:,}", ["question", "time"], rows)


def page(before: str, tables: list[Table], seed: int) -> str:
    """A page with these tables in place of those of the same title; what else it had stays."""
    blocks = {
        block.split("**")[1]: block.strip() + "\n" for block in re.split(r"^(?=\*\*)", before, flags=re.M)[1:]
    }
    blocks |= {table.title: table.markdown() for table in tables}
    return (
        f"# The audit and conformal sets\n\nWritten by `python -m bench audit --seed {seed} --out` with this "
        "page's name. Every part draws from the\nseed by itself, so `--parts` writes the same tables and "
        "leaves the others. Every coverage under the worst\ndistribution is an integral that calls no "
        "oracle; those said to be exact are sums over the count of errors.\n"
        "What follows ± is a standard error.\n\n" + "\n".join(blocks.values())
    )


def main(arguments: list[str]) -> int:
    """Run the command; return 0."""
    parser = argparse.ArgumentParser(prog="python -m bench audit", description=__doc__)
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS)
    )
    parser.add_argument("--quick", action="store_true", help="few repetitions, to see that it runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out", type=Path, help="also write the tables to this Markdown file, and keep its others"
    )
    given = parser.parse_args(arguments)
    quick, seed = given.quick, given.seed
    jobs: dict[str, Callable[[], list[Table]]] = {
        "s-values": lambda: [
            population.s_values(
                {150: (5, 5), 1000: (20, 5)}
                if quick
                else {150: (500, 500), 1000: (2000, 2000), 5000: (2000, 500)},
                seed,
            ),
            population.zero_one((150,) if quick else (150, 1000, 5000)),
            population.group_values(50 if quick else 2000, (1000,) if quick else (1000, 5000), seed),
        ],
        "bounds": lambda: [
            population.bounds({1000: 20} if quick else {1000: 500, 10_000: 300, 100_000: 100}, seed),
            population.bounds({2000: 2} if quick else {1_000_000: 10}, seed, ("uniform",)),
        ],
        "conformal": lambda: [coverage.exact((50,) if quick else (50, 100, 200, 500, 1000, 2000, 5000))],
        "control": lambda: [coverage.control((50,) if quick else (50, 100, 200, 1000))],
        "groups": lambda: [coverage.groups(100 if quick else 20_000, seed)],
        "clusters": lambda: [population.clustered(50 if quick else 2000, seed)],
        "peers": lambda: [peers.table(1 if quick else 10, ("hospitals",) if quick else peers.DATA)],
        "times": lambda: [times(10_000 if quick else 1_000_000, 1 if quick else 5)],
    }
    tables = []
    for part in given.parts:
        for each in jobs[part]():
            tables.append(each)
            console().print(each.rich())
            if given.out is not None:
                before = given.out.read_text(encoding="utf-8") if given.out.exists() else ""
                given.out.write_text(page(before, tables, seed), encoding="utf-8")
    return 0
