"""The worst expected loss as a differentiable PyTorch function.

    L(f) = max over p in P of pᵀf,    ∂L/∂f = p*

where p* is the worst-case distribution (Danskin; one of the subgradients if p* is not unique). So a
training loop that has per-group or per-sample losses replaces `losses.mean()` by `robust_loss(losses, set)`
and nothing else.

torch is imported when a function is called, so that its error can say what to install.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from uncertainty_sets.errors import BackendMissing, BackendUnsuitable, InvalidInput, InvalidLosses
from uncertainty_sets.oracle import Oracle

if TYPE_CHECKING:
    import torch


FIRST_ONLY = (
    "robust_loss has first derivatives only, in reverse mode: its gradient is the worst-case distribution, "
    "whose own derivative is not computed. Call backward(), autograd.grad(…) without create_graph=True or "
    "torch.func.grad, or treat worst_case_weights(losses, set) as constant weights if that is what you mean"
)


def robust_loss(losses: torch.Tensor, uncertainty_set: Oracle, *, backend: str = "auto") -> torch.Tensor:
    """The largest expected loss over the set: shape (N,) gives a number, (…, N) one number per row.

    The oracle runs on the CPU in float64 and costs what `worst_case` costs; value and gradient come back on
    the device and in the dtype of the losses. Leading axes are a batch, answered in one call. First
    derivatives only: the gradient p* jumps or bends with the losses, and a second backward pass raises
    `BackendUnsuitable` instead of silently ignoring this.

    Args:
        losses: floating point, on any device; NaN or infinity raises `InvalidLosses`.
        uncertainty_set: any set with N entries, or a `Penalised`.
        backend: as in `worst_case`.
    """
    value: torch.Tensor = _untraced(_value)(losses, uncertainty_set, backend)
    return value


def worst_case_weights(
    losses: torch.Tensor, uncertainty_set: Oracle, *, backend: str = "auto"
) -> torch.Tensor:
    """p*, the gradient of `robust_loss`, in the losses' shape, device and dtype; a constant to autograd."""
    weights: torch.Tensor = _untraced(_weights)(losses, uncertainty_set, backend)
    return weights


_disabled: dict[Callable[..., Any], Callable[..., Any]] = {}
"""What `torch.compiler.disable` made of a function; no functools.cache, about which torch.compile warns."""


def _untraced(function: Callable[..., Any]) -> Callable[..., Any]:
    """Keep `torch.compile` out of a function: it fails in numba's code instead of leaving it out."""
    # torch.compiler.disable would import the compiler, which takes a second, for those who do not use it.
    if "torch._dynamo" not in sys.modules:
        return function
    if function not in _disabled:
        _disabled[function] = load_torch().compiler.disable(function)
    return _disabled[function]


def _value(losses: Any, uncertainty_set: Oracle, backend: str) -> Any:
    _check(losses, uncertainty_set)
    return _function().apply(losses, uncertainty_set, backend)[0]


def _weights(losses: Any, uncertainty_set: Oracle, backend: str) -> Any:
    _check(losses, uncertainty_set)
    return _function().apply(losses.detach(), uncertainty_set, backend)[1]


def _check(losses: Any, uncertainty_set: Any) -> None:
    torch = load_torch()
    if isinstance(losses, torch.Tensor) and not isinstance(uncertainty_set, Oracle):
        is_class = isinstance(uncertainty_set, type)
        name = uncertainty_set.__name__ if is_class else "KL"
        given = f"the class {name}" if is_class else repr(uncertainty_set)[:80]
        raise InvalidInput(
            f"uncertainty_set must be an uncertainty set or a Penalised, got {given}: "
            f"write robust_loss(losses, {name}(center, radius))",
            parameter="uncertainty_set",
            value=uncertainty_set,
        )
    if isinstance(losses, Oracle):
        raise InvalidLosses(
            f"robust_loss takes the losses first: write robust_loss(losses, {type(losses).__name__}(…))"
        )
    if not isinstance(losses, torch.Tensor):
        raise InvalidLosses(
            f"losses must be a torch tensor, got {type(losses).__name__}; without torch call set.worst_case"
        )
    if not losses.is_floating_point():
        raise InvalidLosses(f"losses must be floating point, got {losses.dtype}")
    if losses.ndim == 0:
        raise InvalidLosses(
            "losses must have shape (N,) or (…, N), got a single number; keep the losses of groups or "
            "samples apart (reduction='none') instead of taking their mean"
        )


def _answer(losses: Any, uncertainty_set: Oracle, backend: str) -> tuple[Any, Any]:
    """p* and the value as tensors like the losses, outside autograd."""
    torch = load_torch()
    flat = losses.detach().cpu().to(torch.float64)  # first to the CPU: not every device has float64
    rows = flat if flat.ndim == 1 else flat.reshape(-1, flat.shape[-1])
    answer = uncertainty_set.worst_case(rows.numpy(), backend=backend)
    if flat.ndim == 1 and answer.p.ndim == 2:
        raise InvalidLosses(
            f"this set's parameters have {len(answer.p)} rows: losses must have shape {answer.p.shape}, "
            f"got {tuple(losses.shape)}"
        )
    p = torch.from_numpy(answer.p).to(losses.dtype).to(losses.device)
    value = torch.from_numpy(np.asarray(answer.value)).to(losses.dtype).to(losses.device)
    return p.reshape(losses.shape), value.reshape(losses.shape[:-1])


def load_torch(purpose: str = "robust_loss") -> Any:
    """Import torch and return it; `purpose` is what needs it, for the error."""
    try:
        import torch
    except ImportError as error:
        raise BackendMissing(f'{purpose} needs torch: pip install "fdro[torch]"') from error
    return torch


@cache
def _function() -> Any:
    """The autograd functions, made when torch is first needed."""
    torch = load_torch()

    class Gradient(torch.autograd.Function):  # type: ignore[misc, name-defined]
        """p*·(what came from above), and a clear end to differentiation."""

        @staticmethod
        def forward(above: Any, p: Any, losses: Any) -> Any:
            return above.unsqueeze(-1) * p

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            """Nothing to keep."""

        @staticmethod
        def backward(ctx: Any, *above: Any) -> Any:
            raise BackendUnsuitable(FIRST_ONLY)

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            raise BackendUnsuitable(FIRST_ONLY)

        @staticmethod
        def vmap(info: Any, dims: Any, above: Any, p: Any, losses: Any) -> Any:
            parts = [
                each.expand(info.batch_size, *each.shape) if dim is None else each.movedim(dim, 0)
                for each, dim in zip((above, p, losses), dims, strict=True)
            ]
            return Gradient.apply(*parts), 0

    class RobustLoss(torch.autograd.Function):  # type: ignore[misc, name-defined]
        """max over p of pᵀf; its gradient is p*."""

        @staticmethod
        def forward(losses: Any, uncertainty_set: Oracle, backend: str) -> Any:
            p, value = _answer(losses, uncertainty_set, backend)
            return value, p

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.mark_non_differentiable(output[1])
            ctx.save_for_backward(output[1], inputs[0])

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            raise BackendUnsuitable(FIRST_ONLY)

        @staticmethod
        def vmap(info: Any, dims: Any, losses: Any, uncertainty_set: Oracle, backend: str) -> Any:
            return RobustLoss.apply(losses.movedim(dims[0], 0), uncertainty_set, backend), (0, 0)

        @staticmethod
        def backward(ctx: Any, above: Any, _: Any) -> Any:
            p, losses = ctx.saved_tensors  # the losses go along so that a second pass comes by Gradient
            return Gradient.apply(above, p, losses), None, None

    return RobustLoss


_sets: WeakValueDictionary[int, Oracle] = WeakValueDictionary()
_known: WeakKeyDictionary[Oracle, int] = WeakKeyDictionary()  # the number of each set, which it keeps
_numbers = count()


def register(uncertainty_set: Oracle) -> int:
    """Return a number by which `torch.ops.fdro.worst_case_weights(losses, number, backend)` finds the set."""
    _define()
    number = _known.get(uncertainty_set)
    if number is None:
        number = _known[uncertainty_set] = next(_numbers)
        _sets[number] = uncertainty_set
    return number


@cache
def _define() -> None:
    """Define torch.ops.fdro.worst_case_weights, once per process."""
    torch = load_torch()

    def weights(losses: Any, number: int, backend: str) -> Any:
        return worst_case_weights(losses, _sets[number], backend=backend)

    operator = torch.library.custom_op(
        "fdro::worst_case_weights",
        weights,
        mutates_args=(),
        schema="(Tensor losses, int number, str backend) -> Tensor",
    )
    operator.register_fake(lambda losses, number, backend: torch.empty_like(losses))
