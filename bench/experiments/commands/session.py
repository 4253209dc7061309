"""One start of a command: its options, its records, and how its tables are published."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from bench.display.tables import Table, console
from bench.experiments.commands import options
from bench.experiments.presentation import reporting
from bench.experiments.runs.perform import perform
from bench.experiments.runs.pool import Perform, Pool
from bench.experiments.runs.records import Records


class Session:
    """The state of a command from its arguments to its tables.

    Attributes:
        given: the options.
        records: the runs already in the results file, and those added.
    """

    def __init__(self, parser: argparse.ArgumentParser, arguments: list[str], command: str) -> None:
        self.given = options.read(parser, arguments, command)
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
        reporting.publish(self.console, self.given.out, tables, remarks)
