"""The parts of the report: curves, intervals, tiles and tables, without a browser."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fdro_core.cli.output import for_people, percent
from fdro_core.cli.report.curves import LINES, POINTS, chart, choose, curves, line, traffic, worker_curves
from fdro_core.cli.report.page import ROWS, caveats, figures, sentence, worker_table
from fdro_core.cli.report.run import Run
from fdro_core.result import wilson, wilson_of_mean


def entry(t, losses, **more):
    """A report at iteration t."""
    return {
        "event": "report", "iteration": t, "clock": float(t), "objective": float(np.max(losses)),
        "losses": list(losses), "planes": 2, "active_workers": 1, "live_workers": len(losses), "staleness": 4,
        **more,
    }  # fmt: skip


def worker(name, loss=0.5, **more):
    """The numbers of a worker."""
    numbers = dict.fromkeys(("samples", "test_samples", "accuracy", "test_loss", "test_accuracy"))
    return {"name": name, "loss": loss, "weight": 0.001, "prior": 0.001, **numbers, **more}


def run_of(workers, history=(), **result):
    """A run with these workers and this history."""
    numbers = {
        "stop_reason": "iterations", "iterations": 10, "planned": 10, "parameters": 2, "proved": True,
        "caveat": "", "suspicious": {}, "objective": 0.5, "workers": workers,
        "set": {"name": "kl", "as": "KL"}, "algorithm": {"name": "aspire-models"},
        "engine": {"name": "virtual"}, **result,
    }  # fmt: skip
    return Run("run", numbers, list(history), {}, "")


def named(charts):
    return {each["name"]: each for each in charts}


def values(drawn):
    return {each["name"]: each["values"] for each in drawn["lines"]}


def test_long_histories_are_thinned_and_keep_their_peaks():
    rng = np.random.default_rng(0)
    history = [
        entry(t, rng.random(3), live_workers=2 if t == 7_001 else 3, staleness=99 if t == 5_003 else 4)
        for t in range(20_000)
    ]
    charts = named(curves(run_of([worker(f"w{j}") for j in range(3)], history)))
    assert len(charts["loss"]["lines"][0]["clock"]) == POINTS
    assert charts["loss"]["lines"][0]["clock"][-1] == 19_999.0
    band = charts["staleness"]["lines"][0]
    assert max(band["high"]) == 99
    assert set(band["values"]) == set(band["low"]) == {4}
    assert min(values(charts["workers"])["alive"]) == 2
    assert "accuracy" not in charts


def test_losses_that_nobody_knows_leave_a_gap():
    report = entry(1, [np.nan, np.nan], test_accuracy=[None, 0.5])
    charts = named(curves(run_of([worker("a"), worker("b", test_samples=20)], [report])))
    assert all(each == [None] for each in values(charts["loss"]).values())
    assert values(charts["accuracy"]) == {"mean": [50.0], "worst worker": [50.0]}


def test_every_worker_has_its_curves():
    history = [
        entry(t, [1.0, 0.5 / t], weights=[0.25, 0.75], test_accuracy=[0.5, 0.1 * t]) for t in (1, 2, 3)
    ]
    charts = named(worker_curves(run_of([worker("a"), worker("b")], history)))
    assert values(charts["worker-loss"]) == {"a": [1.0] * 3, "b": [0.5, 0.25, 0.166667]}
    assert values(charts["weights"]) == {"a": [25.0] * 3, "b": [75.0] * 3}
    assert values(charts["worker-accuracy"]) == {"a": [50.0] * 3, "b": [10.0, 20.0, 30.0]}


def test_histories_without_weights_or_traffic_have_the_other_curves():
    run = run_of([worker("a"), worker("b")], [entry(1, [1.0, 2.0])])
    assert set(named(worker_curves(run))) == {"worker-loss"}
    assert traffic([run]) is None


def test_many_workers_share_a_band():
    workers = [worker(f"w{j}", loss=float(j), weight=1.0 if j == 17 else 0.0) for j in range(40)]
    lost = {"event": "worker-lost", "iteration": 1, "clock": 1.0, "worker": 23, "reason": "crashed"}
    run = run_of(workers, [lost, entry(1, np.arange(40.0) + 1.0)])
    chosen = choose(run)
    assert len(chosen) == LINES - 1
    assert {39, 23, 17} <= set(chosen)  # the largest loss, the one that is gone, the heaviest
    lines = named(worker_curves(run))["worker-loss"]["lines"]
    assert len(lines) == LINES
    assert (lines[0]["low"], lines[0]["values"], lines[0]["high"]) == ([1.0], [20.5], [40.0])


def test_a_worker_that_is_gone_reports_no_more_losses():
    lost = {"event": "worker-lost", "iteration": 1, "clock": 1.0, "worker": 1, "reason": "crashed"}
    run = run_of([worker("a"), worker("b")], [entry(1, [1.0, 2.0]), lost, entry(2, [0.5, 2.0])])
    assert values(named(worker_curves(run))["worker-loss"]) == {"a": [1.0, 0.5], "b (gone)": [2.0, None]}


def test_traffic_is_shown_up_and_down_in_a_unit_that_fits():
    history = [entry(t, [1.0], bits_up=2_000_000 * t, bits_down=1_000_000 * t) for t in (1, 2)]
    sent = traffic([run_of([worker("a")], history)])
    assert sent["title"] == "Sent, Mbit"
    assert values(sent) == {"up": [2.0, 4.0], "down": [1.0, 2.0]}
    assert "4 up, 2 down" in sent["note"]


@pytest.mark.parametrize(
    ("losses", "log"),
    [([10.0, 0.1], True), ([1.0, 0.5], False), ([1.0, 0.0], False), ([1e-3, -1e-5], False)],
)
def test_losses_that_span_decades_have_a_logarithmic_scale(losses, log):
    at = [{"clock": 0.0, "iteration": 0}, {"clock": 1.0, "iteration": 1}]
    assert chart("loss", "Losses", "", [line("a", at, losses)], log=True)["log"] is log
    assert chart("share", "Shares", "", [line("a", at, losses)])["log"] is False


def test_wilson_solves_its_equation():
    """The limits p are where the share is 1.96 standard errors of p away."""
    share, samples = np.array([0.0, 0.02, 0.5, 0.97, 1.0]), np.array([5, 50, 7, 1000, 3])
    for limit in wilson(share, samples):
        variance = limit * (1 - limit) / samples
        np.testing.assert_allclose((limit - share) ** 2, 1.959963984540054**2 * variance, atol=1e-12)
    low, high = wilson(share, samples)
    assert low[0] == 0.0
    assert high[-1] == 1.0
    assert ((low <= share) & (share <= high)).all()


def test_unknown_numbers_have_no_interval():
    assert np.isnan(wilson([0.5, np.nan, 0.5], [np.nan, 10, 0])).all()
    assert np.isnan(wilson_of_mean([np.nan], [10])).all()
    assert wilson_of_mean([0.8, np.nan], [40, 10]) == pytest.approx([float(x) for x in wilson(0.8, 40)])


def test_the_mean_interval_covers():
    """Simulated: of 2,000 means about 95 % are within the interval."""
    rng = np.random.default_rng(0)
    truth, samples = np.array([0.95, 0.8, 0.9]), np.array([40, 30, 60])
    hits = 0
    for _ in range(2000):
        low, high = wilson_of_mean(rng.binomial(samples, truth) / samples, samples)
        hits += low <= truth.mean() <= high
    assert 0.93 <= hits / 2000 <= 0.98


def test_the_bold_row_is_the_worker_of_the_first_tile():
    """The worst by test accuracy, which need not be the one with the largest loss."""
    workers = [
        worker("a", loss=0.9, test_accuracy=0.9, test_samples=50),
        worker("b", loss=0.1, test_accuracy=0.7, test_samples=50),
        worker("c", loss=0.2, test_accuracy=0.8, test_samples=50),
    ]
    run = run_of(workers, worst_test_accuracy=0.7, worst_loss=0.9)
    assert re.findall(r'class="worst" data-worker="(\w)"', worker_table(run)) == ["b"]
    tiles = figures(run)
    assert "test accuracy, worst worker: b<" in tiles
    assert "loss, worst worker: a<" in tiles
    low, high = wilson(0.7, 50)
    assert f"95 % interval {100 * low:.1f} to {100 * high:.1f} %" in tiles
    assert f"({100 * low:.0f}–{100 * high:.0f})" in worker_table(run)


def test_without_accuracies_the_bold_row_has_the_largest_loss():
    run = run_of([worker("a", loss=0.9), worker("b", loss=0.9), worker("c", loss=None)], worst_loss=0.9)
    assert re.findall(r'class="worst" data-worker="(\w)"', worker_table(run)) == ["a", "b"]
    assert "loss, worst worker: a and b<" in figures(run)


def test_many_workers_are_cut_to_the_worst():
    page = worker_table(run_of([worker(f"w{j}", loss=float(j)) for j in range(1000)]))
    assert page.count("<tr") == ROWS + 1
    assert ">w999<" in page
    assert ">w0<" not in page


def test_who_is_gone_for_good_is_in_the_headline():
    def notice(event, j, t, **more):
        return {"event": event, "iteration": t, "clock": 2.0 * t, "worker": j, **more}

    history = [
        notice("worker-lost", 0, 3, reason="crashed"),
        notice("worker-lost", 1, 4, reason="silent for 9 s"),
        notice("worker-back", 0, 5),
        notice("worker-dropped", 2, 6, reason="3 updates with NaN"),
    ]
    run = run_of([worker(name) for name in ("a", "b<", "c", "d")], history)
    assert list(run.gone) == [1, 2]
    assert "4 workers, <b>2 gone for good</b>" in sentence(run)
    assert (
        "Gone for good: worker b&lt; (silent for 9 s, at iteration 4, 8 s) and worker c (3 updates with NaN, "
        "at iteration 6, 12 s)." in caveats(run)
    )
    assert worker_table(run).count("gone for good") == 2
    back = run_of([worker("a")], [notice("worker-lost", 0, 3, reason="crashed"), notice("worker-back", 0, 5)])
    assert "gone" not in sentence(back) + caveats(back) + worker_table(back)


def test_tiles_are_for_people():
    run = run_of([worker("a")], gap=-4.8e-20, optimality_gap=3.25e-7, clock=12345.678, iterations=10_000)
    shown = dict(re.findall(r'data-value="(\w+)">([^<]*)<', figures(run)))
    assert shown == {
        "objective": "0.5",
        "gap": "≈ 0",
        "optimality_gap": "3.25 × 10⁻⁷",
        "iterations": "10,000",
        "clock": "12,346",
    }


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0"), (-0.0, "0"), (1.0, "1"), (0.25, "0.25"), (0.9999996, "1"), (-12.5, "-12.5"),
        (123456.7, "123,457"), (1e12, "1 × 10¹²"), (-2.5e-9, "-2.5 × 10⁻⁹"), (None, "–"), (np.nan, "–"),
        (np.inf, "∞"),
    ],
)  # fmt: skip
def test_numbers_for_people(number, text):
    assert for_people(number) == text


def test_a_weight_just_below_zero_is_zero():
    assert percent(-4.8e-20) == "0.0 %"
