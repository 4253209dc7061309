"""Measure AspireModels against the exact robust optimum, by a dual bound; full batches, l2 = 1e-3."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.datasets import load, names
from bench.display.tables import Table, console
from bench.experiments.commands import options
from bench.experiments.presentation import reporting
from bench.experiments.runs import perform
from fdro_core import AspireEase, SoftmaxRegression, VirtualEngine, solve
from fdro_core.aspire.admm.adversary import default_penalty
from fdro_core.observers import Progress
from uncertainty_sets import CDNorm
from uncertainty_sets.arrays import Array

COMMAND = "optimum"


def lower_bound(problems: list[SoftmaxRegression], p: Array, w: Array, l2: float) -> float:
    """A bound on min over w of max over P of pᵀf(w), for any p in P: min over w of pᵀf(w) is below it.

    That minimum is approached with L-BFGS from w to some v, and pᵀf is l2-strongly convex, so it is at least
    g(v) - ‖∇g(v)‖²/(2·l2), whatever L-BFGS did. Costs a few hundred gradients.
    """
    from scipy.optimize import minimize

    def g(v: Array) -> tuple[float, Array]:
        parts = [problem.loss_and_gradient(v) for problem in problems]
        slopes = np.array([slope for _, slope in parts])
        return float(p @ [loss for loss, _ in parts]), p @ slopes

    # In the metric of the problems, where L-BFGS needs far fewer steps.
    scale = 1.0 / np.sqrt(np.mean([problem.metric() for problem in problems], axis=0))

    def scaled(u: Array) -> tuple[float, Array]:
        value, slope = g(u * scale)
        return value, slope * scale

    found = minimize(scaled, w / scale, jac=True, method="L-BFGS-B", options={"maxiter": 400, "ftol": 1e-12})
    value, slope = g(found.x * scale)
    return value - float(slope @ slope) / (2.0 * l2)


def measure(
    data: str, epochs: int, budget: float, l2: float, penalty: float, step: float, seed: int
) -> dict[str, Any]:
    """A run with full batches, and the proof of how good it is; penalty and step count in default ones."""
    clients = load(data).clients
    classes = 1 + max(int(client.y_train.max()) for client in clients)
    problems = [SoftmaxRegression(c.X_train, c.y_train, classes, l2=l2, intercept=True) for c in clients]
    q = np.full(len(problems), 1.0 / len(problems))
    chosen = CDNorm(q, 1.0 - q, budget)
    began = time.process_time()
    usual = default_penalty(q, perform.measure(problems, seed))
    config = AspireEase(
        iterations=epochs * len(problems),
        penalty=penalty * usual,
        step_scale=step,
        seed=seed,
    )
    result = solve(
        problems, chosen, algorithm=config, engine=VirtualEngine(seed=seed), observers=[Progress()]
    )
    cpu = time.process_time() - began
    p = result.weights / result.weights.sum()
    bound = lower_bound(problems, p, result.w, l2)
    accuracies = [
        problem.accuracy(result.w, c.X_test, c.y_test) for problem, c in zip(problems, clients, strict=True)
    ]
    return {
        "data": data,
        "budget": budget,
        "epochs": epochs,
        "objective": result.objective,
        "bound": bound,
        "gap": (result.objective - bound) / bound,
        "acc_w": min(accuracies),
        "std": float(np.std(accuracies)),
        "cpu": cpu,
    }


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog=f"python -m bench {COMMAND}", description=__doc__)
    parser.add_argument("--data", nargs="+", default=["fashion-mnist"], help=f"of {', '.join(names())}")
    parser.add_argument("--epochs", type=int, default=16_000, help="gradients per worker; 12 minutes")
    parser.add_argument("--budgets", nargs="+", type=float, default=[2.0], help="Γ; 2 is the whole simplex")
    parser.add_argument("--l2", type=float, default=1e-3)
    parser.add_argument("--penalty", type=float, default=0.1, help="κ₁, of the default rule's")
    parser.add_argument("--step", type=float, default=1.5, help="η_w, of the default rule's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="digits, 200 epochs")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where results go; bench/out/… by default")
    given = parser.parse_args(arguments)
    if given.quick:
        given.data, given.epochs = ["digits"], 200
    folder = given.out or options.ROOT / "out" / COMMAND
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for data in given.data:
        for budget in given.budgets:
            found = measure(data, given.epochs, budget, given.l2, given.penalty, given.step, given.seed)
            rows.append(
                [
                    data,
                    f"{budget:g}",
                    f"{found['objective']:.5f}",
                    f"{found['bound']:.5f}",
                    f"{100 * found['gap']:.2g} %",
                    f"{100 * found['acc_w']:.1f}",
                    f"{100 * found['std']:.1f}",
                    f"{found['cpu']:.0f}",
                ]
            )
    headings = [
        "data",
        "Γ",
        "robust objective",
        "lower bound",
        "gap at most",
        "Acc_w %",
        "Std",
        "processor s",
    ]
    title = (
        f"Full batches, l2 = {given.l2:g}, {given.epochs} gradients per worker, "
        f"κ₁ = {given.penalty:g} and η_w = {given.step:g} of the default, S = 1"
    )
    reporting.publish(
        console(), folder, [Table(title, headings, rows)], "", name="table.md", quick=given.quick
    )
    return 0
