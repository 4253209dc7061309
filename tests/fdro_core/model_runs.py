"""Losses of known curvature, and the master's models without an engine, for the tests of their theory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.driver.problems import six_sets
from fdro_core import SoftmaxRegression
from fdro_core.aspire.models.full import FullModels
from fdro_core.aspire.planes import Planes

Array = np.ndarray[Any, np.dtype[np.float64]]
N, P = 4, 3
ROUNDING = 1e-11


@dataclass
class Known:
    """A loss whose largest curvature L, and strong convexity mu, in a metric are known."""

    value: Callable[[Array], tuple[float, Array]]
    largest: Callable[[Array], float]
    mu: float = 0.0
    convex: bool = True


def in_metric(H: Array, metric: Array) -> Array:
    """The eigenvalues of H in the metric."""
    return np.linalg.eigvalsh(H / np.sqrt(np.outer(metric, metric)))


def quadratic(rng: np.random.Generator, mu: float = 0.3) -> Known:
    """½(w-a)ᵀH(w-a) + b, H >= mu."""
    A, a, b = rng.normal(size=(P, P)), 2.0 * rng.normal(size=P), float(rng.normal())
    H = A @ A.T + mu * np.eye(P)

    def value(w: Array) -> tuple[float, Array]:
        return 0.5 * float((w - a) @ H @ (w - a)) + b, H @ (w - a)

    return Known(value, lambda metric: float(in_metric(H, metric)[-1]), mu)


def wave(rng: np.random.Generator) -> Known:
    """mean_i 2sin(x_iᵀw + b_i) + 0.05‖w‖²: bounded below, not convex."""
    X, b = rng.normal(size=(6, P)), rng.uniform(0.0, 6.0, size=6)

    def value(w: Array) -> tuple[float, Array]:
        angle = X @ w + b
        loss = 2.0 * float(np.sin(angle).mean()) + 0.05 * float(w @ w)
        return loss, 2.0 * X.T @ np.cos(angle) / 6 + 0.1 * w

    def largest(metric: Array) -> float:
        return float(in_metric(2.0 * X.T @ X / 6 + 0.1 * np.eye(P), metric)[-1])

    return Known(value, largest, convex=False)


def softmax(rng: np.random.Generator, mu: float = 1e-2) -> Known:
    """Softmax regression with a ridge: its Hessian is at most ½(XᵀX/n) ⊗ I + mu."""
    X = rng.normal(size=(12, 2)) + rng.normal(size=2)
    y = np.argmax(X @ rng.normal(size=(2, 3)), axis=1)
    problem = SoftmaxRegression(X, y, 3, l2=mu, intercept=False)
    bound = np.kron(0.5 * X.T @ X / 12, np.eye(3)) + mu * np.eye(6)
    return Known(problem.loss_and_gradient, lambda metric: float(in_metric(bound, metric)[-1]), mu)


KINDS = {"quadratic": quadratic, "softmax": softmax, "wave": wave}
SETS = ("box", "kl", "wasserstein-1")


class Run:
    """The master's models with c_j = factor·L_j, everything else as in the driver; no engine."""

    def __init__(self, kind: str, set_: str = "kl", seed: int = 0, factor: float = 1.0) -> None:
        rng = np.random.default_rng([seed, len(kind)])
        self.losses = [KINDS[kind](rng) for _ in range(N)]
        self.set: Any = six_sets(N, seed=seed)[set_]
        size = 6 if kind == "softmax" else P
        self.metric = rng.uniform(0.5, 2.0, size=size)
        self.c = factor * np.array([loss.largest(self.metric) for loss in self.losses])
        z = 3.0 * rng.normal(size=size)
        planes = Planes(np.asarray(self.set.reference()), keep_all=False, limit=20)
        f, g = self.at(z)
        self.models = FullModels(planes, z, self.metric, f, g, self.c)

    def at(self, z: Array) -> tuple[Array, Array]:
        """f(z) and the gradients, (N, p)."""
        pairs = [loss.value(z) for loss in self.losses]
        return np.array([f for f, _ in pairs]), np.array([np.array(g) for _, g in pairs])

    def objective(self, z: Array) -> float:
        """F(z)."""
        return float(self.set.worst_case(self.at(z)[0]).value)

    def answer(self, j: int, x: Array) -> None:
        """Learn worker j's reply at x, with the c_j of this run."""
        loss, gradient = self.losses[j].value(x)
        self.models.learn(j, x, loss, np.array(gradient))
        self.models.curvature[j] = self.c[j]

    def step(self, calls: int = 1000) -> float:
        """λ and z, with so many calls of the oracle at most; ε, what P's models are above sᵀm at z."""
        models = self.models
        models.recentre()
        for _ in range(calls):
            models.step(1.0)
            if not self.ask():
                break
        return self.excess()

    def ask(self) -> bool:
        """One plane update, as the master makes it; whether the oracle had a new plane."""
        models, planes = self.models, self.models.planes
        values, added = models.values(), planes.added
        planes.update(np.asarray(self.set.worst_case(values).p), values)
        models.recentre()
        return planes.added > added

    def excess(self) -> float:
        """ε = max over P of pᵀm(z) - sᵀm(z)."""
        values = self.models.values()
        return float(self.set.worst_case(values).value) - float(self.weights @ values)

    @property
    def weights(self) -> Array:
        """s."""
        return self.models.planes.weights()

    def moved(self, before: Array) -> float:
        """½C‖z - before‖²_D, C = Σ_j s_jc_j."""
        away = self.models.z - before
        return 0.5 * float(self.weights @ self.c) * float(self.metric @ away**2)


def synchronous(run: Run, rounds: int, calls: int = 1000) -> list[tuple[float, float, float, float]]:
    """F(z), F(z⁺), ½C‖z⁺ - z‖²_D and ε of every round in which all workers answer."""
    seen = []
    for _ in range(rounds):
        z = run.models.z
        for j in range(N):
            run.answer(j, z)
        excess = run.step(calls)
        seen.append((run.objective(z), run.objective(run.models.z), run.moved(z), excess))
    return seen


def delta(run: Run) -> tuple[float, float]:
    """The two terms of δ: max_p pᵀm - sᵀm, and Σ_j s_jc_j‖z - x_j‖²_D."""
    away = (run.models.z - run.models.X) ** 2 @ run.metric
    return run.excess(), float((run.weights * run.c) @ away)
