"""Product, Nested and Mapped of sets with closed forms, judged by the formulas of their parts.

A parameter "2.radius" is the radius of part 2; in Nested the outer set is the last part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import uncertainty_sets as sets
from bench.soak import bounds, residuals
from bench.soak.drawing import Draw, Made, Maker
from uncertainty_sets.arrays import Array

Long = NDArray[np.longdouble]
Public = Callable[[str, dict[str, Any], int], dict[str, Any]]

KINDS: dict[str, Any] = {
    "kl": sets.KL,
    "total-variation": sets.TotalVariation,
    "chi-square": sets.ChiSquare,
    "cvar": sets.CVaR,
    "box": sets.Box,
}
KEYS = {"kl": "eta", "total-variation": "t", "chi-square": "margin", "cvar": "var", "box": "nu"}
LIGHT = 1e-15


def _drawn(rng: np.random.Generator, kind: str, q: Array) -> dict[str, Any]:
    """Parameters of a part around a centre of each row."""
    rows = len(q)
    if kind == "box":
        return {
            "lower": rng.choice([0.0, 0.5, 1.0], (rows, 1)) * q,
            "upper": rng.choice([1.0, 1.5, 9.0], (rows, 1)) * q,
        }
    if kind == "cvar":
        return {"center": q, "tail": rng.uniform(0.05, 1.0, rows)}
    most = 1.0 if kind == "total-variation" else 3.0
    return {"center": q, "radius": np.minimum(10.0 ** rng.uniform(-4.0, 0.5, rows), most)}


def _centers(rng: np.random.Generator, q: Array, size: int) -> Array:
    """Centres of that size: the first entries of q, or uniform where these have no mass."""
    part = q[:, :size] if q.shape[1] >= size else rng.exponential(size=(len(q), size))
    total = part.sum(axis=1, keepdims=True)
    part = np.where(total > 1e-200, part / np.maximum(total, 1e-200), 1.0 / size)
    return np.asarray(part / part.sum(axis=1, keepdims=True))


def _parts(draw: Draw, sizes: list[int]) -> tuple[dict[str, Any], tuple[str, ...]]:
    given: dict[str, Any] = {}
    by_row: list[str] = []
    start = 0
    for k, size in enumerate(sizes):
        kind = str(draw.rng.choice(list(KINDS)))
        q = _centers(draw.rng, draw.q[:, start : start + size], size)
        start += size
        given[f"{k}.kind"] = kind
        for name, value in _drawn(draw.rng, kind, q).items():
            given[f"{k}.{name}"] = value
            by_row.append(f"{k}.{name}")
    return given, tuple(by_row)


def _cut(draw: Draw) -> list[int]:
    n = draw.f.shape[1]
    count = int(draw.rng.integers(1, min(n, 5) + 1))
    edges = np.sort(draw.rng.choice(np.arange(1, n), count - 1, replace=False)) if count > 1 else np.array([])
    return [int(x) for x in np.diff(np.concatenate([[0], edges, [n]]))]


def product(draw: Draw) -> Made:
    """Blocks of any sizes with weights of any sizes, some of them 0."""
    sizes = _cut(draw)
    given, by_row = _parts(draw, sizes)
    weights = draw.rng.exponential(size=len(sizes)) ** draw.rng.choice([1.0, 6.0])
    weights *= (draw.rng.random(len(sizes)) < 0.85) | (np.arange(len(sizes)) == 0)
    return {"weights": weights / weights.sum(), **given}, by_row


def nested(draw: Draw) -> Made:
    """The same under an outer set."""
    sizes = _cut(draw)
    return _parts(draw, [*sizes, len(sizes)])


def mapped(draw: Draw) -> Made:
    """Groups with distributions that are linearly independent."""
    n = draw.f.shape[1]
    groups = int(draw.rng.integers(1, min(n, 6) + 1))
    given, by_row = _parts(draw, [groups])
    M = 0.7 * np.eye(groups, n) + 0.3 * draw.rng.dirichlet(np.ones(n), groups)
    return {"M": M / M.sum(axis=1, keepdims=True), **given}, by_row


def _split(given: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """(kind, parameters) of every part."""
    found: list[tuple[str, dict[str, Any]]] = []
    while f"{len(found)}.kind" in given:
        k = f"{len(found)}."
        own = {key.removeprefix(k): each for key, each in given.items() if key.startswith(k)}
        found.append((own.pop("kind"), own))
    return found


def _made(given: dict[str, Any]) -> list[Any]:
    return [KINDS[kind](**own) for kind, own in _split(given)]


def _product(weights: Array, **given: Any) -> Any:
    return sets.Product(_made(given), weights)


def _nested(**given: Any) -> Any:
    *inners, outer = _made(given)
    return sets.Nested(outer, inners)


def _mapped(M: Array, **given: Any) -> Any:
    return sets.Mapped(_made(given)[0], M)


def _size(kind: str, own: dict[str, Any]) -> int:
    return int(np.shape(own["lower" if kind == "box" else "center"])[-1])


def _of_part(
    kind: str,
    own: dict[str, Any],
    h: Long,
    anchor: Long,
    dual: Any,
    path: str,
    public: Public,
    size: Long,
) -> Long:
    """The bound of a part, minus the anchor: infinite without a multiplier that proves one."""
    given = public(kind, own, h.shape[1])
    key = f"{path}.{KEYS[kind]}" if path else KEYS[kind]
    if key not in dual:
        return np.full(len(h), np.nan, dtype=np.longdouble)
    multiplier = np.asarray(dual[key], dtype=np.longdouble)[:, None]
    if kind in {"kl", "chi-square"}:
        multiplier = np.where(multiplier >= 0.0, multiplier, np.nan)
    columns = {KEYS[kind]: multiplier}
    with np.errstate(all="ignore"):
        top = np.zeros_like(anchor)
        if kind in {"kl", "chi-square"}:  # whose formulas measure from the largest loss that counts
            top = np.where(given["center"] > 0.0, h, -np.inf).max(axis=1, keepdims=True)
            h = np.where(given["center"] > 0.0, h - top, 0.0)
        elif kind == "total-variation":
            top = h.max(axis=1, keepdims=True)
            # The losses of groups and of blocks are rounded, and the multiplier may be their largest.
            highest, digits = anchor + top, 64.0 * np.spacing((np.abs(anchor) + size).astype(float))
            near = (multiplier > highest) & (multiplier <= highest + digits)
            columns = {"t": np.where(near, highest, multiplier)}
            h = h - top
        return np.asarray(bounds.BOUNDS[kind](given, h, anchor + top, columns) + top[:, 0])


def bound(name: str, given: dict[str, Any], h: Long, anchor: Long, dual: Any, public: Public) -> Long:
    """The bound of the whole from those of the parts, minus the anchor."""
    parts, spread = _split(given), -h.min(axis=1, keepdims=True)
    if name == "mapped":
        M = np.asarray(given["M"], dtype=np.longdouble)
        return _of_part(*parts[0], h @ M.T, anchor, dual, "", public, spread)
    blocks = parts[:-1] if name == "nested" else parts
    label = "inners" if name == "nested" else "sets"
    start, found = 0, []
    for k, (kind, own) in enumerate(blocks):
        size = _size(kind, own)
        part = h[:, start : start + size]
        found.append(_of_part(kind, own, part, anchor, dual, f"{label}[{k}]", public, spread))
        start += size
    of_blocks = np.stack(found, axis=1)
    if name == "product":
        return np.asarray(of_blocks @ np.asarray(given["weights"], dtype=np.longdouble))
    return _of_part(*parts[-1], of_blocks, anchor, dual, "outer", public, spread)


def residual(name: str, given: dict[str, Any], p: Long, half: Long, public: Public) -> Long:
    """The largest residual of a part at its share, times its weight."""
    parts = _split(given)
    if name == "mapped":
        M = np.asarray(given["M"], dtype=float)
        pi = np.linalg.lstsq(M.T, p.astype(float).T, rcond=None)[0].T.astype(np.longdouble)
        kind, own = parts[0]
        off = residuals.RESIDUALS[kind](public(kind, own, pi.shape[1]), pi, np.full(pi.shape, 1e-13))
        return np.asarray(np.maximum(np.abs(pi @ M - p).max(axis=1), off))
    blocks = parts[:-1] if name == "nested" else parts
    start, sums, worst = 0, [], np.zeros(len(p), dtype=np.longdouble)
    for k, (kind, own) in enumerate(blocks):
        span = slice(start, start := start + _size(kind, own))
        mass = p[:, span].sum(axis=1, keepdims=True)
        weight = mass if name == "nested" else np.full_like(mass, given["weights"][k])
        sums.append(mass[:, 0])
        safe = np.where(weight > LIGHT, weight, 1.0)
        share, digits = p[:, span] / safe, half[:, span] / safe + 1e-16
        off = np.maximum(
            residuals.simplex(share),
            residuals.RESIDUALS[kind](public(kind, own, share.shape[1]), share, digits),
        )
        worst = np.maximum(worst, np.where(weight[:, 0] > LIGHT, weight[:, 0] * off, mass[:, 0]))
    if name == "nested":
        outer = np.stack(sums, axis=1)
        kind, own = parts[-1]
        given_outer = public(kind, own, outer.shape[1])
        worst = np.maximum(worst, residuals.RESIDUALS[kind](given_outer, outer, np.full(outer.shape, 1e-16)))
    return worst


MAKERS = {
    "product": Maker(_product, product, (), largest=97, far=True),
    "nested": Maker(_nested, nested, (), largest=97, far=True),
    "mapped": Maker(_mapped, mapped, (), largest=25, far=True),
}
