"""Write tables of the results into the pages that show them: no number there is typed by hand.

A page has lines ``<!-- results: FILE, TITLE -->`` and ``<!-- results end -->``; what stands between them is
replaced by the table of FILE (under bench/results/experiments) whose title begins with TITLE, by all tables
if no title is given, or by the remarks under the tables if the title is "remarks". Behind the title may stand

- ``; rows: A, B`` the lines that begin with A or B, in this order;
- ``; columns: A, B`` the columns whose headings are, or begin with, A and B;
- ``; across: A`` one table in place of many: column A of each, without deviations, under the table's title.

The whole tables stay in FILE, to which a page links. If there is no such folder, a line says that the runs
have not been made yet.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from bench.display.tables import grid

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "bench" / "results" / "experiments"
PLACE = re.compile(
    r"<!-- results: (?P<file>[^,;\n]+)(?:, (?P<title>[^;\n]+))?(?P<choices>(?:; \w+: [^;\n]+)*) -->\n"
    r".*?<!-- results end -->",
    re.DOTALL,
)
CHOICE = re.compile(r"; (\w+): ([^;\n]+)")
DEVIATION = re.compile(r" ± [\d.]+")
CELL = re.compile(r"(?<!\\)\|")  # a bar that is part of a cell is escaped

NOT_YET = "*These runs have not been made yet.*"
"""What stands for tables whose folder does not exist."""


def pages() -> list[Path]:
    """The pages that show results."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [page for page in found if PLACE.search(page.read_text(encoding="utf-8"))]


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


def cells(table: str) -> list[list[str]]:
    """The cells of a table with its title: headings first, without the line below them.

    >>> cells("**a**\\n\\n| x | y |\\n|---|---|\\n| 1 | 2 |")
    [['x', 'y'], ['1', '2']]
    """
    lines = [line for line in table.splitlines() if line.startswith("|")]
    split = [[cell.strip().replace("\\|", "|") for cell in CELL.split(line)[1:-1]] for line in lines]
    return [split[0], *split[2:]]


def place(heading: str, headings: Sequence[str]) -> int:
    """Where a column is, by its heading or, if none is that, by how the heading begins."""
    for fits in (str.__eq__, str.startswith):
        for number, each in enumerate(headings):
            if fits(each, heading):
                return number
    raise SystemExit(f"no column begins with {heading!r}; there are: {' / '.join(headings)}")


def lines_of(body: list[list[str]], names: str | None) -> list[list[str]]:
    """The lines that begin with one of the names, in their order; all lines without names."""
    if names is None:
        return body
    wanted = names.split(", ")
    for name in wanted:
        if all(line[0] != name for line in body):
            raise SystemExit(
                f"no line begins with {name!r}; there are: {', '.join(line[0] for line in body)}"
            )
    return [line for name in wanted for line in body if line[0] == name]


def chosen(title: str, table: str, choices: dict[str, str]) -> str:
    """A table's chosen lines and columns, with its title."""
    headings, *body = cells(table)
    body = lines_of(body, choices.get("rows"))
    columns = [place(each, headings) for each in choices.get("columns", "").split(", ") if each]
    if columns:
        headings = [headings[number] for number in columns]
        body = [[line[number] for number in columns] for line in body]
    return f"**{title}**\n\n{grid(headings, body)}"


def across(tables: dict[str, str], column: str, names: str | None) -> str:
    """One column of several tables, without deviations: a table a column, under its title up to a bracket.

    If some tables have a column of that very heading, those are taken, and the others are not.
    """
    split = {title.partition(" (")[0]: cells(table) for title, table in tables.items()}
    split = {title: rows for title, rows in split.items() if column in rows[0]} or split
    found: dict[str, dict[str, str]] = {}
    for title, (headings, *body) in split.items():
        number = place(column, headings)
        for line in body:
            found.setdefault(line[0], {})[title] = DEVIATION.sub("", line[number])
    lines = [[name, *(by.get(title, "–") for title in split)] for name, by in found.items()]
    first = next(iter(split.values()))[0][0]
    return grid([first, *split], lines_of(lines, names))


def quoted(
    name: str, title: str | None, folder: Path = RESULTS, choices: dict[str, str] | None = None
) -> str:
    """What stands for a file, a title and what is chosen of it."""
    choices = choices or {}
    if not (folder / name).parent.is_dir():
        return NOT_YET
    tables, remarks = blocks((folder / name).read_text(encoding="utf-8"))
    if title == "remarks":
        return remarks
    found = {key: table for key, table in tables.items() if title is None or key.startswith(title)}
    if not found:
        raise SystemExit(f"{name} has no table {title!r}; there are: {', '.join(tables)}")
    if unknown := set(choices) - {"rows", "columns", "across"}:
        raise SystemExit(f"{', '.join(sorted(unknown))}: choose by rows, columns and across")
    if "across" in choices:
        whole = {key: table for key, table in found.items() if not key.startswith("Settings found")}
        return across(whole, choices["across"], choices.get("rows"))
    if not choices:
        return "\n\n".join(found.values())
    return "\n\n".join(chosen(key, table, choices) for key, table in found.items())


def filled(text: str, folder: Path = RESULTS) -> str:
    """A page with the tables of the results."""

    def replacement(match: re.Match[str]) -> str:
        first = match.group(0).partition("\n")[0]
        choices = dict(CHOICE.findall(match["choices"]))
        tables = quoted(match["file"], match["title"], folder, choices)
        return f"{first}\n\n{tables}\n\n<!-- results end -->"

    return PLACE.sub(replacement, text)


def main(arguments: list[str]) -> int:
    """Rewrite the pages."""
    parser = argparse.ArgumentParser(prog="python -m bench quote", description=__doc__)
    parser.add_argument("pages", nargs="*", type=Path, help="by default all that show results")
    for page in parser.parse_args(arguments).pages or pages():
        text = page.read_text(encoding="utf-8")
        page.write_text(filled(text), encoding="utf-8")
        print(f"{page.name}: {len(PLACE.findall(text))} places")
    return 0
