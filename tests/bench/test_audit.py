"""`python -m bench audit` runs, and its integrals are right."""

from __future__ import annotations

import numpy as np
import pytest

from bench.__main__ import run
from bench.audit import coverage, laws
from uncertainty_sets import KL


def test_the_command_prints_its_tables(capsys, tmp_path):
    parts = ("bounds", "groups", "clusters", "times")
    assert run(["audit", "--quick", "--out", str(tmp_path / "a.md"), "--parts", *parts]) == 0
    text = (tmp_path / "a.md").read_text(encoding="utf-8")
    assert text.count("\n|---") == len(parts)
    assert "processor time" in capsys.readouterr().out


@pytest.mark.thorough
def test_all_of_it_runs():
    pytest.importorskip("sklearn")
    assert run(["audit", "--quick"]) == 0


def test_without_a_shift_the_coverage_is_the_rank():
    assert coverage.covered(KL, 1e-12, 99, 90) == pytest.approx(0.9, abs=1e-4)
    assert laws.truth(KL, 1e-12, "beta(1, 4)") == pytest.approx(0.2, abs=1e-4)
    assert laws.worst(KL, 1.0, np.array([0.0, 0.0, 1.0])) == pytest.approx(0.982851, abs=1e-5)
