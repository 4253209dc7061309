"""Algorithms, engines and delay laws by their names in run files."""

from __future__ import annotations

import pytest

from fdro_core.app.runs import catalogue
from fdro_core.errors import InvalidSetting


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
