"""Certificates rechecked in plain NumPy, from a set's public parameters and an answer's multipliers only.

Everything is measured from a loss in the middle, so that no digit is lost to a constant in the losses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench.measuring import cases
from bench.measuring.targets import Row
from uncertainty_sets import UncertaintySet, WorstCase
from uncertainty_sets.arrays import Array


def gap(uncertainty_set: UncertaintySet, losses: Array, answer: WorstCase) -> float:
    """The bound that the multipliers prove, minus the value of p; both computed here."""
    middle = 0.5 * float(losses.max()) + 0.5 * float(losses.min())
    h = losses - middle
    bound = BOUNDS[uncertainty_set.name](uncertainty_set, h, middle, answer.dual)
    return bound - float((answer.p * h).sum())


def allowed(losses: Array) -> float:
    """The largest gap that was promised: 1e-9 of the spread, or eight ulp of the largest loss."""
    spread = float(losses.max()) - float(losses.min())
    return max(1e-9 * spread, 8 * float(np.spacing(np.abs(losses).max())))


def _box(box: Any, h: Array, middle: float, dual: Any) -> float:
    nu = dual["nu"] - middle
    d = h - nu
    return float(nu + np.maximum(np.maximum(box.lower, 0.0) * d, np.minimum(box.upper, 1.0) * d).sum())


def _cd_norm(cd: Any, h: Array, middle: float, dual: Any) -> float:
    nu, pi = dual["nu"] - middle, dual["pi"]
    q, s = cd.center, cd.spread
    cap = np.minimum(1.0, np.divide(q, s, out=np.zeros_like(q), where=s > 0.0))
    gain = np.maximum(s * (h - nu) - pi, cap * (s * (nu - h) - pi))
    return float((q * h).sum() + cd.budget * pi + np.maximum(0.0, gain).sum())


def _kl(kl: Any, h: Array, middle: float, dual: Any) -> float:
    return _entropic(kl.center, kl.radius, h, dual["eta"])


def _entropic(q: Array, radius: float, h: Array, eta: float) -> float:
    top = float(h.max())
    if eta == np.inf:
        return float((q * h).sum())
    if eta == 0.0:
        return float(h[q > 0.0].max())
    mean = float((q * h).sum())
    if top - mean <= eta:  # the digits of a small tilt
        x = (h - mean) / eta
        return float(mean + eta * (radius + np.log1p((q * (np.expm1(x) - x)).sum())))
    return float(top + eta * (radius + np.log((q * np.exp((h - top) / eta)).sum())))


def _evar(evar: Any, h: Array, middle: float, dual: Any) -> float:
    return _entropic(evar.center, -np.log(evar.tail), h, dual["eta"])


def _ellipsoid(ellipsoid: Any, h: Array, middle: float, dual: Any) -> float:
    nu, q, Q = dual["nu"] - middle, ellipsoid.center, ellipsoid.shape
    if "mu" in dual:
        y = h - nu + dual["mu"]
        size = float(y @ (Q @ y))
    else:
        tau = dual["tau"]
        y = h - nu if tau == np.inf else np.maximum(h - nu, -tau * q / Q)
        size = float((Q * y * y).sum())
    return float(nu + (q * y).sum() + np.sqrt(ellipsoid.radius * size))


def _wasserstein(ball: Any, h: Array, middle: float, dual: Any) -> float:
    lam, q = dual["lam"], ball.center
    if ball.cost is not None and ball.cost.ndim == 2:
        best = (h[:, None] - lam * ball.cost).max(axis=0)
    else:
        places = np.arange(float(h.size)) if ball.cost is None else ball.cost
        order = np.argsort(places, kind="stable")
        x, g = places[order], h[order]
        left = np.maximum.accumulate(g + lam * x) - lam * x
        right = np.maximum.accumulate((g - lam * x)[::-1])[::-1] + lam * x
        best = np.empty_like(h)
        best[order] = np.maximum(np.maximum(left, right), g)
    return float(lam * ball.radius + (q * best).sum())


def _any_order(ball: Any, h: Array, middle: float, dual: Any) -> float:
    """On the integer line; targets are looked for as far as the spread of the losses pays for."""
    lam, n, best = dual["lam"], h.size, h.copy()
    reach = n if lam == 0.0 else min(n, int((float(np.ptp(h)) / lam) ** (1.0 / ball.order)) + 2)
    for apart in range(1, reach):
        price = lam * float(apart) ** ball.order
        best[apart:] = np.maximum(best[apart:], h[:-apart] - price)
        best[:-apart] = np.maximum(best[:-apart], h[apart:] - price)
    return float(lam * ball.radius**ball.order + (ball.center * best).sum())


def _total_variation(ball: Any, h: Array, middle: float, dual: Any) -> float:
    t, top = dual["t"] - middle, float(h.max())
    if t > top:
        return np.inf
    return float((ball.center * np.maximum(h, t)).sum() + ball.radius * (top - t))


def _weighted_l1(ball: Any, h: Array, middle: float, dual: Any) -> float:
    lam, w = dual["lam"], ball.weights
    best = float((h - lam * w).max())
    return float(lam * ball.radius + (ball.center * np.maximum(h, best - lam * w)).sum())


def _power(power: float, unit: float) -> Callable[[Any, Array, float, Any], float]:
    """The bound of a ball {p : Σ q·φ(p/q) <= unit·radius} of that power."""

    def bound(ball: Any, h: Array, middle: float, dual: Any) -> float:
        return _hoelder(ball.center, unit * ball.radius, power, h, dual["margin"])

    return bound


def _cressie_read(ball: Any, h: Array, middle: float, dual: Any) -> float:
    return _hoelder(ball.center, ball.radius, ball.power, h, dual["margin"])


def _hoelder(center: Array, radius: float, power: float, h: Array, margin: float) -> float:
    """Hölder's inequality at a pole or zero that is the margin from the largest loss, with 80 bits."""
    inside = center > 0.0
    q, below = center[inside].astype(np.longdouble), h[inside].astype(np.longdouble)
    top = np.longdouble(h[inside].max() if power > 1.0 else h.max())
    below, m, k = top - below, np.longdouble(margin), np.longdouble(power)
    if not m >= 0.0:
        return np.inf
    if margin == np.inf:  # p = q, for a radius of 0 alone
        return float(top - (q * below).sum()) if radius == 0.0 else np.inf
    room = 1.0 + k * (k - 1.0) * radius
    if room <= 0.0:
        return float(top)
    with np.errstate(divide="ignore"):  # a margin of 0
        if power == 0.0:
            return float(top + (m - np.exp((q * np.log(m + below)).sum() - radius)))
        c = k / (k - 1.0)
        distance = np.maximum(m - below, 0.0) if power > 1.0 else m + below
        rise = room ** (1.0 / k) * (q * distance**c).sum() ** (1.0 / c)
    return float(top + (rise - m if power > 1.0 else m - rise))


def _cvar(cvar: Any, h: Array, middle: float, dual: Any) -> float:
    var = dual["var"] - middle
    return float(var + (cvar.center * np.maximum(h - var, 0.0)).sum() / cvar.tail)


def _mixture(mixture: Any, h: Array, middle: float, dual: Any) -> float:
    levels = zip(mixture.weights, mixture.tails, dual["var"] - middle, strict=True)
    return float(
        sum(w * (v + (mixture.center * np.maximum(h - v, 0.0)).sum() / tail) for w, tail, v in levels)
    )


def _spectral(spectral: Any, h: Array, middle: float, dual: Any) -> float:
    g, masses = h[dual["order"]], np.cumsum(spectral.center[dual["order"]])
    heights = np.interp(np.minimum(masses, 1.0), *spectral.distortion.T)
    return float(g[-1] + ((g[:-1] - g[1:]) * heights[:-1]).sum()) if (np.diff(g) <= 0.0).all() else np.inf


def _clipped(both: Any, h: Array, middle: float, dual: Any) -> float:
    """A KL ball and a box."""
    kl, box = both.members
    eta, nu = dual["eta"], dual["nu"] - middle
    if eta == 0.0:
        return _box(box, h, middle, dual)
    q, d = kl.center, h - nu
    ratio = np.clip(np.exp(d / eta), np.maximum(box.lower, 0.0) / q, np.minimum(box.upper, 1.0) / q)
    return float(nu + eta * kl.radius + (q * (ratio * d - eta * (ratio * np.log(ratio) - ratio + 1.0))).sum())


BOUNDS: dict[str, Callable[[Any, Array, float, Any], float]] = {
    "box": _box,
    "cd-norm": _cd_norm,
    "kl": _kl,
    "chi-square": _power(2.0, 0.5),
    "hellinger": _power(0.5, 4.0),
    "burg": _power(0.0, 1.0),
    "cressie-read": _cressie_read,
    "cvar": _cvar,
    "evar": _evar,
    "cvar-mixture": _mixture,
    "spectral": _spectral,
    "intersection": _clipped,
    "ellipsoid": _ellipsoid,
    "wasserstein": _any_order,
    "wasserstein-1": _wasserstein,
    "total-variation": _total_variation,
    "weighted-l1": _weighted_l1,
}


SIZES = (1, 2, 3, 10, 10**3, 10**5, 10**6)
VIOLATION = 1e-10


def exactness(sizes: Sequence[int], seed: int, say: Callable[[str], None]) -> list[Row]:
    """The worst gap (over what was promised) and the worst violation of each closed form."""
    rows = []
    for case in cases.ALL:
        say(f"exactness: {case.label}")
        worst_gap, worst_violation, at_gap, at_violation = -np.inf, -np.inf, "", ""
        relative = -np.inf
        for size in (n for n in sizes if n <= case.largest):
            for draw in range(20 if size <= 10 else 3 if size <= 10**3 else 1):
                rng = np.random.default_rng([seed, size, draw])
                q, f = cases.center(size, rng), cases.losses(size, rng)
                for level in cases.LEVELS:
                    uncertainty_set = case.make(q, level, rng)
                    answer = uncertainty_set.worst_case(f)
                    found = abs(gap(uncertainty_set, f, answer))
                    violation = uncertainty_set.violation(answer.p)
                    place = f"N={size:,}, {level}"
                    if found / allowed(f) > worst_gap:
                        worst_gap, at_gap = found / allowed(f), place
                        relative = found / max(float(np.ptp(f)), 1e-300) if size > 1 else 0.0
                    if violation > worst_violation:
                        worst_violation, at_violation = violation, place
        largest = max(n for n in sizes if n <= case.largest)
        group = f"exactness, N = {min(sizes)} … 10⁶"
        rows.append(
            Row(
                group,
                f"{case.label}: gap over the allowed gap",
                worst_gap,
                "",
                1.0,
                note=f"{relative:.1e} of the spread at {at_gap}; N up to {largest:,}",
            )
        )
        rows.append(
            Row(group, f"{case.label}: violation", worst_violation, "", VIOLATION, note=f"at {at_violation}")
        )
    return rows
