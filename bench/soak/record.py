"""The results so far: counts, worst numbers, and one small example of each kind of failure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.soak.asking import Answers, ask
from bench.soak.cases import Case
from bench.soak.judge import Assessment, Finding, by_solver, judge
from bench.soak.parameters import MAKERS

if TYPE_CHECKING:
    from bench.soak.questions.question import Batch

SHOWN = 25
"""The most losses of an example that are printed; larger ones are named by their round."""


@dataclass
class Cell:
    """One set under one generator."""

    cases: int = 0
    wrong: int = 0
    by_solver: int = 0
    excused: int = 0
    gap: float = -np.inf
    least_gap: float = np.inf
    violation: float = 0.0


@dataclass
class Failure:
    """One kind of failure of one set under one generator, with the smallest example so far."""

    set: str
    generator: str
    kind: str
    count: int
    size: int
    amount: float
    allowed: float
    replay: str
    snippet: str
    error: str = ""


@dataclass
class Record:
    """All cells and failures."""

    seed: int
    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)
    failures: dict[tuple[str, str, str], Failure] = field(default_factory=dict)
    compared: int = 0

    @property
    def cases(self) -> int:
        """Loss vectors judged."""
        return sum(cell.cases for cell in self.cells.values())

    @property
    def wrong(self) -> int:
        """Loss vectors with at least one finding."""
        return sum(cell.wrong for cell in self.cells.values())

    def add(self, turn: int, case: Case, answers: Answers, assessment: Assessment) -> None:
        """Count a round."""
        cell = self.cells.setdefault((case.name, case.generator), Cell())
        cell.cases += case.rows
        cell.wrong += len({finding.row for finding in assessment.findings})
        cell.by_solver += int(by_solver(case, answers).sum())
        cell.excused += assessment.excused
        if assessment.gap.size:
            cell.gap = float(np.fmax(cell.gap, np.nanmax(assessment.gap, initial=-np.inf)))
            cell.least_gap = float(np.fmin(cell.least_gap, np.nanmin(assessment.gap, initial=np.inf)))
            cell.violation = float(np.fmax(cell.violation, np.nanmax(assessment.violation, initial=0.0)))
        for finding in assessment.findings:
            self._note(turn, case, answers, finding)

    def add_question(self, turn: int, name: str, generator: str, batch: Batch) -> None:
        """Count a round of one of the questions beside `worst_case`."""
        cell = self.cells.setdefault((name, generator), Cell())
        cell.cases += batch.cases
        cell.wrong += len(batch.wrong)
        self.compared += batch.compared
        cell.gap, cell.least_gap = max(cell.gap, batch.gap), min(cell.least_gap, batch.least_gap)
        cell.violation = max(cell.violation, batch.violation)
        command = f"python -m bench soak --seed {self.seed} --set '{name}' --replay {turn}"
        for each in batch.wrong:
            known = self.failures.get((name, generator, each.kind))
            if known is not None:
                known.count += 1
                if known.size <= each.size:
                    continue
            count = 1 if known is None else known.count
            self.failures[name, generator, each.kind] = Failure(
                name, generator, each.kind, count, each.size, each.amount, each.allowed, command, each.call,
                each.error,
            )  # fmt: skip

    def _note(self, turn: int, case: Case, answers: Answers, finding: Finding) -> None:
        key = (case.name, case.generator, finding.kind)
        known = self.failures.get(key)
        if known is not None:
            known.count += 1
            if known.size <= case.size:
                return
        command = f"python -m bench soak --seed {self.seed} --set '{case.name}' --replay {turn}"
        error = answers.errors.get(finding.row)
        self.failures[key] = Failure(
            case.name,
            case.generator,
            finding.kind,
            1 if known is None else known.count,
            case.size,
            finding.amount,
            finding.allowed,
            f"{command}  # row {finding.row}",
            snippet(case, finding),
            "" if error is None else str(error),
        )


def snippet(case: Case, finding: Finding) -> str:
    """A line of Python that shows the failure by a call for its row alone; empty if that does not fail."""
    if case.size > SHOWN or any("." in key for key in case.parameters):  # of a set made of sets
        return ""
    alone = case.only(np.array([finding.row]))
    alone.single, alone.warm = True, None
    if finding.kind not in {each.kind for each in judge(alone, ask(alone)).findings}:
        return ""
    name = getattr(MAKERS[case.name].build, "__name__", case.name)
    parameters = ", ".join(
        f"{key}={written(value)}"
        for key, value in case.row_parameters(finding.row).items()
        if value is not None
    )
    return f"{name}({parameters}).worst_case({written(case.losses[finding.row])})"


def written(value: Any) -> str:
    """Numbers as Python reads them back, to the last digit."""
    return repr(np.asarray(value, dtype=float).tolist()).replace("inf", "np.inf")
