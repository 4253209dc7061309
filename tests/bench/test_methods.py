"""The methods of the tables: rows, searches and units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.experiments.runs import methods
from bench.experiments.runs.perform import perform
from fdro_core import AspireEase, AspireModels
from tests.bench.short import SHORT


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
        assert replace(usual, preconditioner="gradients", averaging=0.1, step=0.012) == made  # 0.006√4


@pytest.mark.parametrize("name", ["FedAsync", "FedBuff", "FedBuff + P", "ACE", "ACE + P"])
def test_methods_without_rounds_use_up_their_gradients(name):
    row = methods.registry(2)[name]
    record = perform(replace(SHORT, method=name, settings=row.default))
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
    for name, space in steps.items():
        wide = name in {"FedBuff", "FedAsync"}  # an arrival counts little there
        if not name.endswith("+ P"):
            assert space == methods.Range(0.1, 100.0 if wide else 10.0), name
    assert known["AFL"].search["weight_step"] == methods.Range(1e-4, 0.3)
    assert known["AspireModels"].search["model_step"] == steps["AFL + P"] == methods.Range(6e-4, 0.6)


def test_the_papers_rows_and_ours_are_two_classes_each_with_its_settings():
    setup = methods.Setup(np.full(3, 1 / 3), 10, 8, 0, lambda: np.ones(3))
    known, full = methods.registry(3), methods.registry(3, sampled=False)
    for papers, (ours, _) in methods.VARIANTS.items():
        local = {"local_steps"} if papers.endswith("_per") else set()
        assert set(known[ours].search) == {"model_step", "weight_step", "budget"} | local
        made = known[ours].config(setup, known[ours].default)
        assert (type(made), made.model_step, made.weight_step) == (AspireModels, 0.006 * np.sqrt(3), 0.1)
        made.check(3, known[ours].uncertainty_set(setup, {}))
        assert set(full[ours].search) == {"budget"} | local
        assert (
            known[ours].config(replace(setup, batch=None), {}).tolerance == 0.0
        )  # only the budget ends a run
        assert set(known[papers].search) == {"step", "penalty", "budget"} | local
        made = known[papers].config(setup, known[papers].default)
        assert (type(made), made.reported_loss, made.step_scale) == (AspireEase, "average", 0.5)
        made.check(3, known[papers].uncertainty_set(setup, {}))


@pytest.mark.parametrize("method", ["AFL + P", "DRFA-Prox + P", "AspireModels", "ASPIRE-EASE"])
def test_a_task_runs(method):
    record = perform(replace(SHORT, method=method, settings=dict(methods.registry(2)[method].default)))
    assert record["stop"] == "budget"
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
    for name, setting in (("AspireModels", "model_step"), ("AFL + P", "step"), ("ACE + P", "step")):
        assert usual[name].search[setting] == methods.Range(6e-4, 0.6)
        assert network[name].search[setting] == methods.Range(6e-4, 6e-2)
    assert network["AFL"].search == usual["AFL"].search


def test_hundreds_of_workers_search_longer_steps():
    few, many = methods.registry(100), methods.registry(101)
    for name, setting, usual, longer in (
        ("AFL", "step", methods.Range(0.1, 10.0), methods.Range(0.1, 1000.0)),
        ("FedBuff", "step", methods.Range(0.1, 100.0), methods.Range(0.1, 1000.0)),
        ("AFL + P", "step", methods.Range(6e-4, 0.6), methods.Range(6e-4, 0.6)),  # in units of √N
        ("AspireModels", "model_step", methods.Range(6e-4, 0.6), methods.Range(6e-4, 0.6)),
    ):
        assert few[name].search[setting] == usual
        assert many[name].search[setting] == longer
        assert many[name].default == few[name].default
    network = methods.registry(101, network=True)
    assert network["AspireModels"].search["model_step"] == methods.Range(6e-4, 6e-2)
