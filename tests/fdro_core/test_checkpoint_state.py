"""A checkpoint's state is looked over before it is taken up."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

from fdro_core import AspireEase, AspireModels, Constant, ThreadEngine, VirtualEngine, resume, solve
from fdro_core.baselines import ACE, AFL, QFFL, DRFAProx, FedAsync, FedAvg, FedBuff, Scaffold, ScaffPD
from fdro_core.errors import CheckpointDamaged, CheckpointMismatch, CheckpointWarning
from fdro_core.master import checkpoint as snapshots
from fdro_core.observers import Checkpoint
from tests.fdro_core.engine_kinds import quadratics
from tests.fdro_core.helpers import Quadratic, middle_box, softmax_problems
from uncertainty_sets.errors import FdroError

ADMM = AspireEase()
WRITERS = {
    "aspire-virtual": (AspireEase(iterations=4), VirtualEngine),
    "fedavg-virtual": (FedAvg(iterations=4), VirtualEngine),
    "aspire-threads": (AspireEase(active_workers=3, iterations=4), lambda: ThreadEngine(2)),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Checkpoints of runs, by name."""
    folder = tmp_path_factory.mktemp("written")
    for name, (config, engine) in WRITERS.items():
        write = Checkpoint(folder / name)
        solve(quadratics(), middle_box(3), algorithm=config, engine=engine(), observers=[write])
    return lambda name: folder / name


@pytest.mark.parametrize(
    ("name", "config", "engine", "message"),
    [
        ("fedavg-virtual", AspireModels(), VirtualEngine(), "algorithm: FedAvg → AspireModels"),
        ("aspire-virtual", FedAvg(), VirtualEngine(), "algorithm: AspireEase → FedAvg"),
        ("aspire-virtual", AspireModels(), VirtualEngine(), "algorithm: AspireEase → AspireModels"),
        ("aspire-threads", ADMM, VirtualEngine(), "from an engine on a wall clock"),
        ("aspire-virtual", ADMM, ThreadEngine(2), "not from an engine on a wall clock"),
        ("aspire-virtual", ADMM, VirtualEngine(delays=[Constant()] * 3), "1 delay laws"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused_in_words(written, name, config, engine, message):
    warnings.simplefilter("ignore", CheckpointWarning)  # what `force` tells of first; pytest takes it back
    with pytest.raises(FdroError, match=message):
        resume(written(name), quadratics(), middle_box(3), algorithm=config, engine=engine, force=True)


def test_a_checkpoint_for_other_numbers_of_things(written):
    with (
        pytest.warns(CheckpointWarning),
        pytest.raises(CheckpointMismatch, match="3 workers and there are 2"),
    ):
        resume(written("aspire-virtual"), quadratics()[:2], middle_box(2), algorithm=ADMM, force=True)
    problems = [Quadratic([0.0]) for _ in range(3)]
    with pytest.warns(CheckpointWarning), pytest.raises(CheckpointMismatch, match=r"2 parameters.* have 1"):
        resume(written("aspire-virtual"), problems, middle_box(3), algorithm=ADMM, force=True)


METHODS = {
    "models": AspireModels(tolerance=0.0, iterations=20, active_workers=2),
    "mini-batches": AspireModels(iterations=20, active_workers=2, batch_size=4),
    "admm": AspireEase(iterations=20, active_workers=2),
    "drfa-prox": DRFAProx(iterations=8),
    "afl": AFL(iterations=8),
    "fed-async": FedAsync(iterations=20),
    "fed-buff": FedBuff(iterations=8, buffer=3, preconditioner="gradients", averaging=0.1),
    "ace": ACE(iterations=20, max_age=6),
    "q-ffl": QFFL(iterations=8),
    "scaffold": Scaffold(iterations=8),
    "scaff-pd": ScaffPD(iterations=8),
}


CORRECTED = ["scaffold", "scaff-pd"]


MODELS = ["models", "mini-batches"]
ROUNDS, ARRIVALS = ["drfa-prox", "afl"], ["fed-async", "fed-buff", "ace"]


@pytest.fixture(scope="module")
def sound(request, tmp_path_factory):
    """A function that gives the state of a checkpoint, and one that resumes from a state."""
    config, path = METHODS[request.param], tmp_path_factory.mktemp("sound") / "run.npz"
    problems, box = softmax_problems(3), middle_box(3)
    solve(problems, box, algorithm=config, observers=[Checkpoint(path)])

    def go_on(state, **settings):
        snapshots.write(path, state)
        longer = replace(config, iterations=config.iterations + 4)
        return resume(path, problems, box, algorithm=longer, **settings)

    content = path.read_bytes()

    def fresh():
        path.write_bytes(content)
        return snapshots.read(path)

    return fresh, go_on


every_method = pytest.mark.parametrize("sound", METHODS, indirect=True)


def change(state, name, by):
    """Put by(entry) in the place of an entry."""
    *parents, last = name
    for key in parents:
        state = state[key]
    state[last] = by(state[last])


def remove(state, name):
    """Take an entry out."""
    *parents, last = name
    for key in parents:
        state = state[key]
    del state[last]


CHANGES = {
    "model": (["admm"], "master.consensus.z", lambda z: z * np.nan, "NaN"),
    "a baseline's model": (ROUNDS + ARRIVALS, "master.state.w", lambda w: w * np.inf, "NaN or infinity"),
    "iteration": (METHODS, "master.iteration", lambda t: -1, "whole number >= 0, got -1"),
    "half an iteration": (METHODS, "master.iteration", lambda t: t + 0.5, "whole number"),
    "no iteration": (METHODS, "master.iteration", lambda t: None, "whole number"),
    "a short model": (["admm"], "master.consensus.z", lambda z: z[:-1], "parameters"),
    "short duals": (["admm"], "master.consensus.U", lambda U: U[:, :-1], "8 entries where p is 9"),
    "a worker too few": (["admm"], "master.consensus.w", lambda w: w[:-1], "2 entries where N is 3"),
    "sum": (["admm"], "master.consensus.total", lambda total: total + 1e-3, "not the sum"),
    "a point": (["admm"], "master.consensus.w", lambda w: [w[0] + 1.0, *w[1:]], "not the sum"),
    "penalty": (["admm"], "master.consensus.penalty", lambda k: 0.0, "> 0"),
    "metric": (["admm"], "master.consensus.metric", lambda D: -D, "> 0"),
    "live": (METHODS, "master.roster.live", lambda n: n - 1, "workers are alive"),
    "nobody": (METHODS, "master.roster.under_way", lambda w: [7], "worker 7"),
    "plane": (["admm"], "master.adversary.planes.table", lambda P: 2 * P, "not a distribution"),
    "loss": (["admm"], "master.adversary.losses", lambda f: f + 1.0, "do not agree"),
    "planes": (["admm"], "master.adversary.planes.size", lambda n: 99, "with room for 20"),
    "weights": (ROUNDS + ARRIVALS, "master.state.weights", lambda p: 2 * p, "not a distribution"),
    "step": (ROUNDS + ARRIVALS, "master.state.step", lambda s: float("inf"), "finite number > 0"),
    "float32": (["admm"], "master.consensus.z", lambda z: z.astype(np.float32), "float64"),
    "clock": (METHODS, "engine.clock", lambda t: float("nan"), "finite number"),
    "events": (METHODS, "engine.events", lambda e: [[1.0]], "lists of six"),
    "a worker's model": (["admm", *ROUNDS, *ARRIVALS],
        "engine.workers", lambda w: [{**w[0], "w": w[0]["w"][:2]}, *w[1:]], "p"),
    "model of models": (MODELS, "master.models.z", lambda z: z * np.nan, "NaN"),
    "float32 in models": (MODELS, "master.models.X", lambda X: X.astype(np.float32), "float64"),
    "a gradient too few": (MODELS, "master.models.G", lambda G: G[:-1], "2 entries where N is 3"),
    "a short plane": (["models"], "master.models.E", lambda E: E[:, :-1], r"E must be .*\(planes, p\)"),
    "a curvature": (["models"], "master.models.curvature", lambda c: 2 * c, "do not agree"),
    "no curvature": (["models"], "master.models.curvature", lambda c: 0 * c, "> 0"),
    "a running loss": (["mini-batches"], "master.models.losses", lambda f: f + 1.0, "do not agree"),
    "a short average": (["mini-batches"], "master.models.average", lambda z: z[:-1], r"must be .*\(p\)"),
    "negative weight": (MODELS, "master.planes._multipliers", lambda v: -v, "not a distribution"),
    "squares": (["fed-buff"], "master.state.squares", lambda v: -v, "squares must be >= 0"),
    "a sum": (["fed-buff", "ace"], "master.state.memory.sum", lambda u: u * np.nan, "sum holds NaN"),
    "a short sum": (["fed-buff", "ace"], "master.state.memory.sum", lambda u: u[:-1], "8 entries where p"),
    "an update": (["ace"], "master.state.memory.updates", lambda u: {7: u[0]}, "ACE never remembers"),
    "a count": (["fed-buff"], "master.state.memory.count", lambda n: 2.5, "FedBuff never remembers"),
    "one message": (ARRIVALS, "master.dispatched", lambda m: m[1:], "leaves out workers"),
    "a stranger's message": (ARRIVALS, "master.dispatched", lambda m: [[7, m[0][1]], *m], "worker 7"),
    "a round's metric": (["afl", *CORRECTED], "master.state.metric", lambda D: 0 * D, "metric must be >= 2"),
    "a control too few": (CORRECTED, "master.state.controls", lambda c: c[:-1], "2 entries where N is 3"),
    "a short control": (["scaffold"], "master.job.control", lambda c: c[:-1], "8 entries where p is 9"),
    "no controls": (CORRECTED, "master.state.controls", lambda c: None, "controls"),
    "no metric": (["q-ffl", *CORRECTED], "master.state.metric", lambda D: None, "metric, which .* needs"),
    "a look at delays": (["afl", "scaffold"], "master.roster.look_at", lambda t: 2.5, "None in rounds"),
    "earlier losses": (["scaff-pd"], "master.state.earlier", lambda f: f * np.nan, "NaN"),
    "history": (METHODS, "history.others", lambda h: [[0, 3]], "dicts"),
    "an entry twice": (METHODS, "history.others", lambda h: [*h, h[-1]], "each once"),
    "a column": (METHODS, "history.rows", lambda r: r[:, :-1], "columns where"),
    "a layout": (METHODS, "history.layout", lambda h: [["losses", "vector", "x"]], "name, a kind"),
    "a stride": (METHODS, "history.stride", lambda h: 0, "whole number >= 1"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("sound", "what"),
    [(method, what) for method in METHODS for what in CHANGES if method in CHANGES[what][0]],
    indirect=["sound"],
)
def test_values_are_checked(what, sound):
    _, name, by, message = CHANGES[what]
    (fresh, go_on), entry = sound, name.split(".")
    state = fresh()
    change(state, entry, by)
    with pytest.raises((CheckpointDamaged, CheckpointMismatch), match=message):
        go_on(state)


@pytest.mark.parametrize("sound", ["admm"], indirect=True)
def test_sums_that_do_not_agree_can_be_forced(sound):
    fresh, go_on = sound
    state = fresh()
    change(state, ["master", "consensus", "total"], lambda total: total + 1e-3)
    with pytest.warns(CheckpointWarning, match="not the sum"):
        go_on(state, force=True)


def test_a_model_that_came_to_lie_at_zero(tmp_path):
    """What was rounded when the numbers were large is large beside numbers that are tiny now: no damage."""
    path, problems = tmp_path / "run.npz", [Quadratic([0.0], scale=each) for each in (1.0, 2.0, 3.0)]
    config = AspireEase(iterations=3000, plane_horizon=3)
    run = {"problems": problems, "uncertainty_set": middle_box(3)}
    solve(**run, algorithm=config, start=[1e6], observers=[Checkpoint(path)])
    assert abs(snapshots.read(path)["master"]["consensus"]["z"]).max() < 1e-6
    assert resume(path, **run, algorithm=replace(config, iterations=3010)).iterations == 3010


def names_of(value, prefix=()):
    """The names of all entries of nested dicts."""
    for key, part in value.items():
        yield (*prefix, key)
        if isinstance(part, dict):
            yield from names_of(part, (*prefix, key))


@every_method
@pytest.mark.few(3)
def test_whatever_is_missing_is_missed_in_words(sound):
    """Each entry taken out: an error of ours, or a run that can do without it. Nothing raw."""
    fresh, go_on = sound
    refused, words = [], []
    for name in list(names_of(fresh())):
        state = fresh()
        remove(state, name)
        try:
            result = go_on(state)
        except FdroError as error:
            refused.append(name)
            words.append(str(error))
        else:
            assert np.isfinite(result.objective)
    assert {("master",), ("engine",), ("history",), ("belongs_to",)} <= set(refused)
    assert ("master", "roster") in refused
    assert len(refused) > 20
    assert min(map(len, words)) > 40


JUNK = [None, "x", -1, 2.5, float("nan"), [], {}, np.zeros((2, 2))]


@every_method
@pytest.mark.few(3)
def test_whatever_is_junk_is_told_in_words(sound):
    """Each entry replaced by something else, with a digest that fits: an error of ours, or a run."""
    fresh, go_on = sound
    rng = np.random.default_rng(0)
    for name in list(names_of(fresh())):
        state, junk = fresh(), JUNK[rng.integers(len(JUNK))]
        change(state, name, lambda _, junk=junk: junk)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CheckpointWarning)
            try:
                go_on(state)
            except FdroError:
                continue
            except Exception as error:
                raise AssertionError(f"{name} = {junk!r}") from error
