"""Every set and penalty against its definition in cvxpy, and the list of what checks each.

Sets are found by the registry. One without an entry in definitions.py fails here, with what to write.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.soak.residuals import RESIDUALS
from tests import tolerances
from tests.uncertainty_sets import definitions, reference
from tests.uncertainty_sets.cases import NAMES, Case, losses
from tests.uncertainty_sets.test_properties import by_solvers, every_set
from uncertainty_sets import available_sets, get_set
from uncertainty_sets.penalised import Penalised, penalties

ROOT = Path(__file__).resolve().parent.parent.parent
SIZES = st.integers(1, 8)


def varied(name, size, rng):
    """The set's example, with other sizes of its radius, budget or tail."""
    given = definitions.parameters(get_set(name).example(size, rng))
    ranges = {"radius": (-2.0, 1.0), "budget": (-1.0, 0.5), "tail": (-1.0, 0.3)}
    for key, (low, high) in ranges.items():
        if key in given:
            given[key] = min(given[key] * 10.0 ** rng.uniform(low, high), 1.0 if key == "tail" else np.inf)
    if name == "cressie-read":
        given["power"] = float(rng.choice([-1.0, 0.0, 0.5, 1.5, 3.0]))
    if name.startswith("wasserstein"):
        given["cost"] = [
            None,
            rng.normal(size=size),
            np.abs(np.subtract.outer(rng.normal(size=size), np.arange(size))),
        ][rng.integers(3)]
        if np.ndim(given["cost"]) == 2:
            np.fill_diagonal(given["cost"], 0.0)
    listed = [
        key
        for key, each in inspect.signature(get_set(name)).parameters.items()
        if each.kind is each.VAR_POSITIONAL
    ]
    if listed:
        return get_set(name)(*given[listed[0]])
    return get_set(name)(**given)


def in_units(f):
    return (f - f.max()) / (tolerances.spread(f) or 1.0)


def test_every_set_has_a_definition():
    lacking = sorted(set(NAMES) - definitions.DEFINITIONS.keys())
    assert not lacking, (
        f"no reference for {', '.join(lacking)}: write a function (p, mass, **parameters) in "
        "tests/uncertainty_sets/definitions.py that returns the cvxpy constraints of p = mass·(a member), "
        "from the set's formula and not from its `constraints`, and put it into DEFINITIONS by the set's name"
    )
    assert not definitions.DEFINITIONS.keys() - set(available_sets()), "definitions of sets that are gone"


def test_every_penalty_has_a_definition():
    lacking = sorted(penalties().keys() - definitions.DIVERGENCES.keys())
    assert not lacking, (
        f"no reference for {', '.join(lacking)}: write the divergence of p from q as a cvxpy expression into "
        "DIVERGENCES in tests/uncertainty_sets/definitions.py"
    )
    assert definitions.DIVERGENCES.keys() == penalties().keys()


@pytest.mark.property
@every_set
@by_solvers
@given(data=st.data())
def test_the_worst_case_is_the_maximum_over_the_definition(name, data):
    size, rng = data.draw(SIZES), np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    subject, f = varied(name, size, rng), in_units(data.draw(losses(size)))
    best = definitions.maximum(subject, f)
    assert subject.worst_case(f).value == pytest.approx(best, abs=tolerances.REFERENCE_CONIC)
    if name in reference.MODELS:
        model, _ = reference.maximum(Case(name, subject, f), f)
        assert model == pytest.approx(best, abs=tolerances.REFERENCE_CONIC)


@pytest.mark.property
@pytest.mark.parametrize("name", sorted(penalties()))
@by_solvers
@given(data=st.data())
def test_a_penalised_worst_case_is_the_maximum_by_its_definition(name, data):
    size, rng = data.draw(SIZES), np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    q = rng.dirichlet(np.ones(size))
    q[rng.random(size) < 0.2] = 0.0
    q = q / q.sum() if q.any() else np.full(size, 1.0 / size)
    subject, f = Penalised(name, q, 10.0 ** rng.uniform(-2.0, 1.0)), in_units(data.draw(losses(size)))
    best = definitions.maximum(subject, f)
    assert subject.worst_case(f).value == pytest.approx(best, abs=tolerances.REFERENCE_CONIC)
    model = reference.PENALTIES[name](f, subject.center, subject.weight)
    assert subject.worst_case(f).value == pytest.approx(model, abs=tolerances.REFERENCE_LP)


def table() -> str:
    """What checks each set and penalty, read from the references themselves, as a Markdown table."""
    rows = [
        [
            f"`{name}`",
            "yes" if name in definitions.DEFINITIONS else "no",
            "yes" if name in reference.MODELS else "",
            "yes" if name in reference.BOUNDS else "",
            "yes" if name in RESIDUALS else "",
        ]
        for name in NAMES
    ]
    prices = [
        [
            f'`Penalised("{name}")`',
            "yes" if name in definitions.DIVERGENCES else "no",
            "yes" if name in reference.PENALTIES else "",
            "",
            "",
        ]
        for name in sorted(penalties())
    ]
    titles = ["set", "definition in cvxpy", "another formula or LP", "bound from `dual`", "soak"]
    lines = [titles, ["---"] * len(titles), *rows, *prices]
    return "\n".join(f"| {' | '.join(line)} |".replace("  ", " ") for line in lines)


def test_the_page_lists_what_checks_each_set():
    page = (ROOT / "docs" / "references.md").read_text(encoding="utf-8")
    assert table() in page, f"docs/references.md is not up to date; its table is now\n{table()}"
    assert "| no |" not in page
