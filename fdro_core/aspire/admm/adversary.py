"""The adversary: planes, λ and h, Eq. (14), (15) and (18)-(21), the losses it knows of, and their step sizes.

Theorem 1's step sizes cannot be met: Setting 2 has c₁⁰ = 1/ρ₁, and then ρ₁ < 2/(L + 2c₁⁰) says ρ₁L < 0. So
the defaults here are measured rules, in the units of the problem: every one scales with the losses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import cbrt, sqrt
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fdro_core.aspire.admm import kernels
from fdro_core.aspire.planes import Planes, check_plane_losses
from fdro_core.errors import DriverError
from fdro_core.master.handshake import Handshake
from fdro_core.protocol.algorithm import Oracle
from fdro_core.protocol.forms import LARGEST_SQ
from fdro_core.protocol.messages import Update
from fdro_core.protocol.saved import Form, Kept, Saved, numbers, real
from fdro_core.protocol.settings import step_at
from uncertainty_sets.arrays import Array

if TYPE_CHECKING:
    from fdro_core.aspire.admm.algorithm import AspireEase


# -- step sizes ----------------------------------------------------------------------------------------


START = 0.25  # of the largest stable ρ₁
SHRINK = 0.8  # at each plane that comes back after it was dropped: λ overshoots
LEAST = 0.02
RIDGE = 0.02  # of ‖BBᵀ‖, added to BBᵀ


def default_penalty(reference: Array, curvatures: Array) -> float:
    """κ₁ = ½·mean_j(q_jL_j): half of a mean worker's curvature in Σ_j q_jf_j.

    A larger κ₁ slows every w_j, a smaller one lets the w_j drift apart.

    >>> default_penalty(np.array([0.5, 0.5]), np.array([2.0, 4.0]))
    0.75
    """
    value = 0.5 * float(np.mean(reference * curvatures))
    return value if value > 0 else 0.5 / max(1, reference.size)


def plane_stiffness(
    table: Array, gradient_sq: Array, weights: Array, curvatures: Array, penalty: float, intervals: Array
) -> Array:
    """How P·f responds to λ: BBᵀ, (|A|, |A|).

    B = (P - mean plane)·diag√(r_j‖g_j‖²/(s_jL_j + κ₁)). A change Δλ moves w_j by about Δs_j·g_j/(s_jL_j + κ₁)
    before j's loss is seen again, and so Pf by -BBᵀΔλ; Σλ = 1 takes the mean plane out. r_j is how much
    rarer than average j is seen. table is (N, |A|). Costs O(N|A|²).
    """
    scale = np.sqrt(intervals * gradient_sq / (weights * curvatures + penalty))
    B = (table - table.mean(axis=1, keepdims=True)) * scale[:, None]
    stiffness: Array = B.T @ B
    return stiffness


def setting_2(step: float, iteration: int, floor: float) -> float:
    """cᵗ = max(1/(ρ(t+1)^⅙), c̲), Setting 2.

    >>> setting_2(0.5, iteration=63, floor=0.0)
    1.0
    """
    return max(1.0 / (step * cbrt(sqrt(iteration + 1))), floor)


# -- planes, λ and h -----------------------------------------------------------------------------------


class Adversary(Kept):
    """λ and h over the active planes. An iteration costs O(S|A|), a plane update an oracle call and O(N|A|²).

    Attributes:
        planes: the active planes with λ and P·f.
        losses, gradient_sq, curvature: f_j, ‖∇f_j‖² and L_j as last reported.
        value: h.
        objective: the set's value at the known losses, from the last plane update.
        step: ρ₁; by the default rule in units of `stiffness`.
        stiffness: how P·f responds to λ, (|A|, |A|).
        caution: the share of the largest stable step that is taken.
    """

    saved: ClassVar[Form] = {
        "losses": numbers("N"),
        "gradient_sq": numbers("N", most=LARGEST_SQ),
        "curvature": numbers("N"),
        **dict.fromkeys(("value", "objective", "step", "caution"), real()),
        "stiffness": numbers("stiffness stiffness"),
        "planes": Planes.check_saved,
    }

    def __init__(self, config: AspireEase, oracle: Oracle, handshake: Handshake) -> None:
        self.planes = Planes(handshake.reference, keep_all=config.planes == "cp", limit=config.max_planes)
        self.losses, self.gradient_sq, self.curvature = handshake.measured()
        self.planes.refresh(self.losses)
        self.objective = self.value = float(self.planes.losses[0])
        self.caution = START
        self.step = config.plane_dual_step or self.caution
        self.stiffness = np.ones((1, 1))
        self._derive(config, oracle)

    def _derive(self, config: AspireEase, oracle: Oracle) -> None:
        self.config, self.oracle = config, oracle
        self.climbs = (
            config.plane_dual_step is None
            and config.value_update == "exact"
            and config.regularisation == "none"
            and config.value_floor == -np.inf
            and config.value_bound == np.inf
        )

    def respond(self, active: Sequence[tuple[int, Update]], iteration: int, damping: float) -> list[float]:
        """Learn the active workers' losses, move h and λ; return the weights s_j of those workers.

        damping is c₁ᵗ.
        """
        planes = self.planes
        for j, update in active:
            kernels.move_loss(planes.table[j], planes.losses, self._learn(j, update))
        config = self.config
        if self.climbs:
            self.value = kernels.climb_planes(
                planes.losses, planes.multipliers, planes.previous, self.stiffness, self.step
            )
        else:
            self.value = kernels.advance_planes(
                planes.losses, planes.multipliers, planes.previous, self.value, self.step, damping,
                self._value_step(iteration, damping), config.value_floor, config.value_bound,
                config.plane_dual_bound,
            )  # fmt: skip
        return [self.weight(j) for j, _ in active]

    def respond_to_one(self, j: int, update: Update, iteration: int) -> float:
        """`respond` for one active worker, undamped; one kernel call if `climbs`."""
        if not self.climbs:
            return self.respond([(j, update)], iteration, 0.0)[0]
        planes = self.planes
        self.gradient_sq[j] = update.gradient_sq
        self.curvature[j] = update.curvature
        self.value, weight = kernels.respond_to_one(
            planes.table,
            self.losses,
            planes.losses,
            planes.multipliers,
            planes.previous,
            self.stiffness,
            j,
            update.loss,
            self.step,
        )
        return weight

    def _value_step(self, iteration: int, damping: float) -> float:
        """η_h, 0 for the exact h. By default c₁ᵗ/(2|A|): a longer one oscillates, a shorter one is slow."""
        if self.config.value_update == "exact":
            return 0.0
        size = self.planes.size
        return step_at(self.config.value_step, iteration, size, "value_step") or 0.5 * damping / size

    def _learn(self, j: int, update: Update) -> float:
        change: float = update.loss - self.losses[j]
        self.losses[j] = update.loss
        self.gradient_sq[j] = update.gradient_sq
        self.curvature[j] = update.curvature
        return change

    def weight(self, j: int) -> float:
        """s_j = Σ_l λ_l p_{l,j}."""
        return self.planes.weight(j)

    def update_planes(
        self, weighed: Sequence[bool] | None, penalty: float, intervals: Array, share: float
    ) -> None:
        """Ask the oracle, add its plane if violated, drop idle ones, and set ρ₁ for the new planes.

        Only `weighed` workers have weight in the new plane; None for all.
        """
        config, planes = self.config, self.planes
        answer = self.oracle.worst_case(self.losses)
        p = np.asarray(answer.p, dtype=np.float64)
        self.objective = float(answer.value)
        if not config.value_floor <= self.objective <= config.value_bound:
            raise DriverError(
                f"the worst-case loss is {self.objective:g}, outside [value_floor, value_bound (α₂)] = "
                f"[{config.value_floor:g}, {config.value_bound:g}], where h cannot follow it: widen that "
                "range (value_floor=-inf if losses can be negative)"
            )
        self.leave_out(weighed)
        returned = planes.returned
        planes.update(p, self.losses)
        if planes.returned > returned:
            self.caution = max(LEAST, SHRINK * self.caution)
        self.set_step(penalty, intervals, share)

    def set_step(self, penalty: float, intervals: Array, share: float) -> None:
        """ρ₁ by the default rule: a share of S/N of the step that the planes' stiffness allows."""
        config, planes = self.config, self.planes
        if config.plane_dual_step is not None:
            return
        stiffness = plane_stiffness(
            planes.table[:, : planes.size],
            self.gradient_sq,
            planes.weights(),
            self.curvature,
            penalty,
            intervals,
        )
        norm = float(np.linalg.norm(stiffness, 2))
        if self.climbs:
            self.step = self.caution * share
            stiffness[np.diag_indices_from(stiffness)] += RIDGE * norm
            self.stiffness = stiffness
        else:
            self.step = self.caution * share / norm if norm > 0 else 1.0

    def leave_out(self, weighed: Sequence[bool] | None) -> None:
        """Leave out the losses of all workers but those weighed, None: of none; their weight in every plane
        goes to the others.
        """
        if self.planes.leave_out(weighed):
            self.planes.refresh(self.losses)

    def snapshot(self) -> dict[str, Any]:
        """The state as plain values and arrays."""
        return super().snapshot() | {"planes": self.planes.snapshot()}

    @classmethod
    def restored(cls, config: AspireEase, oracle: Oracle, state: Mapping[str, Any]) -> Adversary:
        """The adversary of a snapshot."""
        adversary = cls.__new__(cls)
        adversary.take(state)
        adversary.planes = Planes.restored(state["planes"])
        adversary._derive(config, oracle)
        return adversary

    @classmethod
    def check_saved(cls, saved: Saved, name: str, value: Any) -> None:
        """Check that P·f follows from the losses."""
        super().check_saved(saved, name, value)
        check_plane_losses(saved, f"{name}.planes", value["planes"], value["losses"])
