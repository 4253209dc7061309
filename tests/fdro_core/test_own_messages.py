"""An algorithm with messages of its own runs on every engine and in checkpoints: nothing lists messages."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fdro_core import VirtualEngine, resume, solve
from fdro_core.errors import CheckpointMismatch, InvalidReply
from fdro_core.observers import Checkpoint
from fdro_core.protocol.forms import flag, message, number, ticket, vector
from fdro_core.protocol.messages import Hello, Message, Step, Update, copied, from_fields, to_fields
from fdro_core.protocol.replies import checked, fault
from tests.fdro_core.engine_kinds import EVERY, THREAD, WALL, N, StopWhen, happened, quadratics
from tests.fdro_core.helpers import Mishap, Quadratic, middle_box, same
from tests.fdro_core.own_algorithm import Descent, Look, Pull, Pushed, Settle
from tests.fdro_core.twisted import changed

LAST = [3.0, 1.0]
PROBLEMS = quadratics(Quadratic(LAST))
BEST = np.mean([problem.centre for problem in PROBLEMS], axis=0)


@pytest.mark.parametrize("kind", EVERY)
def test_it_converges_on_every_engine(kind, make):
    result = solve(PROBLEMS, middle_box(N), algorithm=Descent(), engine=make(kind))
    assert result.iterations == 400
    assert np.abs(result.w - BEST).max() < 1e-6
    assert np.isfinite(result.losses).all()


def test_a_live_message_is_copied_when_it_is_sent():
    """The master writes to w while steps are under way: the same run as with copies of its own."""
    one, other = (
        solve(PROBLEMS, middle_box(N), algorithm=Descent(60, in_place=own), engine=VirtualEngine(seed=1))
        for own in (True, False)
    )
    same(one, other)


@pytest.mark.parametrize("kind", WALL)
def test_a_live_message_is_copied_on_a_wall_clock(kind, make):
    engine, w = make(kind), np.zeros(2)
    engine.start([Descent().worker(0, PROBLEMS[0])])
    try:
        engine.ask({0: Settle(w.copy(), np.ones(2))})
        engine.send(0, Pull(1, w))
        w += 100.0
        while not isinstance(reply := engine.receive(None).payload, Pushed):
            assert reply is None
        assert np.array_equal(reply.gradient, -PROBLEMS[0].centre)
    finally:
        engine.stop()


@pytest.mark.parametrize("kind", WALL)
def test_a_worker_that_is_made_again_knows_the_opening(kind, make, tmp_path):
    """It has no `recall`: it answers the questions before the first step once more."""
    problems = quadratics(Mishap(LAST, tmp_path, "raise", at=20))
    stop = StopWhen("worker-lost", "worker-back", after=300)
    result = solve(problems, middle_box(N), algorithm=Descent(10**6), engine=make(kind), observers=[stop])
    assert {entry["worker"] for entry in happened(result, "worker-back")} == {3}
    assert np.abs(result.w - BEST).max() < 1e-4


def test_a_resumed_run_is_the_same_bit_for_bit(tmp_path):
    path, box = tmp_path / "run.npz", middle_box(N)
    whole = solve(PROBLEMS, box, algorithm=Descent(100), engine=VirtualEngine(seed=2))
    solve(PROBLEMS, box, algorithm=Descent(40), engine=VirtualEngine(seed=2), observers=[Checkpoint(path)])
    rest = resume(path, PROBLEMS, box, algorithm=Descent(100), engine=VirtualEngine(seed=2))
    same(whole, rest)


@pytest.mark.parametrize("later", WALL)
def test_a_new_master_goes_on_from_the_checkpoint(later, make, tmp_path):
    path, box = tmp_path / "run.npz", middle_box(N)
    solve(PROBLEMS, box, algorithm=Descent(40), engine=make(THREAD), observers=[Checkpoint(path)])
    rest = resume(path, PROBLEMS, box, algorithm=Descent(), engine=make(later))
    assert rest.iterations == 400
    assert np.abs(rest.w - BEST).max() < 1e-6


# -- message classes --------------------------------------------------------------------------------


def test_messages_become_fields_and_back():
    pull = Pull(3, np.arange(2.0))
    fields = to_fields(pull)
    assert fields["kind"] == "tests.fdro_core.own_algorithm.Pull"
    again = from_fields(fields)
    assert type(again) is Pull
    assert again.ticket == 3
    assert again.w is pull.w
    assert copied(pull).w is not pull.w
    assert to_fields(Hello()) == {"kind": "Hello"}  # as in checkpoints of 0.1


def test_a_message_may_extend_another_or_have_no_slots():
    class Marked(Step):
        __slots__ = ("mark",)

    class Loose(Message):
        def __init__(self, w):
            self.w = w

    marked = Marked(1, np.ones(2), 1.0, 1.0)
    marked.mark = 7
    again = from_fields(to_fields(marked))
    assert (again.mark, again.ticket, again.start) == (7, 1, None)
    assert marked.numbers == Step(1, np.ones(2), 1.0, 1.0).numbers + 1
    assert np.array_equal(copied(from_fields(to_fields(Loose(np.ones(2))))).w, np.ones(2))


def test_a_class_of_the_same_name_elsewhere_is_another_message():
    class Update(Message):
        __slots__ = ()

    assert from_fields(to_fields(Update())).kind != "Update"


def test_message_classes_are_checked():
    with pytest.raises(TypeError, match="cannot have a field `kind`"):
        type("Odd", (Message,), {"__slots__": ("kind",)})
    with pytest.raises(TypeError, match="must be a tuple of names"):
        type("Odd", (Message,), {"__slots__": "ticket"})
    with pytest.raises(CheckpointMismatch, match=r"'gone\.Tell', which no imported module defines"):
        from_fields({"kind": "gone.Tell"})
    with pytest.raises(TypeError, match=r"derive it from messages\.Message"):
        fault("step", Pushed(1, np.ones(2), 1.0))


def test_replies_are_checked_by_the_message_they_answer():
    pull = Pull(3, np.zeros(2))
    assert fault(pull, Pushed(3, np.ones(2), 1.0)) == ""
    assert "gradient of shape (3,)" in fault(pull, Pushed(3, np.ones(3), 1.0))
    assert "it must be at least 3" in fault(pull, Pushed(2, np.ones(2), 1.0))
    assert "a Update for a Pull; Pushed is needed" in fault(pull, Update(3, np.ones(2), 1.0, 1.0, 1.0))
    assert fault(Message(), Look(np.ones(2))) == ""  # any message will do
    assert "a float for a Message" in fault(Message(), 1.0)


def test_arrays_in_containers_are_copied_too():
    class Layers(Message):
        __slots__ = ("by_name", "layers")
        live = True

        def __init__(self, layers, by_name):
            self.layers, self.by_name = layers, by_name

    w = np.zeros(2)
    sent = copied(Layers([w, (w,)], {"w": w}))
    w += 1.0
    for array in (sent.layers[0], sent.layers[1][0], sent.by_name["w"]):
        assert np.array_equal(array, [0.0, 0.0])


def test_messages_of_one_name_in_two_classes_are_kept_apart():
    class One:
        class Step(Message):
            __slots__ = ("x",)

    class Other:
        class Step(Message):
            __slots__ = ("y",)

    message = One.Step()
    message.x = 3
    assert type(from_fields(to_fields(message))) is One.Step
    assert One.Step.kind != Other.Step.kind


def test_fields_that_are_declared_are_checked():
    """An own message made as fdro's are: the common case and the slow one, of each kind of field."""

    @message
    class Grown(Message):
        ticket: int = ticket()
        w: np.ndarray = vector()
        loss: float = number()
        extra: np.ndarray | None = vector("more", default=None)
        sure: bool = flag(default=False)

    @message
    class Grow(Message):
        answer = Grown
        sized_by = "point"

        ticket: int
        point: np.ndarray
        more: int = 0

    few, many, point = Grow(3, np.ones(2)), Grow(3, np.ones(2), more=1), np.zeros(2)
    good = {few: Grown(3, point, 1.0), many: Grown(4, point, math.nan, point, True)}
    for request, reply in good.items():
        assert checked(0, request, reply) is reply
        gaps = changed(reply, w=np.zeros(4)[::2])
        assert checked(0, request, gaps).w.flags.carray
        assert type(checked(0, request, changed(reply, loss=np.float64(1.0))).loss) is float
        for wrong, words in (
            ({"ticket": 2}, "ticket = 2"), ({"w": np.zeros(3)}, "w of shape"),
            ({"loss": 1}, "loss of type int"), ({"sure": 1}, "sure, which must be true or false"),
            ({"extra": None if request.more else point}, "extra"),
        ):  # fmt: skip
            with pytest.raises(InvalidReply, match=words):
                checked(0, request, changed(reply, **wrong))

    @message
    class Unsized(Message):
        answer = Grown

        ticket: int

    with pytest.raises(TypeError, match="Unsized asks for vectors, and has no array `z`"):
        checked(0, Unsized(3), good[few])
