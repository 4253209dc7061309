"""`python -m bench actors`: what a liar does without and with clip."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench.driver import actors
from fdro_core import SoftmaxRegression


@pytest.mark.thorough
def test_the_command_measures_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert actors.main(["--quick", "--out", str(tmp_path)]) == 0
    text = (tmp_path / "tables.md").read_text(encoding="utf-8")
    assert "**hospitals, overview" in text
    assert all(f"| {lie} |" in text for lie in actors.LIES)
    records = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert len(records) == 2 * len(actors.LIES) * len(actors.CLIPS) * len(actors.SETS)
    worst = {
        (lie, clip): np.mean([
            r["worst"] for r in records
            if r["set"].startswith("CD-norm, p_j <= 0.3") and (r["lie"], r["clip"]) == (lie, clip)
        ])
        for lie in ("none", "gradient × 100")
        for clip in (None, 2.0)
    }  # fmt: skip
    assert worst["gradient × 100", None] < worst["none", None] - 0.1
    assert worst["gradient × 100", 2.0] > worst["none", None] - 0.02
    liars = [r for r in records if r["lie"] == "loss 1e6" and r["clip"] is None]
    for record in liars:  # the set's cap is all that holds such a liar
        cap = {"0.25": 0.25, " 0.3": 0.3, "0.40": 0.40}.get(record["set"][-4:], 1.0)
        assert record["weight"] == pytest.approx(cap, abs=0.01)


def test_a_liar_changes_what_it_says_it_changes() -> None:
    problem = SoftmaxRegression([[1.0, 2.0], [0.0, 1.0]], [0, 1], 2, l2=0.1)
    w = np.arange(6.0)
    loss, gradient = problem.loss_and_gradient(w)
    first = problem.loss_and_gradient(np.zeros(6))[1]
    said = {name: actors.Liar(problem, lie, 0).loss_and_gradient(w) for name, lie in actors.LIES.items()}
    assert said["gradient × 100"][0] == said["gradient × -10"][0] == loss
    assert np.array_equal(said["gradient × -10"][1], -10.0 * gradient)
    assert [said[f"loss {value}"][0] for value in ("1e6", "-1e6")] == [1e6, -1e6]
    random = said["constant random gradient"][1]
    assert np.linalg.norm(random) == pytest.approx(10.0 * np.linalg.norm(first))
