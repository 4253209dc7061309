"""Write docs/complexity.md, the tables behind it and the README's times from the committed result files.

No number in them is typed by hand.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.complexity import paper, report, summary
from bench.complexity.store import load
from bench.display.tables import grid, replaced
from bench.measuring import machine
from bench.measuring.targets import Parser, number

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"

PICTURES = {
    "times": "Time of one oracle call over N with each set's default method, on logarithmic axes",
    "memory": "Peak memory of a first call over N, of every solver that supports each set",
    "paper": "The operation counts by the paper's formulas, as in its Figures 1 and 2",
    "runs": "The time of a whole run for each set, divided into gradients, oracle and driver",
}

INTRODUCTION = """\
# What each set costs

What does one worst case cost, beside what the paper says, what an expert writes in NumPy, and a modelling
language?

"""

MEASURE = """\
To measure on your machine, run `make bench`, which takes a minute or two (the first time, it also compiles
the kernels), or `python -m bench complexity`, a quarter of an hour. `--sets module:Class` or `--with module`
measures your own sets, `--all` prints every column, and an interrupted run continues. `python -m bench
compare A B` shows the ratios of two result files. `python -m bench page` writes this page and the tables
behind it from the results in `bench/results`.
"""

BEGIN, END = "<!-- times: begin (python -m bench page writes these lines) -->", "<!-- times: end -->"

ORACLES = """\
# What the closed forms promise

Measured in one run by `python -m bench oracles`. Ratios are medians over rounds in which both were measured,
with quartiles. Times in µs are the smallest of all rounds, because noise only adds time.
"""


def page(results: dict[str, Any], oracles: dict[str, Any] | None, pictures: Path, target: Path) -> str:
    """Return the page's text; links to pictures and tables are relative to the page."""
    first, *others = report.tables(results)
    folder = Path(os.path.relpath(pictures, target.parent)).as_posix()
    parts = [INTRODUCTION + found(results), MEASURE, "## One call: the paper's Table II, measured"]
    names = tuple(name for name in first[1] if name != "formulation" and not name.startswith("flexibility"))
    explanation, _, _ = report.EXPLANATION.partition(" Flexibility")  # of a column that table.md alone has
    own = [entry for entry in first[2] if _is_the_papers(entry)]
    parts += [_table(names, report.short(own, names)), report.COST, explanation, ""]
    for name, text in PICTURES.items():
        if name != "runs" and (pictures / f"{name}.svg").exists():
            parts.append(f"![{text}]({folder}/{name}.svg)\n")
    left_out = report.left_out(results)
    more = len({entry[0].partition(",")[0] for entry in first[2] if not _is_the_papers(entry)})
    parts.append(
        f"[The {more} other sets, every column, every method, their memory, and what was left out]"
        f"({folder}/table.md).\n"
    )
    parts += [f"{line}\n" for line in report.remarks(results) if line != left_out]
    for title, headings, entries in others:
        if headings is report.OVERALL_HEADINGS:
            about, _, case = title.partition(": ")
            parts.append(f"## {about} (the paper's Table IV, measured)")
            parts += [f"\n{case[:1].upper()}{case[1:]}."] if case else []
            parts.append(_table(headings, [entry for entry in entries if _is_the_papers(entry)]))
            if (pictures / "runs.svg").exists():
                parts.append(f"![{PICTURES['runs']}]({folder}/runs.svg)\n")
    if oracles is not None:
        missed = [row for row in oracles["rows"] if row["met"] is False]
        parts.append("## Promises and measurements\n")
        parts.append(_kept(oracles["rows"], f"{os.path.dirname(folder)}/oracles.md"))
        parts += [_promises(missed)] if missed else []
    parts += [f"## Rates: the paper's Table III\n\n{paper.RATES_TEXT}"]
    parts += [_table(paper.RATES_HEADINGS, paper.RATES)]
    return "\n".join(parts)


def _is_the_papers(entry: Sequence[str]) -> bool:
    """Whether a row is about a set of the paper; the others are in the tables behind the page."""
    return entry[0].partition(",")[0] in paper.CLAIMS


def found(results: dict[str, Any]) -> str:
    """Return the page's finding: closed forms of O(N) beside a sort, and everything beside cvxpy."""
    rows = summary.rows(results)
    sorts = [row["over_argsort"] for row in rows if row["our_cost"] == "O(N)" and row["over_argsort"]]
    others = [row["cvxpy_over_ours"] for row in rows if row["cvxpy_over_ours"]]
    lines = []
    if sorts:
        lines.append(
            f"**About as much as sorting the losses**: the closed forms of O(N) take {number(min(sorts))} to "
            f"{number(max(sorts))} times as long as one `np.argsort` at the largest N."
        )
    if others:
        lines.append(
            f"cvxpy with Clarabel takes {number(min(others))} to {number(max(others))} times as long as fdro."
        )
    return "\n".join(lines) + "\n" if lines else ""


def _kept(rows: list[dict[str, Any]], place: str) -> str:
    """Return how many promises about exactness, speed and memory were kept, with a link to all of them."""
    met = [row["met"] for row in rows if row["met"] is not None]
    kept = f"{sum(met)} of {len(met)} promises of the closed forms were kept"
    return f"{kept} ([all of them]({place})){'.' if all(met) else '. Not kept:'}\n"


def promises(oracles: dict[str, Any]) -> str:
    """Return the page of what the closed forms promise."""
    quick = "A quick run, with fewer repeats and smaller programs. " if oracles["quick"] else ""
    return "\n".join([ORACLES, _promises(oracles["rows"]).lstrip("\n"), f"{quick}{_measured_on(oracles)}\n"])


def short_table(results: dict[str, Any]) -> str:
    """Return the README's table of times: the paper's sets, and the processor; the page has the rest."""
    _, _, entries = report.tables(results)[0]
    own = [entry for entry in entries if _is_the_papers(entry)]
    table = _table(report.SHORT, report.short(own, report.SHORT))
    found = results["machine"]
    measured = f"{found['processor']}, {found['cores']} cores, {found['date']}. {machine.busy(found)}"
    return f"{table}\n{measured.rstrip()} [What each set costs](docs/complexity.md) has all columns.\n"


def _measured_on(results: dict[str, Any]) -> str:
    return f"Measured on {machine.line(results['machine'])}. {machine.busy(results['machine'])}".rstrip()


def with_times(text: str, results: dict[str, Any]) -> str:
    """Return the README with the table of times of the results."""
    return replaced(text, BEGIN, END, short_table(results))


def _promises(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        value, limit = row["value"], row["limit"]
        sign = "≥" if row["at_least"] else "≤"
        spread = "" if row["low"] is None else f"{number(row['low'])} … {number(row['high'])}"
        lines.append(
            [
                f"{row['what']} ({row['group']})",
                "" if limit is None else f"{sign} {number(limit)} {row['unit']}",
                "not measured" if value is None else f"{number(value)} {row['unit']}",
                spread,
                {True: "yes", False: "**no**", None: ""}[row["met"]],
            ]
        )
    return _table(("what", "target", "measured", "quartiles", "met"), lines)


def _table(headings: Sequence[str], entries: Sequence[Sequence[str]]) -> str:
    return f"\n{grid(headings, entries)}\n"


def main(arguments: list[str]) -> int:
    """Write the page."""
    parser = Parser(prog="python -m bench page", description=__doc__)
    parser.add_argument(
        "--results", type=Path, default=RESULTS / "complexity", help="a folder of `complexity`"
    )
    parser.add_argument("--oracles", type=Path, default=RESULTS / "oracles.json", help="a file of `oracles`")
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "complexity.md")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    options = parser.parse_args(arguments)
    oracles = load(options.oracles) if options.oracles.exists() else None
    results = load(options.results)
    options.to.write_text(page(results, oracles, options.results, options.to), encoding="utf-8")
    if oracles is not None:
        options.oracles.with_suffix(".md").write_text(promises(oracles), encoding="utf-8")
    readme = options.readme.read_text(encoding="utf-8")
    options.readme.write_text(with_times(readme, results), encoding="utf-8")
    print(f"wrote {options.to.name} and {options.readme.name}")
    return 0
