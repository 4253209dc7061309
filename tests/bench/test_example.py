"""The committed numbers of the first example, which docs/cli.md and the README quote."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bench.driver import example
from tests.fdro_core.command import ROOT

RESULTS = ROOT / "bench" / "results" / "driver" / "example.json"


def test_the_pages_quote_the_committed_numbers():
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert [row["seed"] for row in rows] == list(example.SEEDS)
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for key in example.MEASURES:
        means = [sum(100 * row[name][key] for row in rows) / len(rows) for name in ("fed-avg", "robust")]
        assert f"| {means[0]:.1f} % | {means[1]:.1f} % |" in page
        low, high = example.interval([100 * (row["robust"][key] - row["fed-avg"][key]) for row in rows])
        assert f"{low:+.1f} to {high:+.1f} points" in page


def test_the_first_page_quotes_the_committed_numbers():
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))

    def mean(name, key):
        return sum(100 * row[name][key] for row in rows) / len(rows)

    words = {round(mean(name, key)) for name in ("fed-avg", "robust") for key in ("worst", "samples")}
    page = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    [picture] = re.findall(
        r"at the worst hospital (\d+) and (\d+) percent, over all patients (\d+) and (\d+)", page
    )
    assert set(map(int, picture)) == words
    start = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    assert "rises from {} % to {} %".format(*picture) in start
    gain, price = (mean("robust", key) - mean("fed-avg", key) for key in ("worst", "samples"))
    assert f"The worst hospital gains {gain:.0f} points; all patients together lose {-price:.0f}" in page


@pytest.mark.thorough
def test_a_seed_gives_the_committed_numbers(capsys, tmp_path):
    target = Path(tmp_path, "one.json")
    assert example.main(["--seeds", "10", "11", "--output", str(target)]) == 0
    committed = json.loads(RESULTS.read_text(encoding="utf-8"))[:2]
    for found, known in zip(json.loads(target.read_text(encoding="utf-8")), committed, strict=True):
        for name in ("robust", "fed-avg"):
            assert found[name] == pytest.approx(known[name], abs=0.011)  # one of 100 samples at most
    assert "worst worker" in capsys.readouterr().out
