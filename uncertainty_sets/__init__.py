"""Uncertainty sets over probability vectors, with fast, certified worst-case oracles.

>>> from uncertainty_sets import KL
>>> KL([0.5, 0.3, 0.2], radius=0.1).worst_case([1.0, 2.0, 4.0])
WorstCase(value=2.438..., p=[0.3313, 0.2836, 0.3851], gap=..., violation=..., backend='closed-form')

Each name is imported when it is first used, so that importing the package costs nothing.

In the order in which one would read it:

- `oracle`: losses in, an answer out; what sets and penalised problems share. `base`: what every set has.
- `sets`: one file per set, which checks parameters and hands them to `kernels`, compiled closed forms.
  `parameters` has the checks.
- `answer`: what comes back. `verdict`: is it within the promise, and what happens if not. `errors`: what is
  raised.
- `conic`: a set that has only constraints becomes a conic program, which one of the `backends` solves.
- `rows` and `ragged`: many sets of different sizes over one vector of values.
- `inverse`, `projection`: which radius reaches a target; the nearest point of a set.
- `penalised`, `pooling`, `calibration`, `robust`: a divergence that costs, views, radii from samples, and the
  worst case in a problem of cvxpy.
- `by_name`: sets by name. `registry`: how they, backends, algorithms and engines are found.
- `check`: the properties that every set must have, to try on one's own.
- `mdp`, `torch`, `pictures`: Markov decision processes, losses for PyTorch, drawings.
"""

from typing import TYPE_CHECKING, Any

from uncertainty_sets.packages import lazily

if TYPE_CHECKING:
    from uncertainty_sets.answer import BestCase, RaggedWorstCase, WorstCase
    from uncertainty_sets.backends import available_backends
    from uncertainty_sets.base import UncertaintySet
    from uncertainty_sets.by_name import available_sets, get_set, worst_case
    from uncertainty_sets.check.check import check_set
    from uncertainty_sets.inverse import LeastRadius
    from uncertainty_sets.penalised import Penalised
    from uncertainty_sets.pooling import Pooled, entropy_pooling
    from uncertainty_sets.projection import Nearest
    from uncertainty_sets.ragged import Ragged
    from uncertainty_sets.sets.box import Box
    from uncertainty_sets.sets.burg import Burg
    from uncertainty_sets.sets.cd_norm import CDNorm
    from uncertainty_sets.sets.chi_square import ChiSquare
    from uncertainty_sets.sets.cressie_read import CressieRead
    from uncertainty_sets.sets.cvar import CVaR
    from uncertainty_sets.sets.cvar_mixture import CVaRMixture
    from uncertainty_sets.sets.ellipsoid import Ellipsoid
    from uncertainty_sets.sets.evar import EVaR
    from uncertainty_sets.sets.hellinger import Hellinger
    from uncertainty_sets.sets.intersection import Intersection
    from uncertainty_sets.sets.kl import KL
    from uncertainty_sets.sets.mapped import Mapped
    from uncertainty_sets.sets.nested import Nested
    from uncertainty_sets.sets.polyhedron import Polyhedron
    from uncertainty_sets.sets.product import Product
    from uncertainty_sets.sets.spectral import Spectral
    from uncertainty_sets.sets.total_variation import TotalVariation
    from uncertainty_sets.sets.wasserstein import Wasserstein
    from uncertainty_sets.sets.wasserstein1 import Wasserstein1
    from uncertainty_sets.sets.weighted_l1 import WeightedL1

__all__ = [
    "KL",
    "BestCase",
    "Box",
    "Burg",
    "CDNorm",
    "CVaR",
    "CVaRMixture",
    "ChiSquare",
    "CressieRead",
    "EVaR",
    "Ellipsoid",
    "Hellinger",
    "Intersection",
    "LeastRadius",
    "Mapped",
    "Nearest",
    "Nested",
    "Penalised",
    "Polyhedron",
    "Pooled",
    "Product",
    "Ragged",
    "RaggedWorstCase",
    "Spectral",
    "TotalVariation",
    "UncertaintySet",
    "Wasserstein",
    "Wasserstein1",
    "WeightedL1",
    "WorstCase",
    "available_backends",
    "available_sets",
    "check_set",
    "entropy_pooling",
    "get_set",
    "worst_case",
]

_find = lazily(
    __name__,
    {
        "answer": "BestCase RaggedWorstCase WorstCase",
        "backends": "available_backends",
        "base": "UncertaintySet",
        "check.check": "check_set",
        "inverse": "LeastRadius",
        "penalised": "Penalised",
        "pooling": "Pooled entropy_pooling",
        "projection": "Nearest",
        "ragged": "Ragged",
        "by_name": "available_sets get_set worst_case",
        "sets.box": "Box",
        "sets.burg": "Burg",
        "sets.cd_norm": "CDNorm",
        "sets.chi_square": "ChiSquare",
        "sets.cressie_read": "CressieRead",
        "sets.cvar": "CVaR",
        "sets.cvar_mixture": "CVaRMixture",
        "sets.ellipsoid": "Ellipsoid",
        "sets.evar": "EVaR",
        "sets.hellinger": "Hellinger",
        "sets.intersection": "Intersection",
        "sets.kl": "KL",
        "sets.mapped": "Mapped",
        "sets.nested": "Nested",
        "sets.polyhedron": "Polyhedron",
        "sets.product": "Product",
        "sets.spectral": "Spectral",
        "sets.total_variation": "TotalVariation",
        "sets.wasserstein": "Wasserstein",
        "sets.wasserstein1": "Wasserstein1",
        "sets.weighted_l1": "WeightedL1",
    },
)


def __getattr__(name: str) -> Any:
    return _find(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
