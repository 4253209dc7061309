"""What the driver's tests share beside `helpers.py`."""

from __future__ import annotations

import pytest

from fdro_core import RayEngine, ThreadEngine, VirtualEngine
from fdro_core.engines import ray_
from tests.fdro_core.command import furnish
from tests.fdro_core.engine_kinds import HAS_RAY, PATIENT, THREAD, VIRTUAL, engine_of_the_page


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder of its own with samples of three workers and a config for them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    furnish()


@pytest.fixture(scope="session")
def local_ray():
    """One cluster for all tests: starting one takes seconds."""
    if HAS_RAY:
        ray_.connect(None)
    yield
    if HAS_RAY:
        ray_.load().shutdown()


@pytest.fixture
def make(request):
    """Makes an engine of the kind asked for; settings are those of a wall clock."""

    def engine(kind, **settings):
        if kind == VIRTUAL:
            return VirtualEngine(seed=3)
        wall = PATIENT | settings
        if kind != "ray":
            wall.pop("hosts", None)
            return ThreadEngine(2, **wall) if kind == THREAD else engine_of_the_page()(**wall)
        request.getfixturevalue("local_ray")
        return RayEngine(**wall)

    return engine
