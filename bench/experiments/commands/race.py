"""A race on the virtual clock: all rivals and AspireModels, with and without stragglers.

All methods have the same virtual time. A message takes a log-normal delay (median 1 s, sigma 0.5) and 0.2 s
per gradient that it asks for, so local steps are not free. A fifth of the workers is ten times slower in the
second situation. Every method is searched in each situation by itself, with the same number of trials and
seeds, judged on held-out training data within the same virtual time, and repeated on other seeds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bench.display.tables import Table
from bench.experiments.commands import options
from bench.experiments.commands.efficiency import SHARE, SLOWER, one_problem
from bench.experiments.commands.options import Session
from bench.experiments.presentation import figures, races, reporting, tables
from bench.experiments.runs import compare, methods
from bench.experiments.runs.methods import Choice
from bench.experiments.runs.task import Task

COMMAND = "race"
DATA = ["fashion-mnist", "sc-ma", "person-activity", "heart-disease", "mnist-writers"]
VARIANTS = ("AspireModels", "AspireModels_per", "AspireModels(-)", "AspireModels-ADP")
WAITING = set(VARIANTS) - {"AspireModels(-)"}  # those for which τ matters
REFERENCE = "AspireModels"
WITHOUT = {"max{Ind}", "Mix_Even"}  # references without a federation's question: whom to wait for
WITHOUT_STRAGGLERS, WITH_STRAGGLERS = SITUATIONS = ("without stragglers", "with stragglers")
SECONDS = {"fashion-mnist": 1500.0, "mnist-writers": 120.0}
USUAL = 1000.0
POINTS = 40  # even ones; there are some twenty more at the start
DELAY, COMPUTE = (1.0, 0.5), 0.2
PATIENCE = (3, 10, 50)  # epochs: the driver's own τ with mini-batches and with full ones, and no waiting
QUICK = {"seconds": 30.0, "points": 15}


def main(arguments: list[str]) -> int:
    """Run the races, print the tables, write the files."""
    made = options.comparing(options.common(COMMAND, __doc__, DATA))
    made.add_argument("--models", nargs="+", metavar="NAME", help="several models, each on all data sets")
    made.add_argument("--seconds", type=float, help="virtual seconds per run (1,000; other data: SECONDS)")
    made.add_argument("--compute", type=float, default=COMPUTE, help=f"seconds per gradient ({COMPUTE:g})")
    session = Session(made, arguments, COMMAND)
    given = session.given
    found: dict[str, dict[str, races.Runs]] = {}
    judged: dict[str, str] = {}
    with session.pool() as pool:
        for data in given.data:
            for model in given.models or [given.model or "softmax"]:
                name = f"{data}, {model}"
                for situation, base in tasks(given, data, model).items():
                    workers = compare.workers_of(base)
                    names = given.methods or rows(given)
                    known = rivals(base, workers)
                    runs = compare.tuned_runs(pool, session.records, given, base, names, workers, known)
                    found.setdefault(name, {})[situation] = runs
                    judged[name] = base.judge
    shown: list[Table] = [races.tally(found, judged, REFERENCE)]
    for name, both in found.items():
        level = races.target(both[WITHOUT_STRAGGLERS], judged[name])
        shown += [
            races.table(f"{name}: {situation}", runs, level, judged[name], REFERENCE)
            for situation, runs in both.items()
        ]
        if figures.available():
            races.draw(given.out, f"race-{name.replace(', ', '-')}", both, judged[name], level)
    if figures.available():
        races.draw_overview(given.out, "race", found, judged)
    shown.append(
        tables.settings_found(
            {f"{name}, {each}": runs for name, both in found.items() for each, runs in both.items()}
        )
    )
    session.publish(shown, remarks(session))
    return 0


def rows(given: Any) -> list[str]:
    """Return the methods that race: all baselines but plain references, AspireModels with E = 1 and more."""
    return methods.names(*VARIANTS, without=WITHOUT, preconditioned=given.preconditioned)


def rivals(base: Task, workers: int) -> dict[str, methods.Method]:
    """Return the methods, all on the same problem; ASPIRE's variants search whom they wait for, too.

    τ decides whether the master waits for stragglers. By default it does after three epochs of mini-batches,
    ten of full ones, fifty with more than a hundred workers; a straggler's reply comes after about ten.
    Nobody rests: on a clock a gradient that hardly counts costs nothing.
    """
    first = 0 if base.batch is not None else 1
    patience = Choice(tuple(epochs * workers for epochs in PATIENCE[first:]))
    usual = patience.values[-1 if workers > methods.MANY else 0]
    fixed = {"rest": 0.0} if base.batch is not None else {}
    return {
        name: replace(
            method,
            search={**method.search, **{key: Choice((value,)) for key, value in fixed.items()}}
            | ({"max_staleness": patience} if name in WAITING else {}),
            default={**method.default, **fixed} | ({"max_staleness": usual} if name in WAITING else {}),
        )
        if name in VARIANTS
        else method
        for name, method in one_problem(base, workers).items()
    }


def tasks(given: Any, data: str, model: str) -> dict[str, Task]:
    """Return the task that all tasks of a race are made from, by situation."""
    usual = QUICK["seconds"] if given.quick else SECONDS.get(data, USUAL)
    batch = (
        given.batch if given.batch is not None else options.QUICK["batch"] if given.quick else options.BATCH
    )
    base = options.on_the_clock(
        COMMAND,
        data,
        given.seed,
        given.seconds or usual,
        batch=int(batch) or None,
        model=model,
        points=int(QUICK["points"]) if given.quick else POINTS,
        budget=methods.WHOLE_SIMPLEX,
        delay=DELAY,
        compute=given.compute,
        early=True,
    )
    N = compare.workers_of(base)
    slow = tuple((N - 1 - k, SLOWER, 0.0, None) for k in range(max(1, N // SHARE)))
    return {WITHOUT_STRAGGLERS: base, WITH_STRAGGLERS: replace(base, stragglers=slow)}


def remarks(session: Session) -> str:
    """Return how the runs were made."""
    given, records = session.given, session.shown()
    each = "; ".join(
        f"{data}: {model}, {batch} samples per gradient, {seconds:,.0f} s"
        for data, model, batch, seconds in sorted(
            {(r["data"], r["model"], r["batch"] or "all", r["virtual_seconds"]) for r in records}, key=str
        )
    )
    return (
        f"A step takes a log-normal delay (median {DELAY[0]:g} s, sigma {DELAY[1]:g}) and {given.compute:g} "
        f"s per gradient; with stragglers, one worker in {SHARE}, at least one, is {SLOWER:g} times slower. "
        "The adversary of every method is the whole simplex. Accuracies are those of the last fifth of the "
        f"time. The target is {races.SHARE:.0%} of the median method's accuracy without stragglers; it is "
        "reached when the mean of three looks is. Gradients and bits (both directions) are means over the "
        f"runs that reached it. Every method, in each situation by itself: {reporting.search(given)}, "
        "judged by the worst worker's accuracy on held-out "
        f"training data averaged over the run's time{reporting.fifth(records)}; {reporting.beyond(given)}"
        f"then {given.repeats} repeats with the "
        f"best, mean ± deviation ({each}). p-values are two-sided, of the paired t-test and of Wilcoxon's "
        f"signed-rank test over seeds. {reporting.effort(records, session.began)}"
    )
