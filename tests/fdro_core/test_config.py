"""Settings are checked before the first step, with errors that say what to do."""

from __future__ import annotations

from dataclasses import fields
from functools import partial

import numpy as np
import pytest

from fdro_core import Adaptive, AspireEase, AspireModels, VirtualEngine, resume, solve
from fdro_core.errors import InvalidSetting
from fdro_core.protocol.settings import settings_table
from tests.fdro_core.helpers import Quadratic, middle_box
from uncertainty_sets import KL

BAD = [
    ({"active_workers": 0}, r"active_workers \(S\) must be in 1\.\.4"),
    ({"active_workers": 5}, r"active_workers \(S\) must be in 1\.\.4"),
    ({"active_workers": 1.5}, "active_workers"),
    ({"active_workers": 1, "max_staleness": 3}, "τ >= ⌈N/S⌉ = 4"),
    ({"active_workers": 3, "max_staleness": 1}, "τ >= ⌈N/S⌉ = 2"),
    ({"iterations": 0}, r"iterations \(T\)"),
    ({"plane_interval": 0}, r"plane_interval \(k\)"),
    ({"plane_horizon": -1}, r"plane_horizon \(T₁\)"),
    ({"max_planes": 1}, "max_planes"),
    ({"planes": "some"}, "ease, cp"),
    ({"model_step": 0.0}, r"model_step \(η\)"),
    ({"metric": "full"}, "problem, none"),
    ({"batch_size": 0}, "batch_size"),
    ({"dead_losses": "forget"}, "freeze, drop"),
    ({"deadline": 0.0}, "deadline"),
    ({"resends": -1}, "resends"),
    ({"max_bad_updates": 0}, "max_bad_updates"),
    ({"seed": -1}, "seed"),
    ({"adaptive": Adaptive(few=4)}, r"1\.\.3"),
    ({"adaptive": Adaptive(rule="max")}, "mean, median, seconds"),
    ({"adaptive": Adaptive(threshold=0.0)}, "threshold"),
    ({"adaptive": Adaptive(hysteresis=0.0)}, "hysteresis"),
]


BAD_OF_THE_PAPER = [
    ({"penalty": 0.0}, r"penalty \(κ₁\)"),
    ({"worker_step": float("nan")}, r"worker_step \(η_w\)"),
    ({"value_update": "gradient"}, "value_step"),
    ({"value_floor": 1.0, "value_bound": 0.5}, "value_floor"),
    ({"plane_dual_bound": 0.5}, "α₃"),
    ({"parameter_bound": -1.0}, r"parameter_bound \(α₁\)"),
    ({"consensus_damping_floor": -1.0}, "c̲₂"),
    ({"regularisation": "l2"}, "setting-2"),
    ({"local_steps": 0}, "local_steps"),
    ({"reported_loss": "batch"}, "full, average"),
    ({"consensus_step": "long"}, r"consensus_step \(η_z\) must be a finite number > 0 or a function"),
]


class Untouched(Quadratic):
    def loss_and_gradient(self, w, rng=None, batch_size=None):
        raise AssertionError("a setting must be refused before the first evaluation")


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [(AspireModels, *each) for each in BAD] + [(AspireEase, *each) for each in BAD_OF_THE_PAPER],
    ids=lambda value: str(value)[:40],
)
def test_bad_settings(kind, settings, message):
    with pytest.raises(InvalidSetting, match=message):
        solve([Untouched([0.0])] * 4, middle_box(4), algorithm=kind(**settings))


def test_set_and_problems_must_match():
    with pytest.raises(InvalidSetting, match="4 entries and there are 3 problems"):
        solve([Untouched([0.0])] * 3, middle_box(4))
    with pytest.raises(InvalidSetting, match="without `worst_case`"):
        solve([Untouched([0.0])] * 3, "kl")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"algorithm": AspireModels},
            r"is the class AspireModels; give an object of it, AspireModels\(\.\.\.\)",
        ),
        (
            {"algorithm": "fed-avg"},
            "algorithm is a str without `check`, got 'fed-avg'; give an object",
        ),
        ({"algorithm": {"iterations": 3}}, "algorithm is a dict without `check`"),
        ({"engine": VirtualEngine}, "engine is the class VirtualEngine; give an object of it"),
        ({"engine": "thread"}, r"engine is a str without `start`, got 'thread'; .* ThreadEngine\(\)"),
        ({"uncertainty_set": KL}, "uncertainty_set is the class KL; give an object of it"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_class_or_a_name_instead_of_an_object(given, message, tmp_path):
    arguments = {"uncertainty_set": middle_box(3), **given}
    for start in (solve, partial(resume, tmp_path / "none.npz")):
        with pytest.raises(InvalidSetting, match=message) as caught:
            start([Untouched([0.0])] * 3, **arguments)
        assert {caught.value.parameter: caught.value.value} == given


def test_counts_follow_from_n_and_s():
    plan = AspireModels(active_workers=3).resolve(8)
    assert (plan.iterations, plan.plane_interval, plan.max_staleness) == (4500, 3, 30)


def test_the_paper_mode_runs_and_descends():
    """Gradient steps on h, Setting 2, given step sizes, boxes: the paper to the letter."""
    problems = [Quadratic([0.0, 1.0]), Quadratic([1.0, 0.0]), Quadratic([2.0, 2.0])]
    config = AspireEase(
        active_workers=1,
        iterations=4000,
        penalty=1.0,
        worker_step=0.1,
        consensus_step=0.1,
        value_update="gradient",
        value_step=0.05,
        value_floor=0.0,
        plane_dual_step=0.05,
        consensus_dual_step=0.1,
        regularisation="setting-2",
        parameter_bound=10.0,
        value_bound=10.0,
        plane_dual_bound=10.0,
        consensus_dual_bound=10.0,
        metric="none",
    )
    result = solve(problems, middle_box(3), algorithm=config)
    assert np.isfinite(result.w).all()
    start = middle_box(3).worst_case(np.array([p.loss_and_gradient(np.zeros(2))[0] for p in problems])).value
    best = solve(problems, middle_box(3)).objective
    # Setting 2's damping keeps it away from the optimum, which is why it is not the default.
    assert best <= result.objective < best + 0.5 * (start - best)


@pytest.mark.parametrize("kind", [AspireModels, AspireEase])
def test_every_setting_is_in_the_table_of_the_pages_and_in_the_docstring(kind):
    lines = settings_table(kind).splitlines()
    for name in (each.name for each in fields(kind)):
        [line] = [line for line in lines if line.startswith(f"| `{name}` |")]
        assert line.count("|") == 5, "a cell has a bar"
        assert line.split("|")[-2].strip(), f"{name} has no reason"
        assert f"\n    {name}: " in (kind.__doc__ or ""), f"{name} is missing from the docstring"


def test_settings_of_the_other_class_are_refused():
    for kind, name in ((AspireModels, "penalty"), (AspireEase, "model_step"), (AspireEase, "clip")):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            kind(**{name: 0.1})
