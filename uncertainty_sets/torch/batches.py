"""Sums of losses by group over a mini-batch, and over the processes of torch.distributed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uncertainty_sets.errors import InvalidInput, InvalidLosses
from uncertainty_sets.torch.oracle import load_torch

if TYPE_CHECKING:
    from torch import Tensor


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
