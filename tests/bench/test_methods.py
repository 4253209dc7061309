"""The methods of the tables: rows, searches, editions and units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.experiments.runs import methods
from bench.experiments.runs.perform import perform
from bench.experiments.runs.task import Task

SHORT = Task(
    "test",
    "digits",
    "ASPIRE-EASE",
    {"step": 0.5, "penalty": 1.0, "budget": 2.0},
    "run",
    0,
    60,
    16,
    points=4,
    options={"digits": [3, 8]},
)


def test_every_baseline_has_a_row_with_the_preconditioner():
    setup = methods.Setup(np.full(4, 1 / 4), 10, 8, 0, lambda: np.array([1.0, 2.0, 4.0, 3.0]))
    known = methods.registry(4, known_prior=True)
    rows = methods.names(without={"max{Ind}"}, preconditioned=True)
    plain_rows = [name for name in rows if not name.endswith("+ P")]
    assert set(plain_rows) == {
        *("Mix_Even", "FedAvg", "AFL", "DRFA-Prox", "FedProx", "q-FFL", "SCAFFOLD", "SCAFF-PD"),
        *("FedAsync", "FedBuff", "ACE"),
    }
    without = {"FedAsync"}  # it mixes models
    assert rows == [
        f"{name}{end}" for name in plain_rows for end in ("", " + P") if not end or name not in without
    ]
    for name in (name for name in rows if name.endswith("+ P")):
        row, plain = known[name], known[name.removesuffix(" + P")]
        assert dict(row.search) == dict(plain.search) | {"step": methods.Range(6e-4, 0.6)}
        assert dict(row.default) == dict(plain.default) | {"step": 0.006}
        made, usual = row.config(setup, row.default), plain.config(setup, plain.default)
        assert replace(usual, preconditioner="gradients", averaging=0.1, step=0.006) == made


@pytest.mark.parametrize("name", ["FedAsync", "FedBuff", "FedBuff + P", "ACE", "ACE + P"])
def test_methods_without_rounds_use_up_their_gradients(name):
    row = methods.registry(2)[name]
    record = perform(replace(SHORT, method=name, settings=row.default, edition=2))
    assert record["stop"] == "budget"
    # a report comes after at least N = 2 updates of E gradients each, and after whole buffers
    most = 2 * row.default.get("local_steps", 1) * row.default.get("buffer", 1)
    assert SHORT.gradients <= record["curve"]["gradients"][-1] < SHORT.gradients + most


def test_a_new_baseline_gets_both_rows_by_itself(monkeypatch):
    from fdro_core import baselines

    twin = type("Twin", (baselines.FedAvg,), {"label": "Twin"})
    monkeypatch.setattr(baselines, "Twin", twin, raising=False)
    monkeypatch.setattr(baselines, "__all__", [*baselines.__all__, "Twin"])
    assert {"Twin", "Twin + P"} <= set(methods.registry(3))
    alone = type("Alone", (baselines.FedAvg,), {"label": "Twin", "variants": ()})
    monkeypatch.setattr(baselines, "Twin", alone)
    assert "Twin + P" not in methods.registry(3)


def test_steps_are_searched_in_the_same_range_for_everyone():
    known = methods.registry(4)
    steps = {name: row.search["step"] for name, row in known.items() if "step" in row.search}
    assert {space for name, space in steps.items() if not name.endswith("+ P")} == {methods.Range(0.1, 10.0)}
    assert known["AFL"].search["weight_step"] == methods.Range(1e-4, 0.3)
    assert known["ASPIRE-EASE"].search["model_step"] == steps["AFL + P"] == methods.Range(6e-4, 0.6)


def test_aspires_rows_are_models_and_the_papers_updates_have_their_own():
    setup = methods.Setup(np.full(3, 1 / 3), 10, 8, 0, lambda: np.ones(3))
    known = methods.registry(3)
    for name in ("ASPIRE-EASE", "ASPIRE-EASE(-)", "ASPIRE-CP", "ASPIRE-ADP"):
        assert set(known[name].search) == {"model_step", "weight_step", "budget"}
        made = known[name].config(setup, known[name].default)
        assert (made.consensus, made.model_step, made.weight_step) == ("models", 0.006, 0.1)
        made.check(3, known[name].uncertainty_set(setup, {}))
        assert set(methods.registry(3, sampled=False)[name].search) == {"budget"}
    admm = known["ASPIRE-EASE (admm)"]
    assert set(admm.search) == {"step", "penalty", "budget"}
    made = admm.config(setup, admm.default)
    assert (made.consensus, made.reported_loss, made.step_scale) == ("admm", "average", 0.5)


def test_the_first_edition_has_the_names_and_searches_of_the_first_tables():
    known = methods.registry(3, edition=1)
    assert not [name for name in known if name.endswith(("+ P", "(admm)"))]
    assert methods.names(edition=1) == ["max{Ind}", "Mix_Even", "FedAvg", "AFL", "DRFA-Prox"]
    assert known["AFL"].search == {"step": methods.Range(0.1, 2.0), "weight_step": methods.Range(1e-3, 0.1)}
    setup = methods.Setup(np.full(3, 1 / 3), 10, 8, 0, lambda: np.ones(3))
    for name in ("ASPIRE-EASE", "ASPIRE-EASE(-)", "ASPIRE-CP", "ASPIRE-ADP", "ASPIRE-EASE_per"):
        assert known[name].config(setup, known[name].default).consensus == "admm"
    with pytest.raises(ValueError, match="editions 1 and 2, got 3"):
        methods.registry(3, edition=3)
    assert replace(SHORT, edition=2).key() != SHORT.key()


def test_local_steps_take_the_form_of_their_edition():
    setup = methods.Setup(np.full(3, 1 / 3), 10, 8, 0, lambda: np.ones(3))
    row = methods.registry(3)["ASPIRE-EASE_per"]
    made = row.config(setup, row.default)
    assert set(row.search) == {"model_step", "weight_step", "budget", "local_steps"}
    assert (made.consensus, made.local_steps) == ("models", 5)
    full = replace(setup, batch=None)
    assert set(methods.registry(3, sampled=False)["ASPIRE-EASE_per"].search) == {"budget", "local_steps"}
    assert row.config(full, {"local_steps": 2}).tolerance == 0.0  # nothing but the budget ends a run


@pytest.mark.parametrize("method", ["AFL + P", "DRFA-Prox + P", "ASPIRE-EASE", "ASPIRE-EASE (admm)"])
def test_a_task_of_the_second_edition_runs(method):
    settings = dict(methods.registry(2)[method].default)
    record = perform(replace(SHORT, method=method, settings=settings, edition=2))
    assert record["stop"] == "budget"
    assert record["edition"] == 2
    assert 60 <= record["curve"]["gradients"][-1] < 60 + 2 * 10


def test_two_baselines_of_one_label_are_refused(monkeypatch):
    from fdro_core import baselines

    twin = type("Twin", (baselines.FedAvg,), {"label": "FedAvg"})
    monkeypatch.setattr(baselines, "Twin", twin, raising=False)
    monkeypatch.setattr(baselines, "__all__", [*baselines.__all__, "Twin"])
    with pytest.raises(ValueError, match="two baselines have the label 'FedAvg'"):
        methods.registry(3)


def test_a_unit_of_a_setting_is_applied():
    setup = methods.Setup(np.full(4, 1 / 4), 10, 8, 0, lambda: np.array([1.0, 2.0, 4.0, 3.0]))
    known = methods.registry(4, known_prior=True)
    drfa = known["DRFA-Prox"]
    made = drfa.config(setup, drfa.default)
    assert (made.step, made.clients, made.regularisation) == (0.5 / 4.0, 120, 3.0)
    assert known["max{Ind}"].config(setup, {"step": 1.0, "worker": 2}).worker_index == 2
    assert methods.registry(4)["DRFA-Prox"].default["regularisation"] == 0.01


def test_networks_search_shorter_preconditioned_steps():
    usual, network = methods.registry(4), methods.registry(4, network=True)
    for name, setting in (("ASPIRE-EASE", "model_step"), ("AFL + P", "step"), ("ACE + P", "step")):
        assert usual[name].search[setting] == methods.Range(6e-4, 0.6)
        assert network[name].search[setting] == methods.Range(6e-4, 6e-2)
    assert network["AFL"].search == usual["AFL"].search


def test_hundreds_of_workers_search_longer_steps():
    few, many = methods.registry(100), methods.registry(101)
    for name, setting, usual, longer in (
        ("AFL", "step", methods.Range(0.1, 10.0), methods.Range(0.1, 1000.0)),
        ("AFL + P", "step", methods.Range(6e-4, 0.6), methods.Range(6e-4, 6.0)),
        ("ASPIRE-EASE", "model_step", methods.Range(6e-4, 0.6), methods.Range(6e-4, 6.0)),
    ):
        assert few[name].search[setting] == usual
        assert many[name].search[setting] == longer
        assert many[name].default == few[name].default
    assert methods.registry(101, edition=1)["AFL"].search == methods.registry(3, edition=1)["AFL"].search
    network = methods.registry(101, network=True)
    assert network["ASPIRE-EASE"].search["model_step"] == methods.Range(6e-4, 6e-2)
