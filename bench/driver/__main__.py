"""The driver's numbers: convergence, cost of an iteration, scale, traffic and planes.

`python -m bench driver [SECTION ...]`; without a section, all of them. Times are medians of interleaved
runs, meant as ratios.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.driver.claims import claims
from bench.driver.convergence import gradients, models, one_class, planes_lbfgs, stressed, subgradient, trace
from bench.driver.cost import (
    Interleaved,
    Timed,
    images,
    iteration_models,
    large_models,
    overhead,
    scale_models,
)
from bench.driver.endurance import checkpoints, trials
from bench.driver.networks import networks
from bench.driver.problems import (
    classification,
    reference,
    regression,
    robust_value,
    six_sets,
)
from bench.driver.settings import settings
from bench.measuring.targets import run_sections
from fdro_core import AspireEase, AspireModels, VirtualEngine, solve
from uncertainty_sets import KL, Box

CONSOLE = Console(width=140)


def row(*cells: str) -> None:
    """A line of a table, printed as soon as it is known."""
    widths = (26, 14, *([16] * (len(cells) - 2)))
    print("".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)), flush=True)


def epochs_and_gap(problems: Any, chosen: Any, best: float, S: int, **engine: Any) -> str:
    """ "epochs until within 1e-3 for good (final gap)" of a run with default settings."""
    run = trace(problems, chosen, best, AspireModels(active_workers=S), **engine)
    return f"{run.epochs:.0f} ({run.gap:.0e})"


def _converge(workers: int, seed: int) -> None:
    row("problem", "set", "S=1", "S=N/2", "S=N", "subgradient", "planes + L-BFGS", "reference")
    for name, make in (("softmax", classification), ("least squares", regression)):
        problems: Any = make(workers, seed=seed)
        for kind, chosen in six_sets(workers, seed=seed).items():
            try:
                best, how = reference(problems, chosen)
            except RuntimeError as error:
                row(f"{name}, N={workers}", kind, str(error))
                continue
            start = robust_value(problems, chosen, np.zeros(problems[0].dimension))
            target = best + 1e-3 * max(abs(best), start - best)
            cells = [epochs_and_gap(problems, chosen, best, S) for S in (1, workers // 2, workers)]
            others = [f"{solver(problems, chosen, target):.0f}" for solver in (subgradient, planes_lbfgs)]
            row(f"{name}, N={workers}", kind, *cells, *others, how)


def eight() -> None:
    """8 workers: epochs until 1e-3 of the optimum for good (final gap), beside centralised solvers."""
    _converge(8, seed=21)


def fifty() -> None:
    """50 workers: epochs until 1e-3 of the optimum for good (final gap), beside centralised solvers."""
    _converge(50, seed=3)


def stress() -> None:
    """Units, sample sizes of 10 to 300, log-normal delays, a 20× straggler; and condition 1e4."""
    row("problem", "set", "S=1", "S=4", "S=8", "reference")
    for name, problems, engine in stressed():
        for kind, chosen in six_sets(8, seed=22).items():
            try:
                best, how = reference(problems, chosen)
            except RuntimeError as error:
                row(name, kind, str(error))
                continue
            row(name, kind, *(epochs_and_gap(problems, chosen, best, S, **engine) for S in (1, 4, 8)), how)


def planes() -> None:
    """EASE against CP: the most planes at a time, at the same objective; S = 1."""
    row("problem", "set", "EASE planes", "CP planes", "EASE gap", "CP gap")
    for name, make in (("softmax", classification), ("least squares", regression)):
        problems: Any = make(8, seed=24)
        for kind, chosen in six_sets(8, seed=24).items():
            try:
                best, _ = reference(problems, chosen)
            except RuntimeError as error:
                row(f"{name}, N=8", kind, str(error))
                continue
            configs = [AspireModels(planes=mode, iterations=400 * 8) for mode in ("ease", "cp")]
            cells = [trace(problems, chosen, best, config) for config in configs]
            row(f"{name}, N=8", kind, *(str(c.planes) for c in cells), *(f"{c.gap:.0e}" for c in cells))


def iteration() -> None:
    """The cost of an iteration at N = 10 and N = 10,000, and the driver's share of it."""
    chunk, chunks, sizes = 500, 12, (10, 10_000)

    def make(workers: int) -> Callable[[Any], None]:
        def run(observer: Any) -> None:
            q = np.full(workers, 1 / workers)
            config = AspireModels(
                iterations=chunk * (chunks + 1), report_interval=chunk, plane_interval=10**9
            )
            solve(images(workers), Box(0.3 * q, 3 * q), algorithm=config, observers=[observer])

        return run

    turns = Interleaved([make(workers) for workers in sizes])
    table = Table(
        "N", "iteration µs", "gradient µs", "driver / gradient", title="S=1, p=7,850, 60 samples per worker"
    )
    medians = []
    for workers, rows in zip(sizes, turns.chunks, strict=True):
        total, gradient = np.array(rows[:-1]).T / chunk * 1e6  # the last turn overlaps the other's end
        medians.append(total)
        share = np.median((total - gradient) / gradient)
        table.add_row(f"{workers:,}", f"{np.median(total):.0f}", f"{np.median(gradient):.0f}", f"{share:.0%}")
    CONSOLE.print(table)
    n = min(map(len, medians))
    ratio = np.median(medians[1][:n] / medians[0][:n])
    CONSOLE.print(f"an iteration at N = 10,000 costs {ratio:.2f} times one at N = 10 (median of turns)\n")


def scale() -> None:
    """1,000 workers, p = 7,850, 50,000 iterations in one process."""
    workers, iterations = 1000, 50_000
    q = np.full(workers, 1 / workers)
    problems = images(workers)
    marks: list[tuple[float, float]] = []

    def look(run: Any, entry: dict[str, Any]) -> None:
        marks.append((time.perf_counter(), Timed.seconds))

    config = AspireModels(iterations=iterations)
    result = solve(problems, KL(q, 0.1), algorithm=config, observers=[look])
    (t0, g0), (t1, g1) = marks[0], marks[-1]
    grown = iterations / (result.history[-1]["iteration"] - result.history[0]["iteration"])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    CONSOLE.print(
        f"{workers:,} workers, {iterations:,} iterations: driver {((t1 - t0) - (g1 - g0)) * grown:.1f} s, "
        f"gradients {(g1 - g0) * grown:.1f} s, peak memory {memory:.2f} GB (data included)\n"
    )


def traffic() -> None:
    """Bits on the wire against Theorem 2's count: N = 1,000, p = 7,850, S = 1, k = 10, |A| = 10."""
    workers, iterations = 1000, 2000
    q = np.full(workers, 1 / workers)
    config = AspireEase(iterations=iterations, plane_interval=10, max_planes=10, report_interval=100)
    history = solve(images(workers), KL(q, 0.1), algorithm=config).history
    full = [entry for entry in history if entry["event"] == "report" and entry["planes"] == 10]
    first, last = full[0], full[-1]
    down, up, theorem, real = (
        last[key] - first[key] for key in ("bits_down", "bits_up", "bits_theorem_2", "bytes")
    )
    steps = last["iteration"] - first["iteration"]
    CONSOLE.print(
        f"an iteration with |A| = 10: {down / steps:,.0f} bits down, {up / steps:,.0f} up, "
        f"{real / steps:,.0f} bytes as sent; Theorem 2 counts {theorem / steps:,.0f} bits, "
        f"{theorem / (down + up):.1f} times as many\n"
    )


def network() -> None:
    """An MLP 64-32-10 on digits, one digit per worker, full batches: ‖∇G‖² against its start."""
    try:
        import torch
    except ModuleNotFoundError:
        print('not run: it needs PyTorch; pip install -e ".[dev,torch]"\n')
        return
    from fdro_core.problems.samples import load_digits
    from fdro_core.problems.torch import TorchProblem

    torch.set_num_threads(1)
    torch.manual_seed(0)
    X, y = load_digits()
    module = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)).double()
    problems = [TorchProblem(module, X[y == d], y[y == d]) for d in range(10)]
    table = Table(
        "S", "‖∇G‖² at the start", "after one epoch", "at the end", "start / end", "objective",
        title="MLP 64-32-10, 1,500 epochs",
    )  # fmt: skip
    chosen = KL(np.full(10, 0.1), 0.2)
    for S in (1, 5, 10):
        config = AspireModels(active_workers=S)
        start = stationarity_at_start(problems, chosen, config)
        first: list[float] = []

        def look(run: Any, entry: dict[str, Any], first: list[float] = first) -> None:
            if not first:
                first.append(run.stationarity())

        result = solve(problems, chosen, algorithm=config, observers=[look])
        end = result.stationarity
        numbers = [f"{value:.2e}" for value in (start, first[0], end)]
        table.add_row(str(S), *numbers, f"{start / end:,.0f}", f"{result.objective:.4f}")
    CONSOLE.print(table)


def stationarity_at_start(problems: Any, chosen: Any, config: AspireModels) -> float:
    """‖∇G‖² before the first step."""
    engine = VirtualEngine()
    engine.start([config.worker(j, problem) for j, problem in enumerate(problems)])
    master = config.master(chosen, len(problems), engine.ask, None)
    return master.assess(engine.ask(master.probes())).stationarity


SECTIONS = {
    part.__name__: part
    for part in (
        models, gradients, one_class, eight, fifty, stress, claims, trials, settings, checkpoints, planes,
        iteration, overhead, scale, iteration_models, scale_models, large_models, traffic, network, networks,
    )
}  # fmt: skip


def main(arguments: list[str]) -> int:
    """Run the sections named, or all."""
    return run_sections(SECTIONS, arguments, CONSOLE)
