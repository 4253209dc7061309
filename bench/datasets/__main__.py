"""List the data sets as a table, and write it into docs/datasets.md."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.datasets.registry import registered
from bench.display.tables import Table, console, grid, replaced

PAGE = Path(__file__).resolve().parents[2] / "docs" / "datasets.md"
BEGIN = "<!-- data sets: begin (python -m bench datasets writes these lines) -->"
END = "<!-- data sets: end -->"


def table() -> Table:
    """Return the table of all data sets, from what their loaders' decorators say."""
    rows = [
        [
            f"`{each.name}`",
            each.clients,
            each.features,
            each.split,
            ", ".join(f"`{folder}/`" for folder in each.folders) or "none",
        ]
        for each in registered()
    ]
    return Table("Data sets", ("name", "clients", "features", "split", "files in FDRO_DATA"), rows)


def filled(text: str) -> str:
    """Return a page with the table between its marks."""
    made = table()
    return replaced(text, BEGIN, END, f"\n{grid(made.headings, made.rows)}\n")


def main(arguments: list[str]) -> int:
    """Print the table and rewrite the page."""
    parser = argparse.ArgumentParser(prog="python -m bench datasets", description=__doc__)
    parser.add_argument("--to", type=Path, default=PAGE, help="the page; docs/datasets.md by default")
    page = parser.parse_args(arguments).to
    console().print(table().rich())
    page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {page.name}")
    return 0
