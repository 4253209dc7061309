"""The engines that the shared suite runs, and what its tests have in common."""

from __future__ import annotations

import doctest
import importlib.util
from pathlib import Path

import pytest

from tests.fdro_core.helpers import Quadratic

ROOT = Path(__file__).resolve().parents[2]
N = 4
HAS_RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not HAS_RAY, reason='needs ray: pip install "fdro[ray]"')

VIRTUAL, THREAD, PAGE = "virtual", "thread", "page"  # the last is the engine of docs/add-an-engine.md
RAY = pytest.param("ray", marks=needs_ray)
PATIENT = {"patience": 60.0, "restart_after": 0.01}


def engine_of_the_page():
    names = {}
    for example in doctest.DocTestParser().get_examples((ROOT / "docs" / "add-an-engine.md").read_text()):
        exec(compile(example.source, "<page>", "single"), names)
        if "QueueEngine" in names:
            return names["QueueEngine"]
    raise AssertionError("docs/add-an-engine.md has no QueueEngine any more")


def happened(result, event):
    return [entry for entry in result.history if entry["event"] == event]


def quadratics(*extra):
    return [Quadratic([0.0, 1.0]), Quadratic([1.0, 0.0]), Quadratic([2.0, 2.0]), *extra]


class StopWhen:
    """Ends the run some iterations after every event named was seen."""

    def __init__(self, *events, after=200):
        self.missing, self.after, self.end = list(events), after, None

    def __call__(self, run, entry):
        if entry["event"] in self.missing:
            self.missing.remove(entry["event"])
        if not self.missing and self.end is None:
            self.end = entry["iteration"] + self.after
        return "seen" if self.end is not None and entry["iteration"] >= self.end else None
