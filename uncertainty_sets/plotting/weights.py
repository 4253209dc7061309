"""Worst-case weights beside the reference, as bars or as a curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import InvalidInput
from uncertainty_sets.plotting.style import INK, SHADE, label_ends, new_axes

BARS = 40  # as many workers have a bar each; more are drawn as a curve


def draw_weights(
    worst_case: WorstCase | ArrayLike,
    prior: ArrayLike,
    ax: Any = None,
    *,
    names: Sequence[str] | None = None,
) -> Any:
    """The worst case's weights against the prior.

    Up to 40 workers have a bar each, the prior a line across it. More are one curve of weight over prior,
    sorted.

    Args:
        worst_case: an answer of an oracle, or its p.
        prior: the weights to compare with.
        ax: matplotlib axes; a new figure by default.
        names: of the workers, for up to 40 of them.
    """
    p = np.asarray(worst_case.p if isinstance(worst_case, WorstCase) else worst_case, dtype=np.float64)
    q = np.asarray(prior, dtype=np.float64)
    if p.ndim != 1 or p.shape != q.shape or p.size == 0:
        raise InvalidInput(
            f"one vector of weights and a prior of its length are needed, got {p.shape} and {q.shape}"
        )
    if names is not None and len(names) != p.size:
        raise InvalidInput(f"names must have {p.size} entries, one for each weight, got {len(names)}")
    ax = new_axes(ax, 6.0, 3.0)
    if p.size <= BARS:
        _bars(ax, p, q, names)
    else:
        _curve(ax, p, q)
    return ax


def _bars(ax: Any, p: Array, q: Array, names: Sequence[str] | None) -> None:
    places = np.arange(p.size)
    bars = ax.bar(places, p, width=0.7, color=SHADE, edgecolor=INK, linewidth=0.6)
    lines = ax.hlines(q, places - 0.45, places + 0.45, color=INK, linewidth=1.8)
    ax.legend(
        [bars, lines], ["worst case", "prior"], frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0)
    )
    shown = places if names is not None or p.size <= 20 else places[4::5]
    texts = [str(k + 1) if names is None else str(names[k]) for k in shown]
    crowded = sum(len(text) + 1 for text in texts) > 55
    ax.set_xticks(shown, texts, rotation=90 if crowded else 0)
    ax.tick_params(axis="x", length=0)
    ax.set_xlim(-0.7, p.size - 0.3)
    ax.set_ylim(0.0, 1.08 * float(max(p.max(), q.max())))
    ax.set_ylabel("weight")
    if names is None:
        ax.set_xlabel("worker")


def _curve(ax: Any, p: Array, q: Array) -> None:
    ratio = np.divide(p, q, out=np.ones_like(p), where=q > 0.0)
    ratio = np.sort(np.where((q == 0.0) & (p > 0.0), ratio[q > 0.0].max(initial=1.0), ratio))[::-1]
    ax.stairs(ratio, np.arange(p.size + 1), fill=True, facecolor=SHADE)
    ax.stairs(ratio, np.arange(p.size + 1), color=INK, linewidth=1.0)
    ax.hlines(1.0, 0, p.size, color=INK, linewidth=1.6, linestyle=(0, (4, 2)))
    gained, none = int((ratio > 1.0 + 1e-9).sum()), int((p <= 1e-12).sum())
    ax.set_xlim(0, p.size)
    ax.set_ylim(0.0, 1.08 * float(ratio.max()))
    ax.set_ylabel("weight, times the prior")
    ax.set_xlabel(f"{p.size:,} workers, sorted: {gained:,} gained weight, {none:,} have none left")
    label_ends(ax, float(p.size), [(1.0, "prior"), (float(ratio[-1]), "worst case")])
