"""Write the tables of the results into the pages that show them: no number there is typed by hand.

A page has lines ``<!-- results: FILE, TITLE -->`` and ``<!-- results end -->``; what stands between them is
replaced by the table of FILE (under bench/results/experiments) whose title begins with TITLE, by all tables
if no title is given, or by the remarks under the tables if the title is "remarks". If there is no such
folder, a line says that the runs have not been made yet.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "bench" / "results" / "experiments"
PAGES = [
    ROOT / "docs" / f"{name}.md"
    for name in ("paper-experiments", "paper-efficiency", "networks", "race", "estimators", "bad-actors")
]
PLACE = re.compile(r"<!-- results: ([^,\n]+?)(?:, ([^\n]+?))? -->\n.*?<!-- results end -->", re.DOTALL)

NOT_YET = "*These runs have not been made yet.*"
"""What stands for tables whose folder does not exist."""


def blocks(text: str) -> tuple[dict[str, str], str]:
    """The tables of a results file by title, each with its title, and the remarks under them.

    >>> blocks("**a**\\n\\n| x |\\n|---|\\n\\nDone so.\\n")
    ({'a': '**a**\\n\\n| x |\\n|---|'}, 'Done so.')
    """
    paragraphs = [part.strip() for part in text.split("\n\n") if part.strip()]
    tables, remarks = {}, ""
    for title, body in zip(paragraphs, [*paragraphs[1:], ""], strict=True):
        if title.startswith("**"):
            tables[title.strip("*")] = f"{title}\n\n{body}"
        elif not title.startswith("|"):
            remarks = title
    return tables, remarks


def quoted(name: str, title: str | None, folder: Path = RESULTS) -> str:
    """What stands for a file and a title."""
    if not (folder / name).parent.is_dir():
        return NOT_YET
    tables, remarks = blocks((folder / name).read_text(encoding="utf-8"))
    if title == "remarks":
        return remarks
    found = [table for key, table in tables.items() if title is None or key.startswith(title)]
    if not found:
        raise SystemExit(f"{name} has no table {title!r}; there are: {', '.join(tables)}")
    return "\n\n".join(found)


def filled(text: str, folder: Path = RESULTS) -> str:
    """A page with the tables of the results."""

    def replacement(match: re.Match[str]) -> str:
        first = match.group(0).partition("\n")[0]
        return f"{first}\n\n{quoted(match.group(1), match.group(2), folder)}\n\n<!-- results end -->"

    return PLACE.sub(replacement, text)


def main(arguments: list[str]) -> int:
    """Rewrite the pages."""
    parser = argparse.ArgumentParser(prog="python -m bench quote", description=__doc__)
    parser.add_argument("pages", nargs="*", type=Path, default=PAGES, help="by default all that show results")
    for page in parser.parse_args(arguments).pages:
        text = page.read_text(encoding="utf-8")
        page.write_text(filled(text), encoding="utf-8")
        print(f"{page.name}: {len(PLACE.findall(text))} places")
    return 0
