"""The caller's array for p: check that an answer fits into it, and put the answer there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from uncertainty_sets.errors import InvalidInput

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from uncertainty_sets.answer import WorstCase
    from uncertainty_sets.arrays import Array


def check(out: Any, losses: Array, given: ArrayLike) -> None:
    """Refuse an `out` that kernels cannot write to, or that overlaps the losses.

    Args:
        out: what the caller gave for p.
        losses: as kernels take them, (N,) or (B, N).
        given: the losses as the caller gave them, which must stay as they are.
    """
    if not isinstance(out, np.ndarray):
        raise _refusal(out, "be a NumPy array", f"got {type(out).__name__}; np.empty(losses.shape) makes one")
    if out.dtype != np.float64:
        raise _refusal(out, "be float64", f"got {out.dtype}; np.empty(losses.shape) makes one that fits")
    if out.shape != losses.shape:
        raise _refusal(out, f"have the shape of p, {losses.shape}", f"got {out.shape}")
    if not out.flags.carray:
        lack = "one that is read-only" if not out.flags.writeable else "one that is not"
        raise _refusal(out, "be C-contiguous, aligned and writable", f"got {lack}")
    if np.may_share_memory(out, losses) or (
        isinstance(given, np.ndarray) and np.may_share_memory(out, given)
    ):
        raise _refusal(out, "not overlap the losses", "got memory of theirs; give an array apart from them")


def place(answer: WorstCase, out: Array) -> WorstCase:
    """The answer with `out` as its p; copied, unless the kernel wrote it there."""
    if not np.may_share_memory(answer.p, out):
        out[...] = answer.p
    answer.p = out
    return answer


def _refusal(out: Any, needed: str, got: str) -> InvalidInput:
    return InvalidInput(f"out must {needed}, {got}", parameter="out", value=out)
