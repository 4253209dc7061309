"""Batches in pieces: every row is answered once, whatever the threads do."""

from __future__ import annotations

import threading
from unittest.mock import patch

import numpy as np
import pytest

from uncertainty_sets.kernels import dispatch


@pytest.fixture(params=[1, 2, 5])
def cores(request):
    with patch.object(dispatch, "cores", return_value=request.param):
        yield request.param


@pytest.mark.parametrize(
    ("rows", "entries"), [(1, 10**6), (2, 10**6), (3, 30), (7, 10**6), (9_999, 99_990), (10**5, 10**6)]
)
def test_every_row_runs_once(cores, rows, entries):
    seen = np.zeros(rows, dtype=int)
    lengths = []

    def run(first, after):
        seen[first:after] += 1
        lengths.append(after - first)

    dispatch.run_pieces(run, rows, entries)
    assert (seen == 1).all()
    if cores == 1 or rows == 1 or entries < dispatch.PARALLEL_FROM:
        assert lengths == [rows]
    else:
        assert max(lengths) * entries <= max(entries, dispatch.PIECE * rows)
        assert len(lengths) >= min(rows, cores)


def test_an_error_in_a_helper_is_raised():
    """The caller waits until a helper has taken a piece, which then fails."""
    failed = threading.Event()
    caller = threading.get_ident()

    def run(first, after):
        if threading.get_ident() == caller:
            assert failed.wait(10.0)
        else:
            failed.set()
            raise MemoryError(f"rows from {first}")

    with patch.object(dispatch, "cores", return_value=2), pytest.raises(MemoryError, match="rows from"):
        dispatch.run_pieces(run, 1_000, 10**6)


def test_after_an_error_no_further_piece_is_taken():
    began = threading.Event()
    caller = threading.get_ident()
    taken = []

    def run(first, after):
        if threading.get_ident() == caller:
            assert began.wait(10.0)
            raise KeyboardInterrupt
        taken.append(first)
        began.set()
        threading.Event().wait(0.2)  # the caller's error comes meanwhile

    with patch.object(dispatch, "cores", return_value=2), pytest.raises(KeyboardInterrupt):
        dispatch.run_pieces(run, 1_000, 10**6)
    assert len(taken) < 10  # of 125 pieces


def test_a_busy_pool_holds_up_nobody():
    """All helpers are stuck with another caller's rows: this caller answers all of its own."""
    release = threading.Event()
    with patch.object(dispatch, "cores", return_value=2):
        pool = dispatch._threads(1)
        stuck = [pool.submit(release.wait, 30.0) for _ in range(pool._max_workers)]
        try:
            seen = []
            dispatch.run_pieces(lambda first, after: seen.append((first, after)), 100, 10**6)
            assert sum(after - first for first, after in seen) == 100
        finally:
            release.set()
    assert all(each.result() for each in stuck)
