"""The methods that ASPIRE-EASE is compared with, on the same engines, clock and history.

Each is an algorithm: ``solve(problems, set, algorithm=FedAvg(...))``. They work in synchronous rounds
(`baselines/rounds`), or use every update as it arrives (`baselines/arrivals`). Each file of this folder
defines one baseline, which is found without a list.
"""

from __future__ import annotations

import importlib
import inspect
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

ALGORITHM = ("check", "worker", "master", "restore")
"""The methods by which a class is known to be an algorithm."""


def _found() -> dict[str, type[Any]]:
    """Every baseline by its name: the public algorithms that the files of this folder define."""
    found: dict[str, type[Any]] = {}
    for file in pkgutil.iter_modules(__path__, f"{__name__}."):
        if file.ispkg:  # what baselines share
            continue
        for name, cls in vars(importlib.import_module(file.name)).items():
            own = inspect.isclass(cls) and cls.__module__ == file.name and not name.startswith("_")
            if own and all(hasattr(cls, method) for method in ALGORITHM):
                if name in found:
                    raise TypeError(
                        f"two baselines are called {name}, in {found[name].__module__} and {file.name}: "
                        "rename one"
                    )
                found[name] = cls
    return dict(sorted(found.items()))


_baselines = _found()
globals().update(_baselines)
__all__ = list(_baselines)
