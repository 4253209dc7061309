"""ACE, all-client engagement (Chang et al. 2025): each arrival moves w by the newest updates of everyone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fdro_core.baselines.arrivals import Arrival, Arrivals, ArrivalState
from fdro_core.protocol.settings import Number, Whole, documented, setting
from fdro_core.protocol.tuning import STEP, Tunable
from uncertainty_sets.arrays import Array


@documented
@dataclass(frozen=True, kw_only=True)
class ACE(Arrivals):
    """On each arrival worker j's update replaces its last one, then w ← w - β·(1/n)·Σ_i u_i.

    u_i = w_sent - w_i is the newest update of worker i, η times its gradient with one local step. Everyone
    counts alike however often it reports, so fast workers do not draw the model to themselves. The sum is
    kept, and an iteration, which is one arrival, costs E gradients and O(p + N); the master holds N·p
    numbers. With `max_age` only the n updates from models at most that many iterations old are in the mean:
    the paper's ACED.

    u_i = 0 until worker i has reported, so that nobody waits for the first updates of all. A worker that is
    lost is left out until it reports again.

    With a preconditioner u_i is worker i's mean gradient, and w ← w - β·Eη·g/P with g = (1/n)·Σ_i u_i.

    >>> from fdro_core import Constant, LeastSquares, Straggler, VirtualEngine, solve
    >>> from uncertainty_sets import Box
    >>> problems = [LeastSquares([[1.0]], [target], intercept=False) for target in (0.0, 2.0)]
    >>> slow = VirtualEngine(delays=Constant(1.0), stragglers=[Straggler(1, 10.0)])
    >>> result = solve(problems, Box([0, 0], [1, 1]), algorithm=ACE(step=0.5, iterations=2000), engine=slow)
    >>> round(float(result.w[0]), 6)
    1.0
    """

    step: float | None = setting(
        None,
        Number(),
        "step size of the local steps w ← w - η/D·∇f_j",
        letter="η",
        why="1/(2·max_j L_j), since an update is up to 2N arrivals old before it is replaced; with a "
        "preconditioner 0.006√N, the longest step",
    )
    server_step: float | None = setting(
        None,
        Number(),
        "step along the mean update; the paper's form is 1, with short local steps",
        letter="β",
        why="1/N: in N arrivals the model moves as far as in a round of all workers",
    )
    max_age: int | None = setting(
        None,
        Whole(0),
        "iterations since its model was sent after which an update is left out; None: never",
        letter="τ_algo",
    )

    name: ClassVar[str] = "ace"
    label: ClassVar[str] = "ACE"
    year: ClassVar[int] = 2025
    tunable: ClassVar[Mapping[str, Tunable]] = {"step": STEP}  # with one local step η and β are one number

    def start_step(self, curvature: float, workers: int) -> float:
        """η: the setting, else half of the others' default."""
        usual = super().start_step(curvature, workers)
        return usual if self.step is not None or self.preconditioned else 0.5 * usual

    def server_scale(self, workers: int) -> float:
        """β."""
        return 1.0 / workers if self.server_step is None else self.server_step

    def remember(self, workers: Sequence[int], w: Array) -> dict[str, Any]:
        """Every worker's update is 0, from the first model."""
        none = np.zeros_like(w)
        return {
            "updates": dict.fromkeys(workers, none),
            "sent_in": dict.fromkeys(workers, 0),
            "sum": none,
            "arrivals": 0,
        }

    def combine(self, state: ArrivalState, arrival: Arrival) -> Array | None:
        """Replace j's update in the sum, take out those that are too old; the mean of the others."""
        memory, j = state.memory, arrival.worker
        _take_out(memory, j)
        memory["updates"][j], memory["sent_in"][j] = arrival.move, arrival.sent_in
        memory["sum"] = memory["sum"] + arrival.move
        if self.max_age is not None:
            oldest = arrival.sent_in + arrival.age - self.max_age
            for i in [i for i, sent_in in memory["sent_in"].items() if sent_in < oldest]:
                _take_out(memory, i)
        updates = memory["updates"]
        memory["arrivals"] += 1
        if memory["arrivals"] >= max(
            1, len(updates)
        ):  # O(p) per arrival: large updates leave rounding behind
            memory["arrivals"] = 0
            memory["sum"] = sum((updates[i] for i in sorted(updates)), np.zeros_like(arrival.move))
        mean: Array = memory["sum"] / max(1, len(updates))
        return mean

    def leave(self, state: ArrivalState, worker: int) -> None:
        """Take j's update out of the sum."""
        _take_out(state.memory, worker)


def _take_out(memory: dict[str, Any], worker: int) -> None:
    update = memory["updates"].pop(worker, None)
    if update is not None:
        memory["sent_in"].pop(worker, None)
        memory["sum"] = memory["sum"] - update
