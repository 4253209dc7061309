"""History, progress bar, stopping rules, and the traffic that the history counts."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from rich.console import Console

from fdro_core import AspireEase, AspireModels, Constant, VirtualEngine, solve
from fdro_core.aspire import theory
from fdro_core.observers import (
    HistoryFile,
    Progress,
    StopAfter,
    StopAtLoss,
    StopWhenStationary,
    read_history,
)
from tests.fdro_core.helpers import Faulty, Quadratic, middle_box, softmax_problems

FIELDS = {
    "event", "iteration", "clock", "objective", "value", "losses", "weights", "planes", "active_workers",
    "live_workers", "staleness", "gradients", "bits_down", "bits_up", "bits_theorem_2", "bytes",
}  # fmt: skip


def test_history_file(tmp_path, aspire):
    path = tmp_path / "deep" / "run.jsonl"
    result = solve(
        softmax_problems(4), middle_box(4), algorithm=aspire(iterations=80), observers=[HistoryFile(path)]
    )
    entries = read_history(path)
    assert len(entries) == len(result.history) == 20
    assert all(set(entry) == FIELDS for entry in entries)
    assert entries[-1]["losses"] == result.history[-1]["losses"].tolist()
    assert entries[-1]["weights"] == pytest.approx(result.weights.tolist())
    assert json.loads(path.read_text().splitlines()[0])["iteration"] == 4


def test_traffic_is_counted_on_both_sides(aspire):
    N, iterations = 4, 40
    problems = softmax_problems(N)
    p = problems[0].dimension
    config = aspire(active_workers=2, iterations=iterations, report_interval=1, plane_interval=10)
    result = solve(problems, middle_box(N), algorithm=config, engine=VirtualEngine(delays=Constant()))
    last = result.history[-1]
    ours = isinstance(config, AspireModels)
    down, up, first = (p + 1, p + 2, p + 3) if ours else (p + 3, p + 4, p + 4)
    setup_down, setup_up = N * (2 * p + 1), N * ((2 + p) + first)
    assert last["bits_down"] == 32 * (setup_down + (N + 2 * iterations) * down)
    assert last["bits_up"] == 32 * (setup_up + 2 * iterations * up)
    assert last["bytes"] * 4 == last["bits_down"] + last["bits_up"]
    if ours:  # Theorem 2 does not count its messages
        assert last["bits_theorem_2"] == last["bits_down"] + last["bits_up"]
        return
    planes = [entry["planes"] for entry in result.history]
    before = [1, *planes[:-1]]
    expected = sum(2 * (2 * p + 1 + size) for size in before) + sum(
        N**2 * planes[t - 1] for t in (10, 20, 30, 40)
    )
    assert last["bits_theorem_2"] == 32 * expected
    steps = theory.bits_sent(S=2, p=p, iterations=iterations)
    assert last["bits_down"] + last["bits_up"] == 32 * (setup_down + setup_up + N * (p + 3)) + steps


def test_progress_bar_draws_and_prints_notices(aspire):
    console = Console(file=io.StringIO(), force_terminal=True, width=160)
    problems = [Quadratic([0.0]), Quadratic([1.0]), Faulty([2.0], bad=[20])]
    solve(problems, middle_box(3), algorithm=aspire(iterations=150), observers=[Progress(console)])
    text = console.file.getvalue()
    assert "bad-update" in text
    assert "objective" in text
    assert "150/150" in text


def test_stop_when_stationary(aspire):
    problems, rule = softmax_problems(4), StopWhenStationary(1e-8, every=5)
    result = solve(problems, middle_box(4), algorithm=aspire(), observers=[rule])
    assert result.stop_reason == "stationary"
    assert result.stationarity <= 1e-8
    assert result.iterations < 6000


def test_stop_after_time(aspire):
    result = solve(softmax_problems(4), middle_box(4), algorithm=aspire(), observers=[StopAfter(25.0)])
    assert result.stop_reason == "time"
    assert 25.0 <= result.clock < 35.0


def test_stop_at_loss():
    problems, box = softmax_problems(4), middle_box(4)
    target = 0.5 * (np.log(3) + solve(problems, box).objective)
    result = solve(problems, box, observers=[StopAtLoss(target)])
    assert result.stop_reason == "target loss"
    assert result.objective <= target


def test_any_function_can_stop_a_run():
    result = solve(
        softmax_problems(4),
        middle_box(4),
        observers=[lambda run, entry: "enough" if entry["iteration"] >= 12 else None],
    )
    assert result.stop_reason == "enough"
    assert result.iterations == 12


def test_stationarity_by_hand():
    """One worker, no step: λ = 1, φ = 0, w = z, so ∇G is the worker's gradient alone."""
    seen = []

    def look(run, entry):
        seen.append((run.stationarity(), run.master))
        return "looked"

    result = solve(
        [Quadratic([3.0]), Quadratic([3.0])],
        middle_box(2),
        algorithm=AspireEase(iterations=1, penalty=1e12, active_workers=2),
        observers=[look],
    )
    # The penalty pins w to z = 0: two gradients of weight ½·(-3), and φ stays near zero.
    gap, master = seen[0]
    phi = master.consensus.U[:, 0]
    expected = float(
        np.sum((0.5 * -3.0 - phi + 1e12 * (np.array(master.consensus.w)[:, 0] - master.z[0])) ** 2)
    )
    assert gap == pytest.approx(expected, rel=1e-3)
    assert result.stationarity == pytest.approx(gap)
