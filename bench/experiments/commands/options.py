"""What all experiments share: their options and quick form, on digits in seconds; and one start of them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.datasets import names
from bench.display.tables import Table, console
from bench.experiments.presentation import reporting
from bench.experiments.runs import plugins, search
from bench.experiments.runs.perform import perform
from bench.experiments.runs.pool import Perform, Pool
from bench.experiments.runs.task import Records, Task
from bench.measuring import machine

ROOT = Path(__file__).resolve().parents[2]

GRADIENTS = {
    "fashion-mnist": 9000,
    "fashion-mnist-10": 20_000,
    "sc-ma": 12_000,
    "person-activity": 9000,
    "heart-disease": 6000,
    "mnist-writers": 26_950,  # 50 of each of the 539 writers
}
BATCH = 64
POINTS = 30
QUICK = {"gradients": 300, "points": 10, "trials": 2, "repeats": 2, "search_seeds": 1, "batch": 32}


def common(command: str, about: str | None, data: list[str]) -> argparse.ArgumentParser:
    """Return a parser with the options that all commands share."""
    made = argparse.ArgumentParser(
        prog=f"python -m bench {command}", description=(about or "").partition("\n")[0]
    )
    made.add_argument("--data", nargs="+", metavar="NAME", default=data, help=f"of {', '.join(names())}")
    made.add_argument("--repeats", type=int, help="runs per method, each with its own seed (10)")
    made.add_argument("--seed", type=int, default=0, help="the first run's seed, and the search's")
    made.add_argument("--jobs", type=int, default=machine.cores(), help="processes")
    made.add_argument(
        "--quick", action="store_true", help="a few short runs on digits, to check that everything works"
    )
    made.add_argument("--fresh", action="store_true", help="discard what is in the results file")
    plugins.add_option(made, "methods or data sets")
    made.add_argument("--out", type=Path, metavar="FOLDER", help="where results go; bench/out/… by default")
    return made


def comparing(made: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the options of commands that tune methods and compare them."""
    made.add_argument("--methods", nargs="+", metavar="NAME", help="only these")
    made.add_argument(
        "--preconditioned", action="store_true", help='with the further rows of each baseline ("AFL + P")'
    )
    made.add_argument(
        "--model",
        help="softmax, dense (three layers of 500), dense-WIDTH, or mlp, mlp-WIDTH: the same through PyTorch",
    )
    made.add_argument("--trials", type=int, help="settings tried per method (12)")
    made.add_argument("--search-seeds", type=int, help="runs per trial, judged by their mean (3)")
    made.add_argument(
        "--halving",
        action=argparse.BooleanOptionalAction,
        help="leave the worse half of the trials out after each seed (yes)",
    )
    made.add_argument("--batch", type=int, help="samples per gradient; 0: all")
    made.add_argument(
        "--widen",
        action=argparse.BooleanOptionalAction,
        help="search on beyond a range whose end is best (yes, except with --quick)",
    )
    made.add_argument(
        "--outer",
        type=float,
        default=search.OUTER,
        metavar="SHARE",
        help=f"of a range, on its logarithmic scale, that counts as its end ({search.OUTER:g})",
    )
    return made


def parser(command: str, about: str | None, data: list[str]) -> argparse.ArgumentParser:
    """Return a parser for commands whose runs end after a number of gradients."""
    made = comparing(common(command, about, data))
    made.add_argument("--gradients", type=int, help="local gradients per run, all workers together")
    return made


def read(made: argparse.ArgumentParser, arguments: list[str], command: str) -> argparse.Namespace:
    """Parse the arguments; fill in what --quick and the data sets imply."""
    options = made.parse_args(arguments)
    plugins.load(options.plugins)
    if options.quick:
        if "--data" not in arguments:
            options.data = ["digits"]
        if "--jobs" not in arguments:
            options.jobs = 1
    for name, usual in (("trials", 12), ("repeats", 10), ("search_seeds", 3), ("points", POINTS)):
        if getattr(options, name, None) is None:
            setattr(options, name, QUICK[name] if options.quick else usual)
    if getattr(options, "widen", None) is None:
        options.widen = not options.quick
    if getattr(options, "halving", None) is None:
        options.halving = True
    options.edges = []
    unknown = [name for name in options.data if name not in names()]
    if unknown:
        raise SystemExit(f"no data set is called {unknown[0]!r}; there are: {', '.join(names())}")
    if min(options.repeats, options.trials, options.search_seeds, options.jobs) < 1:
        raise SystemExit("--repeats, --trials, --search-seeds and --jobs must be at least 1")
    if not 0 < getattr(options, "outer", search.OUTER) < 0.5:
        raise SystemExit(f"--outer must be between 0 and 0.5, got {options.outer:g}")
    if options.out is None:
        options.out = ROOT / "out" / (f"{command}-quick" if options.quick else command)
    return options


def base(options: argparse.Namespace, command: str, data: str, **more: Any) -> Task:
    """Return the task that a command's tasks on a data set are made from; gradients end its runs."""
    usual = QUICK["gradients"] if options.quick else GRADIENTS.get(data, 9000)
    batch = options.batch
    if batch is None:
        batch = QUICK["batch"] if options.quick else BATCH
    return Task(
        experiment=command,
        data=data,
        method="",
        settings={},
        stage="run",
        seed=0,
        gradients=options.gradients or usual,
        batch=batch or None,
        model=options.model or "softmax",
        points=options.points,
        options=LIGHTER.get(data, {}),
        judge=judge(data),
        **more,
    )


FEW_SAMPLES = {"mnist-writers"}
"""Data whose workers have some twenty samples to be judged by: the worst one's accuracy is mostly chance."""


def judge(data: str) -> str:
    """Return what searches and stopping rules go by: the worst worker, or the worst fifth of the workers."""
    return "acc_20" if data in FEW_SAMPLES else "acc_w"


LIGHTER: dict[str, dict[str, Any]] = {"mnist-writers": {"pool": 2}}
"""Loader options for all runs: images averaged over 2 × 2 pixels cost a quarter."""

SMALLER: dict[str, dict[str, Any]] = LIGHTER | {"fashion-mnist": {"pool": 2}, "mnist-1000": {"pool": 2}}
"""Loader options for runs on the clock."""


def on_the_clock(command: str, data: str, seed: int, seconds: float, **more: Any) -> Task:
    """Return the task that a command's tasks on a data set are made from; the virtual clock ends its runs.

    Batches are full unless `more` says otherwise.
    """
    usual = {
        "method": "",
        "settings": {},
        "batch": None,
        "options": SMALLER.get(data, {}),
        "judge": judge(data),
    }
    return Task(
        experiment=command,
        data=data,
        stage="run",
        seed=seed,
        gradients=0,
        virtual_seconds=seconds,
        **usual | more,
    )


class Session:
    """The state of a command from its arguments to its tables.

    Attributes:
        given: the options.
        records: the runs already in the results file, and those added.
    """

    def __init__(self, parser: argparse.ArgumentParser, arguments: list[str], command: str) -> None:
        self.given = read(parser, arguments, command)
        self.began = time.monotonic()
        self.console = console()
        self.records = Records(self.given.out / "runs.jsonl", fresh=self.given.fresh)

    def pool(self, perform: Perform = perform) -> Pool:
        """Return the processes that execute the command's tasks; use it in a `with` statement."""
        return Pool(self.given.jobs, self.console, perform, self.given.plugins)

    def shown(self) -> list[dict[str, Any]]:
        """Return the records on the data sets that this start is about."""
        return self.records.of(self.given.data)

    def publish(self, tables: Sequence[Table], remarks: str) -> None:
        """Print the tables and write them beside the records, with settings that stayed at an end."""
        remarks += reporting.open_ends(self.given.edges)
        reporting.publish(self.console, self.given.out, tables, remarks, quick=self.given.quick)
