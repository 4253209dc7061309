"""A secret is planted wherever the code of a private worker can raise: nothing that leaves it may have it.

One run has a worker for every place and every way of raising. Whatever reaches the master is searched:
warnings with their tracebacks, errors with their causes and notes, also pickled, the history, the result, a
checkpoint.
"""

from __future__ import annotations

import json
import logging
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest

from fdro_core import AspireModels, FlowerEngine, NamedProblem, Privacy, ProblemFrom, SoftmaxRegression, solve
from fdro_core.engines.flower_.client import client_app
from fdro_core.observers import Checkpoint
from fdro_core.privacy.gate import Gate, Refusal, passed
from fdro_core.protocol.failures import traceback_of, words
from fdro_core.protocol.messages import Begin, Message
from tests.fdro_core.engine_kinds import EVERY, FLOWER, RAY, THREAD, VIRTUAL, kinds
from tests.fdro_core.flower_loopback import LocalNodes
from tests.fdro_core.helpers import Quadratic
from uncertainty_sets import TotalVariation

pytest.importorskip("dp_accounting")

SECRET = "patient-17-has-diabetes"
HERE = __name__
PRIVACY = Privacy(epsilon=50.0, noise=20.0, bound=1.0, loss_bound=2.0)
CLIENT = Privacy(epsilon=50.0, noise=60.0, bound=1.0, loss_bound=2.0, unit="client")
AT_ONCE, LATER = 1, 3  # which evaluation raises


class Loud(Exception):
    """Speaks whenever it can."""

    def __str__(self):
        raise ValueError(SECRET)

    def __reduce__(self):
        return (Loud, (SECRET,), {"more": SECRET})


class Unusual(BaseException):
    """Is no Exception."""


def named_after_it():
    return type(SECRET, (ValueError,), {})(SECRET)


def with_all():
    error = ValueError(SECRET)
    error.add_note(SECRET)
    error.__cause__ = KeyError(SECRET)
    error.secret = SECRET
    return error


ERRORS = {
    "value": lambda: ValueError(SECRET),
    "class": named_after_it,
    "exit": lambda: SystemExit(SECRET),
    "unusual": lambda: Unusual(SECRET),
    "loud": lambda: Loud(SECRET),
    "note": with_all,
    "file": lambda: FileNotFoundError(2, "No such file", SECRET),
    "bytes": lambda: UnicodeDecodeError("ascii", SECRET.encode(), 0, 1, SECRET),
    "group": lambda: ExceptionGroup(SECRET, [KeyError(SECRET)]),
    "refusal": lambda: Refusal(ValueError(SECRET)),  # even one that passes for our own
}
PLACES = (
    "factory", "dimension", "samples", "sample_gradients", "penalty", "no_method", "no_penalty", "no_losses",
    "no_gradients", "no_shape", "no_value", "no_slope", "no_problem",
)  # fmt: skip


class Leaky(SoftmaxRegression):
    """Raises in one place, at one evaluation."""

    def __init__(self, place, error, at):
        rng = np.random.default_rng(0)
        super().__init__(rng.normal(size=(30, 2)), rng.integers(0, 2, size=30), classes=2, l2=0.01)
        self.armed, self.calls = (place, error, at), 0

    def go_off(self, place):
        if self.armed[0] == place and self.calls >= self.armed[2]:
            raise ERRORS[self.armed[1]]()
        return self.armed[0]

    def __getattribute__(self, name):
        if name in {"dimension", "samples"}:
            self.go_off(name)
        if name in {"sample_gradients", "penalty"} and self.go_off(f"no_{name}") == "no_method":
            raise ERRORS[self.armed[1]]()
        return super().__getattribute__(name)

    def sample_gradients(self, w, rows):
        self.calls += 1
        self.go_off("sample_gradients")
        losses, gradients = super().sample_gradients(w, rows)
        if self.calls >= self.armed[2]:
            losses = [SECRET] * rows.size if self.armed[0] == "no_losses" else losses
            gradients = np.full((3, 2), SECRET) if self.armed[0] == "no_gradients" else gradients
            gradients = gradients[:, :1] if self.armed[0] == "no_shape" else gradients
        return losses, gradients

    def penalty(self, w):
        self.go_off("penalty")
        value, slope = super().penalty(w)
        if self.calls >= self.armed[2]:
            value = SECRET if self.armed[0] == "no_value" else value
            slope = [SECRET] if self.armed[0] == "no_slope" else slope
        return value, slope

    def loss_and_gradient(self, w, rng=None, batch_size=None):
        self.calls += 1
        self.go_off("sample_gradients")
        given = super().loss_and_gradient(w, rng, batch_size)
        if self.calls >= self.armed[2]:
            given = (SECRET, given[1]) if self.armed[0] == "no_losses" else given
            given = (given[0], [SECRET]) if self.armed[0] == "no_gradients" else given
            given = SECRET if self.armed[0] == "no_shape" else given
        return given


def leaky(place="", error="value", at=AT_ONCE, node_config=None):
    """A problem that raises; made at its worker."""
    if place == "factory":
        raise ERRORS[error]()
    if place == "no_problem":
        return type(SECRET, (), {"__repr__": lambda self: SECRET})()
    return Leaky(place, error, at if place not in {"dimension", "samples", "no_method"} else 0)


class Unpacking:
    """Raises when it is unpickled, as something that opens a file at the worker might."""

    def __init__(self, error):
        self.error = error

    def __setstate__(self, state):
        raise ERRORS[state["error"]]()

    def __call__(self):
        return leaky()


def planted(at):
    """Place and error of every worker that raises, and two that do not."""
    every = [(place, "value") for place in PLACES] + [("sample_gradients", error) for error in ERRORS]
    if at == AT_ONCE:
        every.remove(("no_shape", "value"))  # is a mistake of the caller's, which ends the run at once
        every += [("factory", error) for error in ERRORS]
    return [*every, ("", "value"), ("", "value")]


class Told:
    """All that a run tells, as text and bytes."""

    def __init__(self, folder):
        self.path, self.parts, self.failures = folder / "run.npz", [], 0

    def run(self, problems, engine, caplog, algorithm):
        """Run, and keep what comes out, whatever it is."""
        N = len(problems)
        with warnings.catch_warnings(record=True) as given, caplog.at_level(logging.DEBUG):
            warnings.simplefilter("always")
            try:
                result = solve(
                    problems, TotalVariation(np.full(N, 1 / N), 0.1), algorithm=algorithm, engine=engine,
                    observers=[self.observe, Checkpoint(self.path, every=1)],
                )  # fmt: skip
                self.parts += [repr(result), json.dumps(result.history, default=repr)]
            except BaseException as error:
                self.error(error)
        self.parts += [str(each.message) for each in given] + [caplog.text]
        if self.path.exists():
            with np.load(self.path, allow_pickle=False) as saved:
                self.parts += [saved[name].tobytes() for name in saved.files]

    def observe(self, run, entry):
        self.parts.append(json.dumps(entry, default=repr))

    def error(self, error):
        self.failures += 1
        seen = []
        while error is not None and error not in seen:
            seen.append(error)
            self.parts += [words(error), traceback_of(error), repr(vars(error)), pickle.dumps(error.args)]
            error = error.__cause__ or error.__context__

    @property
    def leaks(self):
        """The parts that have the secret."""
        return [
            part
            for part in self.parts
            if SECRET in (part if isinstance(part, str) else part.decode("latin1"))
        ]


def settings(at, privacy=PRIVACY):
    return AspireModels(
        batch_size=12, iterations=60, privacy=privacy, on_failed_start="warn", seed=1, dead_losses="drop"
    )


@pytest.fixture
def nodes():
    """Makes Flower's nodes with apps of the given kind."""
    made = []

    def local(count, app):
        made.append(LocalNodes(count, f"{HERE}:{app}", [HERE]))
        return FlowerEngine(made[-1].grid, poll=0.002, restart_after=0.01, restarts=1, patience=20.0)

    yield local
    for each in made:
        each.close()


def app():
    return client_app([leaky])


def forgetful_app():
    return client_app([leaky], keep=0)


SETS = {"sample": PRIVACY, "client": CLIENT}


def told_by(kind, planted_here, at, privacy, caplog, tmp_path, request):
    """Run on an engine, and return what was told."""
    told = Told(tmp_path)
    if kind == FLOWER:
        local = request.getfixturevalue("nodes")
        engine = local(len(planted_here), "app" if at == LATER else "forgetful_app")
        sources = [NamedProblem(f"{HERE}:leaky", place=p, error=e, at=at) for p, e in planted_here]
    else:
        engine = request.getfixturevalue("make")(kind, restarts=1, restart_after=0.01, patience=300.0)
        sources = [ProblemFrom(leaky, p, e, at) for p, e in planted_here]
    told.run(sources, engine, caplog, settings(at, privacy))
    return told


def check(told):
    """Raise if the secret is told, or if nothing was raised."""
    everything = "".join(part if isinstance(part, str) else "" for part in told.parts)
    assert "its message is not sent" in everything
    assert not told.leaks


units = pytest.mark.parametrize("unit", SETS)
times = pytest.mark.parametrize("at", [AT_ONCE, LATER], ids=["at-once", "later"])


@pytest.mark.parametrize("kind", kinds(own_processes=False))
@units
@times
def test_no_secret_leaves(kind, unit, at, caplog, tmp_path, request):
    check(told_by(kind, planted(at), at, SETS[unit], caplog, tmp_path, request))


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", kinds(own_processes=True))
@times
def test_no_secret_leaves_a_process(kind, at, caplog, tmp_path, request):
    """Two workers of the thirty."""
    few = [("factory" if at == AT_ONCE else "penalty", "class"), ("sample_gradients", "exit"), ("", "")]
    check(told_by(kind, few, at, PRIVACY, caplog, tmp_path, request))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", kinds(own_processes=True))
@units
@times
def test_no_secret_leaves_any_process(kind, unit, at, caplog, tmp_path, request):
    check(told_by(kind, planted(at), at, SETS[unit], caplog, tmp_path, request))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", kinds(own_processes=True))
def test_no_secret_leaves_by_a_pickle(kind, caplog, tmp_path, request):
    if kind == FLOWER:
        pytest.skip("Flower carries no pickles")
    told = Told(tmp_path)
    engine = request.getfixturevalue("make")(kind, restarts=1, restart_after=0.01, patience=300.0)
    sources = [*(Unpacking(error) for error in ERRORS), ProblemFrom(leaky), ProblemFrom(leaky)]
    told.run(sources, engine, caplog, settings(AT_ONCE))
    check(told)


@pytest.mark.parametrize("kind", [VIRTUAL, THREAD])
def test_the_control_shows_that_the_search_finds_it(kind, caplog, tmp_path, request):
    """Without privacy the same run tells the secret again and again."""
    told = told_by(kind, [("factory", "value"), ("", ""), ("", "")], AT_ONCE, None, caplog, tmp_path, request)
    assert told.leaks
    hidden = Told(tmp_path)
    hidden.error(with_all())
    assert len(hidden.leaks) >= 3  # text, note, cause, attribute


def test_a_class_is_named_by_ours_alone(caplog, tmp_path, request):
    told = Told(tmp_path)
    named = [type(SECRET, (Leaky,), {})("no_shape", "value", AT_ONCE), leaky(), leaky()]
    told.run(named, request.getfixturevalue("make")(VIRTUAL), caplog, settings(AT_ONCE))
    plain = [type(SECRET, (Quadratic,), {})([1.0, 2.0]) for _ in range(3)]
    told.run(plain, request.getfixturevalue("make")(VIRTUAL), caplog, settings(AT_ONCE))
    everything = "".join(part for part in told.parts if isinstance(part, str))
    assert "sample_gradients must give one loss and one row of" in everything
    assert "problems[0] is a Problem without `sample_gradients`" in everything
    assert not told.leaks


@pytest.mark.parametrize("error", ["value", "exit", "class"])
def test_an_interrupt_of_the_problem_says_nothing(error):
    def interrupted():
        raise KeyboardInterrupt(SECRET) from ERRORS[error]()

    with pytest.raises(KeyboardInterrupt) as caught:
        passed(0, interrupted)
    assert caught.value.args == ()
    assert caught.value.__cause__ is caught.value.__context__ is None


class Whisper(Message):
    """A reply that no private worker has."""

    __slots__ = ("text",)


class Wider(Begin):
    """A reply of a class that takes any field."""


class Careless(Gate):
    """Answers with whatever it is told to."""

    kinds = (Begin, Wider)
    words = frozenset({"known"})

    def __init__(self, answer, state):
        self.answer, self.state = answer, state
        super().__init__(0, lambda: None)

    def _answer(self, message):
        return self.answer

    def _state(self):
        return self.state

    def _restore(self, state):
        raise ERRORS["note"]()

    def _recall(self, opening, last, replies):
        raise ERRORS["exit"]()


class Number(float):
    """A number with a note."""

    secret = SECRET


def begin(value):
    message = Begin.__new__(Begin)
    message.z = value
    return message


NOTED = np.zeros(2, dtype=np.dtype(np.float64, metadata={"secret": SECRET}))


@pytest.mark.parametrize(
    "value",
    [SECRET, SECRET.encode(), [1.0], {"z": 1.0}, Number(1.0), 2**80, np.array([SECRET]), np.ma.zeros(2),
     np.zeros(2, dtype=object), np.float64(1.0), 1j, True.__class__],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_nothing_else_passes_the_gate(value):
    from fdro_core.errors import DriverError

    for answer in (begin(value), Whisper(), Wider(np.zeros(1), np.ones(1)), value):
        with pytest.raises(DriverError, match=r"worker 0 is private and its problem raised a \w+") as caught:
            Careless(answer, {}).handle(None)
        assert SECRET not in traceback_of(caught.value)
    careless = Careless(None, {"released": SECRET})
    for call in (careless.snapshot, lambda: careless.restore(None), lambda: careless.recall((), None, 0)):
        with pytest.raises(DriverError) as caught:
            call()
        assert SECRET not in traceback_of(caught.value)


@pytest.mark.parametrize("value", [1.5, 3, True, None, "known", np.array([1.0, 2.0]), NOTED], ids=repr)
def test_plain_values_pass_the_gate_made_anew(value):
    reply = Careless(begin(value), {"released": 3}).handle(None)
    assert np.array_equal(reply.z, value) or reply.z is value
    if isinstance(value, np.ndarray):
        assert reply.z is not value
        assert reply.z.dtype.metadata is None
    assert Careless(None, {"released": 3}).snapshot() == {"released": 3}


def test_every_place_is_raised_in():
    assert {place for place, _ in planted(LATER)} - {""} == set(PLACES)
    assert {error for _, error in planted(LATER)} == set(ERRORS)
    assert RAY in {each.values[0] for each in EVERY}
    assert Path(__file__).exists()
