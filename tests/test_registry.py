"""Names of sets, backends, algorithms and engines: collisions, misspellings and broken entry points."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fdro_core import ThreadEngine, VirtualEngine
from fdro_core.baselines import FedAvg
from fdro_core.protocol.algorithm import ALGORITHMS
from fdro_core.protocol.engine import ENGINES
from uncertainty_sets import KL, Box, UncertaintySet, get_set, worst_case
from uncertainty_sets.backends import in_order, select
from uncertainty_sets.backends.base import BACKENDS
from uncertainty_sets.backends.clarabel_ import Clarabel
from uncertainty_sets.backends.highs_ import Highs
from uncertainty_sets.base import SETS
from uncertainty_sets.conic.oracle import program
from uncertainty_sets.errors import NameTaken, UnknownName

ROOT = Path(__file__).resolve().parent.parent

KINDS = {
    "uncertainty set": (SETS, KL, Box),
    "backend": (BACKENDS, Highs, Clarabel),
    "algorithm": (ALGORITHMS, FedAvg, FedAvg),
    "engine": (ENGINES, ThreadEngine, VirtualEngine),
}
"""The registry, a class that it has, and one to derive from."""

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def as_before():
    """What a test defines is forgotten after it."""
    before = {kind: dict(each.classes()) for kind, (each, *_) in KINDS.items()}
    yield
    for kind, (registry, *_) in KINDS.items():
        for name, cls in registry.classes().items():
            while cls is not None and before[kind].get(name) is not cls:
                registry.forget(name)
                cls = registry.classes().get(name)  # noqa: PLW2901 - that which it had replaced
        assert registry.classes() == before[kind]


def define(parent, name, /, **options):
    """A class of this module, as a `class` statement would make it."""
    return type(parent)("Mine", (parent,), {"name": name, "__module__": __name__}, **options)


# -- classes -------------------------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("spelling", [str, str.upper, lambda name: name.replace("-", "_")])
def test_a_name_that_is_taken_is_refused_and_both_classes_are_named(kind, spelling):
    registry, held, parent = KINDS[kind]
    with pytest.raises(NameTaken) as caught:
        define(parent, spelling(held.name))
    text = str(caught.value)
    assert text.startswith(f"two {kind}s are called {spelling(held.name)!r}: ")
    assert f"{held.__module__}.{held.__qualname__}" in text
    assert f"{__name__}.Mine" in text
    assert f"class Mine({parent.__name__}, replace=True)" in text
    assert registry.get(held.name) is held


@every_kind
def test_replace_means_it_and_forget_takes_it_back(kind):
    registry, held, parent = KINDS[kind]
    mine = define(parent, held.name, replace=True)
    assert registry.get(held.name) is mine
    assert registry.classes()[held.name] is mine
    registry.forget(held.name)
    assert registry.get(held.name) is held


@every_kind
def test_a_class_is_found_once_it_is_defined_and_redefined(kind):
    """The same cell of a notebook, or a module that is loaded again, is no collision."""
    registry, _, parent = KINDS[kind]
    with pytest.raises(UnknownName, match=f"no {kind} is called 'of-this-test'"):
        registry.get("of-this-test")
    first, second = define(parent, "of-this-test"), define(parent, "of-this-test")
    assert first is not second
    assert registry.get("of-this-test") is second


@every_kind
def test_what_was_replaced_may_be_loaded_again(kind):
    registry, _, parent = KINDS[kind]

    def of(module):
        return type(parent)(
            "Other", (parent,), {"name": "twice", "__module__": module}, replace=module == "b"
        )

    of("a")
    mine = of("b")
    of("a")
    assert registry.get("twice") is mine
    with pytest.raises(NameTaken, match=r"b\.Other has the name, and c\.Other wants it"):
        of("c")


@every_kind
@pytest.mark.parametrize("name", ["a b", "a:b", " a", "-a", "a/b"])
def test_a_name_that_cannot_be_written_down_is_refused(kind, name):
    with pytest.raises(NameTaken, match=f"{__name__}.Mine cannot be called {name!r}"):
        define(KINDS[kind][2], name)


@every_kind
def test_a_class_without_a_name_of_its_own_is_not_listed(kind):
    registry, _, parent = KINDS[kind]
    before = registry.classes()
    type(parent)("Mine", (parent,), {"__module__": __name__})
    define(parent, "")
    assert registry.classes() == before
    with pytest.raises(TypeError, match=r"Mine\.name must be a string, got 3"):
        define(parent, 3)


def test_the_names_that_mean_something_else_are_no_backends():
    for name in ("auto", "closed-form", "AUTO"):
        with pytest.raises(NameTaken, match="which means something else"):
            define(Highs, name)


def test_a_backend_defined_after_the_first_solve_is_used():
    losses, question = [3.0, 2.0, 1.0], {"D": [[1.0, 0.0, 0.0]], "c": [0.5]}
    assert worst_case("polyhedron", losses, **question).backend == "highs"
    first = type(Highs)("First", (Highs,), {"name": "first", "preference": 0})
    assert worst_case("polyhedron", losses, backend="first", **question).backend == "first"
    assert worst_case("polyhedron", losses, **question).backend == "first"
    posed = program(get_set("polyhedron").example(4))
    assert in_order(posed)[:2] == ["first", "highs"]
    assert type(select("auto", posed)) is first


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "must set package, install and cones"),
        ({"package": "numpy", "install": "numpy"}, "must set cones"),
        ({"package": "numpy", "install": "numpy", "cones": {"zero"}}, "must include zero and nonneg"),
        (
            {"package": "numpy", "install": "numpy", "cones": {"zero", "nonneg", "psd"}},
            "got nonneg, psd, zero",
        ),
    ],
)
def test_a_backend_says_what_it_can_do(data, words):
    from uncertainty_sets.backends import Backend

    with pytest.raises(TypeError, match=words):
        type(Backend)("Mine", (Backend,), {"name": "mine", **data})


def test_a_module_and_a_class_stand_for_a_name():
    assert get_set("uncertainty_sets.sets.kl:KL") is KL
    for text, cause, words in (
        ("no_such_module:KL", ModuleNotFoundError, "No module named 'no_such_module'"),
        ("uncertainty_sets:NoSuchSet", AttributeError, "NoSuchSet"),
        ("fractions:Fraction", TypeError, "not a subclass of uncertainty_sets.base.UncertaintySet"),
        ("uncertainty_sets:UncertaintySet", TypeError, "lacks the method constraints"),
    ):
        with pytest.raises(UnknownName, match=words) as caught:
            get_set(text)
        assert type(caught.value.__cause__) is cause
    with pytest.raises(UnknownName, match="lacks the method check, worker, master, restore"):
        ALGORITHMS.get("fractions:Fraction")


def test_a_reloaded_module_is_no_collision():
    from uncertainty_sets.sets import box

    old = box.Box
    again = importlib.reload(box)
    try:
        assert again.Box is not old
        assert get_set("box") is again.Box
    finally:
        again.Box = old
        SETS.forget("box")
        SETS.define(old)


def test_classes_are_defined_and_looked_up_by_several_threads():
    found, errors = [], []

    def work(place):
        try:
            for turn in range(20):
                name = f"of-thread-{place}-{turn}"
                cls = type(UncertaintySet)("Mine", (Box,), {"name": name, "__module__": f"m{place}"})
                found.append(get_set(name) is cls and cls in SETS.classes().values())
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not errors
    assert found == [True] * 160


def test_a_registered_class_can_be_pickled():
    assert pickle.loads(pickle.dumps(get_set("kl"))) is KL


# -- entry points --------------------------------------------------------------------------------------------

GROUPS = {
    "uncertainty_sets.sets": ("kl", "box", "uncertainty_sets:KL", "uncertainty_sets:UncertaintySet"),
    "uncertainty_sets.backends": (
        "highs", "scs", "uncertainty_sets.backends.highs_:Highs", "uncertainty_sets.backends:Backend",
    ),
    "fdro_core.baselines": (
        "fed-avg", "afl", "fdro_core.baselines:FedAvg", "fdro_core.protocol.algorithm:AlgorithmTraits",
    ),
    "fdro_core.engines": (
        "thread", "ray", "fdro_core:ThreadEngine", "fdro_core.protocol.engine:EngineTraits",
    ),
}  # fmt: skip
"""Of each kind two names that fdro has, a class to derive from, and the base that lacks everything."""
MISSPELT = {
    "uncertainty_sets.sets": ["uncertainty_sets", "uncertainty_sets.set"],
    "uncertainty_sets.backends": ["uncertainty_sets.backend", "uncertainty_sets.solvers"],
    "fdro_core.baselines": ["fdro_core.baseline", "fdro_core.algorithms"],
    "fdro_core.engines": ["fdro_core.engine", "fdro.engines"],
}


def imports(group):
    """The first lines of a package's module."""
    _, _, *classes = GROUPS[group]
    lines = zip(classes, ("Parent", "Bare"), strict=True)
    return "".join("from {} import {} as {}\n".format(*text.split(":"), name) for text, name in lines)


def mistakes(group, place):
    """Packages with one mistake each.

    (package, entry point's name, its value, the module's text, the exception, words of the message)
    """
    first, second, *_ = GROUPS[group]
    start = imports(group)
    cases = [
        ("absent", "", "no_such_module:Mine", "", "ModuleNotFoundError", "No module named"),
        ("lacks", "", "{}:Nope", "", "AttributeError", "Nope"),
        ("number", "", "{}:Mine", "Mine = 3\n", "TypeError", "is not a"),
        ("function", "", "{}:Mine", "def Mine(): ...\n", "TypeError", "is not a"),
        ("foreign", "", "{}:Mine", "class Mine: ...\n", "TypeError", ""),
        ("raises", "", "{}:Mine", "raise ValueError('broken inside')\n", "ValueError", "broken inside"),
        ("syntax", "", "{}:Mine", "class Mine(:\n", "SyntaxError", "invalid syntax"),
        ("leaves", "", "{}:Mine", "import sys\nsys.exit('leaving')\n", "SystemExit", "leaving"),
        ("needs", "", "{}:Mine", "import no_such_package\n", "ModuleNotFoundError", "no_such_package"),
        ("value", "", "not a value!", "", "", ""),
        ("bare", "", "{}:Mine", "class Mine(Bare): ...\n", "TypeError", "lacks the method"),
        (
            "ours",
            first,
            "{}:Mine",
            f"class Mine(Parent):\n    name = {first!r}\n",
            "NameTaken",
            "has the name",
        ),
        ("nameless", second, "{}:Mine", "class Mine(Parent): ...\n", "NameTaken", "has the name"),
        ("other", "", "{}:Mine", f"class Mine(Parent):\n    name = 'y{place}'\n", "TypeError", "same name"),
    ]
    for kind, name, value, text, cause, words in cases:
        module = f"{kind}_{place}"
        yield f"{kind}-{place}", name or f"{kind}-{place}", value.format(module), start + text, cause, words


def install(folder, package, points, modules):
    """A distribution as an installer would have left it on the path."""
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points)
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)


ASK = """
import json, sys, warnings
sys.path.insert(0, sys.argv[1])
from uncertainty_sets.base import SETS
from uncertainty_sets.backends.base import BACKENDS
from fdro_core.protocol.algorithm import ALGORITHMS
from fdro_core.protocol.engine import ENGINES
warnings.simplefilter("always")
found = {}
for registry in (SETS, BACKENDS, ALGORITHMS, ENGINES):
    with warnings.catch_warnings(record=True) as caught:
        registry.get(json.loads(sys.argv[3])[registry.group])
        early = [str(each.message) for each in caught]
        names = {name: cls.__module__ for name, cls in registry.classes().items()}
    answers = {}
    for name in json.loads(sys.argv[2])[registry.group]:
        try:
            answers[name] = ["found", registry.get(name).__module__]
        except Exception as error:
            answers[name] = [type(error).__name__, str(error), type(error.__cause__).__name__]
    found[registry.group] = {
        "early": early, "warned": [str(each.message) for each in caught], "names": names, "answers": answers,
    }
print(json.dumps(found))
"""


def asked(folder, names):
    ours = dict(zip(GROUPS, ("cvar", "cvxpy", "scaffold", "virtual"), strict=True))
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(folder), json.dumps(names), json.dumps(ours)],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_mistake_names_its_package_and_takes_nothing_with_it(tmp_path):
    """All at once: fourteen mistakes of each kind, names used twice, misspelt groups, and a good package."""
    cases, names = {}, {}
    for place, group in enumerate(GROUPS):
        cases[group] = list(mistakes(group, place))
        for package, name, value, text, *_ in cases[group]:
            install(tmp_path, package, f"[{group}]\n{name} = {value}\n", {package.replace("-", "_"): text})
        good = f"{imports(group)}class Good(Parent):\n    name = 'good-{place}'\n"
        points = f"[{group}]\ngood-{place} = good_{place}:Good\n"
        install(tmp_path, f"good-{place}", points, {f"good_{place}": good})
        for twin in ("first", "second"):
            install(tmp_path, f"{twin}-{place}", f"[{group}]\ntwin-{place} = {twin}_{place}:Twin\n", {})
        for wrong in MISSPELT[group]:
            install(tmp_path, f"spelt-{place}-{wrong}", f"[{wrong}]\nx = fractions:Fraction\n", {})
        install(tmp_path, f"garbled-{place}", f"[{group}]\nthis is no entry point\n", {})
        install(tmp_path, f"nobody-{place}", f"[{group}]\nnobody-{place} = no_such_module:Mine\n", {})
        (tmp_path / f"nobody_{place}-1.0.dist-info" / "METADATA").unlink()
        names[group] = [*(name for _, name, *_ in cases[group]), f"good-{place}", f"twin-{place}"]
    assert sum(map(len, cases.values())) + sum(map(len, MISSPELT.values())) + len(GROUPS) == 68

    found = asked(tmp_path, names)
    early = [line for each in found.values() for line in each["early"]]
    for place, (group, (first, second, *_)) in enumerate(GROUPS.items()):
        told = found[group]
        assert len(told["warned"]) == len(set(told["warned"]))
        # Before anything of another package is loaded: names used twice, and misspelt groups.
        (line,) = [each for each in told["early"] if f"'twin-{place}' is published more than once" in each]
        assert f"of the package first-{place} (first_{place}:Twin)" in line
        assert f"of the package second-{place} (second_{place}:Twin)" in line
        assert any(f"entry points of the package garbled-{place} cannot be read" in each for each in early)
        assert any(f"'nobody-{place}' of the package without a name" in each for each in told["warned"])
        for wrong in MISSPELT[group]:
            (line,) = [each for each in early if f"in the group {wrong!r}, which nothing reads" in each]
            assert f"the package spelt-{place}-" in line
            assert "did you mean" in line
        assert told["names"][f"good-{place}"] == f"good_{place}"
        assert f"twin-{place}" not in told["names"]
        assert told["answers"][f"twin-{place}"][0] == "UnknownName"
        assert all(
            told["names"][ours].startswith(("uncertainty_sets.", "fdro_core.")) for ours in (first, second)
        )
        for package, name, _, _, cause, words in cases[group]:
            (line,) = [each for each in told["warned"] if f"of the package {package} cannot" in each]
            assert repr(name) in line
            assert words in line
            assert cause in line
            if name in {first, second}:  # ours is not lost
                assert told["answers"][name][0] == "found"
            else:
                kind, text, original = told["answers"][name]
                assert (kind, text) == ("UnknownName", line)
                assert not cause or original == cause
