"""Rounds with a preconditioner: the method combines the workers' gradients, and the master makes the step.

A local model is sent as -(1/E)·Σ of its E gradients instead of w_j: relative to the model that the worker was
sent, in the unit of one gradient. So the master sees the gradients to the last bit, and averages of models
are averages of gradients: a method's `close` works on them as on models, with w = 0.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fdro_core.baselines.rounds.method import RoundMethod
from fdro_core.baselines.rounds.state import Job, RoundState
from fdro_core.master import preconditioner
from fdro_core.protocol.messages import Trained


def close_preconditioned(
    method: RoundMethod,
    state: RoundState,
    phase: int,
    job: Job,
    replies: Mapping[int, Trained],
    rng: np.random.Generator,
    step: float,
) -> None:
    """Let the method combine the replies to -d; then v follows d, and w ← w - Eη·d/P with the new P.

    The marked model is w - t'η·d'/P with the same P, d' the mean of the first t' gradients. If η follows
    the steps (`preconditioner.adapted`), it does so when all workers take part.
    """
    w = state.w
    state.w = np.zeros_like(w)
    method.close(state, phase, job, replies, rng)
    move, marked = state.w, state.marked
    everyone = len(replies) == state.weights.size and len(job.counts) <= 1  # none were drawn
    if move.any():  # else no worker with weight replied: v stays
        state.squares = preconditioner.follow(state.squares, move)
        if method.follows and everyone:
            before, state.step = state.step, preconditioner.adapted(state.step, move, state.moved)
            step *= state.step / before
    if state.squares is None:
        state.w, state.marked = w, None if marked is None else w
        return
    metric = preconditioner.metric(state.squares)
    way = (job.steps * step) * move / metric
    state.w = w + way
    state.moved = way if way.any() else state.moved
    if marked is not None:
        state.marked = w + (job.mark * step) * marked / metric
