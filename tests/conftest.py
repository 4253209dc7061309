"""Hypothesis profiles: `make test` is quick and always the same, `make soak-properties` long and random.

"smoke" tries a few examples: the tests that run this suite on a copy of the project use it.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from uncertainty_sets.kernels.native import library

os.environ.setdefault("MPLBACKEND", "Agg")  # pictures are drawn, not shown
for threads in ("OMP", "OPENBLAS", "MKL"):
    # One thread each: pytest's own processes have all cores, and the threads of several compete by spinning.
    # BLAS reads this when NumPy is imported, so it holds for the processes that pytest starts.
    os.environ.setdefault(f"{threads}_NUM_THREADS", "1")

settings.register_profile(
    "default",
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=60)
settings.register_profile("smoke", settings.get_profile("default"), max_examples=3)
settings.register_profile("soak", settings.get_profile("default"), max_examples=20_000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Of a grid, `make test` takes every value of every parameter once, and `make test-all` all cases."""
    seen = set()
    for item in items:
        values = set(_values(item))
        if len(values) > 1 and values <= seen:
            item.add_marker(pytest.mark.thorough)
        seen |= values


def _values(item):
    """The value of each `parametrize` and of each fixture with parameters that a case has."""
    rest = dict(getattr(getattr(item, "callspec", None), "params", {}))
    test = item.nodeid.partition("[")[0]
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
        yield (test, *((name.strip(), id(rest.pop(name.strip(), None))) for name in names))
    yield from ((test, name, id(value)) for name, value in rest.items())


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Leave out the docstrings of tests and their helpers: doctests are in the packages and the pages."""
    return [each for each in (yield) if not isinstance(each, pytest.Module) or type(each) is pytest.Module]


def pytest_report_header():
    """Say which kernels are tested."""
    return library.status()
