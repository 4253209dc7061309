"""What the driver's tests share beside `helpers.py`."""

from __future__ import annotations

import pytest

from tests.core.command import furnish


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder of its own with samples of three workers and a config for them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    furnish()
