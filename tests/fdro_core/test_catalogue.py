"""Classes for run files are found by the contract that they keep, and named by themselves."""

from __future__ import annotations

import sys

import pytest

from fdro_core.app.runs import catalogue
from fdro_core.contracts.algorithm import Algorithm
from fdro_core.errors import InvalidSetting

PLUG_IN = """
from abc import ABC, abstractmethod

from fdro_core.baselines import FedAvg  # imported, not defined here


class Methods:
    def check(self, workers, uncertainty_set): ...
    def worker(self, index, source): ...
    def master(self, uncertainty_set, workers, ask, start): ...
    def restore(self, uncertainty_set, workers, state): ...


class Named(Methods):
    name = "my-method"


class NotNamed(Methods):
    pass


class Abstract(Methods, ABC):
    @abstractmethod
    def step(self): ...


class _Private(Methods):
    pass


class Incomplete:
    name = "incomplete"

    def check(self, workers, uncertainty_set): ...
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    (tmp_path / "plugged" / "deep").mkdir(parents=True)
    for file in ("plugged/__init__.py", "plugged/deep/__init__.py"):
        (tmp_path / file).write_text("")
    (tmp_path / "plugged/deep/method.py").write_text(PLUG_IN)
    monkeypatch.syspath_prepend(tmp_path)
    yield "plugged"
    for name in [name for name in sys.modules if name.partition(".")[0] == "plugged"]:
        del sys.modules[name]


def test_a_class_is_found_by_what_it_is(package):
    found = catalogue._keeping(Algorithm, package)
    assert {name: cls.__name__ for name, cls in found.items()} == {
        "my-method": "Named",
        "not-named": "NotNamed",
    }


def test_the_names_of_what_fdro_has():
    assert {"afl", "aspire-ease", "drfa-prox", "fed-avg", "individual", "mix-even"} <= set(
        catalogue.algorithms()
    )
    assert {"ray", "thread", "virtual"} <= set(catalogue.engines())
    assert {"constant", "exponential", "log-normal", "trace"} <= set(catalogue.delay_laws())


def test_spelling_does_not_matter():
    known = catalogue.algorithms()
    for text in ("FedAvg", "fed_avg", "FED-AVG", "fedavg"):
        assert catalogue.find("algorithm", text, known) == ("fed-avg", known["fed-avg"])
    with pytest.raises(InvalidSetting, match="no algorithm is called 'fedavgg'; did you mean 'fed-avg'"):
        catalogue.find("algorithm", "fedavgg", known)
