"""The messages between master and workers.

Arrays in a message are never written to once it is sent (but a Probe's z, which is the master's own).
Plain classes with slots: one is made for every step, and a dataclass costs five times as much.
`numbers` is what a message puts on the wire, counted in numbers as Theorem 2 counts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from uncertainty_sets.arrays import Array


class Step:
    """Master to worker: take the next local step.

    Attributes:
        ticket: which step of this worker it is; a repeated message repeats its ticket.
        pull: y_j = φ_j/D + κ₁z: the worker needs φ_j and z only in this sum, so φ_j is kept by the master and
            one vector is sent instead of two being held.
        weight: s_j = Σ_l λ_l p_{l,j}, all that worker j needs of the planes.
        penalty: κ₁.
        start: w_j to start from, for a worker that lost its own or returned NaN.
    """

    __slots__ = ("penalty", "pull", "start", "ticket", "weight")

    def __init__(
        self, ticket: int, pull: Array, weight: float, penalty: float, start: Array | None = None
    ) -> None:
        self.ticket = ticket
        self.pull = pull
        self.weight = weight
        self.penalty = penalty
        self.start = start

    @property
    def numbers(self) -> int:
        """y_j and three scalars, and w_j if it is sent too."""
        return self.pull.size * (1 if self.start is None else 2) + 3


class Update:
    """Worker to master: the new local variable and what the master's step sizes need.

    Attributes:
        ticket: of the Step it answers.
        w: w_jᵗ⁺¹; nobody writes to it any more.
        loss: f_j(w_jᵗ⁺¹), on all of the worker's data or as a running average.
        gradient_sq: ‖∇f_j(w_jᵗ⁺¹)‖² in the metric.
        curvature: L_j, the largest ‖Δ∇f_j‖ / ‖Δw_j‖ seen, in the metric.
    """

    __slots__ = ("curvature", "gradient_sq", "loss", "ticket", "w")

    def __init__(self, ticket: int, w: Array, loss: float, gradient_sq: float, curvature: float) -> None:
        self.ticket = ticket
        self.w = w
        self.loss = loss
        self.gradient_sq = gradient_sq
        self.curvature = curvature

    @property
    def numbers(self) -> int:
        """W_j and four scalars."""
        return self.w.size + 4


class Hello:
    """Master to worker, before the first step: what is your problem like?"""

    __slots__ = ()

    numbers = 1


class Introduction:
    """Worker to master: its dimension, its metric and, from the first worker, a point to start from.

    `samples` is how many samples it has, if its problem says so: FedAvg weighs by it. `identity` is the
    problem's class and its `fingerprint()`, by which a checkpoint knows its run; `numbers` does not count it.
    """

    __slots__ = ("dimension", "identity", "metric", "samples", "start")

    def __init__(
        self,
        dimension: int,
        metric: Array | None,
        start: Array | None,
        samples: int | None = None,
        identity: str = "",
    ) -> None:
        self.dimension = dimension
        self.metric = metric
        self.start = start
        self.samples = samples
        self.identity = identity

    @property
    def numbers(self) -> int:
        """The dimension, and the sample count, the metric and the point if there are any."""
        arrays = sum(part.size for part in (self.metric, self.start) if part is not None)
        return 1 + (self.samples is not None) + arrays


class Begin:
    """Master to worker: start at z in this metric, and measure your curvature there.

    One message serves all workers, so those of one process share its arrays (and 1/D, which is not sent).
    """

    __slots__ = ("inverse", "metric", "z")

    def __init__(self, z: Array, metric: Array) -> None:
        self.z = z
        self.metric = metric
        self.inverse = 1.0 / metric

    @property
    def numbers(self) -> int:
        """Z and the metric."""
        return 2 * self.z.size


class Probe:
    """Master to worker, in a round of its own: how do z and your own state look on all your data?

    Attributes as in `Step`; z is where the loss is asked for.
    """

    __slots__ = ("penalty", "pull", "weight", "z")

    def __init__(self, z: Array, pull: Array, weight: float, penalty: float) -> None:
        self.z = z
        self.pull = pull
        self.weight = weight
        self.penalty = penalty

    @property
    def numbers(self) -> int:
        """z, y_j and two scalars."""
        return 2 * self.z.size + 2


class Probed:
    """Worker to master: f_j(z), f_j(w_j), and w_j's term of ‖∇G‖² (Definition 1)."""

    __slots__ = ("loss_at_w", "loss_at_z", "worker_sq")

    numbers = 3

    def __init__(self, loss_at_z: float, loss_at_w: float, worker_sq: float) -> None:
        self.loss_at_z = loss_at_z
        self.loss_at_w = loss_at_w
        self.worker_sq = worker_sq


class Train:
    """Master to worker, in a synchronous round: take `steps` local steps from w, or none and send the loss.

    Attributes:
        ticket: which message to this worker it is; the worker's random draws depend on it alone.
        w: the model to start from.
        steps: E, local steps.
        step: η.
        mark: also send w after this local step; 0: no.
    """

    __slots__ = ("mark", "step", "steps", "ticket", "w")

    def __init__(self, ticket: int, w: Array, steps: int, step: float, mark: int = 0) -> None:
        self.ticket = ticket
        self.w = w
        self.steps = steps
        self.step = step
        self.mark = mark

    @property
    def numbers(self) -> int:
        """The model and four scalars."""
        return self.w.size + 4


class Trained:
    """Worker to master: where the local steps led, and the loss at the model they began from.

    Attributes:
        ticket: of the Train it answers.
        w: the local model, None if there was no step.
        loss: f_j at the model that was sent, on all data or on the first batch.
        marked: the local model after step `mark`.
    """

    __slots__ = ("loss", "marked", "ticket", "w")

    def __init__(self, ticket: int, w: Array | None, loss: float, marked: Array | None = None) -> None:
        self.ticket = ticket
        self.w = w
        self.loss = loss
        self.marked = marked

    @property
    def numbers(self) -> int:
        """The loss, the ticket and the models sent."""
        return 2 + sum(part.size for part in (self.w, self.marked) if part is not None)


Request = Step | Hello | Begin | Probe | Train
Reply = Update | Introduction | Probed | Trained

KEPT: dict[str, Any] = {kind.__name__: kind for kind in (*get_args(Request), *get_args(Reply))}
"""What can be under way, waiting or remembered when a checkpoint is written."""

LATER = {"identity": ""}
"""Fields that messages in checkpoints of 0.1 have not."""


def to_fields(message: Any) -> dict[str, Any]:
    """A message as plain values and arrays, for checkpoints."""
    kind = type(message)
    return {"kind": kind.__name__} | {name: getattr(message, name) for name in kind.__slots__}


def from_fields(fields: Mapping[str, Any]) -> Any:
    """The message that `to_fields` made the values from."""
    kind = KEPT[fields["kind"]]
    message = kind.__new__(kind)
    for name in kind.__slots__:
        setattr(message, name, fields[name] if name not in LATER else fields.get(name, LATER[name]))
    return message
