"""A loss module for mini-batches with groups: running group losses, worst-case weights of the groups.

torch has to be imported with this module, because a loss module is a class of torch. Without torch the class
exists, and making a loss says what to install.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from uncertainty_sets.errors import InvalidInput, InvalidLosses
from uncertainty_sets.oracle import Oracle
from uncertainty_sets.parameters import as_number
from uncertainty_sets.torch.oracle import load_torch, register

if TYPE_CHECKING:
    from torch import Tensor


try:
    import torch
    from torch.nn import Module
except ImportError:
    Module = object

Update = Literal["oracle", "online"]


class GroupRobustLoss(Module):  # type: ignore[misc]
    """The loss of the worst groups, from mini-batches in which groups may be absent or overlap.

    With the mean loss m_g of group g in the batch, in each training step

    1. running losses:  r_g ← (1 - momentum)·r_g + momentum·m_g  for the groups in the batch (r_g = m_g the
       first time); the others keep theirs;
    2. weights:  p ← the worst case of the set at f_g = r_g + adjustment/√n_g  (``update="oracle"``), or
       p_g ← p_g·exp(step_size·f_g), normalised  (``update="online"``: the update of group_DRO, Sagawa et
       al. 2020, over all distributions);
    3. value:  Σ p_g·m_g over the groups in the batch + Σ p_g·r_g over the others. Weights and running losses
       are constants to autograd, so the gradient is Σ p_g·∇m_g, and an absent group adds none.

    A group that was in no batch yet counts with the mean of the other running losses. A mean that is infinite
    or NaN does not enter the running losses; the value shows it (an infinite one only if the group has a
    weight), and GradScaler then skips the step. In
    evaluation mode (`eval()`) steps 1 and 2 are left out. The cost beyond the batch's sums is one oracle call
    on the CPU, or none with ``update="online"``. `torch.compile` needs no graph break for either.

    If torch.distributed is initialised, the groups' sums are added over all processes in training steps, and
    each process returns its share times the number of processes: after the averaging of gradients by
    DistributedDataParallel, a step equals one on the batches of all processes together. All processes must
    take the same number of steps; a process without samples passes empty tensors.

    `state_dict` has the buffers `running_loss`, `weights` and `seen`, each with one entry per group. They are
    float32 unless the module is cast (`.double()`); losses of float16 and bfloat16 are added up in float32,
    which is the dtype of the value.

    Args:
        uncertainty_set: any set (or `Penalised`) with one entry per group; None with ``update="online"``.
        groups: the number of groups, or the number of training samples of each (what `adjustment` needs).
        momentum: the share of the new batch in the running losses, as in BatchNorm; 1 keeps no history.
        adjustment: C in f_g = r_g + C/√n_g, which favours small groups, whose training losses say least.
        update: "oracle" or "online", as above.
        step_size: of the online update.
        backend: as in `worst_case`.
        sync: whether to add up over the processes of torch.distributed, if it is initialised.
    """

    running_loss: Tensor
    weights: Tensor
    seen: Tensor

    def __init__(
        self,
        uncertainty_set: Oracle | None,
        groups: int | Sequence[float] | Tensor,
        *,
        momentum: float = 0.1,
        adjustment: float = 0.0,
        update: Update = "oracle",
        step_size: float = 0.01,
        backend: str = "auto",
        sync: bool = True,
    ) -> None:
        load_torch("GroupRobustLoss")
        super().__init__()
        size, extra = _adjustments(groups, adjustment)
        _check_settings(uncertainty_set, size, update, momentum, step_size)
        self.uncertainty_set = uncertainty_set
        self.update, self.momentum, self.step_size = update, float(momentum), float(step_size)
        self.backend, self.sync = backend, sync
        self._number = None if uncertainty_set is None else register(uncertainty_set)
        self.register_buffer("running_loss", torch.zeros(size, dtype=torch.float32))
        self.register_buffer("weights", torch.full((size,), 1.0 / size, dtype=torch.float32))
        self.register_buffer("seen", torch.zeros(size, dtype=torch.bool))
        self.register_buffer("_extra", extra, persistent=False)

    def forward(self, losses: Tensor, groups: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """Return the loss to minimise and, in training mode, update running losses and weights.

        Args:
            losses: one per sample of the batch, shape (B,), as by `reduction="none"`.
            groups: the group of each sample, integers of shape (B,); or, if groups overlap, a membership
                matrix of shape (B, groups): 0 or 1, or the degree to which a sample counts.
            sample_weight: shape (B,), not negative: the weight of a sample in the means of its groups, such
                as 1/(the sampler's probability). A factor common to a group has no effect.
        """
        check_batch(losses, groups, sample_weight, self.weights.numel())
        sums, mass = totals(losses, groups, sample_weight, self.weights.numel())
        processes = 1
        all_sums, all_mass = sums.detach(), mass
        if self.training and self.sync:
            all_sums, all_mass, processes = totals_of_all_processes(all_sums, all_mass)
        present = all_mass > 0
        divisor = torch.where(present, all_mass, torch.ones_like(all_mass))
        if self.training:
            self._take(all_sums / divisor, present)
        weights = self.weights.clone()  # the next batch overwrites the buffer, perhaps before this backward
        values = torch.where(present, processes * sums / divisor, self._known())
        # A group without weight adds nothing, though its loss be infinite; one that is NaN still shows.
        counts = (weights > 0) | values.isnan()
        return torch.where(counts, weights * values, torch.zeros_like(values)).sum()

    def extra_repr(self) -> str:
        """The settings, for print(loss)."""
        return (
            f"{self.uncertainty_set!r}, groups={self.weights.numel()}, momentum={self.momentum}, "
            f"update={self.update!r}"
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a copy, which needs a number of its own for its copy of the set."""
        super().__setstate__(state)
        if self.uncertainty_set is not None:
            self._number = register(self.uncertainty_set)

    def _known(self) -> Tensor:
        """The running losses; for groups that were in no batch yet, the mean of the others."""
        mean = (self.running_loss / self.seen.sum().clamp(min=1) * self.seen).sum()  # a sum may overflow
        return torch.where(self.seen, self.running_loss, mean)

    def _take(self, means: Tensor, present: Tensor) -> None:
        """Update running losses and weights by the groups' means over the batch."""
        with torch.no_grad():
            usable = present & torch.isfinite(means)
            start = torch.where(self.seen, self.running_loss, means)
            moved = start + (self.momentum * means - self.momentum * start)  # a plain difference may overflow
            most = torch.finfo(self.running_loss.dtype).max  # losses of float64 may be beyond it
            moved = moved.clamp(-most, most)
            self.running_loss.copy_(torch.where(usable, moved, self.running_loss))
            self.seen.logical_or_(usable)
            f = self._known() + self._extra
            if self.update == "online":
                tiny = torch.finfo(
                    self.weights.dtype
                ).tiny  # a weight that is exactly 0 could never grow again
                ahead = self.step_size * (f - f.max())  # at most 0, so that none is ∞
                p = torch.softmax(self.weights.clamp(min=tiny).log() + ahead, dim=0)
            else:
                p = torch.ops.fdro.worst_case_weights(f, self._number, self.backend)
            self.weights.copy_(p)


def _adjustments(groups: Any, adjustment: float) -> tuple[int, Tensor]:
    """The number of groups, and adjustment/√n of each."""
    as_number("adjustment", adjustment, "a number >= 0", lambda number: number >= 0.0, InvalidInput)
    try:
        counts = torch.as_tensor([] if isinstance(groups, bool) else groups, dtype=torch.float64).cpu()
    except (TypeError, ValueError, RuntimeError):
        counts = torch.empty(0)
    if counts.ndim == 0:
        if counts < 1 or counts != counts.round():
            raise InvalidInput(
                f"groups must be the number of groups, at least 1, got {groups!r}",
                parameter="groups",
                value=groups,
            )
        if adjustment:
            raise InvalidInput(
                "adjustment needs the number of training samples of each group: give groups=[n_0, n_1, …], "
                f"as from torch.bincount(group), instead of groups={groups!r}",
                parameter="groups",
                value=groups,
            )
        return int(counts), torch.zeros(int(counts), dtype=torch.float32)
    if counts.ndim != 1 or counts.numel() == 0 or not bool(((counts > 0) & counts.isfinite()).all()):
        raise InvalidInput(
            "groups must be the number of groups, or one number of training samples > 0 per group, got "
            f"{groups!r}",
            parameter="groups",
            value=groups,
        )
    return counts.numel(), (adjustment / counts.sqrt()).float()


def _check_settings(uncertainty_set: Any, size: int, update: str, momentum: float, step_size: float) -> None:
    if update not in get_args(Update):
        raise InvalidInput(
            f'update must be "oracle" or "online", got {update!r}', parameter="update", value=update
        )
    as_number("momentum", momentum, "in (0, 1]", lambda number: 0.0 < number <= 1.0, InvalidInput)
    as_number("step_size", step_size, "a finite number > 0", lambda number: number > 0.0, InvalidInput)
    if update == "online":
        if uncertainty_set is not None:
            raise InvalidInput(
                'update="online" moves over all distributions: give None in place of the set, or use '
                f'update="oracle" to stay in {uncertainty_set!r}',
                parameter="uncertainty_set",
                value=uncertainty_set,
            )
        return
    if not isinstance(uncertainty_set, Oracle):
        raise InvalidInput(
            'update="oracle" needs an uncertainty set with one entry per group, such as '
            f"KL([1/{size}] * {size}, radius=0.5), got {uncertainty_set!r}",
            parameter="uncertainty_set",
            value=uncertainty_set,
        )
    if uncertainty_set.rows is not None or uncertainty_set.size not in {None, size}:
        raise InvalidInput(
            f"the set must have {size} entries, one per group, and one row of parameters, got "
            f"{uncertainty_set!r}",
            parameter="uncertainty_set",
            value=uncertainty_set,
        )


def totals(losses: Tensor, groups: Tensor, sample_weight: Tensor | None, size: int) -> tuple[Tensor, Tensor]:
    """The sum of losses and the sum of weights of each group, in float32 or float64."""
    torch = load_torch()
    # Half precision would lose the sums; no matrix product, which autocast would compute in half precision.
    wide = losses.to(torch.promote_types(losses.dtype, torch.float32))
    weight = torch.ones_like(wide) if sample_weight is None else sample_weight.to(wide.dtype)
    weighted = weight * wide
    if groups.ndim == 1:
        index, empty = groups.long(), wide.new_zeros(size)
        return empty.index_add(0, index, weighted), empty.index_add(0, index, weight)
    membership = groups.to(wide.dtype)
    # A loss that is not finite must not reach groups that the sample is not in: 0·inf is NaN.
    parts = torch.where(membership > 0, membership * weighted[:, None], 0.0)
    return parts.sum(0), (membership * weight[:, None]).sum(0)


def totals_of_all_processes(sums: Tensor, mass: Tensor) -> tuple[Tensor, Tensor, int]:
    """The sums over all processes, and their number; as given if torch.distributed is not initialised."""
    torch = load_torch()
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return sums, mass, 1
    both = torch.stack([sums, mass])
    distributed.all_reduce(both)
    return both[0], both[1], distributed.get_world_size()


def check_batch(losses: Tensor, groups: Tensor, sample_weight: Tensor | None, size: int) -> None:
    """Raise if shapes or types do not fit, and on the CPU also if labels or weights are out of range."""
    torch = load_torch()
    if not (isinstance(losses, torch.Tensor) and losses.is_floating_point() and losses.ndim == 1):
        raise InvalidLosses(
            "losses must be a floating-point tensor with one loss per sample, shape (B,), as by "
            f"reduction='none', got {_kind(losses)}",
            parameter="losses",
            value=losses,
        )
    samples = losses.shape[0]
    labels = isinstance(groups, torch.Tensor) and groups.ndim == 1
    if labels:
        fits = groups.shape[0] == samples and not groups.is_floating_point() and groups.dtype != torch.bool
    else:
        fits = isinstance(groups, torch.Tensor) and groups.shape == (samples, size)
    if not fits:
        raise InvalidInput(
            f"groups must be integers of shape ({samples},), or a membership matrix of shape "
            f"({samples}, {size}), got {_kind(groups)}",
            parameter="groups",
            value=groups,
        )
    if sample_weight is not None and not (
        isinstance(sample_weight, torch.Tensor) and sample_weight.shape == (samples,)
    ):
        raise InvalidInput(
            f"sample_weight must be a tensor of shape ({samples},), got {_kind(sample_weight)}",
            parameter="sample_weight",
            value=sample_weight,
        )
    if torch.compiler.is_compiling() or losses.device.type != "cpu" or samples == 0:
        return  # reading values would break the graph, or wait for the device
    if labels and not bool(((groups >= 0) & (groups < size)).all()):
        raise InvalidInput(
            f"groups must be from 0 to {size - 1}, got {int(groups.min())} to {int(groups.max())}",
            parameter="groups",
            value=groups,
        )
    for name, values in (("a membership matrix", groups), ("sample_weight", sample_weight)):
        if values is not None and not bool(((values >= 0) & values.isfinite()).all()):
            raise InvalidInput(f"{name} must be finite and not negative", value=values)


def _kind(given: object) -> str:
    torch = load_torch()
    if isinstance(given, torch.Tensor):
        return f"{given.dtype} of shape {tuple(given.shape)}"
    return type(given).__name__
