"""A result file that grows group by group, so that an interrupted run continues where it stopped."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from bench.measuring import machine

SCHEMA = 1


class Store:
    """The document of one run, kept on disk after every group.

    A file of other settings or other package versions is another run: it is started anew.
    """

    def __init__(self, path: Path, settings: dict[str, Any], *, fresh: bool = False) -> None:
        self.path = path
        described = machine.describe()
        self.document: dict[str, Any] = {
            "schema": SCHEMA,
            "command": "complexity",
            "settings": settings,
            "machine": described,
            "groups": [],
            "cells": [],
            "overall": [],
            "notes": {},
        }
        if path.exists() and not fresh:
            known = json.loads(path.read_text(encoding="utf-8"))
            same = known.get("schema") == SCHEMA and known.get("settings") == settings
            if same and known["machine"]["versions"] == described["versions"]:
                self.document = known
        self.resumed = bool(self.document["groups"])

    def done(self, group: list[Any]) -> bool:
        """Whether that group was measured already."""
        return group in self.document["groups"]

    def add(self, group: list[Any], key: str, records: list[dict[str, Any]]) -> None:
        """Take in a measured group and write the file."""
        self.document[key].extend(records)
        self.document["groups"].append(group)
        self.save()

    def save(self) -> None:
        """Write the file whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(".part")
        draft.write_text(json.dumps(self.document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        os.replace(draft, self.path)


def load(path: Path) -> dict[str, Any]:
    """Load a result file, or the one in a folder; exit with a message if it is unusable."""
    file = path / "results.json" if path.is_dir() else path
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SystemExit(f"{file} does not exist") from None
    except json.JSONDecodeError as error:
        raise SystemExit(f"{file} is not a result file: {error}") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise SystemExit(f"{file} is not a result file of this version")
    return document
