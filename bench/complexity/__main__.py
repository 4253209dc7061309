"""Measure the paper's complexity table: every set with every solver that can solve it, over N."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bench.complexity import grid, overall, peers, plots, report, summary
from bench.complexity.paper import CLAIMS
from bench.complexity.store import Store
from bench.complexity.variants import Variant, found, parameter_count
from bench.display import figures
from bench.experiments.runs import plugins
from bench.measuring import timing
from bench.measuring.targets import Parser
from bench.measuring.timing import one_thread
from uncertainty_sets.conic import oracle as conic
from uncertainty_sets.errors import FdroError

OUT = Path(__file__).parents[1] / "out"
SECONDS = {True: 75.0, False: 600.0}
"""Processor seconds after which sets that the paper has not are left for another run; the paper's are always
measured. Plots and waiting for a busy machine come on top."""


def main(arguments: list[str]) -> int:
    """Measure what is not measured yet, then write and print tables and plots. Ctrl-C keeps what is done."""
    parser = _parser()
    options = parser.parse_args(arguments)
    plugins.load(options.plugins)
    try:
        variants, without = found(options.sets)
    except FdroError as error:  # a set that is not there: the message says what is
        parser.error(str(error))
    settings = _settings(options)
    folder = options.out or OUT / ("complexity-quick" if options.quick else "complexity")
    seconds = SECONDS[options.quick] if options.seconds is None else options.seconds
    console = Console()
    store = Store(
        folder / "results.json",
        asdict(settings) | {"sizes": list(settings.sizes), "quick": options.quick},
        fresh=options.fresh,
    )
    if store.resumed:
        console.print(
            f"Continuing from {len(store.document['groups'])} groups measured before (--fresh discards them)."
        )
    store.document["notes"] |= {"without": without, "missing": peers.missing(), "interrupted": False}
    if not options.sets:
        variants += peers.special_variants()
    code = 0
    with _bar(console) as bar, one_thread():
        try:
            measure(store, settings, variants, bar, seconds, options.quick)
        except KeyboardInterrupt:
            store.document["notes"]["interrupted"] = True
            code = 130
    store.save()
    write(store.document, folder)
    for table in report.rich_tables(store.document, console.width, everything=options.all):
        console.print(table)
    for line in [report.legend(console.width, everything=options.all), *report.remarks(store.document)]:
        console.print(line, soft_wrap=True)
    plots_too = (
        "tables, numbers and plots" if figures.available() else "tables and numbers (plots need matplotlib)"
    )
    console.print(f"All {plots_too} are in {folder.name}, beside results.json.", soft_wrap=True)
    return code


def measure(
    store: Store, settings: grid.Settings, variants: list[Variant], bar: Progress, seconds: float, quick: bool
) -> None:
    """Every group that the store does not have yet: the paper's sets, then the others for so many seconds."""
    task = bar.add_task(
        "looking for sets and solvers, compiling kernels (minutes, once per machine)", total=None
    )
    notes: dict[str, Any] = store.document["notes"]
    plan = []
    for each in variants:
        try:
            plan.append((each, *grid.methods(each)))
        except Exception as error:  # somebody's own set may raise anything; the others go on
            notes["without"][each.title] = f"{type(error).__name__}: {error}"
    notes |= {"variants": [_about(each, default) for each, _, default in plan], "late": [], "budget": seconds}
    notes["overall"] = overall.about(quick)
    rivals = peers.present()
    timing.settle()
    groups = [entry for papers in (True, False) for entry in _groups(plan, settings, papers)]
    bar.update(task, total=len(groups))
    deadline = time.process_time() + seconds
    for variant, size, able, default in groups:
        key = ["cells", variant.name, variant.label, size] if size else ["overall", variant.name]
        what = f"{variant.title}, N = {size:,}" if size else f"a whole run with {variant.name}"
        bar.update(task, description=what)
        if not store.done(key):
            if variant.name not in CLAIMS and time.process_time() > deadline:
                notes["late"].append([variant.title, size])
                continue
            if size:
                cells = store.document["cells"]
                store.add(key, "cells", grid.measure(variant, size, able, default, rivals, cells, settings))
            else:
                store.add(key, "overall", [overall.measure(variant, quick, settings.seed)])
        bar.advance(task)
    bar.update(task, description="done")


Group = tuple[Variant, int, list[str], str]
"""A set, N or 0 for a whole run, the methods that can do it and its own one."""


def _groups(plan: list[tuple[Variant, list[str], str]], settings: grid.Settings, papers: bool) -> list[Group]:
    """Every group of the paper's sets or of the others by rising N, then a whole run with each."""
    some = [entry for entry in plan if (entry[0].name in CLAIMS) == papers]
    found = [
        (each, size, able, default)
        for size in settings.sizes
        for each, able, default in some
        if size <= grid.largest(each)
    ]
    if overall.available():
        first = {each.name: (each, 0, able, default) for each, able, default in reversed(some)}
        found += reversed(first.values())
    return found


def write(document: dict[str, Any], folder: Path) -> None:
    """All files that a result folder holds besides results.json."""
    texts = {
        "table.md": report.markdown(document),
        "table.csv": report.csv_of(summary.rows(document)),
        "methods.csv": report.csv_of(summary.exponents(document)),
        "memory.csv": report.csv_of(summary.memory(document)),
        "cells.csv": report.csv_of(document["cells"]),
        "overall.csv": report.csv_of(document["overall"]),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    if figures.available():
        plots.draw(document, folder)


FORMULATIONS = (("exp", "exponential cones"), ("soc", "SOCP"), ("", "LP"))


def _about(variant: Variant, default: str) -> dict[str, Any]:
    kinds = conic.program(variant.make(6, np.random.default_rng(0)), 6).kinds
    return {
        "set": variant.name,
        "variant": variant.label,
        "default": default,
        "cost": variant.cost,
        "formulation": next(name for kind, name in FORMULATIONS if not kind or kind in kinds),
        "parameters": parameter_count(variant),
        "largest": grid.largest(variant),
    }


def _settings(options: argparse.Namespace) -> grid.Settings:
    settings = replace(grid.QUICK if options.quick else grid.FULL, seed=options.seed)
    if options.largest:
        settings = replace(settings, sizes=tuple(n for n in settings.sizes if n <= options.largest))
    return settings


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    return Progress(*columns, TimeElapsedColumn(), console=console, transient=True)


def _parser() -> Parser:
    parser = Parser(prog="python -m bench complexity", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a minute or two instead of a quarter of an hour"
    )
    parser.add_argument("--all", action="store_true", help="print every column and every table")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where results go; bench/out/… by default")
    parser.add_argument(
        "--fresh", action="store_true", help="discard an earlier, unfinished run in that folder"
    )
    parser.add_argument(
        "--sets", nargs="+", metavar="NAME", help='only these sets; "module:Class" for one of your own'
    )
    plugins.add_option(parser, "sets and backends")
    parser.add_argument("--largest", type=int, metavar="N", help="no N above this")
    parser.add_argument(
        "--seconds",
        type=float,
        help="processor seconds after which sets that the paper has not are left for another run",
    )
    parser.add_argument("--seed", type=int, default=0)
    return parser
