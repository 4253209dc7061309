"""The paper's Tables I to IV in our words, and the counts of `fdro_core.theory` for Figures 1-2.

m is the number of inequality constraints, ε′ (here `eps`) the accuracy of the subproblem; n = N except for
Wasserstein-1, whose program has N + N² variables.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fdro_core.aspire import theory
from uncertainty_sets.arrays import Array

FIGURES = ((1, 0.9), (5, 0.9), (1, 0.1), (5, 0.1))
"""(m, ε′) of Figure 1 (a), (b) and Figure 2 (a), (b)."""


class Claim(NamedTuple):
    """What the paper's Table II says of one set.

    Attributes:
        title: the set's name there.
        formulation: the kind of program.
        flexibility: how many parameters trade robustness against performance.
        cost: the arithmetic complexity of one oracle call, as printed.
    """

    title: str
    formulation: str
    flexibility: str
    cost: str


_LP = "O((m+n)^1.5·n²·log(1/ε′))"

CLAIMS: dict[str, Claim] = {
    "box": Claim("Box", "LP", "2N", "O(n·log n)"),
    "ellipsoid": Claim("Ellipsoid", "SOCP", "1", "O((m+1)^0.5·n·(n²+m+Σk²)·log(1/ε′))"),
    "polyhedron": Claim("Polyhedron", "LP", "L·(N+1)", _LP),
    "kl": Claim("KL-divergence", "REP", "1", "O(n^3.5·|log ε′|)"),
    "wasserstein-1": Claim("Wasserstein-1", "LP", "1", f"{_LP}, n = N+N²"),
    "cd-norm": Claim("CD-norm", "LP", "1", "O(n·log n)"),
}


def operations(name: str, sizes: ArrayLike, m: int = 1, eps: float = 0.1) -> Array | None:
    """Return the paper's count for the set of that name at each N, None if the paper has none.

    >>> operations("polyhedron", [10, 100], m=1, eps=0.1).round(-3).tolist()
    [8000.0, 23372000.0]
    """
    if name not in CLAIMS:
        return None
    counts = [theory.oracle_operations(name, N, m=m, accuracy=eps) for N in np.asarray(sizes, dtype=float)]
    return np.array(counts)


def overall(name: str) -> str:
    """Return Table IV's cost of a whole run for the set of that name, "" if the paper has none."""
    claim = CLAIMS.get(name)
    if claim is None:
        return ""
    inner, _, rest = claim.cost.removeprefix("O(").rpartition(")")
    return f"O(K₁/ε³ + ⌊T₁/k⌋·{inner}){rest}"


RATES_HEADINGS = ("method", "all workers in step", "asynchronous")
RATES = (
    ("Sharma et al. 2022, Local SGDA", "O(1/ε^3.5)", "–"),
    ("Wu et al. 2023, FedSGDA", "O(1/ε³)", "–"),
    ("Sharma et al. 2023, Fed-Norm-SGDA", "O(1/ε²)", "–"),
    ("Shen et al. 2024, FESS-GDA", "O(1/ε²)", "–"),
    ("the paper, ASPIRE-EASE", "–", "O(1/ε³)"),
)

RATES_TEXT = """\
How many iterations the paper says that each method needs to an ε-stationary point of a non-convex min-max
problem. These are upper bounds, under assumptions that differ from method to method, and an iteration in step
waits for the slowest worker. The step sizes that the paper's own bound asks for
[do not exist](theory.md#what-the-paper-leaves-open-or-gets-wrong), and our other form has
[a theory of its own](models-theory.md)."""
