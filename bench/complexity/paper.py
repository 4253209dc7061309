"""The paper's Table II, Table IV and Figures 1-2: its costs as formulas that can be evaluated.

m is the number of inequality constraints, ε′ (here `eps`) the accuracy of the subproblem; n = N but for
Wasserstein-1, whose program has N + N² variables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.arrays import Array

FIGURES = ((1, 0.9), (5, 0.9), (1, 0.1), (5, 0.1))
"""(m, ε′) of Figure 1 (a), (b) and Figure 2 (a), (b)."""


class Claim(NamedTuple):
    """What the paper says of one set.

    Attributes:
        title: the set's name there.
        formulation: the kind of program.
        flexibility: how many parameters trade robustness against performance.
        cost: the arithmetic complexity of one oracle call, as printed.
        operations: the same as a function of N, m and ε′.
    """

    title: str
    formulation: str
    flexibility: str
    cost: str
    operations: Callable[[Array, int, float], Array]


def _sort(n: Array, m: int, eps: float) -> Array:
    return n * np.log(n)


def _cone_program(n: Array, m: int, eps: float) -> Array:
    return np.asarray(np.sqrt(m + 1) * n * (n**2 + m + m * n**2) * np.log(1 / eps))


def _linear_program(n: Array, m: int, eps: float) -> Array:
    return np.asarray((m + n) ** 1.5 * n**2 * np.log(1 / eps))


def _transport_program(n: Array, m: int, eps: float) -> Array:
    return _linear_program(n + n**2, m, eps)


def _entropy_program(n: Array, m: int, eps: float) -> Array:
    return np.asarray(n**3.5 * abs(np.log(eps)))


_LP = "O((m+n)^1.5·n²·log(1/ε′))"

CLAIMS: dict[str, Claim] = {
    "box": Claim("Box", "LP", "2N", "O(n·log n)", _sort),
    "ellipsoid": Claim("Ellipsoid", "SOCP", "1", "O((m+1)^0.5·n·(n²+m+Σk²)·log(1/ε′))", _cone_program),
    "polyhedron": Claim("Polyhedron", "LP", "L·(N+1)", _LP, _linear_program),
    "kl": Claim("KL-divergence", "REP", "1", "O(n^3.5·|log ε′|)", _entropy_program),
    "wasserstein-1": Claim("Wasserstein-1", "LP", "1", f"{_LP}, n = N+N²", _transport_program),
    "cd-norm": Claim("CD-norm", "LP", "1", "O(n·log n)", _sort),
}


def operations(name: str, sizes: ArrayLike, m: int = 1, eps: float = 0.1) -> Array | None:
    """The paper's count for the set of that name, None where the paper has none.

    >>> operations("polyhedron", [10, 100], m=1, eps=0.1).round(-3)
    array([   8000., 23372000.])
    """
    claim = CLAIMS.get(name)
    return None if claim is None else claim.operations(np.asarray(sizes, dtype=np.float64), m, eps)


def overall(name: str) -> str:
    """Table IV's cost of a whole run for the set of that name, "" where the paper has none."""
    claim = CLAIMS.get(name)
    if claim is None:
        return ""
    inner, _, rest = claim.cost.removeprefix("O(").rpartition(")")
    return f"O(K₁/ε³ + ⌊T₁/k⌋·{inner}){rest}"
