"""Algorithms, engines and delay laws by their names in run files."""

from __future__ import annotations

import pytest

from fdro_core import AspireEase, AspireModels, baselines
from fdro_core.baselines import FedAvg
from fdro_core.cli.runs import setup
from fdro_core.errors import InvalidSetting
from fdro_core.protocol.algorithm import ALGORITHMS
from fdro_core.protocol.engine import ENGINES


def test_the_names_of_what_fdro_has():
    assert {"afl", "aspire-ease", "drfa-prox", "fed-avg", "individual", "mix-even"} <= set(
        ALGORITHMS.classes()
    )
    assert {"ray", "thread", "virtual"} <= set(ENGINES.classes())
    assert {"constant", "exponential", "log-normal", "trace"} <= set(setup.delay_laws())


def test_run_files_spell_an_algorithm_as_its_class():
    ours = [cls for cls in ALGORITHMS.classes().values() if cls.__module__.startswith("fdro_core.")]
    assert {AspireModels, AspireEase, *(getattr(baselines, each) for each in baselines.__all__)} == set(ours)
    assert [cls.name for cls in ours] == [setup.kebab(cls.__name__) for cls in ours]


def test_spelling_does_not_matter():
    for text in ("FedAvg", "fed_avg", "FED-AVG", "fedavg"):
        assert setup.find_class(ALGORITHMS, text) == ("fed-avg", FedAvg)
    with pytest.raises(InvalidSetting, match="no algorithm is called 'fedavgg'; did you mean 'fed-avg'"):
        setup.find_class(ALGORITHMS, "fedavgg")
