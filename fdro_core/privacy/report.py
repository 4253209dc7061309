"""What a run promises about its workers' data: a part of its `Result`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.privacy.accounting import Releases, epsilon
from fdro_core.privacy.settings import Privacy
from uncertainty_sets.arrays import Array


@dataclass(frozen=True)
class PrivacyReport:
    """The guarantee, and how much of it was used.

    Attributes:
        epsilon: ε of the guarantee for each worker's data; infinite if the noise had a seed.
        delta: δ.
        unit: what is protected: each "sample", or all data of a "client".
        noise, bound, loss_bound, loss_share: σ, C, B and a, as set.
        releases: answers that each worker gave, by its own count, with a ledger those of earlier runs too; -1
            if it did not say at the end.
        spent: the accountant's ε for so many releases, NaN if not known. It is at most `epsilon`, which is
            the guarantee: the number of releases depends on what was released.
    """

    epsilon: float
    delta: float
    unit: str
    noise: float
    bound: float
    loss_bound: float
    loss_share: float
    releases: NDArray[np.int64]
    spent: Array

    def sentence(self) -> str:
        """The guarantee in words.

        >>> settings = Privacy(epsilon=4.0, noise=10.0, bound=1.0, loss_bound=2.0)
        >>> report(settings, 2, {0: ((1.0, 10.0, 70),)}).sentence()
        'each sample is protected with ε = 4, δ = 1e-05; at most 3.86 of it was spent'
        """
        if self.epsilon == inf:
            return "not private: the noise has a seed (noise_seed)"
        what = "each sample" if self.unit == "sample" else "all data of each worker"
        known = self.spent[np.isfinite(self.spent)]
        used = f"; at most {known.max():.3g} of it was spent" if known.size else ""
        return f"{what} is protected with ε = {self.epsilon:g}, δ = {self.delta:g}{used}"

    def as_dict(self) -> dict[str, Any]:
        """Plain values and arrays, for `result.json`."""
        return {**vars(self), "in_words": self.sentence()}


def report(privacy: Privacy, workers: int, releases: Mapping[int, Releases]) -> PrivacyReport:
    """The report of a run, from the workers' accounts; those that are missing gave none."""
    counts = np.full(workers, -1)
    spent = np.full(workers, np.nan)
    for j, known in releases.items():
        counts[j] = sum(count for *_, count in known)
        spent[j] = epsilon(known, privacy.delta)
    return PrivacyReport(
        epsilon=inf if privacy.noise_seed is not None else privacy.epsilon,
        delta=privacy.delta,
        unit=privacy.unit,
        noise=privacy.noise,
        bound=privacy.bound,
        loss_bound=privacy.loss_bound,
        loss_share=privacy.loss_share,
        releases=counts,
        spent=spent,
    )
