"""Pictures of a run, from its history. Needs ``pip install "fdro[plot]"``.

Every function takes a `Result`, a history (`result.history`, or `read_history(path)`), or several of them by
name, draws over iterations or the engine's clock, and returns the axes. All can be read without colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from fdro_core.errors import InvalidSetting
from fdro_core.result import Result
from uncertainty_sets.arrays import Array
from uncertainty_sets.pictures import FAINT, INK, SHADE, label_ends, new_axes, pyplot

__all__ = ["draw_active_workers", "draw_convergence", "draw_planes", "draw_run", "draw_staleness"]

History = Result | Sequence[Mapping[str, Any]]
Runs = History | Mapping[str, History]

DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)), (0, (9, 2)), (0, (3, 1, 1, 1, 1, 1)))
GREYS = ("#000000", "#595959", "#000000", "#7a7a7a", "#595959", "#000000")
TITLES = {"iteration": "iteration", "clock": "seconds on the engine's clock", "gradients": "gradients"}


def draw_convergence(runs: Runs, ax: Any = None, *, over: str = "iteration") -> Any:
    """Draw the objective known to the master; for a single run also the range of the workers' losses."""
    ax, ends = _lines(runs, "objective", ax, over), []
    named = _named(runs)
    if len(named) == 1:
        reports = _reports(next(iter(named.values())))
        losses = np.array([entry["losses"] for entry in reports], dtype=np.float64)
        x = _column(reports, over)
        low, high = np.nanmin(losses, axis=1), np.nanmax(losses, axis=1)
        ax.fill_between(x, low, high, facecolor=SHADE, edgecolor=FAINT, linewidth=0.5, zorder=1)
        ends = [(float(high[-1]), "largest loss"), (float(low[-1]), "least loss")]
        ends.append((float(reports[-1]["objective"]), "objective"))
        label_ends(ax, float(x[-1]), ends)
    ax.set_ylabel("expected loss")
    return ax


def draw_planes(runs: Runs, ax: Any = None, *, over: str = "iteration") -> Any:
    """Draw the number of active cutting planes."""
    return _counts(runs, "planes", "active planes", ax, over)


def draw_active_workers(runs: Runs, ax: Any = None, *, over: str = "iteration") -> Any:
    """Draw S, the updates that the master waits for; for a single run also the number of live workers."""
    ax = _counts(runs, "active_workers", "workers", ax, over)
    named = _named(runs)
    if len(named) == 1:
        reports = _reports(next(iter(named.values())))
        x, live = _column(reports, over), _column(reports, "live_workers")
        ax.step(x, live, where="post", color=INK, linestyle=DASHES[1], linewidth=1.1)
        ax.set_ylim(0.0, 1.15 * float(live.max()))
        label_ends(
            ax, float(x[-1]), [(float(live[-1]), "alive"), (float(reports[-1]["active_workers"]), "S")]
        )
    return ax


def draw_staleness(runs: Runs, ax: Any = None, *, over: str = "iteration") -> Any:
    """Draw the largest staleness of an update since the previous report, in iterations."""
    return _counts(runs, "staleness", "staleness, iterations", ax, over)


def draw_run(runs: Runs, *, over: str = "iteration") -> Any:
    """Draw all four in one figure, and return the figure."""
    figure, panels = pyplot().subplots(2, 2, figsize=(9.0, 5.6), layout="constrained", sharex=True)
    for ax, draw in zip(
        panels.flat, (draw_convergence, draw_planes, draw_active_workers, draw_staleness), strict=True
    ):
        draw(runs, ax, over=over)
    for ax in panels[0]:
        ax.set_xlabel("")
    return figure


def _named(runs: Runs) -> dict[str, History]:
    if isinstance(runs, Mapping):
        return dict(runs)
    return {"": runs}


def _reports(run: History) -> list[Mapping[str, Any]]:
    """The reports of a run, without its notices."""
    history = run.history if isinstance(run, Result) else run
    reports = [entry for entry in history if entry.get("event") == "report"]
    if not reports:
        raise InvalidSetting(
            "the history has no reports to draw; a run writes one every report_interval iterations, so give "
            "it more iterations or a smaller interval"
        )
    return reports


def _column(reports: Sequence[Mapping[str, Any]], key: str) -> Array:
    if key not in reports[0]:
        known = ", ".join(name for name in TITLES if name in reports[0])
        raise InvalidSetting(f"the reports have no {key!r}; draw over one of {known}")
    return np.array([entry[key] for entry in reports], dtype=np.float64)


def _lines(runs: Runs, key: str, ax: Any, over: str, *, step: bool = False) -> Any:
    """Draw one line per run, with its name at the end."""
    named = _named(runs)
    if not named:
        raise InvalidSetting("there is no run to draw")
    columns = [(_column(_reports(run), over), _column(_reports(run), key)) for run in named.values()]
    ax = new_axes(ax, 6.0, 3.2)
    for number, (x, y) in enumerate(columns):
        style = {
            "color": GREYS[number % len(GREYS)],
            "linestyle": DASHES[number % len(DASHES)],
            "linewidth": 1.5,
        }
        if step:
            ax.step(x, y, where="post", **style)
        else:
            ax.plot(x, y, **style)
    ax.set_xlabel(TITLES.get(over, over))
    ax.margins(x=0.0)
    end = max(float(x[-1]) for x, _ in columns)
    label_ends(ax, end, [(float(y[-1]), name) for name, (_, y) in zip(named, columns, strict=True) if name])
    return ax


def _counts(runs: Runs, key: str, title: str, ax: Any, over: str) -> Any:
    ax = _lines(runs, key, ax, over, step=True)
    ax.set_ylabel(title)
    ax.set_ylim(bottom=0.0)
    ax.yaxis.set_major_locator(import_module("matplotlib.ticker").MaxNLocator(integer=True))
    return ax
