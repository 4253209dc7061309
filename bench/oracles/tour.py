"""The six oracles on a small example: who gets the weight, what it costs, and the proof."""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.table import Table

from uncertainty_sets import KL, Box, CDNorm, Ellipsoid, Polyhedron, UncertaintySet, Wasserstein1


def sets(center: np.ndarray) -> list[UncertaintySet]:
    """One set of each kind about the same centre."""
    n = len(center)
    pairs = np.kron(np.eye(n // 2), np.ones(2))  # workers 0 and 1 together at most 0.6, and so on
    return [
        Box(0.5 * center, 2.0 * center),
        Ellipsoid(center, shape=center, radius=0.5),
        Polyhedron(pairs, np.full(n // 2, 0.6)),
        KL(center, radius=0.2),
        Wasserstein1(center, radius=0.5),
        CDNorm(center, spread=center, budget=2.0),
    ]


def main(arguments: list[str]) -> int:
    """Print a table; there are no options."""
    del arguments
    losses = np.array([0.9, 1.4, 0.3, 2.0, 1.1, 0.6])
    center = np.array([0.30, 0.20, 0.20, 0.10, 0.10, 0.10])
    console = Console()
    console.print("\nSix workers with these losses, and a prior on how much each counts:")
    head = Table(show_header=False, box=None, padding=(0, 2))
    head.add_row("losses", *(f"{x:.2f}" for x in losses))
    head.add_row("prior", *(f"{x:.2f}" for x in center))
    console.print(head)
    console.print(
        f"\nTheir mean loss under the prior is {center @ losses:.3f}. The worst mean in a set around it:\n"
    )
    table = Table("set", "worst mean", "at most", "weights p of the worst case", "off the set by")
    for uncertainty_set in sets(center):
        answer = uncertainty_set.worst_case(losses)
        weights = "  ".join(f"{x:.2f}" for x in answer.p)
        table.add_row(
            uncertainty_set.name,
            f"{answer.value:.6f}",
            f"{answer.upper_bound:.6f}",
            weights,
            f"{uncertainty_set.violation(answer.p):.0e}",
        )
    console.print(table)
    console.print(
        "'at most' is computed from dual multipliers alone, never from p: if both columns agree, p is "
        "proved optimal.\nIn Python:  KL(prior, radius=0.2).worst_case(losses)\n"
    )
    return 0
