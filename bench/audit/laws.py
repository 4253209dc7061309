"""Laws of losses in [0, 1], and the truth about each set over them by integrals of quantile functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from uncertainty_sets import KL, Burg, ChiSquare, CressieRead, CVaR, EVaR, Hellinger, TotalVariation
from uncertainty_sets.arrays import Array

LAWS: dict[str, Callable[[Array], Array]] = {
    "beta(1, 4)": lambda u: 1.0 - (1.0 - u) ** 0.25,
    "uniform": lambda u: u,
    "70 % zeros": lambda u: np.maximum(u - 0.7, 0.0) / 0.3,
    "0/1, 10 %": lambda u: (u > 0.9).astype(np.float64),
}
"""By their quantile functions."""

CUBIC = partial(CressieRead, power=3.0)
FINE = 400_000


def draw(law: str, n: int, rng: np.random.Generator) -> Array:
    """Independent losses."""
    return LAWS[law](rng.random(n))


def worst(kind: Any, size: float, losses: Array) -> float:  # noqa: PLR0911 - one for each set
    """The largest mean over the set around equal weights, by a dual in one variable; calls no oracle."""
    top, spread = float(losses.max()), float(np.ptp(losses)) or 1.0

    def least(bound: Callable[[float], float], low: float, high: float) -> float:
        grid = np.linspace(low, high, 60)
        best = int(np.argmin([bound(float(x)) for x in grid]))
        ends = grid[max(0, best - 1)], grid[min(59, best + 1)]
        return float(minimize_scalar(bound, bounds=ends, method="bounded", options={"xatol": 1e-11}).fun)

    if kind is TotalVariation:
        return float(size * top + np.sort(losses)[round(size * losses.size) :].sum() / losses.size)
    if kind is CVaR:
        return float(np.sort(losses)[-round(size * losses.size) :].mean())
    if kind in (KL, EVaR):
        radius = -np.log(size) if kind is EVaR else size
        return least(
            lambda x: float(np.exp(x) * (radius + np.log(np.exp((losses - top) / np.exp(x)).mean())) + top),
            np.log(1e-3 * spread),
            np.log(1e3 * spread),
        )
    if kind is ChiSquare:
        return least(
            lambda x: float(
                top - np.exp(x) + np.sqrt((1 + size) * (np.maximum(losses - top + np.exp(x), 0) ** 2).mean())
            ),
            np.log(1e-3 * spread),
            np.log(1e3 * spread),
        )
    if kind is Hellinger:
        return least(
            lambda x: float(top + np.exp(x) - (1 - size) ** 2 / (1 / (top + np.exp(x) - losses)).mean()),
            np.log(1e-9 * spread),
            np.log(1e3 * spread),
        )
    if kind is Burg:
        return least(
            lambda x: float(top + np.exp(x) - np.exp(-size + np.log(top + np.exp(x) - losses).mean())),
            np.log(1e-9 * spread),
            np.log(1e3 * spread),
        )
    return least(  # cubic: Hölder with E L³ = 1 + 6ρ
        lambda x: float(
            top
            - np.exp(x)
            + (1 + 6 * size) ** (1 / 3) * (np.maximum(losses - top + np.exp(x), 0) ** 1.5).mean() ** (2 / 3)
        ),
        np.log(1e-3 * spread),
        np.log(1e3 * spread),
    )


def truth(kind: Any, size: float, law: str) -> float:
    """The largest mean loss of a law over a set."""
    return worst(kind, size, LAWS[law]((np.arange(FINE) + 0.5) / FINE))
