"""Run files: the names in them, and mistakes; the message has the line and the field, nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from fdro_core import AspireEase, AspireModels, Straggler, baselines
from fdro_core.baselines import FedAvg
from fdro_core.cli.runs import run_file
from fdro_core.errors import InvalidSetting
from fdro_core.protocol.algorithm import ALGORITHMS
from fdro_core.protocol.engine import ENGINES
from tests.fdro_core.command import RUN_FILE, fdro

pytestmark = pytest.mark.usefixtures("place")


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("radius = 0.1", "radius = -0.1", 9, "set.radius: radius must not be negative, got -0.1"),
        ("radius = 0.1", "radus = 0.1", 9, "set.radus: kl has no parameter 'radus'; did you mean 'radius'?"),
        ("radius = 0.1", "", 7, "set: kl needs radius"),
        ("radius = 0.1", "radius = 0.1\ncenter = [0.5, 0.5]", 10,
         "set.center: the set has 2 entries, and there are 3"),
        ("radius = 0.1", 'radius = 0.1\ncenter = "@q.npy"', 10, "set.center: there is no file"),
        ("radius = 0.1", 'radius = 0.1\ncenter = "0.5,x,1"', 10, "set.center: the value: entry 2 of 3 is"),
        ('"kl"', '"lk"', 8, "set.name: no uncertainty set is called 'lk'; did you mean 'kl'?"),
        ("samples.csv", "sample.csv", 2, "data.source: there is no file"),
        ("samples.csv", "digit", 2, "did you mean 'digits'?"),
        ("samples.csv", "nowhere:load", 2, "there is no module 'nowhere'"),
        ('"samples.csv"', '"samples.csv"\nworker = "hospital"', 3, "data.worker: "),
        ('"samples.csv"', '"samples.csv"\nlabel = "labels"', 3, "did you mean 'label'?"),
        ('"samples.csv"', '"samples.csv"\nfeatures = ["a", "label"]', 3, "column 'label' is the label"),
        ('"samples.csv"', '"samples.csv"\ntest_fraction = 1.5', 3, "data.test_fraction: must be in [0, 1)"),
        ('"samples.csv"', '"samples.csv"\nseed = 1.5', 3, "data.seed: must be a whole number, got 1.5"),
        ("l2 = 0.01", "l2 = -1", 5, "model.l2: must be a number >= 0, got -1.0"),
        ("l2 = 0.01", "l2 = true", 5, "model.l2: must be a number, got True"),
        ("l2 = 0.01", 'kind = "logistic"', 5, "model.kind: there is no 'logistic'"),
        ("l2 = 0.01", 'kind = "least-squares"', 5, "model.kind: least-squares needs numbers as labels"),
        ("l2 = 0.01", 'kind = "huber"', 5, "model.kind: huber needs numbers as labels"),
        ("l2 = 0.01", "epsilon = 2", 5, "model.epsilon: [model] has no field `epsilon`"),
        ("iterations = 120", "iteration = 120", 12, "did you mean 'iterations'?"),
        ("iterations = 120", 'iterations = "many"', 12, "algorithm.iterations: must be a whole number"),
        ("iterations = 120", "active_workers = 4", 12, "active_workers (S) must be in 1..3"),
        ("iterations = 120", 'name = "fedavgg"', 12, "did you mean 'fed-avg'?"),
        ("iterations = 120", "adaptive = { few = 9 }", 12, "Adaptive.few (s) must be in 1..2"),
        ("seed = 3", 'name = "vitual"', 15, "did you mean 'virtual'?"),
        ("seed = 3", 'delays = { law = "normal" }', 15, "engine.delays.law: there is no 'normal'"),
        ("seed = 3", 'delays = { law = "constant", seconds = -1 }', 15, "must be a finite number > 0"),
        ("seed = 3", "lost = 2.0", 15, "engine.lost: VirtualEngine.lost must be a chance in [0, 1)"),
        ("worker = 0", "worker = 7", 16, "engine.stragglers[0].worker: there are workers 0 to 2, got 7"),
        ("worker = 0", 'worker = "w9"', 16, "no worker is called 'w9'"),
        ("worker = 0", "worker = 0.5", 16, "worker: must be a whole number, got 0.5"),
        ("factor", "facter", 16, "engine.stragglers[0].facter: "),
        ("[engine]", "[engin]", 14, "a run file has no table [engin]; did you mean 'engine'?"),
        ("[engine]", "[stop]\nstationary = -1\n[engine]", 15, "stop.stationary: StopWhenStationary.epsilon"),
        ("l2 = 0.01", "l2 = ", 5, "this is not TOML"),
        ("seed = 3", "name = virtual", 15, 'words need quotes: name = "virtual"'),
        ("iterations = 120", 'name = "fedavg"\nactive_workers = 1', 13, "ease and aspire-models: take"),
        ("l2 = 0.01", f"l2 = {10**400}", 5, "model.l2: must be below 1e308 in size"),
        ("radius = 0.1", f"radius = {10**400}", 9, "set.radius: radius must be real numbers"),
        ("seed = 3", f'delays = {{ law = "constant", seconds = {10**400} }}', 15, "engine.delays"),
        ("iterations = 120", "iterations = " + "9" * 5000, 12, "a number of 5000 digits is too long"),
        ("samples.csv", "x" * 300 + ".csv", 2, "data.source: "),
        ("samples.csv", "x" * 300 + ".npz", 2, "cannot be read: File name too long"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_with_their_line(old, new, line, words):
    assert old in RUN_FILE
    Path("run.toml").write_text(RUN_FILE.replace(old, new, 1))
    message = fdro("train", "run.toml", code=2).stderr
    assert message.startswith(f"error: run.toml:{line}: ")
    assert words in message
    assert not Path("run").exists()


def test_lines_are_found_past_arrays_and_long_strings():
    from fdro_core.cli.runs.fields import Source

    text = 'note = """\n[set]\nradius = 1\n"""\n[set]\nD = [\n  [1, 0],\n  [0]\n]\nradius = 2\n'
    text += "[[engine.crashes]]\nworker = 1\n[[engine.crashes]]\nworker = 2\n"
    source = Source(text, "x.toml")
    assert source.line("set", "radius") == 10
    assert source.line("engine", "crashes", 1, "worker") == 14


def test_a_worker_column_that_is_missing():
    text = Path("samples.csv").read_text().replace("worker", "site", 1)
    Path("samples.csv").write_text(text)
    message = fdro("train", "run.toml", code=2).stderr
    assert "has no column 'worker'. It has: a, b, label, site" in message


def test_nan_in_the_samples():
    lines = Path("samples.csv").read_text().splitlines()
    lines[4] = "nan,1.0,ill,w0"
    Path("samples.csv").write_text("\n".join(lines))
    assert (
        "line 5, column 'a': 'nan' is no number. In [data], missing = "
        in fdro("train", "run.toml", code=2).stderr
    )


def test_the_names_of_what_fdro_has():
    assert {"afl", "aspire-ease", "drfa-prox", "fed-avg", "individual", "mix-even"} <= set(
        ALGORITHMS.classes()
    )
    assert {"ray", "thread", "virtual"} <= set(ENGINES.classes())
    assert {"constant", "exponential", "log-normal", "trace"} <= set(run_file.delay_laws())


def test_run_files_spell_an_algorithm_as_its_class():
    ours = [cls for cls in ALGORITHMS.classes().values() if cls.__module__.startswith("fdro_core.")]
    assert {AspireModels, AspireEase, *(getattr(baselines, each) for each in baselines.__all__)} == set(ours)
    assert [cls.name for cls in ours] == [run_file.kebab(cls.__name__) for cls in ours]


def test_spelling_does_not_matter():
    for text in ("FedAvg", "fed_avg", "FED-AVG", "fedavg"):
        assert run_file.find_class(ALGORITHMS, text) == ("fed-avg", FedAvg)
    with pytest.raises(InvalidSetting, match="no algorithm is called 'fedavgg'; did you mean 'fed-avg'"):
        run_file.find_class(ALGORITHMS, "fedavgg")


MANY = """set = { name = "KL", radius = -0.1, center = "sample" }

[data]
sorce = "samples.csv"
missing = "median"

[model]
kind = "logistic"
l2 = "small"

[algorithm]
name = "AspireModels"
iterations = 1e4
active_workers = 0
active_workrs = 2

[engine]
stragglers = [{ worker = "w9", factor = 20 }, { worker = 9, factor = 20 }]
delays = { law = "lognormal" }

[stop]
seconds = -1
loss = "low"
"""


def test_all_mistakes_are_told_at_once():
    Path("run.toml").write_text(MANY)
    told = fdro("check", "run.toml", code=2).stderr
    fields = [line.split(": ")[:2] for line in told.splitlines()[1:]]
    assert [(int(place.rpartition(":")[2]), field) for place, field in fields] == [
        (1, "set.center"), (1, "set.radius"), (4, "data.sorce"), (5, "data.missing"), (8, "model.kind"),
        (9, "model.l2"), (13, "algorithm.iterations"), (14, "algorithm.active_workers"),
        (15, "algorithm.active_workrs"), (18, "engine.stragglers[0].worker"),
        (18, "engine.stragglers[1].worker"), (19, "engine.delays.law"), (22, "stop.seconds"),
        (23, "stop.loss"),
    ]  # fmt: skip
    assert told.startswith("error: run.toml: 14 mistakes")
    assert "[data] needs `source`, a string in quotes; `sorce` is no field" in told


def test_a_mistake_is_told_once_and_without_its_consequences():
    """A field of the wrong type is not missing, and a part that could not be made is not checked further."""
    Path("run.toml").write_text(
        RUN_FILE.replace("radius = 0.1", 'radius = "wide"').replace("l2 = 0.01", "l2 = -1")
    )
    told = fdro("check", "run.toml", code=2).stderr
    assert told.splitlines()[0] == "error: run.toml: 2 mistakes"
    assert len(told.splitlines()) == 3


def test_several_mistakes_are_one_error():
    from fdro_core.errors import InvalidConfig, SeveralMistakes

    Path("run.toml").write_text(MANY)
    with pytest.raises(SeveralMistakes) as caught:
        run_file.load(Path("run.toml"))
    assert all(isinstance(each, InvalidConfig) for each in caught.value.mistakes)
    assert [each.line for each in caught.value.mistakes] == sorted(
        each.line for each in caught.value.mistakes
    )


def test_a_straggler_by_its_name():
    Path("run.toml").write_text(RUN_FILE.replace("worker = 0", 'worker = "w1"'))
    assert run_file.load(Path("run.toml")).engine.stragglers[0].worker == 1
    with pytest.raises(InvalidSetting, match=r"Straggler\.worker must be a worker's number, counted from 0"):
        Straggler("Dresden", factor=10.0)
