"""What the driver's tests share beside `helpers.py`."""

from __future__ import annotations

from functools import partial

import pytest

from fdro_core.engines.ray_ import cluster
from tests.fdro_core.command import furnish
from tests.fdro_core.engine_kinds import ENGINES, FLOWER, HAS_RAY, RAY, make_engine
from tests.fdro_core.flower_nodes import flower_engine
from tests.fdro_core.helpers import FORMS, in_form


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
        cluster.connect(None)
    yield
    if HAS_RAY:
        cluster.load().shutdown()


@pytest.fixture
def make(request):
    """Makes an engine by its name; settings that it does not have are left out."""

    def engine(kind, **settings):
        if ENGINES[kind].package == RAY:
            request.getfixturevalue("local_ray")
        if kind == FLOWER:
            return make_engine(flower_engine(request.getfixturevalue("tmp_path_factory")), settings)
        return make_engine(ENGINES[kind], settings)

    return engine


@pytest.fixture(params=FORMS)
def aspire(request):
    """Makes `AspireModels`, or `AspireEase`: a test that takes it runs once for each."""
    return partial(in_form, request.param)
