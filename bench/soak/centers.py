"""Adversarial centres: weights down to 1e-300, corners, zeros, ties; each family draws (rows, N)."""

from __future__ import annotations

import numpy as np

from bench.soak.families import Family, Rng, Shape
from uncertainty_sets.arrays import Array


def _normalised(q: Array) -> Array:
    total = q.sum(axis=1, keepdims=True)
    return np.asarray(np.where(total > 0.0, q, 1.0) / np.where(total > 0.0, total, q.shape[1]))


def plain(rng: Rng, shape: Shape) -> Array:
    """Uniform over the simplex, or the uniform distribution."""
    q = rng.exponential(size=shape)
    q[rng.random(shape[0]) < 0.3] = 1.0
    return _normalised(q)


def concentrated(rng: Rng, shape: Shape) -> Array:
    """Dirichlet(0.05): a few entries have nearly all the mass, the others as little as 1e-100."""
    with np.errstate(under="ignore"):
        return _normalised(rng.gamma(0.05, size=shape))


def decades(rng: Rng, shape: Shape) -> Array:
    """Weights spread evenly over 5 to 300 decades."""
    return _normalised(10.0 ** -(rng.choice([5.0, 20.0, 40.0, 300.0], (shape[0], 1)) * rng.random(shape)))


def corner(rng: Rng, shape: Shape) -> Array:
    """Nearly all mass in one or two entries; the others from 1e-10 to 1e-300, equal or not."""
    each = 10.0 ** -rng.uniform(10.0, 300.0, shape)
    alike = rng.choice([1e-10, 1e-16, 1e-17, 1e-20, 1e-300], (shape[0], 1)).repeat(shape[1], 1)
    q = np.where(rng.random((shape[0], 1)) < 0.5, each, alike)
    rows = np.arange(shape[0])
    q[rows, rng.integers(shape[1], size=shape[0])] = 1.0
    second = rng.random(shape[0]) < 0.5
    q[rows[second], rng.integers(shape[1], size=shape[0])[second]] = 1.0
    return _normalised(q)


def zeros(rng: Rng, shape: Shape) -> Array:
    """Any share of the entries is 0."""
    return _normalised(rng.random(shape) * (rng.random(shape) < rng.random((shape[0], 1))))


def ties(rng: Rng, shape: Shape) -> Array:
    """Multiples of one number, whose sums can be exactly a set's limit."""
    return _normalised(rng.integers(0, 5, shape).astype(float))


FAMILIES: dict[str, Family] = {
    "plain": plain,
    "concentrated": concentrated,
    "decades": decades,
    "corner": corner,
    "zeros": zeros,
    "ties": ties,
}
