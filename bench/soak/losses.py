"""Adversarial losses: ulps, ties, extreme scales, ladders and tails; each family draws (rows, N)."""

from __future__ import annotations

import numpy as np

from bench.soak import killers
from bench.soak.families import Family, Rng, Shape
from uncertainty_sets.arrays import Array


def plain(rng: Rng, shape: Shape) -> Array:
    """Normal numbers."""
    return rng.normal(size=shape)


def ties(rng: Rng, shape: Shape) -> Array:
    """A few values many times: small integers, two values, one value, a plateau at the top or below."""
    f = rng.integers(-3, 4, shape).astype(float)
    kind = rng.integers(5, size=shape[0])
    f[kind == 1] = rng.integers(0, 2, shape)[kind == 1]
    f[kind == 2] = rng.normal(size=(shape[0], 1)).repeat(shape[1], 1)[kind == 2]
    smooth = rng.normal(size=shape)
    f[kind == 3] = np.minimum(smooth, 0.1)[kind == 3]
    f[kind == 4] = np.maximum(smooth, 0.1)[kind == 4]
    return f


def ulps(rng: Rng, shape: Shape) -> Array:
    """Neighbouring floats, or a cluster within rounding of the top above ordinary losses."""
    base = rng.choice([1.0, -1.0, 0.1, 1e8, 3.0], size=(shape[0], 1))
    step = np.spacing(base)
    f = base - step * rng.integers(0, rng.choice([2, 3, 10, 1000]), shape)
    low = rng.random((shape[0], 1)) < 0.5
    return np.where(low & (rng.random(shape) < 0.5), base - np.abs(rng.normal(size=shape)), f)


def near_top(rng: Rng, shape: Shape) -> Array:
    """Losses that miss the top by 1e-16 to 1e-300 of the spread; the top is 0, so that they can."""
    f = -(10.0 ** -rng.uniform(10.0, 300.0, shape))
    ordinary = -rng.random(shape)
    f = np.where(rng.random(shape) < 0.4, ordinary, f)
    f[np.arange(shape[0]), rng.integers(shape[1], size=shape[0])] = 0.0
    f[np.arange(shape[0]), rng.integers(shape[1], size=shape[0])] = -1.0
    return f


def shifted(rng: Rng, shape: Shape) -> Array:
    """A constant that takes most of the digits."""
    size = 10.0 ** rng.uniform(0.0, 16.0, (shape[0], 1))
    return np.asarray(rng.normal(size=shape) + size * rng.choice([-1.0, 1.0], (shape[0], 1)))


def scales(rng: Rng, shape: Shape) -> Array:
    """Losses of 1e±300, of the largest float, and below the smallest normal one."""
    unit = rng.choice([1e300, 1e-300, 1e150, 1e-150, 1e100, 1e-100, 1e308], size=(shape[0], 1))
    f = np.clip(rng.normal(size=shape), -1.7, 1.7) * unit
    tiny = rng.integers(-9, 10, shape) * 5e-324
    return np.where(rng.random((shape[0], 1)) < 0.1, tiny, f)


def ladders(rng: Rng, shape: Shape) -> Array:
    """base^-i upwards, downwards, towards the top or the bottom, in any order."""
    base = rng.choice([2.0, 10.0, 1.1, 1e3], size=(shape[0], 1))
    exponent = np.minimum(np.arange(shape[1]) * np.log10(base), 300.0)
    f = 10.0**-exponent
    f = np.where(base == 2.0, np.ldexp(1.0, -np.minimum(np.arange(shape[1]), 1000)), f)
    f = f * rng.choice([-1.0, 1.0], size=(shape[0], 1)) + rng.choice([0.0, 0.0, 1.0], size=(shape[0], 1))
    return np.asarray(rng.permuted(f, axis=1) if rng.random() < 0.5 else f)


def tails(rng: Rng, shape: Shape) -> Array:
    """Power tails u^-a, at the top or at the bottom."""
    power = rng.choice([0.5, 1.0, 2.0, 5.0, 20.0], size=(shape[0], 1))
    u = np.maximum(rng.random(shape), 1e-12)
    regular = rng.random((shape[0], 1)) < 0.3
    u = np.where(regular, (1.0 + np.arange(shape[1])) / shape[1], u)
    return np.asarray(u**-power * rng.choice([-1.0, 1.0], size=(shape[0], 1)))


def decades(rng: Rng, shape: Shape) -> Array:
    """Either sign, any size from 1e-D to 1e+D."""
    far = rng.choice([3.0, 20.0, 140.0, 290.0], size=(shape[0], 1))
    return np.asarray(10.0 ** (far * rng.uniform(-1.0, 1.0, shape)) * rng.choice([-1.0, 1.0], shape))


FAMILIES: dict[str, Family] = {
    "plain": plain,
    "ties": ties,
    "ulps": ulps,
    "near the top": near_top,
    "shifts": shifted,
    "scales": scales,
    "ladders": ladders,
    "tails": tails,
    "decades": decades,
    "killer orders": killers.losses,
}
