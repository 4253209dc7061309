"""The settings in which runs differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fdro_core.cli.runs.folder import RunFolder
from fdro_core.cli.runs.source import read_source


def fields_of(run: RunFolder) -> dict[str, Any]:
    """The fields of a run file by their dotted names."""
    return flat(read_source(run.run_file).values)


def differences(settings: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """The fields that differ: one value per run, None for a run file without it. Output folders do not count.

    >>> differences([{"set.radius": 0.1, "output.folder": "a"}, {"set.radius": 0.2, "output.folder": "b"}])
    {'set.radius': [0.1, 0.2]}
    """
    return {
        key: [each.get(key) for each in settings]
        for key in dict.fromkeys(key for each in settings for key in each)
        if len({repr(each.get(key)) for each in settings}) > 1 and not key.startswith("output.")
    }


def flat(tree: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Flatten nested tables to dotted names.

    >>> flat({"set": {"name": "kl"}})
    {'set.name': 'kl'}
    """
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= flat(value, f"{before}{key}.") if isinstance(value, dict) else {f"{before}{key}": value}
    return found
