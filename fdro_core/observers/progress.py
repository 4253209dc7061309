"""A progress bar in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fdro_core.outside import visible
from fdro_core.protocol.observer import RunView
from fdro_core.result import CONVERGED, STOPPED, ending

if TYPE_CHECKING:
    from rich.console import Console


class Progress:
    """A rich progress bar: iterations, objective, planes, S, staleness and the engine's clock.

    Args:
        console: where to draw; a new rich console by default.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, run: RunView, entry: dict[str, Any]) -> None:
        """Move the bar; print notices above it."""
        if self._bar is None:
            self._start(run)
        if entry["event"] != "report":
            facts = ", ".join(
                f"{key} {value}" for key, value in entry.items() if key not in {"event", "clock", "traceback"}
            )
            self._bar.console.print(visible(f"{entry['event']}: {facts}"), markup=False)
            return
        self._bar.update(
            self._task,
            completed=entry["iteration"],
            objective=f"{entry['objective']:.6g}",
            planes=entry["planes"],
            active=entry["active_workers"],
            stale=entry["staleness"],
            clock=f"{entry['clock']:.4g}",
        )

    def _start(self, run: RunView) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bar

        text = "objective {task.fields[objective]}  planes {task.fields[planes]}  S {task.fields[active]}"
        text += "  staleness {task.fields[stale]}  clock {task.fields[clock]} s"
        self._bar = Bar(BarColumn(), MofNCompleteColumn(), TextColumn(text), console=self._console)
        self._task = self._bar.add_task(
            "solve", total=run.master.last, objective="", planes="", active="", stale="", clock=""
        )
        self._bar.start()

    def finish(self, run: RunView) -> None:
        """Leave the last state of the bar on screen, and say so if the run has converged."""
        if self._bar is not None:
            if run.stop_reason in {CONVERGED, STOPPED}:
                words = ending(run.stop_reason, run.master.iteration, run.master.last)
                self._bar.console.print(words, markup=False)
            self._bar.stop()
            self._bar = None


ProgressBar = Progress
"""The same, by the name that other libraries have for it."""
