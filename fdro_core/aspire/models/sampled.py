"""Mini-batches: models of one curvature in a metric that follows the gradients, and a prox on the weights.

With s = Pᵀλ the worst-case weights of the workers,

    z = Σ_j s_ja_jx_j / Σ_j s_ja_j - ηD⁻¹Σ_j s_jg_j

minimises Σ_j s_jm_j if every a_j is 1. The trust a_j in an old point falls with the time between a worker's
visits: without it a slow worker's old x_j would hold z back. Losses are running means, since the loss of one
batch is noise to the adversary; D is the root of a running mean of Σ_j s_jg_j², which follows every reply
(`preconditioner`); η rises and falls with the epochs (`preconditioner.pace`).

A reply costs O(|A|p), whatever N is (`PlaneSums`).
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import inf, sqrt
from typing import Any, ClassVar

import numpy as np

from fdro_core.aspire.models import kernels
from fdro_core.aspire.models.local import CLIP
from fdro_core.aspire.planes import Planes, check_plane_losses
from fdro_core.master import preconditioner
from fdro_core.protocol.saved import Form, Kept, Saved, numbers, real
from uncertainty_sets.arrays import Array

# -- sums over workers ---------------------------------------------------------------------------------
# With s = Pᵀλ a step needs Σ_j s_jg_j and Σ_j s_ja_jx_j, a plane update also those of every plane.
# `PlaneSums` follows the planes' sums: a reply costs O(|A|p), whatever N is. `WorkerSums` follows nothing and
# sums over the workers: O(Np), less if there are hardly more workers than planes, for a reply then replaces
# one row alone.


FEW = 8  # workers: so many are summed anew
CHUNK = 64  # workers at a time when planes are summed anew

OF_SUMS: Form = {
    **dict.fromkeys(("slopes", "points"), numbers("planes p", most=inf)),
    "trusts": numbers("planes", most=inf),
}
"""What a snapshot of either form keeps."""


class Sums(ABC):
    """What the models of mini-batches ask of either form.

    Attributes:
        planes: P and λ.
        X, G: x_j and g_j, (N, p).
        trust: a_j.
    """

    def __init__(self, planes: Planes, X: Array, G: Array, trust: Array) -> None:
        self.planes, self.X, self.G, self.trust = planes, X, G, trust

    @property
    def table(self) -> Array:
        """P of the active planes, a row for every worker."""
        return self.planes.table[:, : self.planes.size]

    @abstractmethod
    def replace(self, j: int, gradient: Array, x: Array, trust: float) -> None:
        """Put (x, g, a) in the place of worker j's."""

    @abstractmethod
    def descent(self, out: Array) -> Array:
        """Write Σ_j s_jg_j into out, and return it."""

    @abstractmethod
    def anchor(self, out: Array) -> float:
        """Write Σ_j s_ja_jx_j into out; return Σ_j s_ja_j."""

    @abstractmethod
    def of_planes(self, part: slice) -> tuple[Array, Array, Array]:
        """Σ_j p_ljg_j and Σ_j p_lja_jx_j of every plane, a part of their entries, and Σ_j p_lja_j."""

    @abstractmethod
    def recentre(self) -> None:
        """Sum what is followed anew."""

    def snapshot(self) -> dict[str, Array]:
        """The planes' sums, whole."""
        return dict(zip(OF_SUMS, self.of_planes(slice(None)), strict=True))


class PlaneSums(Sums):
    """Sums of every plane, which follow each reply."""

    # An array that is used again: new pages of memory would cost more than the sums that are written to them.
    _room: Array = np.empty((2, 0, 0))

    def replace(self, j: int, gradient: Array, x: Array, trust: float) -> None:
        """Put (x, g, a) in the place of worker j's."""
        before, row = self.trust[j], self.planes.table[j, : self.planes.size]
        slopes, points = self.slopes, self.points
        kernels.replace_sums(slopes, points, row, gradient, self.G[j], x, trust, self.X[j], before)
        self.trusts += row * (trust - before)
        self.trust[j] = trust

    def descent(self, out: Array) -> Array:
        """Write Σ_j s_jg_j into out, and return it."""
        kernels.mix(self.slopes, self.planes.multipliers, out)
        return out

    def anchor(self, out: Array) -> float:
        """Write Σ_j s_ja_jx_j into out; return Σ_j s_ja_j."""
        kernels.mix(self.points, self.planes.multipliers, out)
        return float(self.planes.multipliers @ self.trusts)

    def of_planes(self, part: slice) -> tuple[Array, Array, Array]:
        """The sums of every plane, a part of their entries."""
        return self.slopes[:, part], self.points[:, part], self.trusts

    def recentre(self) -> None:
        """Sum the planes anew. Costs O(|A|Np)."""
        size, table = self.planes.size, self.table
        if self._room.shape[1] < size:
            self._room = np.empty((2, size + 2, self.X.shape[1]))
        self.slopes, self.points = self._room[:, :size]
        for begin in range(0, len(table), CHUNK):
            rows = slice(begin, begin + CHUNK)
            weights = table[rows]
            _add_product(weights, self.G[rows], self.slopes, begin)
            _add_product(weights * self.trust[rows, None], self.X[rows], self.points, begin)
        self.trusts = self.trust @ table

    def restore(self, state: Mapping[str, Array]) -> None:
        """Go on from a snapshot's sums, to the bit."""
        self.slopes, self.points, self.trusts = (state[name] for name in OF_SUMS)


class WorkerSums(Sums):
    """Sums over the workers, taken when they are needed."""

    def replace(self, j: int, gradient: Array, x: Array, trust: float) -> None:
        """Put (x, g, a) in the place of worker j's."""
        self.G[j], self.X[j], self.trust[j] = gradient, x, trust

    def descent(self, out: Array) -> Array:
        """Write Σ_j s_jg_j into out, and return it."""
        kernels.mix(self.G, self.table @ self.planes.multipliers, out)
        return out

    def anchor(self, out: Array) -> float:
        """Write Σ_j s_ja_jx_j into out; return Σ_j s_ja_j."""
        weights = self.trust * (self.table @ self.planes.multipliers)
        kernels.mix(self.X, weights, out)
        return float(weights.sum())

    def of_planes(self, part: slice) -> tuple[Array, Array, Array]:
        """The sums of every plane, a part of their entries."""
        table = self.table
        points = (table * self.trust[:, None]).T @ self.X[:, part]
        return table.T @ self.G[:, part], points, self.trust @ table

    def recentre(self) -> None:
        """Nothing is followed."""


def _add_product(weights: Array, rows: Array, sums: Array, added: int) -> None:
    """Add weightsᵀ·rows to the sums of so many rows before."""
    if added:
        sums += weights.T @ rows
    else:
        np.matmul(weights.T, rows, out=sums)


# -- the models ----------------------------------------------------------------------------------------


MEMORY = 0.1  # weight of the newest epoch in a worker's running loss
INTERVAL_MEMORY = 0.2  # of the newest interval between a worker's visits
MOVES = 200  # of weight between planes in one step
MANY, CROWD = 20, 5  # with more than 20 workers, steps of the weights are 5/N as long
SWING, SWUNG = (
    0.1,
    -0.5,
)  # memory of the cosine of two steps of all workers; below that they go back and forth
SHORTER, LONGER = 0.7, 1.05  # what steps are then taken times, and otherwise
COLUMNS = 8192  # of the planes at a time, where their products are added up


class SampledModels(Kept):
    """The models of all workers and of the active planes.

    Attributes:
        z: the model that workers are sent; replaced, never written to.
        average: the running mean of z, which is the result.
        X, G: x_j and g_j, (N, p); G is the array given, which is written to.
        losses: running means of f_j.
        visits, seen_at, interval: how often and when each worker replied, and the epochs between its visits.
        trust: a_j.
        epochs: how many were taken.
        heard: epochs of replies: N of them make one.
        squares: v, whose root is D.
        mean: of v, which follows from it.
        way: the last step in which all workers took part.
        swing: a running mean of the cosine between two such steps.
        curb: what η is taken times, 1 unless they went back and forth.
        stiffness: how the planes' losses answer to λ, from the last plane update.
        sums: Σ_j s_jg_j and Σ_j s_ja_jx_j; a snapshot has those of every plane: slopes, points and trusts.
        overlap: PPᵀ of the planes.
    """

    saved: ClassVar[Form] = {
        **dict.fromkeys(("z", "average"), numbers("p")),
        **dict.fromkeys(("X", "G"), numbers("N p")),
        **dict.fromkeys(("losses", "visits", "seen_at", "interval", "trust"), numbers("N")),
        **dict.fromkeys(("epochs", "heard", "curb"), real(least=0.0)),
        "way": numbers("p"),
        "swing": real(least=-1.0),
        "squares": numbers("p", least=0.0, most=inf),
        **dict.fromkeys(("stiffness", "overlap"), numbers("planes planes", most=inf)),
        **OF_SUMS,
    }

    def __init__(
        self,
        planes: Planes,
        z: Array,
        losses: Array,
        gradients: Array,
        *,
        step: float,
        prox: float,
        window: float,
    ) -> None:
        workers = losses.size
        self.planes = planes
        self.z = z
        self.average = z
        self.X = np.repeat(z[None, :], workers, axis=0)
        self.G = gradients
        self.losses = losses.copy()
        self.visits = np.zeros(workers)
        self.seen_at = np.zeros(workers)
        self.interval = np.ones(workers)
        self.trust = np.ones(workers)
        self.epochs = self.heard = self.swing = 0.0
        self.curb, self.way = 1.0, np.zeros_like(z)
        self.squares = np.einsum("j,jp,jp->p", planes.weights(), gradients, gradients)
        self.configure(step, prox, window)
        self._derive()
        self.recentre()

    def _derive(self) -> None:
        """Set what follows from the state and is not saved."""
        self.sums = self._make_sums()
        self._slope = np.empty_like(self.z)  # used again: new pages of memory would cost more than the sum
        self.mean = preconditioner.follow(self.squares, self.z, 0.0)

    def _make_sums(self) -> PlaneSums | WorkerSums:
        kind = WorkerSums if self.losses.size <= FEW else PlaneSums
        return kind(self.planes, self.X, self.G, self.trust)

    def configure(self, step: float, prox: float, window: float) -> None:
        """Set the longest η, the prox step ρ of the weights, and the share of the epochs averaged.

        With many workers ρ is taken times 5/N: with 500 of them a step of 0.1 would move all weight at once.
        """
        self.longest_step, self.window, N = step, window, self.losses.size
        self.prox = prox * (CROWD / N if N > MANY else 1.0)

    def snapshot(self) -> dict[str, Any]:
        """The state as plain values and arrays."""
        sums: dict[str, Any] = self.sums.snapshot()
        return sums | {name: getattr(self, name) for name in self.saved if name not in sums}

    @classmethod
    def restored(
        cls, planes: Planes, state: Mapping[str, Any], *, step: float, prox: float, window: float
    ) -> SampledModels:
        """The models of a snapshot."""
        models = cls.__new__(cls)
        models.planes = planes
        for name in cls.saved.keys() - OF_SUMS.keys():
            setattr(models, name, state[name])
        models.configure(step, prox, window)
        models._derive()
        if isinstance(models.sums, PlaneSums):
            models.sums.restore(state)
        return models

    @classmethod
    def check_saved(cls, saved: Saved, name: str, value: Any) -> None:
        """Check that the planes' losses follow from the running means."""
        super().check_saved(saved, name, value)
        check_plane_losses(saved, "master.planes", saved.of("master.planes"), value["losses"])

    @property
    def step_size(self) -> float:
        """η after the epochs taken."""
        return self.curb * self.longest_step * preconditioner.pace(self.epochs, self.losses.size)

    @property
    def metric(self) -> Array:
        """D."""
        return preconditioner.metric(self.squares)

    # -- one reply ------------------------------------------------------------------------------------

    def learn(self, j: int, x: Array, loss: float, gradient: Array) -> None:
        """Replace worker j's model by that of its reply at x, and let D follow it."""
        gap = max(1.0, self.epochs - self.seen_at[j])
        self.heard += 1.0 / self.losses.size
        since = gap if self.visits[j] else 1.0
        part = preconditioner.rate(self.heard, self.planes.weight(j), since)
        self.mean = preconditioner.follow(self.squares, gradient, part)
        self.visits[j] += 1
        self.seen_at[j] = self.epochs
        rate = max(1.0 - (1.0 - MEMORY) ** gap, 1.0 / (self.visits[j] + 1))
        change = rate * (loss - self.losses[j])
        self.losses[j] += change
        self.interval[j] += max(INTERVAL_MEMORY, 1.0 / self.visits[j]) * (gap - self.interval[j])
        self.planes.losses += self.planes.table[j, : self.planes.size] * change
        self.sums.replace(j, gradient, x, 1.0 / self.interval[j])

    def local_step(self, j: int, steps: int) -> tuple[Array, Array]:
        """a and b of worker j's local steps (`models.local`), each of η over their number."""
        scale: Array = self.step_size / steps / self.metric
        return scale, scale * (self.sums.descent(self._slope) - self.G[j])

    def reach(self, steps: int) -> float:
        """How far a parameter may move in one of so many local steps."""
        return CLIP * self.longest_step / steps

    def step(self, share: float) -> None:
        """λ, z and its average; share is S/N, times the local steps."""
        planes = self.planes
        self.epochs += share
        planes.previous[:] = planes.multipliers
        if planes.size > 1:
            pull = self.overlap / (self.prox * share)
            values = planes.losses + pull @ planes.multipliers
            kernels.climb(values, self.stiffness + pull, planes.multipliers, MOVES)
        slope = self.sums.descent(self._slope)
        pace = min(1.0, share / max(1.0, self.window * self.epochs))
        z, average = np.empty_like(slope), np.empty_like(slope)
        trust = self.sums.anchor(z)
        kernels.precondition(
            z, self.average, slope, self.squares, preconditioner.floor(self.mean), self.step_size, trust,
            pace, average,
        )  # fmt: skip
        if share >= 1.0:
            self._restrain(z - self.z)
        self.z, self.average = z, average

    def _restrain(self, way: Array) -> None:
        """Shorten steps that go back and forth, as where all workers agree and there is no noise.

        There v falls with the gradient, so D would keep steps as long as η. Steps of noise go as often one
        way as the other. With S < N two steps share most of their replies, and say nothing.
        """
        lengths = float(way @ way) * float(self.way @ self.way)
        if lengths > 0.0:
            self.swing += SWING * (float(way @ self.way) / sqrt(lengths) - self.swing)
            self.curb = self.curb * SHORTER if self.swing < SWUNG else min(1.0, self.curb * LONGER)
        self.way = way

    # -- planes ---------------------------------------------------------------------------------------

    def values(self) -> Array:
        """The losses that the oracle is asked about: the running means."""
        return self.losses

    def recentre(self) -> None:
        """Sum the planes anew, and how their losses answer to λ: ηBD⁻¹Bᵀ, B the models' slopes at z.

        Costs O(|A|Np).
        """
        planes = self.planes
        self.sums.recentre()
        table = planes.table[:, : planes.size]
        self.overlap = table.T @ table
        planes.refresh(self.losses)
        self.stiffness = self.step_size * self._answers()

    def _answers(self) -> Array:
        """BD⁻¹Bᵀ, in blocks of columns: B whole would be written and read several times."""
        floor = preconditioner.floor(self.mean)
        answers = np.zeros((self.planes.size, self.planes.size))
        for begin in range(0, self.z.size, COLUMNS):
            part = slice(begin, begin + COLUMNS)
            metric = np.sqrt(self.squares[part]) + floor
            slopes, points, trusts = self.sums.of_planes(part)
            behind = trusts[:, None] * self.z[part] - points
            slopes = slopes + behind * (metric / self.step_size)
            answers += (slopes / metric) @ slopes.T
        return answers


# -- workers that rest ---------------------------------------------------------------------------------
# With weights s, worker j's gradient counts s_j. For a given number of gradients, the noise of Σ_j s_jg_j is
# least if visits are in proportion to s_j: a worker with less than its even share 1/N rests 1/(Ns_j) - 1
# epochs before it is asked again, `longest` epochs at most, so that its loss stays known.


SHORTEST = 0.5  # epochs: less is no rest


class Resting:
    """Who rests until when.

    Attributes:
        until: the iteration at which each resting worker is asked again.
    """

    def __init__(self, longest: float, workers: int, until: Sequence[Sequence[int]] = ()) -> None:
        self.longest = longest
        self.workers = workers
        self.until: dict[int, int] = {}
        self._queue: list[tuple[int, int]] = []  # (until, worker), old entries included
        for j, iteration in until:
            self._rest(j, iteration)

    def snapshot(self) -> list[list[int]]:
        """Who rests until when."""
        return [[j, self.until[j]] for j in sorted(self.until)]

    def _rest(self, j: int, iteration: int) -> None:
        self.until[j] = iteration
        heapq.heappush(self._queue, (iteration, j))

    def epochs(self, weight: float) -> float:
        """How long a worker of that weight rests.

        >>> [Resting(3.0, workers=10).epochs(weight) for weight in (0.2, 0.1, 0.05, 0.0)]
        [0.0, 0.0, 1.0, 3.0]
        """
        share = self.workers * weight
        if share * (1.0 + self.longest) <= 1.0:
            return self.longest
        rest = 1.0 / share - 1.0
        return rest if rest >= SHORTEST else 0.0

    def leave(self, active: Sequence[int], weight: Callable[[int], float], iteration: int) -> list[int]:
        """Let those of the active workers rest that may; the workers to ask now.

        Those are the other active ones, and the resting ones whose time has come.
        """
        if self.longest == 0.0:
            return list(active)
        ask = []
        for j in active:
            rest = int(self.epochs(weight(j)) * self.workers / len(active))
            if rest > 0:
                self._rest(j, iteration + rest)
            else:
                ask.append(j)
        return ask + self._called(len(self.until), iteration)

    def reconsider(self, weights: Array) -> list[int]:
        """The resting workers whose weight is now too large to rest, to ask now. Costs O(N)."""
        called = [j for j in sorted(self.until) if self.epochs(float(weights[j])) == 0.0]
        for j in called:
            self.forget(j)
        return called

    def wake(self, count: int) -> list[int]:
        """As many resting workers as that, to ask now: those whose time comes first."""
        return self._called(count, None)

    def _called(self, count: int, latest: int | None) -> list[int]:
        called: list[int] = []
        while self._queue and len(called) < count and (latest is None or self._queue[0][0] <= latest):
            iteration, j = heapq.heappop(self._queue)
            if self.until.get(j) == iteration:
                del self.until[j]
                called.append(j)
        return called

    def forget(self, j: int) -> None:
        """Note that j is lost, or asked for another reason."""
        self.until.pop(j, None)
