"""Full batches: the planes' quadratic models, kept up to date one reply at a time.

A worker's last reply, f_j and g_j at the point x_j that it was sent, gives the model

    m_j(z) = f_j + g_jᵀ(z - x_j) + ½c_j‖z - x_j‖²_D

and a plane p_l of the uncertainty set the model M_l(z) = Σ_j p_ljm_j(z) = e_l + E_lᵀ(z - o) + ½C_l‖z - o‖²_D
around an origin o. The master's step is

    z = argmin over z of max over λ in the simplex of Σ_l λ_lM_l(z) = o - D⁻¹Eᵀλ/(Cᵀλ)

with the λ that maximises φ(λ) = eᵀλ - λᵀΓλ/(2Cᵀλ), Γ = ED⁻¹Eᵀ: only |A| numbers are searched. A reply costs
O(|A|p), whatever N is. The origin moves to z at every plane update, where the planes are summed anew: no
rounding piles up, and e_l is what M_l is at z, without cancellation.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, ClassVar

import numpy as np

from fdro_core.aspire.models import kernels
from fdro_core.aspire.models.local import DAMPING, Controls
from fdro_core.aspire.planes import Planes
from fdro_core.protocol.saved import Form, Kept, Saved, numbers, or_none
from uncertainty_sets.arrays import Array

SHRINK = 0.9  # c_j falls by no more than this at a reply
FLOOR = 1e-3  # of the first c_j
REACH = 1e6  # the first step is at most this long, relative to ‖z‖ or 1: losses may be linear at the start
SAME_POINT = 1e-16  # ‖Δx‖² below this of ‖x‖² is rounding
STILL = 1e-28  # and below this of ‖z‖² in the distance of z: z does not move any more
TINY = 1e-300
MOVES = 200  # of weight between planes in one step


class FullModels(Kept):
    """The models of all workers and of the active planes.

    Attributes:
        z: the model that workers are sent; replaced, never written to.
        metric: D.
        X, G: x_j and g_j, (N, p); G is the array given, which is written to.
        losses: f_j at x_j.
        curvature: c_j.
        first_curvature: c_j as measured before the first step.
        planes: P and λ.
        origin: o.
        ceiling: the largest c_j allowed, infinite unless replies are clipped (`models.clipping`).
        strayed: c_j‖z - x_j‖²_D at the last call of `values`, 0 if z and x_j differ by rounding only.
        E, e, C, gram: E_l, e_l, C_l and Γ.
        controls: what local steps are corrected by, None without them.
    """

    saved: ClassVar[Form] = {
        "z": numbers("p"),
        "metric": numbers("p", above=0.0),
        **dict.fromkeys(("X", "G"), numbers("N p")),
        "losses": numbers("N"),
        **dict.fromkeys(("curvature", "first_curvature"), numbers("N", above=0.0)),
        "origin": numbers("p"),
        "E": numbers("planes p", most=inf),
        **dict.fromkeys(("e", "C"), numbers("planes", most=inf)),
        "gram": numbers("planes planes", most=inf),
        "controls": or_none(Controls.check_saved),
    }

    def __init__(
        self,
        planes: Planes,
        z: Array,
        metric: Array,
        losses: Array,
        gradients: Array,
        curvature: Array,
        *,
        local_steps: bool = False,
    ) -> None:
        workers = losses.size
        self.planes = planes
        self.z, self.metric = z, metric
        self.X = np.repeat(z[None, :], workers, axis=0)
        self.G = gradients
        self.losses = losses.copy()
        length = max(1.0, float(np.sqrt(metric @ (z * z))))
        least = np.sqrt(np.einsum("ij,ij,j->i", gradients, gradients, 1.0 / metric)) / (REACH * length)
        self.curvature = np.maximum(curvature, np.maximum(least, TINY))
        self.first_curvature = self.curvature.copy()
        self.controls = Controls(planes, gradients) if local_steps else None
        self.E = np.empty((0, z.size))
        self._derive()
        self.recentre()

    def _derive(self) -> None:
        self.inverse = 1.0 / self.metric
        self.strayed = np.zeros_like(self.losses)
        self.ceiling = np.full_like(self.losses, np.inf)
        self._room = self.E
        self._values: Array | None = None  # those of `values`, as long as they are right

    def snapshot(self) -> dict[str, Any]:
        """The state as plain values and arrays."""
        kept = None if self.controls is None else self.controls.snapshot()
        return super().snapshot() | {"controls": kept}

    @classmethod
    def restored(cls, planes: Planes, state: Mapping[str, Any]) -> FullModels:
        """The models of a snapshot."""
        models = cls.__new__(cls)
        models.planes = planes
        models.take(state)
        kept = state["controls"]
        models.controls = None if kept is None else Controls.restored(planes, kept)
        models._derive()
        return models

    @classmethod
    def check_saved(cls, saved: Saved, name: str, value: Any) -> None:
        """Check that the planes' curvatures follow from those of the workers."""
        super().check_saved(saved, name, value)
        curvature, planes = value["curvature"], saved.of("master.planes")
        off = np.abs(curvature @ planes["table"][:, : planes["size"]] - value["C"]).max()
        words = "do not agree with the planes and the workers' curvatures"
        saved.agree(f"{name}.C", off, curvature.max(), words)

    # -- one reply ------------------------------------------------------------------------------------

    def learn(self, j: int, x: Array, loss: float, gradient: Array) -> None:
        """Replace worker j's model by that of its reply at x."""
        old_x, old_g, old_c, metric = self.X[j], self.G[j], float(self.curvature[j]), self.metric
        along, moved, length = kernels.secant(x, old_x, gradient, old_g, metric)
        c = old_c
        if moved > SAME_POINT * length:
            seen = along / moved
            c = seen if seen > c else max(seen, SHRINK * c, FLOOR * self.first_curvature[j])
        c = min(c, float(self.ceiling[j]))
        row = self.planes.table[j, : self.planes.size]
        after, before = kernels.replace_model(
            x, gradient, c, old_x, old_g, old_c, self.origin, metric, self.inverse, row, self.E, self.gram
        )
        self.e += row * ((loss - self.losses[j]) + (after - before))
        self.C += row * (c - old_c)
        self.losses[j], self.curvature[j] = loss, c
        self._values = None

    @property
    def average(self) -> Array:
        """The result: z itself."""
        return self.z

    def local_step(self, j: int, steps: int) -> tuple[Array, Array]:
        """a and b of worker j's local steps (`models.local`); `steps` matters to `SampledModels` only."""
        assert self.controls is not None
        c = max(float(self.curvature[j]), float(self.C @ self.planes.multipliers))
        scale: Array = self.inverse / ((1.0 + DAMPING) * c)
        return scale, scale * self.controls.correction(j)

    def step(self, share: float) -> None:
        """λ and z from the planes' models; share, S/N, matters to `SampledModels` only."""
        planes = self.planes
        planes.previous[:] = planes.multipliers
        kernels.balance(self.e, self.gram, self.C, planes.multipliers, MOVES)
        total = float(self.C.dot(planes.multipliers))
        z = np.empty_like(self.z)
        kernels.least_point(self.origin, self.inverse, self.E, planes.multipliers, total, z)
        self.z, self._values = z, None

    # -- planes ---------------------------------------------------------------------------------------

    def values(self) -> Array:
        """m_j(z) for every worker. Costs O(Np)."""
        if self._values is None:
            linear, bend = np.empty_like(self.losses), np.empty_like(self.losses)
            kernels.model_values(self.z, self.X, self.G, self.metric, linear, bend)
            still = STILL * float(np.einsum("i,i,i->", self.z, self.z, self.metric))
            self.strayed = np.where(bend > still, self.curvature * bend, 0.0)
            self._values = self.losses + linear + 0.5 * self.curvature * bend
        return self._values

    def recentre(self) -> None:
        """Put the origin at z and sum the planes' models anew. Costs O(|A|Np)."""
        planes = self.planes
        table = np.ascontiguousarray(planes.table[:, : planes.size])
        self.origin = self.z
        self.e = self.values() @ table
        self.C = self.curvature @ table
        self.gram = np.empty((planes.size, planes.size))
        if len(self._room) < planes.size:
            self.E = self._room = np.empty((0, 0))  # the old one goes first
            self._room = np.empty((planes.size, self.z.size))
        self.E = self._room[: planes.size]
        kernels.sum_models(
            self.z, self.X, self.G, self.curvature, self.metric, self.inverse, table, self.E, self.gram
        )
        if self.controls is not None:
            self.controls.recentre()
