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
from bench.complexity.variants import Variant, found, parameter_count
from bench.display import style
from bench.experiments.runs import plugins
from bench.measuring import memory
from bench.measuring.store import Store
from uncertainty_sets.conic import oracle as conic

OUT = Path(__file__).parents[1] / "out"
MINUTES = {True: 0.65, False: 13.0}
"""After this the other groups are left for another run. Start-up, the last group and plots come on top."""


def main(arguments: list[str]) -> int:
    """Measure what is not measured yet, then write and print tables and plots. Ctrl-C keeps what is done."""
    options = _parse(arguments)
    plugins.load(options.plugins)
    settings = _settings(options)
    folder = options.out or OUT / ("complexity-quick" if options.quick else "complexity")
    minutes = MINUTES[options.quick] if options.minutes is None else options.minutes
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
    if not style.available():
        console.print(
            "No plots: they need matplotlib (pip install matplotlib). Tables are written without it."
        )
    code = 0
    with _bar(console) as bar:
        try:
            measure(store, settings, options.sets, bar, 60 * minutes, options.quick)
        except KeyboardInterrupt:
            store.document["notes"]["unfinished"] = "interrupted"
            code = 130
    store.save()
    write(store.document, folder)
    for table in report.rich_tables(store.document, console.width):
        console.print(table)
    for line in [report.EXPLANATION, *report.remarks(store.document)]:
        console.print(line, soft_wrap=True)
    console.print("Tables, numbers and plots are in", folder.name, "beside results.json.", soft_wrap=True)
    return code


def measure(
    store: Store, settings: grid.Settings, only: list[str] | None, bar: Progress, seconds: float, quick: bool
) -> None:
    """Every group that the store does not have yet, for so many seconds."""
    task = bar.add_task(
        "looking for sets and solvers, compiling kernels (minutes, once per machine)", total=None
    )
    variants, without = found()
    variants += peers.special_variants()
    if only:
        variants = [each for each in variants if each.name in only]
    plan = [(each, *grid.methods(each)) for each in variants]
    notes: dict[str, Any] = store.document["notes"]
    notes |= {"without": without, "missing": peers.missing(), "unfinished": ""}
    notes["variants"] = [_about(each, default) for each, _, default in plan]
    groups = [
        (each, size, able)
        for size in settings.sizes
        for each, able, _ in plan
        if size <= grid.largest(each, settings)
    ]
    runs = overall.sets(only) if overall.available() else []
    bar.update(task, total=len(groups) + len(runs))
    rivals = peers.present()
    memory.settle()
    left = 0
    deadline = time.monotonic() + seconds
    for variant, size, able in groups:
        key = ["cells", variant.name, variant.label, size]
        bar.update(task, description=f"{variant.title}, N = {size:,}")
        if not store.done(key):
            if time.monotonic() > deadline:
                left += 1
                continue
            cells = store.document["cells"]
            store.add(key, "cells", grid.measure(variant, size, able, rivals, cells, settings))
        bar.advance(task)
    if runs:
        notes["overall"] = overall.about(quick)
    for name in runs:
        bar.update(task, description=f"a whole run with {name}")
        if not store.done(["overall", name]):
            if time.monotonic() > deadline:
                left += 1
                continue
            store.add(["overall", name], "overall", [overall.measure(name, quick, settings.seed)])
        bar.advance(task)
    bar.update(task, description="done")
    notes["unfinished"] = f"{left} groups were out of time" if left else ""


def write(document: dict[str, Any], folder: Path) -> None:
    """All files that a result folder holds besides results.json."""
    texts = {
        "table.md": report.markdown(document),
        "table.csv": report.csv_of(summary.rows(document)),
        "methods.csv": report.csv_of(summary.exponents(document)),
        "cells.csv": report.csv_of(document["cells"]),
        "overall.csv": report.csv_of(document["overall"]),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    if style.available():
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
    }


def _settings(options: argparse.Namespace) -> grid.Settings:
    settings = replace(grid.QUICK if options.quick else grid.FULL, seed=options.seed)
    if options.largest:
        settings = replace(settings, sizes=tuple(n for n in settings.sizes if n <= options.largest))
    return settings


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    return Progress(*columns, TimeElapsedColumn(), console=console, transient=True)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench complexity", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="within a minute instead of fifteen")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where results go; bench/out/… by default")
    parser.add_argument(
        "--fresh", action="store_true", help="discard an earlier, unfinished run in that folder"
    )
    parser.add_argument("--sets", nargs="+", metavar="NAME", help="only these sets")
    parser.add_argument(
        "--with",
        dest="plugins",
        nargs="+",
        type=Path,
        default=[],
        metavar="MODULE",
        help="modules or Python files with sets and backends of your own",
    )
    parser.add_argument("--largest", type=int, metavar="N", help="no N above this")
    parser.add_argument("--minutes", type=float, help="stop measuring after this; a second run continues")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)
