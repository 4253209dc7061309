"""The worst case as a function of torch that has derivatives of any order.

`Solve` maps losses and parameters to (value, p, η). Its derivatives are torch operations on p and η, by the
active face (face.py), so they have derivatives again. torch.compile calls the same as the operator
``fdro::worst_case``. Everything here is float64 on the CPU; oracle.py converts.

This file needs torch, and is imported when a function of oracle.py is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import torch

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.derivatives import NUMPY, bent_map, numbers_of, sensitivity_of
from uncertainty_sets.errors import BackendUnsuitable, InvalidLosses
from uncertainty_sets.face import Face, Rows
from uncertainty_sets.oracle import Oracle

ROWS = Rows(torch)

Names = tuple[str, ...]


def with_numbers(oracle: Oracle, names: Names, parameters: Sequence[Any]) -> Oracle:
    """The set with the tensors' numbers as parameters; a row for each of a tensor's leading axes."""
    if not names:
        return oracle
    now = oracle._given_by_name()
    given = {}
    for name, tensor in zip(names, parameters, strict=True):
        array = tensor.detach().numpy()
        own = array.shape[array.ndim - np.ndim(now[name]) :]
        given[name] = array if array.ndim <= np.ndim(now[name]) + 1 else array.reshape(-1, *own)
    return oracle._with(given)


def ask(oracle: Oracle, losses: Any, backend: str) -> WorstCase:
    """The answer for a tensor of shape (…, N)."""
    rows = losses.detach()
    rows = rows if rows.ndim == 1 else rows.reshape(-1, rows.shape[-1])
    answer = oracle.worst_case(rows.numpy(), backend=backend)
    if rows.ndim == 1 and answer.p.ndim == 2:
        raise InvalidLosses(
            f"this set's parameters have {len(answer.p)} rows: losses must have shape {answer.p.shape}, "
            f"got {tuple(losses.shape)}"
        )
    return answer


def numbers(oracle: Oracle, losses: Any, answer: WorstCase) -> tuple[Any, Any, Any]:
    """Value, p and η of an answer as tensors of the losses' leading axes."""
    leading = losses.shape[:-1]
    eta = np.zeros(1)
    if has_face(oracle) and answer.backend == "closed-form":
        eta = np.asarray(oracle._eta(NUMPY, answer.asked[1], numbers_of(oracle), answer.dual))
    per_row = np.array(np.broadcast_to(eta[..., 0], np.shape(answer.value)))
    if answer.backend != "closed-form":
        per_row += np.nan  # no derivatives of a solver's answer
    return (
        torch.from_numpy(np.array(answer.value)).reshape(leading),
        torch.from_numpy(answer.p).reshape(losses.shape),
        torch.from_numpy(per_row).reshape(leading),
    )


def has_face(oracle: Oracle) -> bool:
    """Whether the set's face is made of operations that torch has too."""
    return type(oracle)._face is not Oracle._face and bool(oracle._given_by_name())


def face_of(oracle: Oracle, names: Names, losses: Any, parameters: Sequence[Any], p: Any, eta: Any) -> Face:
    """The face at (p, η) as torch operations."""
    fixed = {name: torch.from_numpy(np.array(each)) for name, each in numbers_of(oracle).items()}
    given = fixed | dict(zip(names, parameters, strict=True))
    found = oracle._face(ROWS, losses, p, eta[..., None], given)
    assert found is not None
    return found


def refuse(oracle: Oracle, what: str) -> BackendUnsuitable:
    """The error for derivatives that are not known."""
    return BackendUnsuitable(
        f"over {type(oracle).__name__} robust_loss has first derivatives only and worst_case_weights none: "
        f"{what} needs those of its worst case, which are not known. Treat "
        "worst_case_weights(losses, set).detach() as constant weights if that is what you mean"
    )


def pulls(
    oracle: Oracle,
    names: Names,
    losses: Any,
    parameters: Sequence[Any],
    p: Any,
    eta: Any,
    above: Sequence[Any],
) -> tuple[Any, ...]:
    """The pulls on losses and parameters from those on value, p and η, each perhaps None."""
    v, u, omega = above
    if oracle._is_curved and not names and omega is None and u is not None and not _recorded():
        return (_by_kernel(oracle, losses, p, eta, v, u),)
    if has_face(oracle) and (names or u is not None or omega is not None):
        found = face_of(oracle, names, losses, parameters, p, eta).vjp(u, omega, v, names)
        each = [found[name].sum_to_size(at.shape) for name, at in zip(names, parameters, strict=True)]
        return found["losses"].expand(losses.shape), *each
    if names:
        found_once: tuple[Any, ...] = Once.apply(oracle, names, losses, u, v, *parameters)
        return found_once
    if u is not None and not oracle._is_vertex:
        raise refuse(oracle, "this")
    pull = 0.0 * losses if v is None else v[..., None] * p
    return (pull,)


def _recorded() -> bool:
    """Whether what is computed now is differentiated again."""
    return bool(
        torch.is_grad_enabled()
        or torch._C._are_functorch_transforms_active()
        or torch.compiler.is_compiling()
        or torch.autograd.forward_ad._current_level >= 0
    )


def _by_kernel(oracle: Oracle, losses: Any, p: Any, eta: Any, v: Any, u: Any) -> Any:
    """J u + v·p, the pull on the losses, without torch."""
    f, x, q = (each.detach().numpy() for each in (losses, u, p))
    if f.ndim > 2:
        f, x, q = (each.reshape(-1, each.shape[-1]) for each in (f, x, q))
    bent = oracle._bent(q, numbers_of(oracle))
    if bent is None:
        found = face_of(oracle, (), losses, (), p, eta).vjp(u, None, v, ())["losses"]
        return found.expand(losses.shape)
    value = None if v is None else v.detach().numpy().reshape(-1)
    found, _ = bent_map(f, bent, x, eta.numpy().reshape(-1), q, value)
    return torch.from_numpy(found).reshape(losses.shape)


class Once(torch.autograd.Function):  # type: ignore[misc]
    """The pulls by NumPy, for sets whose faces need more than torch has; they have no derivatives again."""

    @staticmethod
    def forward(ctx: Any, oracle: Oracle, names: Names, losses: Any, u: Any, v: Any, *parameters: Any) -> Any:
        """The pulls on the losses and on these parameters."""
        ctx.oracle = oracle
        answer = ask(with_numbers(oracle, names, parameters), losses, "auto")
        p = None if u is None else u.detach().numpy().reshape(answer.p.shape)
        value = None if v is None else v.detach().numpy().reshape(np.shape(answer.value))
        found = sensitivity_of(answer)[0].vjp(p, value, names)  # a pull of NaN passes, as in torch
        return tuple(
            torch.from_numpy(np.array(found[name])).reshape(like.shape)
            for name, like in zip(("losses", *names), (losses, *parameters), strict=True)
        )

    @staticmethod
    def backward(ctx: Any, *above: Any) -> Any:
        """Not known."""
        raise refuse(ctx.oracle, "a second derivative by its parameters")


class Solve(torch.autograd.Function):  # type: ignore[misc]
    """(losses, parameters) to (value, p, η)."""

    @staticmethod
    def forward(oracle: Oracle, backend: str, names: Names, known: Any, losses: Any, *parameters: Any) -> Any:
        """One call of the oracle, or the `known` answer of one."""
        if known is not None:
            return numbers(oracle, losses, known)
        now = with_numbers(oracle, names, parameters)
        return numbers(now, losses, ask(now, losses, backend))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep losses, parameters, p and η."""
        ctx.oracle, _, ctx.names, _, *tensors = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, *output[1:])
        ctx.save_for_forward(*tensors, *output[1:])

    @staticmethod
    def backward(ctx: Any, *above: Any) -> Any:
        """By the face."""
        losses, *parameters, p, eta = ctx.saved_tensors
        if all(each is None for each in above):
            return (None,) * (5 + len(parameters))
        return None, None, None, None, *pulls(ctx.oracle, ctx.names, losses, parameters, p, eta, above)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        """By the face."""
        losses, *parameters, p, eta = ctx.saved_tensors
        moved, *moves = tangents[4:]
        if not has_face(ctx.oracle):
            if any(each is not None for each in moves) or not ctx.oracle._is_vertex:
                raise refuse(ctx.oracle, "forward mode")
            return (p * moved).sum(-1), 0.0 * p, 0.0 * eta
        face = face_of(ctx.oracle, ctx.names, losses, parameters, p, eta)
        given = {name: each for name, each in zip(ctx.names, moves, strict=True) if each is not None}
        dp, deta, value = face.jvp(moved, given)
        return value.expand(eta.shape), dp.expand(p.shape), deta.expand(eta.shape)

    @staticmethod
    def vmap(
        info: Any,
        dims: Any,
        oracle: Oracle,
        backend: str,
        names: Names,
        known: Any,
        losses: Any,
        *parameters: Any,
    ) -> Any:
        """A batch is answered in one call."""
        size = info.batch_size

        def first(tensor: Any, dim: Any) -> Any:
            return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)

        if any(dim is not None for dim in dims[5:]):
            parameters = tuple(first(each, dim) for each, dim in zip(parameters, dims[5:], strict=True))
        return Solve.apply(oracle, backend, names, None, first(losses, dims[4]), *parameters), (0, 0, 0)


solve_now = super(torch.autograd.Function, Solve).apply
"""Solve.apply without `inspect.signature` of forward, which takes 80 µs per call; not under torch.func."""


# -- the operator for torch.compile --------------------------------------------------------------------------

sets: WeakValueDictionary[int, Oracle] = WeakValueDictionary()
_known: WeakKeyDictionary[Oracle, int] = WeakKeyDictionary()  # the number of each set, which it keeps
_numbers = count()


def register(uncertainty_set: Oracle) -> int:
    """Return a number by which operators in a compiled graph find the set."""
    number = _known.get(uncertainty_set)
    if number is None:
        number = _known[uncertainty_set] = next(_numbers)
        sets[number] = uncertainty_set
    return number


register._dynamo_marked_constant = True  # type: ignore[attr-defined]  # torch.compiler.assume_constant_result


def _split(names: str) -> Names:
    """The names of parameters that an operator takes as one string."""
    return tuple(names.split(";")) if names else ()


def _operator(losses: Any, parameters: Sequence[Any], names: str, number: int, backend: str) -> Any:
    found = Solve.forward(sets[number], backend, _split(names), None, losses, *parameters)
    return tuple(each.clone() for each in found)  # an operator's outputs share no memory


def _shapes(losses: Any, parameters: Sequence[Any], names: str, number: int, backend: str) -> Any:
    leading = losses.shape[:-1]
    return losses.new_empty(leading), torch.empty_like(losses), losses.new_empty(leading)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    losses, parameters, names, number, _ = inputs
    ctx.number, ctx.names = number, _split(names)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(losses, *parameters, *output[1:])


def _pull(ctx: Any, *above: Any) -> Any:
    losses, *parameters, p, eta = ctx.saved_tensors
    found, *each = pulls(sets[ctx.number], ctx.names, losses, parameters, p, eta, above)
    return found, each, None, None, None


_worst_case = torch.library.custom_op(
    "fdro::worst_case",
    _operator,
    mutates_args=(),
    schema="(Tensor losses, Tensor[] parameters, str names, int number, str backend)"
    " -> (Tensor, Tensor, Tensor)",
)
_worst_case.register_fake(_shapes)
_worst_case.register_autograd(_pull, setup_context=_keep)
