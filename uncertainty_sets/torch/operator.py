"""The oracle as an operator of torch, which `torch.compile` calls without a graph break.

An operator takes tensors and numbers only, so a set is passed by a number: `register(set)` returns it. The
caller keeps the set; the table here does not keep it alive.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from uncertainty_sets.oracle import Oracle
from uncertainty_sets.torch.oracle import load_torch, worst_case_weights

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
