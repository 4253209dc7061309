"""A round: draw a batch, call the oracle, judge the answers, sometimes compare with another solver, count."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np

from bench.soak import references
from bench.soak.asking import Answers, ask
from bench.soak.cases import GENERATORS, Case, draw
from bench.soak.judge import Assessment, Finding, judge
from bench.soak.parameters import MAKERS
from bench.soak.questions import QUESTIONS
from bench.soak.record import Record

CONIC_EVERY = 8
"""Sets that a conic solver answers take one turn in this many: a case there takes a thousand times longer."""

COMPARED_EVERY = 2000
"""About one case in this many is compared with another solver."""


def batch(name: str, seed: int, turn: int) -> Case:
    """The batch of a set's turn: always the same, whichever other sets take part."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode()), turn])
    return draw(name, GENERATORS[turn % len(GENERATORS)], rng)


def schedule(names: list[str]) -> Iterator[tuple[str, int]]:
    """(set, turn) without end; conic sets skip most turns, unless there are no others."""
    conic = {name for name in names if name in MAKERS and MAKERS[name].conic}
    every = 1 if conic == set(names) else CONIC_EVERY
    round_number = 0
    while True:
        for name in names:
            if name not in conic:
                yield name, round_number
            elif round_number % every == 0:
                yield name, round_number // every
        round_number += 1


def run(record: Record, name: str, turn: int) -> None:
    """One batch from drawing to counting."""
    if name in QUESTIONS:
        question, rng = QUESTIONS[name], np.random.default_rng([record.seed, zlib.crc32(name.encode()), turn])
        generator = question.generators[turn % len(question.generators)]
        record.add_question(turn, name, generator, question.batch(rng, generator))
        return
    case = batch(name, record.seed, turn)
    answers = ask(case)
    assessment = judge(case, answers)
    _compare(record, case, answers, assessment, turn)
    record.add(turn, case, answers, assessment)


def _compare(record: Record, case: Case, answers: Answers, assessment: Assessment, turn: int) -> None:
    """For about one row in COMPARED_EVERY, compare a row that another solver can do."""
    rng = np.random.default_rng([record.seed, turn, zlib.crc32(case.name.encode()), 1])
    if rng.random() * COMPARED_EVERY > case.rows or not len(answers.rows):
        return
    condemned = {finding.row for finding in assessment.findings}
    for at in rng.permutation(len(answers.rows))[:20]:
        row = int(answers.rows[at])
        found = None if row in condemned else references.difference(case, row, answers.p[at])
        if found is not None:
            record.compared += 1
            if not found[0] <= found[1]:
                assessment.findings.append(Finding(row, "another solver's value differs", *found))
            return


def warm_up(names: list[str]) -> None:
    """Compile the kernels, which takes a minute after an update and does not count as soaking."""
    for name in names:
        if name in QUESTIONS:
            run(Record(0), name, 0)
        elif not MAKERS[name].conic or name == "ellipsoid dense":
            ask(batch(name, 0, 0).only(np.array([0])))
