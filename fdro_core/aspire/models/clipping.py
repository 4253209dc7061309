"""A bound on what one worker can do by a reply: `AspireModels(clip=c)`.

Worker j is measured against the other live workers i ≠ j, by what they last reported:

    ‖D⁻¹g_j‖ <= c·med_i ‖D⁻¹g_i‖,    |f_j - med_i f_i| <= c·σ_j,    c_j <= c·med_i c_i

with σ_j the larger of med_i |f_i - med_i f_i| and |med_i f_i|. A longer gradient is scaled down, a loss
outside is set to the end of its range, a larger curvature to its bound. Of local steps with full batches, the
way that a worker went is bounded like its gradient. If fewer than half of the others lie, their medians lie
between numbers of honest workers. Bounds are worked out anew once in N replies, by sorts: a reply costs
O(log N) more, and O(p) if it is clipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, ClassVar

import numpy as np

from fdro_core.aspire.models.kernels import lengths
from fdro_core.aspire.models.messages import Evaluation, EvaluationAhead
from fdro_core.master.outliers import others_median, others_spread
from fdro_core.protocol.saved import Form, Kept, numbers, whole
from uncertainty_sets.arrays import Array

FEWEST = 3  # workers: with two, nobody knows which of them lies

LENGTHS = ("gradient", "gradient at the point sent", "way of its local steps")
GRADIENT, FIRST, WAY = range(len(LENGTHS))


class Clip(Kept):
    """What every worker reported last, and how far each may go.

    Attributes:
        factor: c.
        lengths: of what each worker sent last, a row for each of `LENGTHS`.
        losses: f_j as last reported.
        longest: how long they may be; infinite if the others' median is 0 or too few workers live.
        least, most: the range of each worker's loss.
        curvature: c_j; the models' own array, which changes with them.
        ceiling: the largest c_j allowed.
        counts: replies of each worker that were clipped.
        due: replies until the bounds are worked out anew.
    """

    saved: ClassVar[Form] = {
        **dict.fromkeys(("lengths", "longest"), numbers(f"{len(LENGTHS)} N", most=inf, infinite=True)),
        **dict.fromkeys(("losses", "least", "most", "ceiling"), numbers("N", most=inf, infinite=True)),
        "counts": numbers("N", least=0.0),
        "due": whole(),
    }

    def __init__(
        self,
        factor: float,
        losses: Array,
        gradients: Array,
        curvature: Array,
        metric: Array,
        began: Sequence[bool],
        local_steps: int = 1,
    ) -> None:
        N = losses.size
        self.factor = factor
        self.lengths = np.zeros((len(LENGTHS), N))
        steps = np.array([np.linalg.norm(g / metric) for g in gradients])
        self.lengths[[GRADIENT, FIRST]] = steps
        # Before anyone has gone: the way of steps of 1/c_j along the first gradient.
        ways = np.divide(steps, curvature, out=np.zeros(N), where=curvature > 0)
        self.lengths[WAY] = (local_steps - 1) * ways
        self.losses = losses.copy()
        self.curvature = curvature
        self.longest = np.full_like(self.lengths, np.inf)
        self.least, self.most, self.ceiling = np.full(N, -np.inf), np.full(N, np.inf), np.full(N, np.inf)
        self.counts = np.zeros(N)
        self.refresh(began)

    def refresh(self, alive: Sequence[bool]) -> None:
        """Work out everyone's bounds from what the live workers reported. Costs O(N log N)."""
        self.due = self.losses.size
        live = np.flatnonzero(alive)
        for bounds in (*self.longest, self.most, self.ceiling):
            bounds[:] = np.inf
        self.least[:] = -np.inf
        if live.size < FEWEST:
            return
        for bounds, sizes in zip(self.longest, self.lengths, strict=True):
            bounds[live] = self._times(others_median(sizes[live]))
        self.ceiling[live] = self._times(others_median(self.curvature[live]))
        middle, spread = others_spread(self.losses[live])
        room = self.factor * np.maximum(spread, np.abs(middle))
        self.least[live], self.most[live] = middle - room, middle + room

    def _times(self, medians: Array) -> Array:
        """c times the medians; nothing can be measured by a median of 0."""
        return np.where(medians > 0.0, self.factor * medians, np.inf)

    def begin(self, losses: Array, gradients: Array, curvature: Array) -> tuple[Array, Array, Array]:
        """What the handshake brought, within the bounds."""
        sizes, longest = self.lengths[GRADIENT], self.longest[GRADIENT]
        part = np.divide(longest, sizes, out=np.ones_like(sizes), where=sizes > longest)
        losses = np.clip(losses, self.least, self.most)
        return losses, part[:, None] * gradients, np.minimum(curvature, self.ceiling)

    def clipped(self) -> list[list[int]]:
        """[j, how many of its replies were clipped] of every worker of which some were."""
        return [[int(j), int(self.counts[j])] for j in np.flatnonzero(self.counts)]

    # -- one reply ------------------------------------------------------------------------------------

    def bounded(
        self, j: int, reply: Evaluation, sent: Array, inverse: Array, length: float
    ) -> tuple[Evaluation, str]:
        """The reply within j's bounds, and what was clipped, in words; the reply itself if nothing was.

        Args:
            j: the worker.
            reply: its reply, which is not changed.
            sent: the point that it was sent.
            inverse: D⁻¹.
            length: ‖D⁻¹g_j‖.
        """
        self.due -= 1
        self.losses[j], loss = reply.loss, min(max(reply.loss, self.least[j]), self.most[j])
        words = "" if loss == reply.loss else f"its loss is {reply.loss:.3g} and is taken as {loss:.3g}"
        part, words = self._share(GRADIENT, j, length, words)
        gradient = reply.gradient if part == 1.0 else part * reply.gradient
        kept = Evaluation(reply.ticket, float(loss), gradient)
        if isinstance(reply, EvaluationAhead):
            way = reply.point - sent
            part, words = self._share(WAY, j, float(np.linalg.norm(way)), words)
            point = reply.point if part == 1.0 else sent + part * way
            part, words = self._share(FIRST, j, lengths(sent, reply.first, inverse)[1], words)
            first = reply.first if part == 1.0 else part * reply.first
            kept = EvaluationAhead(reply.ticket, float(loss), gradient, point, first)
        if not words:
            return reply, ""
        self.counts[j] += 1
        return kept, words

    def _share(self, kind: int, j: int, length: float, words: str) -> tuple[float, str]:
        """The part of a vector of that length that may stay, and the words about it."""
        self.lengths[kind, j] = length
        longest = float(self.longest[kind, j])
        if length <= longest:
            return 1.0, words
        times = self.factor * length / longest
        told = f"its {LENGTHS[kind]} is {times:.3g} times as long as the others' median"
        return longest / length, words or told

    # -- checkpoints ----------------------------------------------------------------------------------

    @classmethod
    def restored(cls, factor: float, workers: int, state: Mapping[str, Any]) -> Clip:
        """The bounds of a snapshot."""
        clip = cls.__new__(cls)
        clip.factor, clip.curvature = factor, np.zeros(workers)
        clip.take(state)
        return clip
