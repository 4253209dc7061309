"""The engines that the shared suite runs, and what its tests have in common."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path

import pytest

from fdro_core.engines.wall_clock import WallEngine
from fdro_core.protocol.engine import ENGINES as REGISTRY
from tests.fdro_core.helpers import FORMS, Quadratic

ROOT = Path(__file__).resolve().parents[2]
N = 4
HAS_RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not HAS_RAY, reason='needs ray: pip install "fdro[ray]"')

ENGINES = REGISTRY.classes()
VIRTUAL, THREAD, RAY, FLOWER = "virtual", "thread", "ray", "flower"  # for tests of one engine
HAS_FLOWER = importlib.util.find_spec("flwr") is not None
needs_flower = pytest.mark.skipif(not HAS_FLOWER, reason='needs flwr: pip install "fdro[flower]"')


def kinds(*fixed, **traits):
    """Parameters of a test: the names of all engines with these traits, each after the fixed values."""
    found = []
    for name, cls in ENGINES.items():
        if all(getattr(cls, trait) == value for trait, value in traits.items()):
            missing = bool(cls.package) and importlib.util.find_spec(cls.package) is None
            reason = f'needs {cls.package}: pip install "fdro[{cls.extra or cls.package}]"'
            marks = [pytest.mark.skipif(missing, reason=reason)]
            found.append(pytest.param(name, *fixed, marks=marks))
    return found


def kinds_and_forms(form, *fixed, **traits):
    """The same with a form of AspireModels at the end: both on threads, one on engines with processes.

    Those carry messages and know nothing of forms, and their processes take long to start. "admm" is the form
    whose workers have a state that must come back.
    """
    return [
        pytest.param(*each.values, chosen, marks=each.marks)
        for each in kinds(*fixed, **traits)
        for chosen in ([form] if ENGINES[each.values[0]].own_processes else FORMS)
    ]


EVERY = kinds()
WALL = kinds(wall_clock=True)
SURVIVES_HANGS = kinds(survives_hangs=True)

SETTINGS = {"seed": 3, "threads": 2, "patience": 60.0, "restart_after": 0.01}
"""What an engine of the suite is made with; it gets those that its constructor takes."""


def make_engine(cls, settings):
    known = dict(inspect.signature(cls).parameters)
    if cls.wall_clock and any(each.kind is each.VAR_KEYWORD for each in known.values()):
        known |= inspect.signature(WallEngine).parameters  # passed on to it
    return cls(**{name: value for name, value in (SETTINGS | settings).items() if name in known})


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
