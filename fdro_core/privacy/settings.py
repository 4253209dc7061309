"""What is protected and how strongly: the settings of differential privacy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdro_core.privacy import accounting
from fdro_core.privacy.accounting import Releases, epsilon
from fdro_core.protocol.settings import (
    REQUIRED,
    Number,
    OneOf,
    Share,
    Whole,
    check_settings,
    documented,
    setting,
)
from uncertainty_sets.arrays import Array

SAMPLE, CLIENT = "sample", "client"


@documented
@dataclass(frozen=True, kw_only=True)
class Privacy:
    """(ε, δ)-differential privacy of every worker's data against everyone else, the master included.

    A release is one answer of a worker: with g_i and f_i of its samples, in a batch that holds each sample
    with probability q = batch_size / n,

        gradient = (Σ_i g_i·min(1, C/‖g_i‖) + σC/√(1-a)·N(0, I)) / (qn)
        loss     = B/2 + (Σ_i (clip(f_i, 0, B) - B/2) + σB/(2√a)·N(0, 1)) / (qn)

    which is one Gaussian mechanism of noise multiplier σ on a Poisson sample of rate q. Nothing else that a
    worker sends depends on its data. docs/privacy.md has the threat model, the limits and the price.

    These are wishes of who trains. Where the data's owner has a policy (`PrivacyPolicy`), a worker that asks
    for more is refused, and releases are counted in the owner's ledger, over all runs.

    >>> privacy = Privacy(epsilon=4.0, noise=1.5, bound=1.0, loss_bound=2.0)
    >>> privacy.check()
    >>> Privacy(epsilon=4.0, noise=-1.0, bound=1.0, loss_bound=2.0).check()
    Traceback (most recent call last):
    fdro_core.errors.InvalidSetting: Privacy.noise must be a finite number > 0, got -1.0
    """

    epsilon: float = setting(
        REQUIRED,
        Number(),
        "ε, the guarantee. A worker answers as often as it allows, then says that its budget is spent, and "
        "the run ends",
    )
    noise: float = setting(
        REQUIRED,
        Number(),
        "σ, the noise in units of what one sample can change; `Privacy.noise_for` finds it",
    )
    bound: float = setting(
        REQUIRED,
        Number(),
        "C, the largest norm of one sample's gradient; longer ones are shortened",
    )
    loss_bound: float = setting(REQUIRED, Number(), "B; losses of samples are clipped to 0..B")
    delta: float = setting(
        1e-5, Share(whole=False), "δ; below 1/n, since δ = 1/n would allow to publish a sample"
    )
    loss_share: float = setting(0.3, Share(whole=False), "a, the part of 1/σ² that the loss gets")
    unit: str = setting(
        SAMPLE,
        OneOf(SAMPLE, CLIENT),
        '"sample" protects each sample, with n public; "client" protects all data of a worker at once, n '
        "included, without sampling: then g and f are the worker's own, q = n = 1, and two data sets differ "
        "by up to 2C, so that the multiplier counts as σ/2",
    )
    noise_seed: int | None = setting(
        None,
        Whole(0),
        "fixes the noise, for tests and measurements; whoever knows it can take the noise away, so the "
        "result then states ε = ∞. None: noise from the operating system, no two runs alike",
    )

    def check(self) -> None:
        """Raise `InvalidSetting` for a value that cannot work, or if the accountant is not installed."""
        check_settings(self, 0, "Privacy")
        accounting.library()

    @property
    def multiplier(self) -> float:
        """σ as the accountant counts it: in units of the distance between neighbouring data sets."""
        return self.noise if self.unit == SAMPLE else self.noise / 2.0

    @property
    def gradient_noise(self) -> float:
        """The standard deviation of the noise on each entry of the sum of gradients, σC/√(1-a)."""
        return self.noise * self.bound / sqrt(1.0 - self.loss_share)

    @property
    def loss_noise(self) -> float:
        """The standard deviation of the noise on the sum of centred losses, σB/(2√a)."""
        return self.noise * 0.5 * self.loss_bound / sqrt(self.loss_share)

    @staticmethod
    def noise_for(epsilon: float, releases: int, *, rate: float = 1.0, delta: float = 1e-5) -> float:
        """Return the smallest σ with which so many releases cost ε, by the accountant.

        Args:
            epsilon: ε.
            releases: answers of one worker, that to the handshake included.
            rate: q, batch_size over the samples of the smallest worker.
            delta: δ.

        Half a second for a rate below 1. For `unit="client"` take twice the answer at rate 1.

        >>> round(Privacy.noise_for(4.0, 100, rate=0.1), 2)
        1.48
        """
        return accounting.noise_for(epsilon, delta, rate, releases)


# -- what was promised and used ------------------------------------------------------------------------


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
