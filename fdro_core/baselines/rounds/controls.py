"""Control variates: c_j stands for worker j's gradient, and c - c_j takes its local steps where all go.

The master keeps every c_j, (N, p) numbers, so workers stay without state: a message carries w and c - c_j, as
many numbers as w and c would be. A new c_j follows from the model that comes back, which is all that is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fdro_core.baselines.rounds.method import RoundMethod
from fdro_core.baselines.rounds.state import Job, RoundState, average
from fdro_core.protocol.messages import Trained
from uncertainty_sets.arrays import Array


def mean_control(state: RoundState, live: Sequence[int]) -> Array:
    """c = Σ_j λ_jc_j / Σ_j λ_j over the live workers; a c_j is 0 before it is known. Costs O(Np)."""
    if state.controls is None:
        state.controls = np.zeros((state.weights.size, state.w.size))
    return average({j: state.controls[j] for j in live}, state.weights, np.zeros_like(state.w))


def shift_of(control: Array, state: RoundState, j: int) -> Array:
    """c - c_j, which worker j adds to its gradients."""
    assert state.controls is not None
    shift: Array = control - state.controls[j]
    return shift


def follow_controls(method: RoundMethod, state: RoundState, job: Job, replies: Mapping[int, Trained]) -> None:
    """Set c_j to the mean of worker j's E gradients, for those that replied: c_j - c + D(w - w_j)/(Eη).

    With a preconditioner w is 0 here and w_j is minus the mean of what was stepped along, so D/(Eη) is not
    needed. To be called before w changes. Costs O(Np).
    """
    assert state.controls is not None
    assert state.metric is not None
    controls = state.controls.copy()
    scale = 1.0 if method.preconditioned else state.metric / (job.steps * state.step)
    for j, reply in replies.items():
        assert reply.w is not None
        stepped = scale * (state.w - reply.w)
        controls[j] = stepped if job.control is None else stepped - shift_of(job.control, state, j)
    state.controls = controls
