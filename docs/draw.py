"""Draws the pictures of the pages into docs/generated/: every set of the registry, and a run of the driver.

Sphinx calls it before it reads the pages (conf.py). Sets are found, not listed: one that is installed by
another package has its picture here too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from fdro_core import AspireModels, LogNormal, SoftmaxRegression, Straggler, VirtualEngine, solve
from fdro_core.pictures import draw_run
from uncertainty_sets import available_sets, get_set
from uncertainty_sets.errors import FdroError
from uncertainty_sets.mdp import from_gymnasium, price_of_robustness
from uncertainty_sets.pictures import draw_price, draw_simplex, draw_weights

LOSSES = np.array([1.0, 2.0, 4.0])
RESULTS = Path(__file__).parent.parent / "bench" / "results"
START = np.array([0.5, 0.3, 0.2])  # the centre that the first pages talk about
STYLE = {"svg.hashsalt": "fdro", "figure.facecolor": "white", "font.size": 10}


def main(folder: Path) -> None:
    """Write all pictures and the gallery's part of its page."""
    from matplotlib import pyplot

    from docs import draw_architecture

    folder.mkdir(exist_ok=True)
    with mpl.rc_context(STYLE):
        sections = [section for name in available_sets() if (section := _set(name, folder))]
        (folder / "gallery.md").write_text("\n".join(sections), encoding="utf-8")
        _overview(folder)
        _save(draw_simplex(get_set("kl")(START, 0.1), LOSSES).figure, folder / "start.svg")
        _save(draw_weights(*_weights(12)).figure, folder / "weights-few.svg")
        _save(draw_weights(*_weights(500)).figure, folder / "weights-many.svg")
        _save(draw_run(_run(), over="clock"), folder / "run.svg")
        _save(_price().figure, folder / "mdp-price.svg")
        draw_architecture.draw(folder / "architecture.svg")
        pyplot.close("all")


def panel(path: Path) -> None:
    """The README's picture: every set on one sheet. `python docs/draw.py` writes it."""
    from matplotlib import pyplot

    names = available_sets()
    across = 5
    rows = -(-len(names) // across)
    with mpl.rc_context(STYLE):
        figure, axes = pyplot.subplots(
            rows, across, figsize=(3.2 * across, 3.0 * rows), squeeze=False, layout="constrained"
        )
        for axis in axes.flat[len(names) :]:
            axis.set_axis_off()
        for name, axis in zip(names, axes.flat, strict=False):
            draw_simplex(get_set(name).example(3), LOSSES, ax=axis)
            axis.set_title(name, fontweight="bold")
        figure.savefig(path, dpi=80)
        pyplot.close(figure)


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _set(name: str, folder: Path) -> str:
    """A set's picture and what its class says of itself; nothing for a plug-in without an example."""
    cls = get_set(name)
    try:
        example = cls.example(3)
        _save(draw_simplex(example, LOSSES).figure, folder / f"set-{name}.svg")
    except FdroError:
        return ""
    definition = f"{cls.summary}: `{cls.formula}`" if cls.formula else f"{cls.summary or cls.__name__}"
    return (
        f"## {name}\n\n{definition}\n\nOne call: {cls.complexity}. Drawn: `{example!r}`.\n\n"
        f"```{{image}} generated/set-{name}.svg\n:alt: {name} on the simplex of three workers\n"
        ":width: 420px\n```\n"
    )


def _overview(folder: Path) -> None:
    """All sets side by side, three in a row."""
    from matplotlib import pyplot

    names = [name for name in available_sets() if (folder / f"set-{name}.svg").exists()]
    across = min(3, len(names))
    down = -(-len(names) // across)
    figure, panels = pyplot.subplots(down, across, figsize=(4.0 * across, 3.9 * down), layout="constrained")
    for ax in np.ravel(panels):
        ax.axis("off")
    for name, ax in zip(names, np.ravel(panels), strict=False):
        draw_simplex(get_set(name).example(3), LOSSES, ax).set_title(name, weight="bold")
    _save(figure, folder / "all-sets.svg")


def _weights(size: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    example: Any = get_set("cd-norm").example(size)
    return example.worst_case(rng.normal(size=size)), example.center


def _run() -> Any:
    """Eight workers, one of them twenty times slower for a while."""
    rng = np.random.default_rng(0)
    problems = []
    common = rng.normal(size=20)
    for worker in range(8):
        X = rng.normal(size=(60, 20)) * np.linspace(0.2, 1.0, 20)
        y = (X @ (common + 0.15 * worker * rng.normal(size=20)) > 0).astype(int)
        problems.append(SoftmaxRegression(X, y, classes=2, l2=1e-3, intercept=False))
    engine = VirtualEngine(
        seed=0, delays=LogNormal(), stragglers=[Straggler(2, factor=20.0, start=60, end=160)]
    )
    config = AspireModels(active_workers=4, iterations=400, report_interval=2)
    return solve(problems, get_set("cd-norm").example(8), algorithm=config, engine=engine)


def _price() -> Any:
    """The price of robustness on the frozen lake of mdp.md."""
    import gymnasium

    model = from_gymnasium(gymnasium.make("FrozenLake-v1", success_rate=0.8), discount=0.99)
    price = price_of_robustness(model, get_set("kl"), np.geomspace(0.001, 0.5, 40))
    return draw_price(price, start=0, mark=0.1)


def first_result(path: Path) -> None:
    """The README's first picture: `fdro train --example` against FedAvg, from the committed numbers."""
    from matplotlib import pyplot

    runs = json.loads((RESULTS / "driver" / "example.json").read_text(encoding="utf-8"))
    lines = {"worst": "worst hospital", "mean": "mean over hospitals", "samples": "mean over patients"}
    with mpl.rc_context(STYLE):
        figure, axis = pyplot.subplots(figsize=(6.4, 2.1), layout="constrained")
        for method, label, colour, below in (
            ("fed-avg", "FedAvg", "0.6", 0.13),
            ("robust", "robust", "black", -0.13),
        ):
            for line, measure in enumerate(lines):
                found = 100.0 * np.array([run[method][measure] for run in runs])
                axis.plot(
                    found, np.full(found.size, line + below), "o", color=colour, alpha=0.35, markersize=4
                )
                axis.plot(found.mean(), line + below, "|", color=colour, markersize=18, markeredgewidth=2.5)
            at = 100.0 * np.mean([run[method]["worst"] for run in runs])
            axis.text(at, 4.2 * below, label, color=colour, ha="center", va="center", weight="bold")
        axis.set_yticks(range(len(lines)), list(lines.values()))
        axis.set_ylim(2.6, -0.9)
        axis.set_xlabel("held-out accuracy, %; a dot per seed, a bar for the mean")
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)
        axis.tick_params(axis="y", length=0)
        figure.savefig(path, dpi=130)
        pyplot.close(figure)


if __name__ == "__main__":
    panel(Path(__file__).parent / "sets.png")
    first_result(Path(__file__).parent / "first-result.png")
