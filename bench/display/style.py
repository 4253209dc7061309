"""The style of all figures: readable in grey, no boxes; markers and labels distinguish the lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

MARKERS = "osD^vPX*<>hd"
COLOURS = ("#000000", "#0b5394", "#b45f06", "#38761d", "#741b47", "#666666", "#1c4587", "#7f6000", "#990000")
"""Dark enough to differ from white in greyscale."""

FAINT = "#8a8a8a"

STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "svg.hashsalt": "fdro",  # the same picture is the same file
    "svg.fonttype": "none",
}


def available() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


@contextmanager
def figure(folder: Path, name: str, **options: Any) -> Iterator[Any]:
    """Yield an empty figure; save it as NAME.png and NAME.svg in the folder. The options are `savefig`'s."""
    mpl: Any = import_module("matplotlib")
    with mpl.rc_context(STYLE):
        made = import_module("matplotlib.figure").Figure(layout="constrained")
        yield made
        for kind, more in (("png", {"dpi": 150}), ("svg", {"metadata": {"Date": None}})):
            made.savefig(folder / f"{name}.{kind}", **more, **options)


def marked(number: int) -> dict[str, Any]:
    """Return colour and marker of the n-th line."""
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}
