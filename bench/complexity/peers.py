"""Other packages' ways to the same number, measured beside ours if they are installed; none is needed.

A peer is made for a set and returns a function of the losses whose value is the largest expected loss, or
NaN if it computes something else, which its title states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from bench.complexity.by_hand import EXPERTS
from bench.complexity.variants import Variant, chi_square, cvar
from uncertainty_sets.arrays import Array

Solve = Callable[[Array], float]

CVXPY = "cvxpy + Clarabel"
CONSTANT = "cvxpy + Clarabel, losses constant"
NUMPY = "NumPy"


@dataclass(frozen=True)
class Peer:
    """One way to compute a worst case.

    Attributes:
        title: how tables name it.
        modules: what has to be importable.
        install: what to install.
        make: the solver for a set.
        names: registry names it can do; empty for all.
        variants: the only variants it can do, empty for all of `names`.
    """

    title: str
    modules: tuple[str, ...]
    install: str
    make: Callable[[Any, int], Solve]
    names: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = ()

    def installed(self) -> bool:
        """Whether its modules are installed, found without importing them."""
        return all(find_spec(module) is not None for module in self.modules)

    def can(self, variant: Variant) -> bool:
        """Whether it answers the question for this variant."""
        if self.variants:
            return variant in self.variants
        return not self.names or variant.name in self.names


def _cvxpy(uncertainty_set: Any, size: int) -> Solve:
    from bench.measuring.models import from_constraints

    return from_constraints(uncertainty_set, size).solve


def _constant(uncertainty_set: Any, size: int) -> Solve:
    from bench.measuring.models import solved_once

    return lambda losses: solved_once(uncertainty_set, losses)


def _numpy(uncertainty_set: Any, size: int) -> Solve:
    solve = EXPERTS[uncertainty_set.name](uncertainty_set)
    return lambda losses: float(solve(losses) @ losses)


def _transport_program(ball: Any, size: int) -> Solve:
    """The paper's program: N² transported masses, costs by POT, solved by SciPy's HiGHS."""
    import ot
    from scipy import sparse
    from scipy.optimize import linprog

    if ball.cost is None or ball.cost.ndim == 1:
        places = np.arange(float(size)) if ball.cost is None else ball.cost
        cost = ot.dist(places[:, None], places[:, None], metric="cityblock")
    else:
        cost = ball.cost
    leaves = sparse.kron(np.ones((1, size)), sparse.eye(size), format="csr")  # Σ_i plan[i, j] = q_j

    def solve(losses: Array) -> float:
        gain = np.repeat(losses, size)  # plan[i, j] arrives at i
        found = linprog(
            -gain,
            A_ub=cost.reshape(1, -1),
            b_ub=[ball.radius],
            A_eq=leaves,
            b_eq=ball.center,
            method="highs",
        )
        return float(-found.fun) if found.status == 0 else float("nan")

    return solve


def _distance(ball: Any, size: int) -> Solve:
    import ot

    p = ball.worst_case(np.random.default_rng(0).normal(size=size)).p
    if ball.cost is not None and ball.cost.ndim == 2:
        cost = np.ascontiguousarray(ball.cost)

        def measure(losses: Array) -> float:
            ot.emd2(p, ball.center, cost)
            return float("nan")

        return measure
    places = np.arange(float(size)) if ball.cost is None else ball.cost

    def measure_line(losses: Array) -> float:
        ot.emd2_1d(places, places, p, ball.center, metric="cityblock")
        return float("nan")

    return measure_line


def _skfolio(box: Any, size: int) -> Solve:
    measure: Any = import_module("skfolio.measures").cvar
    return lambda losses: float(measure(-losses, beta=0.9))


def _fast_dro(geometry: str, amount: float) -> Callable[[Any, int], Solve]:
    def make(uncertainty_set: Any, size: int) -> Solve:
        torch: Any = import_module("torch")
        layer = import_module("robust_losses").RobustLoss(size=amount, reg=0, geometry=geometry)

        def solve(losses: Array) -> float:
            values = torch.as_tensor(losses)
            return float(torch.dot(layer.best_response(values).to(values.dtype), values))

        return solve

    return make


CVAR = Variant("box", "CVaR", cvar, "O(N)")
CHI_SQUARE = Variant("ellipsoid", "χ², uniform centre", chi_square, "O(N)")
_FAST = "fast-dro's robust_losses.py on the path, and torch"

PEERS = (
    Peer(NUMPY, ("numpy", "scipy"), "scipy", _numpy, names=tuple(EXPERTS)),
    Peer(CVXPY, ("cvxpy", "clarabel"), "cvxpy, clarabel", _cvxpy),
    Peer(CONSTANT, ("cvxpy", "clarabel"), "cvxpy, clarabel", _constant),
    Peer(
        "transport LP (POT cost, SciPy HiGHS)", ("ot", "scipy"), "pot", _transport_program, ("wasserstein-1",)
    ),
    Peer("POT, the distance alone", ("ot",), "pot", _distance, ("wasserstein-1",)),
    Peer("skfolio CVaR (value alone)", ("skfolio",), "skfolio", _skfolio, variants=(CVAR,)),
    Peer("fast-dro CVaR", ("robust_losses", "torch"), _FAST, _fast_dro("cvar", 0.1), variants=(CVAR,)),
    Peer(
        "fast-dro χ²",
        ("robust_losses", "torch"),
        _FAST,
        _fast_dro("chi-square", 0.25),
        variants=(CHI_SQUARE,),
    ),
)


def present() -> list[Peer]:
    """Return the peers that are installed."""
    return [peer for peer in PEERS if peer.installed()]


def missing() -> list[str]:
    """Return the peers that are not installed, with what to install."""
    return [f"{peer.title} ({peer.install})" for peer in PEERS if not peer.installed()]


def special_variants() -> list[Variant]:
    """Return the variants that are measured only because an installed peer has them."""
    wanted = [variant for peer in present() for variant in peer.variants]
    return list(dict.fromkeys(wanted))
