"""Draws the pictures of the pages into docs/generated/: every set of the registry, and a run of the driver.

Sphinx calls it before it reads the pages (conf.py). Sets are found, not listed: one that is installed by
another package has its picture here too, of its own `example(3)`. Those of fdro have an example here in which
the shape is seen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from fdro_core import AspireModels, LogNormal, SoftmaxRegression, Straggler, VirtualEngine, solve
from fdro_core.pictures import draw_run
from uncertainty_sets import (
    KL,
    Box,
    Burg,
    CDNorm,
    ChiSquare,
    CressieRead,
    CVaR,
    CVaRMixture,
    Ellipsoid,
    EVaR,
    Hellinger,
    Intersection,
    Mapped,
    Nested,
    Polyhedron,
    Product,
    Spectral,
    TotalVariation,
    UncertaintySet,
    Wasserstein,
    Wasserstein1,
    WeightedL1,
    available_sets,
    get_set,
)
from uncertainty_sets.errors import FdroError
from uncertainty_sets.mdp import from_gymnasium, price_of_robustness
from uncertainty_sets.pictures import draw_price, draw_simplex, draw_weights

LOSSES = np.array([1.0, 2.0, 4.0])
RESULTS = Path(__file__).parent.parent / "bench" / "results"
START = np.array([0.5, 0.3, 0.2])  # the centre that the first pages talk about
EXAMPLES: dict[str, tuple[Callable[[], UncertaintySet], str]] = {
    "box": (
        lambda: Box([0.2, 0.1, 0.1], [1.0, 0.55, 0.4]),
        "Every edge is parallel to one of the triangle: a share at its bound.",
    ),
    "burg": (
        lambda: Burg(START, 0.15),
        "It stays away from the edges, since no weight may vanish.",
    ),
    "cd-norm": (
        lambda: CDNorm(START, spread=[0.35, 0.3, 0.2], budget=1.5),
        "A box whose corners are cut off by the budget: not all errors are large at once.",
    ),
    "chi-square": (
        lambda: ChiSquare(START, 0.35),
        "An ellipse, wider towards the heavy worker and cut off at an edge.",
    ),
    "cressie-read": (
        lambda: CressieRead(START, 0.25, power=4.0),
        "With power 4, a flat top, since large ratios p/q cost much; power 1 is KL, power 0 is Burg.",
    ),
    "cvar": (
        lambda: CVaR(START, tail=0.55),
        "Bounded above by q/tail and below by 0: the triangle without its corners.",
    ),
    "cvar-mixture": (
        lambda: CVaRMixture(START, tails=[0.75, 0.3], weights=[0.55, 0.45]),
        "The sum of two such shapes, each times its weight, so that more edges are seen.",
    ),
    "ellipsoid": (
        lambda: Ellipsoid(START, [[0.06, 0.0, -0.05], [0.0, 0.02, 0.0], [-0.05, 0.0, 0.06]], 0.6),
        "A tilted ellipse: the errors of workers 1 and 3 are large and opposed.",
    ),
    "evar": (
        lambda: EVaR(START, tail=0.75),
        "A KL ball of radius -log(tail).",
    ),
    "hellinger": (
        lambda: Hellinger(START, 0.09),
        "A circle in the square roots of the shares; unlike Burg's it can reach an edge.",
    ),
    "intersection": (
        lambda: Intersection(KL(START, 0.15), Box([0.0, 0.2, 0.0], [1.0, 1.0, 0.35])),
        "A KL ball, cut straight by the bounds of a box.",
    ),
    "kl": (
        lambda: KL(START, 0.15),
        "Smooth, and drawn out towards the workers of small share.",
    ),
    "mapped": (
        lambda: Mapped(
            KL([0.25, 0.25, 0.25, 0.25], 0.9),
            [[0.9, 0.05, 0.05], [0.45, 0.5, 0.05], [0.1, 0.45, 0.45], [0.5, 0.05, 0.45]],
        ),
        "Mixtures of four given distributions, the corners that it nearly reaches.",
    ),
    "nested": (
        lambda: Nested(KL([0.8, 0.2], 0.12), [KL([0.6, 0.4], 0.15), Box([1.0], [1.0])]),
        "Workers 1 and 2 are a group. Between two lines from corner 3, the odds within it; between two lines "
        "parallel to an edge, its share.",
    ),
    "polyhedron": (
        lambda: Polyhedron([[-1.0, 1.0, 0.0], [-1.0, 0.0, 1.0], [1.0, 0.0, 0.0]], [0.0, 0.0, 0.8]),
        "Three linear facts: worker 1 counts at least as much as 2, at least as much as 3, and at most 0.8.",
    ),
    "product": (
        lambda: Product([Box([0.15, 0.2], [0.8, 0.85]), Box([1.0], [1.0])], weights=[0.75, 0.25]),
        "Blocks of fixed weight: workers 1 and 2 share 0.75 and worker 3 has 0.25, so the set is a line.",
    ),
    "spectral": (
        lambda: Spectral([0.4, 0.33, 0.27], lambda u: u**0.5),
        "A corner for each order of the workers from bad to good, six for three workers.",
    ),
    "total-variation": (
        lambda: TotalVariation(START, 0.18),
        "A regular hexagon: mass 0.18 moves between any two workers.",
    ),
    "wasserstein": (
        lambda: Wasserstein(START, 0.45, order=2.0),
        "Costs grow with the square of the distance: a far step, from 1 to 3, counts four times.",
    ),
    "wasserstein-1": (
        lambda: Wasserstein1(START, 0.3),
        "Workers stand on a line: twice as much mass can move to a neighbour as to the other end.",
    ),
    "weighted-l1": (
        lambda: WeightedL1(START, weights=[0.5, 1.0, 3.0], radius=0.4),
        "A hexagon that is narrow where the weight is large, as for worker 3.",
    ),
}
"""A set of each kind over three workers, and what is seen of its shape."""

SHEET = ("box", "kl", "ellipsoid", "polyhedron", "cd-norm", "wasserstein-1")
"""The sets of the paper, in the README's picture."""

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
    """The README's picture: the six sets of the paper on one sheet. `python docs/draw.py` writes it."""
    from matplotlib import pyplot

    with mpl.rc_context(STYLE):
        figure, axes = pyplot.subplots(2, 3, figsize=(11.4, 7.2), layout="constrained")
        for name, axis in zip(SHEET, axes.flat, strict=True):
            draw_simplex(_example(name), LOSSES, ax=axis)
            axis.set_title(name, fontweight="bold", fontsize=12)
        figure.savefig(path, dpi=80)
        pyplot.close(figure)


def _example(name: str) -> UncertaintySet:
    """The set that is drawn: the one above, or that of a plug-in's class."""
    if name in EXAMPLES:
        return EXAMPLES[name][0]()
    example: UncertaintySet = get_set(name).example(3)
    return example


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _set(name: str, folder: Path) -> str:
    """A set's picture and what its class says of itself; nothing for a plug-in without an example."""
    cls = get_set(name)
    try:
        example = _example(name)
        _save(draw_simplex(example, LOSSES).figure, folder / f"set-{name}.svg")
    except FdroError:
        return ""
    definition = f"{cls.summary}: `{cls.formula}`" if cls.formula else f"{cls.summary or cls.__name__}"
    shape = EXAMPLES[name][1] if name in EXAMPLES else ""
    drawn = re.sub(r"<function .*?>", "u ↦ √u", repr(example))
    return (
        f"## {name}\n\n{definition}. {shape}\n\nOne call: {cls.complexity}. Drawn: `{drawn}`.\n\n"
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
        draw_simplex(_example(name), LOSSES, ax).set_title(name, weight="bold")
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
