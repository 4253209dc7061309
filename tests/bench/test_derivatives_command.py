"""`python -m bench derivatives`: its tables, at small sizes."""

from __future__ import annotations

import pytest

from bench.derivatives import __main__ as command


def table_rows(printed):
    return [line.split("|")[1:-1] for line in printed.splitlines() if line.startswith("| ")][1:]


def test_the_table_of_oracles(monkeypatch, capsys):
    monkeypatch.setattr(command, "SIZES", (10,))
    assert command.main(["--only", "oracle", "--rounds", "2"]) == 0
    rows = table_rows(capsys.readouterr().out)
    assert [row[0].strip() for row in rows] == list(command.oracles(10))
    assert all(float(each) > 0.0 for row in rows for each in row[2:])


def test_the_table_of_torch(monkeypatch, capsys):
    pytest.importorskip("torch")
    monkeypatch.setattr(command, "SIZES", (10,))
    assert command.main(["--only", "torch", "--rounds", "2"]) == 0
    assert len(table_rows(capsys.readouterr().out)) == 1


def test_a_package_that_is_missing_is_named(monkeypatch, capsys):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert command.main(["--only", "cvxpylayers"]) == 0
    assert "needs cvxpylayers, which is not installed" in capsys.readouterr().out
