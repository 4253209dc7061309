"""`python -m bench audit` runs, and its integrals are right."""

from __future__ import annotations

import numpy as np
import pytest

from bench.__main__ import run
from bench.audit import coverage, laws
from uncertainty_sets import KL


def test_the_command_prints_its_tables(capsys, tmp_path):
    page = tmp_path / "a.md"
    assert run(["audit", "--quick", "--out", str(page), "--parts", "bounds", "groups", "clusters"]) == 0
    before = page.read_text(encoding="utf-8")
    assert before.count("\n|---") == 4  # two of bounds
    page.write_text(before.replace("| given |", "| old |"), encoding="utf-8")
    assert run(["audit", "--quick", "--out", str(page), "--parts", "times", "clusters"]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith(before)
    assert text.count("\n|---") == 5
    assert "processor time" in capsys.readouterr().out


def test_without_the_plus_one_the_control_fails_where_it_must():
    rows = coverage.control((100,)).rows
    must = {row[0]: (row[4], float(row[5].split()[0])) for row in rows}
    assert must["TotalVariation 0.03"] == ("yes", pytest.approx(100 * (93 / 101 - 0.03), abs=1e-3))
    assert must["CVaR 0.5"] == ("yes", pytest.approx(100 * (1 - 2 * 6 / 101), abs=1e-3))
    assert must["ChiSquare 0.1"][0] == "no"
    assert must["ChiSquare 0.1"][1] >= 90.0


@pytest.mark.thorough
def test_all_of_it_runs():
    pytest.importorskip("sklearn")
    assert run(["audit", "--quick"]) == 0


def test_without_a_shift_the_coverage_is_the_rank():
    assert coverage.covered(KL, 1e-12, 99, 90) == pytest.approx(0.9, abs=1e-4)
    assert laws.truth(KL, 1e-12, "beta(1, 4)") == pytest.approx(0.2, abs=1e-4)
    assert laws.worst(KL, 1.0, np.array([0.0, 0.0, 1.0])) == pytest.approx(0.982851, abs=1e-5)
