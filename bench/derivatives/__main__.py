"""Derivatives of the worst case: digits against 50-digit arithmetic, time, and cvxpylayers beside them.

    python -m bench derivatives              everything that the installed packages allow
    python -m bench derivatives --only digits

Digits need mpmath, the rows of torch PyTorch, the last table cvxpylayers. Times are medians of interleaved
calls on one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from bench.measuring.timing import one_thread
from uncertainty_sets import (
    KL,
    Box,
    Burg,
    ChiSquare,
    CVaR,
    Ellipsoid,
    Hellinger,
    Intersection,
    TotalVariation,
)
from uncertainty_sets.oracle import Oracle

PARTS = ("digits", "oracle", "torch", "cvxpylayers")
NEEDS = {"digits": "mpmath", "torch": "torch", "cvxpylayers": "cvxpylayers"}
SIZES = (10, 1_000, 10_000, 100_000)


def medians(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Microseconds of each call, interleaved."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for each in calls.values():
        each()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    return {name: 1e6 * float(np.median(each)) for name, each in seconds.items()}


def digits() -> None:
    """The error of jvp by family, the largest of 20 draws, and that of the transpose."""
    from bench.derivatives.digits import LEAST, error, problems

    print("| family | largest relative error of dp | of the transpose |\n|---|---|---|")
    for name in problems(6):
        worst, transposed = 0.0, 0.0
        for seed in range(20):
            rng = np.random.default_rng([1, seed])
            problem = problems(6, seed)[name]
            f, df, u = rng.normal(size=(3, 6))
            worst = max(worst, error(problem, f, df))
            answer = problem.made.worst_case(f)
            pulled, moved = answer.vjp(u, wrt=())["losses"] @ df, u @ answer.jvp(df).p
            size = float(np.abs(answer.jvp(df).p) @ np.abs(u))
            transposed = max(transposed, abs(float(pulled - moved)) / max(size, LEAST))
        print(f"| {name} | {worst:.1e} | {transposed:.1e} |")


def oracles(n: int) -> dict[str, Oracle]:
    """The sets whose calls are timed."""
    q = np.random.default_rng(n).dirichlet(np.full(n, 3.0))
    return {
        "KL": KL(q, 0.1),
        "χ²": ChiSquare(q, 0.2),
        "Hellinger": Hellinger(q, 0.05),
        "Burg": Burg(q, 0.2),
        "ellipsoid": Ellipsoid(q, q, 0.2),
        "KL and a box": Intersection(KL(q, 0.1), Box(0.5 * q, 2.0 * q)),
        "CVaR": CVaR(q, 0.25),
        "total variation": TotalVariation(q, 0.1),
    }


def oracle(rounds: int) -> None:
    """Jvp and vjp by the losses, and vjp by all parameters, as parts of an oracle call."""
    print("| set | N | call, µs | jvp | vjp | vjp, all parameters |\n|---|---|---|---|---|---|")
    for n in SIZES:
        f, u = np.random.default_rng(1).normal(size=(2, n))
        for name, made in oracles(n).items():
            answer = made.worst_case(f)
            found = medians(
                {
                    "call": partial(made.worst_case, f),
                    "jvp": partial(answer.jvp, u),
                    "vjp": partial(answer.vjp, u, value=1.0, wrt=()),
                    "all": partial(answer.vjp, u, value=1.0),
                },
                rounds,
            )
            parts = " | ".join(f"{found[key] / found['call']:.2f}" for key in ("jvp", "vjp", "all"))
            print(f"| {name} | {n:,} | {found['call']:.0f} | {parts} |")


def in_torch(rounds: int) -> None:
    """robust_loss over KL forward and backward beside logsumexp, and a Hessian-vector product."""
    import torch

    from uncertainty_sets.torch import robust_loss

    torch.set_num_threads(1)
    print("| N | robust_loss, forward and backward, µs | logsumexp, µs | ratio | Hessian times vector, µs |")
    print("|---|---|---|---|---|")
    for n in SIZES:
        rng = np.random.default_rng(n)
        ball = KL(np.full(n, 1.0 / n), 0.1)
        x, v = torch.tensor(rng.normal(size=n), requires_grad=True), torch.tensor(rng.normal(size=n))

        def ours(x: Any = x, ball: Any = ball) -> None:
            x.grad = None
            robust_loss(x, ball).backward()

        def plain(x: Any = x) -> None:
            x.grad = None
            torch.logsumexp(x, 0).backward()

        def hessian(x: Any = x, ball: Any = ball, v: Any = v) -> None:
            (gradient,) = torch.autograd.grad(robust_loss(x, ball), x, create_graph=True)
            torch.autograd.grad(gradient @ v, x)

        found = medians({"ours": ours, "plain": plain, "hessian": hessian}, rounds)
        ratio = found["ours"] / found["plain"]
        print(
            f"| {n:,} | {found['ours']:.0f} | {found['plain']:.0f} | {ratio:.2f} | {found['hessian']:.0f} |"
        )


def layers(rounds: int) -> None:
    """The gradient of uᵀp by the losses at N = 50, ours and cvxpylayers', with their errors."""
    import cvxpy as cp
    import torch
    from cvxpylayers.torch import CvxpyLayer

    n = 50
    rng = np.random.default_rng(0)
    q = rng.dirichlet(np.full(n, 3.0))
    f, u = rng.normal(size=(2, n))
    print("| set | largest entry of the gradient | error: ours | cvxpylayers | ms: ours | cvxpylayers |")
    print("|---|---|---|---|---|---|")
    for name, made in oracles_of_layers(q).items():
        p, losses = cp.Variable(n), cp.Parameter(n)
        limits = [p >= 0, cp.sum(p) == 1, *made.constraints(p)]  # type: ignore[attr-defined]
        layer = CvxpyLayer(cp.Problem(cp.Maximize(losses @ p), limits), parameters=[losses], variables=[p])

        def theirs(layer: Any = layer) -> Any:
            x = torch.tensor(f, requires_grad=True)
            (found,) = layer(x)
            found.backward(torch.tensor(u))
            return x.grad.numpy()

        def ours(made: Any = made) -> Any:
            return made.worst_case(f).vjp(u, wrt=())["losses"]

        step = 1e-5
        exact = np.array(
            [
                u @ (made.worst_case(f + step * e).p - made.worst_case(f - step * e).p) / (2.0 * step)
                for e in np.eye(n)
            ]
        )
        size = np.abs(exact).max()
        errors = [np.abs(each() - exact).max() for each in (ours, theirs)]
        found = medians({"ours": ours, "theirs": theirs}, max(3, rounds // 20))
        print(
            f"| {name} | {size:.1e} | {errors[0]:.1e} | {errors[1]:.1e} | {found['ours'] / 1e3:.2f} "
            f"| {found['theirs'] / 1e3:.1f} |"
        )


def oracles_of_layers(q: Any) -> dict[str, Oracle]:
    """The sets that cvxpylayers differentiates too."""
    return {
        "KL": KL(q, 0.1),
        "χ²": ChiSquare(q, 0.2),
        "KL and a box": Intersection(KL(q, 0.1), Box(0.5 * q, 2.0 * q)),
    }


def main(arguments: list[str]) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench derivatives", description=__doc__)
    parser.add_argument("--only", choices=PARTS, help="one of the tables")
    parser.add_argument("--rounds", type=int, default=200, help="calls of each kind (200)")
    given = parser.parse_args(arguments)
    with one_thread():
        for part in PARTS if given.only is None else (given.only,):
            if part in NEEDS and find_spec(NEEDS[part]) is None:
                print(f"{part}: needs {NEEDS[part]}, which is not installed\n")
                continue
            if part == "digits":
                digits()
            elif part == "oracle":
                oracle(given.rounds)
            elif part == "torch":
                in_torch(given.rounds)
            else:
                layers(given.rounds)
            print()
    return 0
