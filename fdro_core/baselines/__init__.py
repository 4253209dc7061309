"""The methods that ASPIRE-EASE is compared with, on the same engines, clock and history.

Each is an algorithm: ``solve(problems, set, algorithm=FedAvg(...))``. In the order of reading: `_common`
has what all share, `rounds` the parent of those that work in synchronous rounds, `arrivals` that of those
that use every update as it comes. Every other file is one baseline, found by its `name` without a list.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

# For type checkers and editors, which do not run `_found`; a new baseline works without a line here.
from fdro_core.baselines.ace import ACE as ACE
from fdro_core.baselines.afl import AFL as AFL
from fdro_core.baselines.drfa_prox import DRFAProx as DRFAProx
from fdro_core.baselines.fed_async import FedAsync as FedAsync
from fdro_core.baselines.fed_buff import FedBuff as FedBuff
from fdro_core.baselines.fed_prox import FedProx as FedProx
from fdro_core.baselines.fedavg import FedAvg as FedAvg
from fdro_core.baselines.individual import Individual as Individual
from fdro_core.baselines.mix_even import MixEven as MixEven
from fdro_core.baselines.q_ffl import QFFL as QFFL
from fdro_core.baselines.scaff_pd import ScaffPD as ScaffPD
from fdro_core.baselines.scaffold import Scaffold as Scaffold
from fdro_core.protocol.algorithm import ALGORITHMS, AlgorithmTraits


def _found() -> dict[str, type[Any]]:
    """Every algorithm with a name that the files of this folder define, by its class's name."""
    files = [importlib.import_module(file.name) for file in pkgutil.iter_modules(__path__, f"{__name__}.")]
    for file in files:
        for own in vars(file).values():
            if not (isinstance(own, type) and issubclass(own, AlgorithmTraits)):
                continue
            parent = own.__name__.startswith("_") or own.__subclasses__()  # of others, as `Rounds`
            if own.__module__ == file.__name__ and not (vars(own).get("name") or parent):
                raise TypeError(f"{own.__module__}.{own.__name__} must set `name`, as run files spell it")
    found: dict[str, type[Any]] = {}
    for cls in ALGORITHMS.defined():
        if cls.__module__.startswith(f"{__name__}."):
            other = found.setdefault(cls.__name__, cls)
            if other is not cls:
                raise TypeError(
                    f"two baselines are called {cls.__name__}, in {other.__module__} and {cls.__module__}: "
                    "rename one"
                )
    return dict(sorted(found.items()))


_baselines = _found()
globals().update(_baselines)
__all__ = list(_baselines)
