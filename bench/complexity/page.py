"""Write docs/complexity.md and the README's table of times from the committed result files.

No number in them is typed by hand.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.complexity import paper, report
from bench.complexity.store import load
from bench.display.tables import grid, replaced
from bench.measuring import machine
from bench.measuring.targets import Parser, number

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"

PICTURES = {
    "times": "Time of one oracle call over N with each set's default method, on logarithmic axes",
    "methods": "Time over N of every solver that supports each set; dashed: growth by the paper's formula",
    "memory": "Peak memory of a first call over N, of every solver that supports each set",
    "paper": "The operation counts by the paper's formulas, as in its Figures 1 and 2",
    "runs": "The time of a whole run for each set, divided into gradients, oracle and driver",
}

INTRODUCTION = """\
# What each set costs

The paper states what one oracle call of each uncertainty set costs. This page shows the measured times
beside it. All numbers come from result files in `bench/results`.

To measure on your machine, run `make bench`, which takes a minute or two (the first time, it also compiles
the kernels), or `python -m bench complexity`, which takes a quarter of an hour. Both measure the six sets of
the paper first, at every N, then the others until a budget of processor seconds is spent. They print the
complexity table, with `--all` every column and table, write tables, CSV, JSON and plots, and continue an
interrupted run.
Your own sets are measured too: `--sets module:Class`, or `--with module` for all that a module defines.
`python -m bench compare A B` shows the ratios of two result files. `python -m bench page` writes this page.
"""

BEGIN, END = "<!-- times: begin (python -m bench page writes these lines) -->", "<!-- times: end -->"

ORACLES = """\
## Promises and measurements

The table shows what the closed forms promise, as measured in one run by `python -m bench oracles`. Ratios are
medians over rounds in which both were measured, with quartiles. Times in µs are the smallest of all rounds,
because noise only adds time.
"""


def page(results: dict[str, Any], oracles: dict[str, Any] | None, pictures: Path, target: Path) -> str:
    """Return the page's text; links to pictures are relative to the page."""
    parts = [INTRODUCTION]
    first, *others = report.tables(results)
    parts += [
        "## One call: the paper's Table II, measured",
        _table(*first[1:]),
        report.COST,
        report.EXPLANATION,
        "",
    ]
    titles = {"times", "methods", "memory", "paper"}
    folder = Path(os.path.relpath(pictures, target.parent)).as_posix()
    for name, text in PICTURES.items():
        if name in titles and (pictures / f"{name}.svg").exists():
            parts.append(f"![{text}]({folder}/{name}.svg)\n")
    for title, headings, entries in others:
        heading = (
            f"{title} (the paper's Table IV, measured)" if headings is report.OVERALL_HEADINGS else title
        )
        parts += [f"## {heading}", _table(headings, entries)]
    if (pictures / "runs.svg").exists() and results["overall"]:
        parts.append(f"![{PICTURES['runs']}]({folder}/runs.svg)\n")
    if oracles is not None:
        parts += [ORACLES, _promises(oracles["rows"])]
        quick = "A quick run, with fewer repeats and smaller programs. " if oracles["quick"] else ""
        parts.append(f"{quick}{_measured_on(oracles)}\n")
    parts += [f"## Related work: the paper's Table I\n\n{paper.RELATED_TEXT}"]
    parts += [_table(paper.RELATED_HEADINGS, paper.RELATED)]
    parts += [f"## Rates: the paper's Table III\n\n{paper.RATES_TEXT}"]
    parts += [_table(paper.RATES_HEADINGS, paper.RATES)]
    parts.append("## About the run\n")
    parts += [f"{line}\n" for line in report.remarks(results)]
    return "\n".join(parts)


def short_table(results: dict[str, Any]) -> str:
    """Return the README's table of times, with the machine it was measured on."""
    _, _, entries = report.tables(results)[0]
    table = _table(report.SHORT, report.short(entries, report.SHORT))
    return f"{table}\n{_measured_on(results)}\n"


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
    readme = options.readme.read_text(encoding="utf-8")
    options.readme.write_text(with_times(readme, results), encoding="utf-8")
    print(f"wrote {options.to.name} and {options.readme.name}")
    return 0
