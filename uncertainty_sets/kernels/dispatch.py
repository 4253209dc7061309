"""Run a kernel on a set's parameters and name what it found: the one path of all closed forms.

A kernel is ``rows(F, *parameters, warm, P, out)``: losses F (B, N), parameters whose first axis is 1 or B,
starting multipliers `warm` (1 or B rows, NaN for none), and what it writes: P (B, N) and one row of
`out` per loss vector (layout.py). It runs without the GIL, so batches are cut into pieces that
the threads of a pool take in turn; numba's own parallel loops would abort under some of its threading
layers when two threads call them at once, and break after a fork.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import InvalidLosses
from uncertainty_sets.kernels.layout import (
    BOUND,
    COLUMNS,
    DUAL,
    GAP,
    ITERATIONS,
    NOT_FINITE,
    OK,
    STATUS,
    VALUE,
    VIOLATION,
)

PARALLEL_FROM = 50_000  # entries in a batch; below, starting threads costs more than it saves
PIECE = 8_192  # entries that a thread takes at a time: some hundred microseconds, which stay in the cache
COLD = np.full((1, 2), np.nan)

_pool: ThreadPoolExecutor | None = None
_pool_owner = -1
_pool_lock = threading.Lock()


def answer(
    kernel: Callable[..., None], f: Array, parameters: tuple[Array, ...], keys: tuple[str, ...],
    warm_start: WorstCase | None, p: Array | None, vectors: dict[str, Array] | None = None,
    in_loss_units: tuple[int, ...] = (),
) -> WorstCase:  # fmt: skip
    """Run the kernel on one loss vector or a batch and name what it found.

    Args:
        kernel: the set's `rows`.
        f: losses, (N,) or (B, N).
        parameters: the set's, in the kernel's order.
        keys: names of the multipliers that are numbers, at most two.
        warm_start: an earlier answer, whose multipliers start the search.
        p: an array of the losses' shape for the distributions; None makes a new one.
        vectors: multipliers with an entry for each loss, (B, N), which the kernel takes after the
            parameters, reads as a start and overwrites.
        in_loss_units: the places of parameters that are scaled whenever the losses are.
    """
    # 1. Arrays to fill, and multipliers to start from.
    single = f.ndim == 1
    if vectors:
        parameters = (*parameters, *vectors.values())
    F = f.reshape(1, -1) if single else f
    P = np.empty(F.shape) if p is None else p.reshape(F.shape)
    warm = COLD if warm_start is None else _multipliers(warm_start, keys, F.shape[0])
    # 2. One loss vector that comes out: the fast way, since this is what a call at N = 10 spends its time on.
    if single:
        out = np.empty((1, COLUMNS))
        kernel(F, *parameters, warm, P, out)
        # All columns at once, in the order of layout.py: single look-ups in `out` would take longer.
        value, bound, gap, violation, iterations, status, first, second = out[0].tolist()
        if status == OK:
            dual: dict[str, Any] = {keys[0]: first} if keys else {}
            if len(keys) == 2:
                dual[keys[1]] = second
            if vectors:
                dual.update((key, vector[0]) for key, vector in vectors.items())
            return WorstCase(P[0], value, bound, gap, violation, dual, "closed-form", int(iterations))
        columns = out.T
    else:
        columns = _run_rows(kernel, F, parameters, warm, P)
    # 3. Rows that did not come out: again, scaled.
    unproved: tuple[int, ...] = ()
    if columns[STATUS].any():
        unproved = _redo(kernel, F, parameters, len(keys), vectors, P, columns, in_loss_units)
    # 4. Name the columns.
    named = {key: columns[DUAL + k] for k, key in enumerate(keys)} | (vectors or {})
    if single:
        dual = {key: each[0] if each.ndim > 1 else float(each[0]) for key, each in named.items()}
        value, bound, gap, violation, iterations, *_ = columns[:, 0].tolist()
        return WorstCase(P[0], value, bound, gap, violation, dual, "closed-form", int(iterations), unproved)
    return WorstCase(
        P, columns[VALUE], columns[BOUND], columns[GAP], columns[VIOLATION], named, "closed-form",
        columns[ITERATIONS].astype(np.int64), unproved,
    )  # fmt: skip


def reject_not_finite(F: Array) -> None:
    """Raise with the place and value of the first loss that is not finite, if there is one."""
    bad = np.argwhere(~np.isfinite(F))
    if len(bad):
        place = tuple(int(i) for i in bad[0])
        where = f"losses[{', '.join(map(str, place))}]"
        raise InvalidLosses(f"losses must be finite, got {where} = {F[place]}", parameter="losses", value=F)


def on_support(losses: Array, inside: NDArray[np.bool_]) -> Array:
    """Replace losses at entries without mass by one that counts, so that they do not set the scale.

    Args:
        losses: (N,) or (B, N).
        inside: (1 or B, N), which entries may have mass.
    """
    reject_not_finite(losses)
    first = inside.argmax(axis=1)
    picked = losses[..., first] if losses.ndim == 1 else losses[np.arange(len(losses)), first][:, None]
    return np.where(inside if losses.ndim == 2 else inside[0], losses, picked)


def unit(f: Array) -> float:
    """A power of two that brings the spread of the losses near 1."""
    high, low = float(f.max()), float(f.min())
    # Python's numbers overflow to inf without a warning; 1025 is the exponent of a spread of 2·1.8e308.
    exponent = math.frexp(high - low)[1] if math.isfinite(high - low) else 1025
    return math.ldexp(1.0, min(max(-exponent, -1020), 1020))


def _multipliers(previous: WorstCase, keys: tuple[str, ...], rows: int) -> Array:
    """The earlier answer's multipliers as the kernel wants them; NaN (start cold) if they do not fit."""
    warm = np.full((rows, COLD.shape[1]), np.nan)
    for k, key in enumerate(keys):
        try:
            given = np.asarray(previous.dual.get(key, np.nan), dtype=np.float64)
        except (TypeError, ValueError):  # of another kind of set
            continue
        if given.shape in {(), (rows,)}:
            warm[:, k] = given
    return warm


def _redo(
    kernel: Callable[..., None], F: Array, parameters: tuple[Array, ...], scalars: int,
    vectors: dict[str, Array] | None, P: Array, columns: Array, in_loss_units: tuple[int, ...],
) -> tuple[int, ...]:  # fmt: skip
    """Try the rows without a proof again, cold and scaled by a power of two; raise if a loss is not finite.

    Returns the rows that are still without a proof.
    """
    failed = np.flatnonzero(columns[STATUS] != OK)
    if (columns[STATUS, failed] == NOT_FINITE).any():
        reject_not_finite(F[0] if len(F) == 1 else F)
    out = np.empty((1, COLUMNS))
    for b in map(int, failed):
        rows = [parameter[b : b + 1] if len(parameter) > 1 else parameter for parameter in parameters]
        scale = unit(F[b])
        for k in in_loss_units:
            with np.errstate(over="ignore", under="ignore"):
                rows[k] = rows[k] * scale
        kernel(F[b : b + 1] * scale, *rows, COLD, P[b : b + 1], out)
        with np.errstate(over="ignore"):
            out[0, [VALUE, BOUND, GAP]] /= scale
            out[0, DUAL : DUAL + scalars] /= scale
            for vector in (vectors or {}).values():
                vector[b] /= scale
        columns[:, b] = out[0]
    return tuple(int(b) for b in failed if columns[STATUS, b] != OK)


def run_pieces(run: Callable[[int, int], None], rows: int, entries: int) -> None:
    """Call run(first, after) for pieces that together are all rows; large batches on several threads.

    Threads take the next piece from a shared counter whenever they are done with one, so that a thread whose
    core is busy, or whose rows are hard, holds up the others by no more than a piece.

    Args:
        run: answers the rows first, …, after - 1; several threads call it at once, each with rows of its own.
        rows: how many rows there are.
        entries: of all rows together, which decides whether threads are worth it and how long a piece is.
    """
    if entries < PARALLEL_FROM or rows == 1 or (threads := cores()) == 1:
        run(0, rows)
        return
    length = max(1, min(rows * PIECE // entries, -(-rows // threads)))
    counter, end = itertools.count(0, length), rows  # next() on a counter is atomic

    def work() -> None:
        while (first := next(counter)) < end:
            run(first, min(first + length, rows))

    pool = _threads(threads - 1)
    helpers = [pool.submit(work) for _ in range(min(threads, -(-rows // length)) - 1)]
    try:
        work()
    finally:
        end = 0  # after an error or Ctrl-C there is no point in the rest
        # One that has not begun is not waited for: the pool may be busy with another caller's rows.
        begun = [helper for helper in helpers if not helper.cancel()]
        wait(begun)
    for helper in begun:
        helper.result()


def _run_rows(
    kernel: Callable[..., None], F: Array, parameters: tuple[Array, ...], warm: Array, P: Array
) -> Array:
    """Run the kernel on all rows, in pieces; return the columns of layout.py, (COLUMNS, B)."""
    columns = np.empty((COLUMNS, len(F)))

    def run(first: int, after: int) -> None:
        piece = slice(first, after)

        def cut(array: Array) -> Array:
            return array[piece] if len(array) > 1 else array

        out = np.empty((after - first, COLUMNS))
        kernel(F[piece], *(cut(parameter) for parameter in parameters), cut(warm), P[piece], out)
        columns[:, piece] = out.T  # while it is in the cache

    run_pieces(run, len(F), F.size)
    return columns


def cores() -> int:
    """How many cores this process may use."""
    affinity: Any = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _threads(count: int) -> ThreadPoolExecutor:
    """The pool of this process; a new one after a fork."""
    global _pool, _pool_owner  # noqa: PLW0603 - one pool per process, made when first needed
    with _pool_lock:
        if _pool is None or _pool_owner != os.getpid():
            _pool = ThreadPoolExecutor(count, thread_name_prefix="uncertainty_sets")
            _pool_owner = os.getpid()
        return _pool
