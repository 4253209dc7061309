"""The result of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uncertainty_sets.arrays import Array
from uncertainty_sets.registry import join_names

CONVERGED = "converged"
"""The stop reason of a run that ends because it is proved to be at the optimum, as near as was asked."""

STOPPED = "stopped: no further progress"
"""The stop reason of a run that ends because more iterations seem to gain nothing. That is not proved."""

BUDGET_SPENT = "privacy budget"
"""The stop reason of a private run that ends because a worker may not answer again."""

NAMED = 8  # how many workers a sentence names at most
EPS = float(np.finfo(np.float64).eps)
SPARE = 64  # operations per number that rounding is allowed for, beside those of a sum over the workers


@dataclass(frozen=True)
class Result:
    """The model and what is needed to judge it.

    Attributes:
        w: the model.
        losses: f_j(w) of every worker on all its data; NaN for a worker that did not answer at the end.
        known_at: the iteration of each worker's loss in `worst_case`: the last one if f_j(w) was measured,
            else that of the worker's last report, at its own copy of the model then; -1 for a worker that
            never reported, for which the mean of the others is used.
        worst_case: the set's answer at those losses, with its certificate; it holds for w only if `proved`.
        objective: its value, max over P of pᵀf(w).
        weights: s_j, the weight worker j's gradient has at the end.
        planes: the active planes, (|A|, N), each a distribution.
        stationarity: how far the state is from a stationary point, measured in an extra round over the live
            workers; 0 at a saddle point, infinite if one of them did not answer. With `AspireEase`
            ‖∇G‖² of Definition 1, with unit steps and the workers' own copies of the model. With
            `AspireModels` it is about the returned model alone, max over p in P of pᵀf(w) - sᵀf(w) +
            ‖Σ_j s_j∇f_j(w)‖² in 1/D, with s = `weights` and D the mean of the problems' metrics.
        history: one dict per report and one per notice, in order. A report's objective is what the
            master knew then; with a dead worker it differs from `objective` (docs/driver-internals.md).
        clock: seconds on the engine's clock.
        iterations: master iterations done.
        gradients: the number of gradients in all workers' steps; those of the handshake before the first
            step and of the final round are not counted (docs/driver-internals.md).
        stop_reason: "converged" if a small gap is proved, "stopped: no further progress" if it only seems so
            (both: `tolerance` of `AspireModels`), "iterations", "interrupted", or what an observer returned.
        planned: the iterations that the run would have made if nothing had stopped it.
        lower_bound: a proven lower bound on the optimum, min over w of max over p in P of pᵀf(w):

                sᵀf(w) - ‖Σ_j s_j∇f_j(w)‖² / (2 Σ_j s_jμ_j)

            with s the better of `weights` and `worst_case.p`, less what rounding and the certified violation
            of the set by s can change in it. It needs the strong convexity μ_j of every problem
            (`Problem.strong_convexity`), an answer of every worker, and `AspireModels`; -inf without.
        model: which model w is: "z", "average" for a running mean of z (mini-batches with `AspireModels`), or
            "start" for the model that the run began with, if the objective is lower there than at z at the
            end (full batches with `AspireModels`).
        privacy: what the run promises about the workers' data, a `PrivacyReport`; None without
            `AspireModels(privacy=...)`. In a private run `losses` are NaN: no worker tells them.
    """

    w: Array
    losses: Array
    known_at: NDArray[np.int64]
    worst_case: Any
    objective: float
    weights: Array
    planes: Array
    stationarity: float
    history: list[dict[str, Any]] = field(repr=False)
    clock: float
    iterations: int
    gradients: int
    stop_reason: str
    planned: int = 0
    lower_bound: float = -np.inf
    model: str = "z"
    privacy: Any = None

    @property
    def gap(self) -> float:
        """How far the objective at w is above the optimum at most, proved; infinite if there is no proof.

        `worst_case.upper_bound` - `lower_bound`, in which the upper bound is proved as well. Two bounds that
        contradict each other prove nothing (`contradiction`).
        """
        return proved_gap(self.losses, self.worst_case, self.lower_bound)

    @property
    def contradiction(self) -> str:
        """What is wrong if the lower bound is above the objective by more than rounding, else ""."""
        return contradiction(self.losses, self.worst_case, self.lower_bound)

    @property
    def proved(self) -> bool:
        """Whether `worst_case` holds for w, because every worker's loss was measured at w at the end."""
        return bool(np.isfinite(self.losses).all())

    def caveat(self, names: Sequence[str] | None = None) -> str:
        """Which losses behind the bound are old or guessed; "" if it is proved."""
        lost = np.flatnonzero(~np.isfinite(self.losses)).tolist()
        return in_words({j: int(self.known_at[j]) for j in lost}, names)

    @property
    def suspicious(self) -> dict[int, str]:
        """Workers whose numbers are far beyond those of the others, with the reason (from `history`)."""
        return {entry["worker"]: entry["reason"] for entry in self.history if entry["event"] == "suspicious"}

    @property
    def clipped(self) -> dict[int, int]:
        """How many replies of which workers were clipped (`AspireModels(clip=...)`), as last reported."""
        reports = [entry["clipped"] for entry in self.history if entry.get("clipped") is not None]
        return dict(reports[-1]) if reports else {}

    def __repr__(self) -> str:
        proof = "" if self.proved else f" {self.caveat()}"
        if self.contradiction:
            proof = " (contradicts its lower bound)"
        if np.isfinite(self.gap):
            proof = f" (at most {self.gap:.2g} above the optimum)"
        known = self.losses[np.isfinite(self.losses)]
        worst = f"{known.max():.6g}" if known.size else "unknown"
        return (
            f"Result(objective={self.objective:.6g}{proof}, worst loss={worst}, "
            f"stationarity={self.stationarity:.3g}, planes={len(self.planes)}, iterations={self.iterations}, "
            f"clock={self.clock:.6g}, stop_reason={self.stop_reason!r})"
        )


def proved_gap(losses: Array, answer: Any, lower_bound: float) -> float:
    """The upper bound less the lower one; infinite if one is missing, or they contradict each other."""
    if not (np.isfinite(losses).all() and np.isfinite(lower_bound)):
        return np.inf
    gap = float(answer.upper_bound) - lower_bound
    return max(gap, 0.0) if gap >= -_rounding(losses) else np.inf


def contradiction(losses: Array, answer: Any, lower_bound: float) -> str:
    """What is wrong if the lower bound is above the objective by more than rounding, else ""."""
    if not np.isfinite(losses).all():
        return ""
    upper = float(answer.upper_bound)
    if not lower_bound - upper > _rounding(losses):
        return ""
    return (
        f"the lower bound on the optimum, {lower_bound:.6g}, is above the objective, at most {upper:.6g}: "
        "weights that the set calls its own give more than its worst case does, so its worst_case or its "
        "violation is wrong (`check_set` says which). Nothing is proved"
    )


def _rounding(losses: Array) -> float:
    """What rounding can change in a sum of the losses with weights."""
    return (losses.size + SPARE) * EPS * float(np.abs(losses).max())


ENDS = {
    "iterations": "all iterations done",
    "interrupted": "interrupted",
    BUDGET_SPENT: "a worker's privacy budget is spent",
    "stationary": "stationary point reached",
    "target loss": "target loss reached",
    "time": "time limit reached",
}


def ending(stop_reason: str, iterations: int, planned: int) -> str:
    """Why a run ended, in words.

    >>> ending("converged", 1117, 7500)
    'converged after 1,117 of 7,500 iterations: the rest would not change the objective noticeably'
    >>> ending("time", 1117, 7500)
    'time limit reached'
    """
    if stop_reason == CONVERGED:
        done = f"converged after {iterations:,} of {planned:,} iterations"
        return f"{done}: the rest would not change the objective noticeably"
    if stop_reason == STOPPED:
        done = f"stopped after {iterations:,} of {planned:,} iterations"
        return f"{done}: no further progress. That this is the optimum is not proved"
    return ENDS.get(stop_reason, f"stopped by {stop_reason}")


def in_words(known_at: Mapping[int, int], names: Sequence[str] | None = None) -> str:
    """Where the losses of workers that did not answer come from; "" if there are none.

    >>> in_words({3: 120, 4: -1})
    'with the last known loss of worker 3 from iteration 120 and a guess for worker 4, which never answered'
    """
    parts = []
    old = {j: iteration for j, iteration in known_at.items() if iteration >= 0}
    if old:
        each = [f"{_called(j, names)} from {_when(iteration)}" for j, iteration in old.items()]
        parts.append(f"the last known {'loss' if len(old) == 1 else 'losses'} of {_listed(each)}")
    never = [_called(j, names) for j in known_at if j not in old]
    if never:
        parts.append(f"a guess for {_listed(never)}, which never answered")
    return f"with {' and '.join(parts)}" if parts else ""


def _called(j: int, names: Sequence[str] | None) -> str:
    return f"worker {j if names is None else names[j]}"


def _when(iteration: int) -> str:
    return f"iteration {iteration:,}" if iteration else "the start"


def _listed(parts: list[str]) -> str:
    left = len(parts) - NAMED
    return join_names(parts if left <= 0 else [*parts[:NAMED], f"{left} more"])


# -- intervals for accuracies --------------------------------------------------------------------------


CONFIDENCE = 0.95


def wilson(share: ArrayLike, samples: ArrayLike, confidence: float = CONFIDENCE) -> tuple[Array, Array]:
    """Wilson's interval for shares of that many samples; NaN where one of the two is unknown.

    Its ends p solve (p - share)² = z² p (1 - p) / samples, with z the two-sided normal quantile. Unlike
    share ± error it stays within 0..1, and it does not shrink to a point if all or none are right.

    >>> low, high = wilson([1.0, 0.5], [10, 100])
    >>> low.round(3), high.round(3)
    (array([0.722, 0.404]), array([1.   , 0.596]))
    """
    p, n = np.asarray(share, dtype=np.float64), np.asarray(samples, dtype=np.float64)
    n = np.where(n > 0, n, np.nan)
    z = NormalDist().inv_cdf(0.5 + 0.5 * confidence)
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return np.clip(middle - half, 0.0, p), np.clip(middle + half, p, 1.0)  # exactly 0 and 1 despite rounding


def wilson_of_mean(shares: ArrayLike, samples: ArrayLike) -> tuple[float, float]:
    """A 95 % interval for the mean of shares of separate samples, from Wilson's intervals of each.

    The distances from the shares to their limits are combined as errors are, by the root of the sum of
    squares (Newcombe's method); NaN if nothing is known.

    >>> low, high = wilson_of_mean([0.9, 0.8], [50, 50])
    >>> round(low, 3), round(high, 3)
    (0.764, 0.902)
    """
    p = np.asarray(shares, dtype=np.float64)
    low, high = wilson(p, samples)
    known = np.isfinite(low)
    if not known.any():
        return np.nan, np.nan
    mean, count = p[known].mean(), known.sum()
    below, above = (np.sqrt(np.sum((limit - p)[known] ** 2)) / count for limit in (low, high))
    return float(mean - below), float(mean + above)
