"""The committed price of privacy, which docs/privacy.md quotes, and the command that measures it."""

from __future__ import annotations

import json

import pytest

from bench.driver import privacy
from tests.fdro_core.command import ROOT

pytest.importorskip("dp_accounting")

RESULTS = json.loads((ROOT / "bench" / "results" / "driver" / "privacy.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("task", privacy.TASKS)
def test_the_page_quotes_the_committed_numbers(task):
    rows = [row for row in RESULTS if row["task"] == task]
    assert {row["seed"] for row in rows} == set(privacy.SEEDS)
    assert len(rows) == len(privacy.SEEDS) * len(privacy.kinds(list(privacy.EPSILONS)))
    table = privacy.table(rows)
    results = ROOT / "bench" / "results" / "driver" / "privacy.md"
    assert table in results.read_text(encoding="utf-8")
    if task == "hospitals":  # the page shows these; the others are linked
        assert table in (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")


def test_every_private_run_kept_to_its_budget():
    private = [row for row in RESULTS if row["epsilon"] is not None]
    assert private
    for row in private:
        assert row["stop_reason"] == "privacy budget"
        assert row["spent"] <= row["epsilon"]
        assert max(row["releases"]) == privacy.RELEASES


def test_a_seed_gives_the_committed_numbers():
    kind = privacy.Kind(8.0)
    found = privacy.measure("hospitals", 10, kind)
    (known,) = [
        row for row in RESULTS if (row["task"], row["seed"], row["epsilon"], row["unit"]) ==
        ("hospitals", 10, 8.0, "sample")
    ]  # fmt: skip
    assert found["worst"] == pytest.approx(known["worst"], abs=0.021)  # one of 50 samples at most
    # Which worker is asked follows from comparisons of sums, whose last bits differ between processors.
    assert sum(found["releases"]) == pytest.approx(sum(known["releases"]), rel=0.05)


def test_the_quick_form_prints_a_table_and_writes_its_rows(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(privacy, "RELEASES", 5)
    target = tmp_path / "rows.json"
    assert privacy.main(["--quick", "--output", str(target)]) == 0
    printed = capsys.readouterr().out
    assert "| ε = 8 for each sample |" in printed
    assert len(json.loads(target.read_text(encoding="utf-8"))) == 2 * 4
