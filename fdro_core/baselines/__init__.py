"""The methods that ASPIRE-EASE is compared with, on the same engines, clock and history.

Each is an algorithm: ``solve(problems, set, algorithm=FedAvg(...))``. They work in synchronous rounds
(`baselines/rounds`).
"""

from fdro_core.baselines.afl import AFL
from fdro_core.baselines.drfa_prox import DRFAProx
from fdro_core.baselines.fedavg import FedAvg
from fdro_core.baselines.individual import Individual
from fdro_core.baselines.mix_even import MixEven

__all__ = ["AFL", "DRFAProx", "FedAvg", "Individual", "MixEven"]
