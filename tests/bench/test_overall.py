"""Where the time of a run goes: the stopwatch, and a small run where the driver is there."""

from __future__ import annotations

import pytest

from bench.complexity import overall, variants


class Counter:
    size = 3

    def double(self, x, *, plus=0):
        if x < 0:
            raise ValueError("negative")
        return 2 * x + plus


def test_a_stopwatch_passes_everything_through():
    watch = overall.Stopwatch(Counter(), "double")
    assert watch.size == 3
    assert watch.double(4, plus=1) == 9
    with pytest.raises(ValueError, match="negative"):
        watch.double(-1)
    assert watch.calls == 2
    assert watch.seconds > 0.0
    with pytest.raises(AttributeError):
        _ = watch.missing


def test_the_parts_of_a_run_add_up():
    box = variants.found(["box"])[0][0]
    found = overall.measure(box, True, 0)
    assert found["gradient"] + found["oracle"] + found["driver"] == pytest.approx(found["total"])
    assert found["iterations"] == overall.QUICK.workers * overall.QUICK.epochs
    assert min(found["gradient_calls"], found["oracle_calls"]) > 0
