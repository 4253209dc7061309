"""Draws the parts and what each imports, for docs/architecture.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

Box = tuple[float, float, float, float]

GROUPS: dict[str, Box] = {  # left, bottom, width, height
    "bench": (0.2, 10.15, 11.6, 1.5),
    "fdro_core": (0.2, 3.3, 11.6, 6.35),
    "uncertainty_sets": (0.2, 0.15, 11.6, 2.65),
}

PARTS: dict[str, tuple[float, float, float, str]] = {  # left, bottom, width, what it does
    "experiments": (0.5, 10.3, 2.6, "the paper's tables"),
    "complexity, oracles, driver": (3.35, 10.3, 3.7, "speed and accuracy"),
    "soak": (7.3, 10.3, 1.7, "adversarial cases"),
    "datasets": (9.25, 10.3, 2.3, "one file per data set"),
    "cli": (0.5, 8.2, 5.4, "the command fdro: commands, run files, report"),
    "estimators": (6.15, 8.2, 5.4, "the scikit-learn estimators"),
    "solving, loop": (0.5, 7.03, 11.05, "solve(), resume() and the loop"),
    "aspire": (0.5, 5.86, 1.9, "ASPIRE-EASE"),
    "baselines": (2.6, 5.86, 2.2, "one file per method"),
    "engines": (5.0, 5.86, 2.2, "one file per engine"),
    "observers": (7.4, 5.86, 2.0, "history, stopping"),
    "problems": (9.6, 5.86, 1.95, "softmax, torch, …"),
    "master": (
        0.5,
        4.69,
        8.1,
        "master, worker, roster, handshake, checkpoint: what all need",
    ),
    "privacy": (8.8, 4.69, 2.75, "noise and accounts"),
    "protocol": (0.5, 3.52, 11.05, "what algorithms, problems, engines and observers promise each other"),
    "sets": (0.5, 1.5, 2.3, "one file per set"),
    "base": (3.05, 1.5, 2.5, "worst_case()"),
    "conic": (5.8, 1.5, 2.5, "program, certificate"),
    "backends": (8.55, 1.5, 3.0, "one file per solver"),
    "kernels": (0.5, 0.35, 5.05, "compiled closed forms over arrays"),
    "check": (5.8, 0.35, 2.5, "check_set()"),
    "robust, torch, calibration": (8.55, 0.35, 3.0, "for other programs"),
}

ARROWS = [("bench", "fdro_core"), ("fdro_core", "uncertainty_sets")]
LAYERS = [
    "a part imports only parts below it",
    "sets call kernels; base calls conic, and conic calls backends",
]


def draw(path: Path) -> None:
    """Write the picture."""
    from matplotlib import pyplot
    from matplotlib.patches import FancyBboxPatch

    figure, ax = pyplot.subplots(figsize=(10.5, 9.6), layout="constrained")
    ax.set_xlim(0, 12)
    ax.set_ylim(0, 11.8)
    ax.axis("off")
    for name, (left, bottom, width, height) in GROUPS.items():
        ax.add_patch(
            FancyBboxPatch((left, bottom), width, height, boxstyle="round,pad=0.08", fc="0.95", ec="0.6")
        )
        ax.text(left + 0.1, bottom + height - 0.06, name, va="top", weight="bold", fontsize=12)
    for name, (left, bottom, width, what) in PARTS.items():
        _part(ax, name, (left, bottom, width, 0.95), what)
    for upper, lower in ARROWS:
        top, below = GROUPS[upper], GROUPS[lower]
        ax.annotate(
            "",
            (6.0, below[1] + below[3] + 0.06),
            (6.0, top[1] - 0.06),
            arrowprops={"arrowstyle": "-|>", "lw": 1.6},
        )
    ax.text(11.7, 9.6, LAYERS[0], ha="right", va="top", fontsize=9, style="italic")
    ax.text(11.7, 2.74, LAYERS[1], ha="right", va="top", fontsize=9, style="italic")
    figure.savefig(path, metadata={"Date": None})


def _part(ax: Any, name: str, box: Box, what: str) -> None:
    from matplotlib.patches import Rectangle

    left, bottom, width, height = box
    ax.add_patch(Rectangle((left, bottom), width, height, fc="white", ec="0.25"))
    ax.text(
        left + width / 2, bottom + 0.62 * height, name, ha="center", va="center", weight="bold", fontsize=10
    )
    ax.text(left + width / 2, bottom + 0.27 * height, what, ha="center", va="center", fontsize=8.5)
