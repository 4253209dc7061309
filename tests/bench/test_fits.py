"""`python -m bench fits`: a row for each case, with this tree as its own predecessor."""

from __future__ import annotations

import pytest

from bench.estimators import fits


@pytest.mark.thorough
def test_a_quick_run_prints_a_row_for_each_case(capsys):
    losses = ("logistic", "logistic-3", "absolute")
    given = ["--quick", "--losses", *losses, "--kinds", "groups", "samples", "--sets", "kl", "simplex"]
    assert fits.main([*given, "--before", str(fits.ROOT)]) == 0
    rows = [line.split("; ") for line in capsys.readouterr().err.splitlines() if line.count("; ") > 8]
    assert len(rows) == 12
    assert {row[0] for row in rows} >= {"logistic, groups", "3 classes, by sample", "absolute, by sample"}
    for row in rows:
        assert row[3] == row[6], "the same tree takes as many passes"
