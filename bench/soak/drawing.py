"""What the makers of parameters share: what they are given, and what they say of a set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.arrays import Array

Made = tuple[dict[str, Any], tuple[str, ...]]


@dataclass
class Draw:
    """What a maker is given: randomness, losses (B, N), centres (B, N), and whether radii should saturate."""

    rng: np.random.Generator
    f: Array
    q: Array
    saturated: bool

    def radii(self, saturation: Array, usual: Array) -> Array:
        """One per row: 0, tiny, huge, usual, or the saturation radius, exactly or off by ulps or a little."""
        rng, rows = self.rng, len(self.f)
        exact = np.where(np.isfinite(saturation) & (saturation >= 0.0), saturation, 1.0)
        ulps = rng.choice([-2, -1, 0, 1, 2], rows) * np.spacing(exact)
        off = rng.choice([0.0, 0.0, 1e-15, -1e-15, 1e-12, -1e-12, 1e-9, -1e-9, 1e-6, -1e-6], rows)
        near = np.maximum(0.0, (exact + ulps) * (1.0 + off))
        odd = rng.choice([0.0, 1e-30, 1e-20, 1e-12, 1e13, 1e100], rows)
        kind = rng.random(rows)
        far = np.where(kind < 0.3, near, np.where(kind < 0.55, odd, usual))
        return np.where((kind < 0.9) & self.saturated, np.where(kind < 0.75, near, odd), far)

    @property
    def top(self) -> NDArray[np.bool_]:
        """Where each row's largest losses are."""
        return np.asarray(self.f == self.f.max(axis=1, keepdims=True))


@dataclass
class Maker:
    """How a set is built, how its parameters are drawn, and how large it may be here.

    `conic`: a conic solver answers, and its promise is the conic one. `far`: multipliers may be far larger or
    smaller than the losses, which are kept within 1e±290 so that those are doubles.
    """

    build: Callable[..., Any]
    make: Callable[[Draw], Made]
    multipliers: tuple[str, ...]
    largest: int = 100_000
    rows: int = 200
    conic: bool = False
    far: bool = False
