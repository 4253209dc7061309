"""`bench mdp` in its smallest form: every part runs and its numbers are written."""

from __future__ import annotations

import json

from bench.__main__ import run


def test_the_command_runs_and_writes_its_numbers(tmp_path):
    file = tmp_path / "mdp.json"
    assert run(["mdp", "--quick", "--scale", "0.01", "--json", str(file)]) == 0
    rows = json.loads(file.read_text())["rows"]
    groups = {row["group"] for row in rows}
    assert len(groups) == 4
    assert all(row["value"] > 0.0 for row in rows if row["unit"] in {"µs", "ms", "s"})
    assert sum("proved within" in row["note"] for row in rows) == 6
