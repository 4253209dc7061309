"""Hypothesis profiles: `make test` is quick and always the same, `make soak-properties` long and random.

"smoke" tries a few examples: the tests that run this suite on a copy of the project use it.
"""

from __future__ import annotations

import os
from collections import Counter
from zlib import crc32

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


skipped = set()
"""Tests and files that were skipped in this run."""


def pytest_addoption(parser):
    """Add --part."""
    parser.addoption(
        "--part",
        metavar="PART",
        help='of the tests marked thorough a share, "3/7" the third of seven; or "skipped": those that the '
        "last run skipped, for instance because a package was missing",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Choose the cases of `make test`; `make test-all` runs all.

    Of a grid, every value of every parameter occurs once; of a test that is marked `few(n)`, n cases are run.
    """
    seen, counts = set(), Counter()
    for item in items:
        values = set(_values(item))
        few = item.get_closest_marker("few")
        test = item.nodeid.partition("[")[0]
        counts[test] += few is not None
        if (len(values) > 1 and values <= seen) or (few and counts[test] > few.args[0]):
            item.add_marker(pytest.mark.thorough)
        seen |= values
    if chosen := config.getoption("--part"):
        items[:] = [item for item in items if _is_chosen(item, chosen, config)]


def _is_chosen(item, chosen, config):
    """Whether a test is of the part that was asked for."""
    if chosen == "skipped":
        needs = item.path.suffix == ".md" and "<!-- needs:" in item.path.read_text(encoding="utf-8")
        last = config.cache.get("fdro/skipped", [])
        return needs or item.nodeid in last or item.nodeid.partition("::")[0] in last
    part, parts = map(int, chosen.split("/"))
    return item.get_closest_marker("thorough") and crc32(item.nodeid.encode()) % parts == part - 1


def pytest_runtest_logreport(report):
    """Remember what is skipped."""
    if report.skipped and not hasattr(report, "wasxfail"):
        skipped.add(report.nodeid)


def pytest_collectreport(report):
    """Remember files that are skipped."""
    if report.skipped:
        skipped.add(report.nodeid)


def pytest_sessionfinish(session):
    """Keep what was skipped, for a run with what it needs."""
    cache = getattr(session.config, "cache", None)
    if cache and not hasattr(session.config, "workerinput") and not session.config.getoption("--part"):
        cache.set("fdro/skipped", sorted(skipped))


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
