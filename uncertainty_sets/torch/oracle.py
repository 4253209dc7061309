"""The worst expected loss as a differentiable PyTorch function.

    L(f) = max over p in P of pᵀf,    ∂L/∂f = p*

where p* is the worst-case distribution (Danskin; one of the subgradients if p* is not unique). So a
training loop that has per-group or per-sample losses replaces `losses.mean()` by `robust_loss(losses, set)`
and nothing else. p* has derivatives too, by losses and parameters (solve.py), for sets with a closed form.

torch is imported when a function is called, so that its error can say what to install.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from uncertainty_sets.errors import BackendMissing, InvalidInput, InvalidLosses
from uncertainty_sets.oracle import Oracle
from uncertainty_sets.registry import instead

if TYPE_CHECKING:
    import torch


def robust_loss(
    losses: torch.Tensor, uncertainty_set: Oracle, *, backend: str = "auto", **parameters: torch.Tensor
) -> torch.Tensor:
    """The largest expected loss over the set: shape (N,) gives a number, (…, N) one number per row.

    The oracle runs on the CPU in float64 and costs what `worst_case` costs; value and gradient come back on
    the device and in the dtype of the losses. Leading axes are a batch, answered in one call.

    It has derivatives of any order by the losses and by parameters that are given as tensors, and works under
    torch.func and torch.compile. For sets without a closed form only the first derivative by the losses is
    known; more raises `BackendUnsuitable`. docs/derivatives.md has the table.

    Args:
        losses: floating point, on any device; NaN or infinity raises `InvalidLosses`.
        uncertainty_set: any set with N entries, or a `Penalised`.
        backend: as in `worst_case`.
        **parameters: tensors in place of the set's own parameters, of their shapes, such as ``radius=t``. A
            centre is divided by its sum.

    The derivative by a radius::

        radius = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
        losses = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
        robust_loss(losses, KL([0.5, 0.3, 0.2], 0.1), radius=radius).backward()
        radius.grad  # 2.8122
    """
    library = load_torch()
    _check(library, losses, uncertainty_set)
    if not parameters and not library.compiler.is_compiling() and not _is_transformed(library):
        value: torch.Tensor = _lean()(losses, uncertainty_set, backend)
        return value
    return _answer(library, losses, uncertainty_set, backend, parameters)[0]


def worst_case_weights(
    losses: torch.Tensor, uncertainty_set: Oracle, *, backend: str = "auto", **parameters: torch.Tensor
) -> torch.Tensor:
    """p*, the gradient of `robust_loss`, in the losses' shape, device and dtype.

    It has derivatives by the losses and by parameters given as tensors, as `robust_loss` has; take
    ``.detach()`` for constant weights.
    """
    library = load_torch()
    _check(library, losses, uncertainty_set)
    return _answer(library, losses, uncertainty_set, backend, parameters)[1]


def _is_transformed(torch: Any) -> bool:
    """Whether torch.func or forward mode is at work, for which functions need all of their rules."""
    return bool(torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0)


def _answer(
    torch: Any, losses: Any, uncertainty_set: Oracle, backend: str, parameters: dict[str, Any]
) -> tuple[Any, Any]:
    """Value and p with derivatives of any order."""
    given = _as_numbers(torch, uncertainty_set, parameters) if parameters else {}
    value, p = _differentiable(torch, losses.to("cpu", torch.float64), uncertainty_set, backend, given, None)
    return value.to(losses.device, losses.dtype), p.to(losses.device, losses.dtype)


def _differentiable(
    torch: Any, f: Any, oracle: Oracle, backend: str, given: dict[str, Any], known: Any
) -> tuple[Any, Any]:
    """Value and p for float64 on the CPU: by the parts of a set made of sets, else by the set's own face."""
    from uncertainty_sets.torch import solve

    def ask(part: Oracle, path: str, own: Any) -> tuple[Any, Any]:
        prefix = f"{path}." if path else ""
        mine = {name.removeprefix(prefix): each for name, each in given.items() if name.startswith(prefix)}
        return _differentiable(torch, own, part, "auto", mine, None)

    by_parts: tuple[Any, Any] | None = oracle._by_parts(f, given, ask, torch.cat)
    if by_parts is not None:
        return by_parts
    names, tensors = tuple(given), tuple(given.values())
    if torch.compiler.is_compiling():
        number = solve.register(oracle)
        value, p, _ = torch.ops.fdro.worst_case(f, list(tensors), ";".join(names), number, backend)
    else:
        apply = solve.Solve.apply if _is_transformed(torch) else solve.solve_now
        value, p, _ = apply(oracle, backend, names, known, f, *tensors)
    return value, p


def _as_numbers(torch: Any, oracle: Oracle, parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters as float64 on the CPU, distributions divided by their sums."""
    known, found = dict(_names_of(oracle)), {}
    for name, given in parameters.items():
        if name not in known:
            raise InvalidInput(
                f"{type(oracle).__name__} has no derivative by {name!r}"
                f"{instead(name, known, 'It has those by')}",
                parameter=name,
            )
        each = torch.as_tensor(given).to("cpu", torch.float64)
        found[name] = _divided(torch, name, each) if known[name] else each
    return found


def _divided(torch: Any, name: str, given: Any) -> Any:
    """A distribution divided by its sum; a trace or torch.func cannot look at its numbers."""
    total = given.sum(-1, keepdim=True)
    hidden = torch.compiler.is_compiling() or _is_transformed(torch)
    if not hidden and bool((total.detach() == 0.0).any()):
        raise InvalidInput(
            f"{name} is divided by its sum, which is 0: give a tensor with a positive sum, such as a softmax",
            parameter=name,
            value=given,
        )
    return given / total


def _names_of(oracle: Oracle) -> tuple[tuple[str, bool], ...]:
    """The parameters with derivatives, and whether each is a distribution."""
    return tuple((name, oracle._is_distribution(name)) for name in oracle._given_by_name())


# torch.compile takes the answer as a constant, as torch.compiler.assume_constant_result would mark it.
_names_of._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _check(torch: Any, losses: Any, uncertainty_set: Any) -> None:
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


def load_torch(purpose: str = "robust_loss") -> Any:
    """Import torch and return it; `purpose` is what needs it, for the error."""
    try:
        import torch
    except ImportError as error:
        raise BackendMissing(f'{purpose} needs torch: pip install "fdro[torch]"') from error
    return torch


@cache
def _lean() -> Any:
    """The value alone, with a first derivative that costs no more than it must."""
    torch = load_torch()
    from uncertainty_sets.torch import solve

    class Value(torch.autograd.Function):  # type: ignore[misc, name-defined]
        """max over p of pᵀf; its gradient p* gets derivatives only if it is differentiated again."""

        @staticmethod
        def forward(ctx: Any, losses: Any, oracle: Oracle, backend: str) -> Any:
            f = losses.detach()
            plain = f.dtype is torch.float64 and f.device.type == "cpu"
            answer = solve.ask(oracle, f if plain else f.cpu().double(), backend)
            ctx.save_for_backward(losses)
            ctx.oracle, ctx.backend, ctx.answer = oracle, backend, answer
            if losses.ndim == 1:
                return torch.scalar_tensor(answer.value, dtype=f.dtype, device=f.device)
            return torch.from_numpy(answer.value).to(f).reshape(f.shape[:-1])

        @staticmethod
        def backward(ctx: Any, above: Any) -> Any:
            (losses,) = ctx.saved_tensors
            if torch.is_grad_enabled():
                f = losses.to("cpu", torch.float64)
                _, p = _differentiable(torch, f, ctx.oracle, ctx.backend, {}, ctx.answer)
            else:
                p = torch.from_numpy(ctx.answer.p)
                if losses.ndim > 2:
                    p = p.reshape(losses.shape)
            if p.dtype != losses.dtype or p.device != losses.device:
                p = p.to(losses.device, losses.dtype)
            return (above * p if losses.ndim == 1 else above[..., None] * p), None, None

    return super(torch.autograd.Function, Value).apply  # without `inspect.signature`: 80 µs per call


@cache
def define_weights() -> None:
    """Define torch.ops.fdro.worst_case_weights for GroupRobustLoss, once per process."""
    torch = load_torch()
    from uncertainty_sets.torch import solve

    def weights(losses: Any, number: int, backend: str) -> Any:
        return worst_case_weights(losses, solve.sets[number], backend=backend)

    operator = torch.library.custom_op(
        "fdro::worst_case_weights",
        weights,
        mutates_args=(),
        schema="(Tensor losses, int number, str backend) -> Tensor",
    )
    operator.register_fake(lambda losses, number, backend: torch.empty_like(losses))


def register(uncertainty_set: Oracle) -> int:
    """Return a number by which `torch.ops.fdro.worst_case_weights(losses, number, backend)` finds the set."""
    from uncertainty_sets.torch import solve

    define_weights()
    return solve.register(uncertainty_set)
