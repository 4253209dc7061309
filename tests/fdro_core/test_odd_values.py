"""Replies and files with unusual forms of ordinary values: taken as what they are, or refused in words."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import dataclass

import numpy as np
import pytest

from fdro_core import AspireEase, AspireModels, HuberRegression, LeastSquares, SoftmaxRegression, solve
from fdro_core.aspire.models.messages import Evaluate, Evaluation
from fdro_core.cli.reading import Table, read_array, read_losses, read_value
from fdro_core.errors import InvalidData, InvalidProblem, InvalidReply, WorkerWarning
from fdro_core.protocol.failures import LONGEST_TEXT, LONGEST_TRACEBACK, traceback_of, words
from fdro_core.protocol.replies import checked
from tests.fdro_core.engine_kinds import SURVIVES_HANGS, THREAD, VIRTUAL
from tests.fdro_core.helpers import Quadratic, middle_box


class Lying(float):
    """Compares as it likes."""

    def __le__(self, other):
        return True

    __ge__ = __lt__ = __gt__ = __eq__ = __le__
    __hash__ = float.__hash__

    def __float__(self):
        return 0.0


def with_gaps(values):
    wide = np.zeros(2 * values.size)
    wide[::2] = values
    return wide[::2]


def frozen(values):
    values = values.copy()
    values.flags.writeable = False
    return values


def unaligned(values):
    raw = np.zeros(values.nbytes + 1, dtype=np.uint8)
    odd = raw[1:].view(np.float64)
    odd[:] = values
    return odd


class Own(np.ndarray):
    """A subclass of arrays."""


FORMS = {
    "gaps": with_gaps,
    "backwards": lambda values: values[::-1].copy()[::-1],
    "frozen": frozen,
    "unaligned": unaligned,
    "subclass": lambda values: values.copy().view(Own),
    "masked": np.ma.array,
}


class Odd:
    """A worker whose replies have arrays of some form, and floats of a subclass."""

    def __init__(self, inner, form):
        self.inner, self.form = inner, form

    def handle(self, message):
        reply = self.inner.handle(message)
        for name, value in reply.fields().items():
            if isinstance(value, np.ndarray):
                setattr(reply, name, FORMS[self.form](value))
            elif isinstance(value, float):
                setattr(reply, name, np.float64(value))
        return reply

    def __getattr__(self, name):
        return getattr(self.inner, name)


def odd(base, form):
    @dataclass(frozen=True, kw_only=True)
    class Algorithm(base):
        def worker(self, index, source):
            make = base.worker(self, index, source)
            return lambda: Odd(make(), form)

    return Algorithm


@pytest.mark.parametrize("base", [AspireEase, AspireModels])
@pytest.mark.parametrize("form", FORMS)
def test_arrays_of_any_form_are_their_numbers(base, form, make):
    """The run is the one with ordinary arrays, to the bit. On threads, too, nothing is pickled."""
    problems, box = [Quadratic([float(j), 1.0]) for j in range(3)], middle_box(3)
    usual = solve(problems, box, algorithm=base(iterations=30), engine=make(VIRTUAL))
    result = solve(problems, box, algorithm=odd(base, form)(iterations=30), engine=make(VIRTUAL))
    assert np.array_equal(result.w, usual.w)
    assert [entry["event"] for entry in result.history] == [entry["event"] for entry in usual.history]
    threads = solve(problems, box, algorithm=odd(base, form)(iterations=30), engine=make(THREAD))
    assert {entry["event"] for entry in threads.history} == {"report"}


@pytest.mark.parametrize("form", FORMS)
def test_what_the_master_gets_is_plain(form):
    reply = checked(0, Evaluate(3, np.zeros(4)), Evaluation(3, np.float64(2.0), FORMS[form](np.arange(4.0))))
    assert type(reply.loss) is float
    assert type(reply.gradient) is np.ndarray
    assert reply.gradient.flags.carray
    assert reply.gradient.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_usual_reply_is_not_copied():
    reply = Evaluation(3, 2.0, np.arange(4.0))
    assert checked(0, Evaluate(3, np.zeros(4)), reply) is reply


def test_a_float_that_compares_as_it_likes_is_the_number_it_is():
    reply = checked(0, Evaluate(3, np.zeros(1)), Evaluation(3, Lying(-7.0), np.zeros(1)))
    assert type(reply.loss) is float
    assert reply.loss == -7.0


def test_a_vector_of_another_size_is_refused_before_it_is_copied():
    """10¹² numbers in eight bytes: an array that repeats one number."""
    endless = np.broadcast_to(np.zeros(1), (10**12,))
    tracemalloc.start()
    with pytest.raises(InvalidReply, match="4 numbers of float64 are needed"):
        checked(0, Evaluate(3, np.zeros(4)), Evaluation(3, 1.0, endless))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 10**6


class Shouting(Quadratic):
    """Raises with a text of a megabyte."""

    def loss_and_gradient(self, w, rng=None, batch_size=None):
        raise ValueError("x" * 10**6)


@pytest.mark.parametrize("kind", [VIRTUAL, *SURVIVES_HANGS])
def test_a_text_of_a_megabyte_is_shortened(kind, make):
    problems = [Quadratic([0.0, 1.0]), Shouting([1.0, 0.0]), Quadratic([2.0, 2.0])]
    algorithm = AspireModels(iterations=20, on_failed_start="warn")
    with pytest.warns(WorkerWarning, match="characters") as told:
        result = solve(problems, middle_box(3), algorithm=algorithm, engine=make(kind))
    assert len(json.dumps(result.history, default=str)) < 10 * LONGEST_TRACEBACK
    assert max(len(str(each.message)) for each in told) < 2 * LONGEST_TRACEBACK


def test_long_texts_keep_their_ends():
    error = ValueError("begin" + "x" * 10**6 + "end")
    error.add_note("y" * 10**6)
    assert words(error).startswith("ValueError: begin")
    assert words(error).endswith("end")
    assert len(words(error)) < LONGEST_TEXT + 100
    assert len(traceback_of(error)) < LONGEST_TRACEBACK + 100
    assert words(ValueError("short")) == "ValueError: short"
    assert len(words(type("N" * 10**5, (ValueError,), {})("a"))) < 1000


# -- files ----------------------------------------------------------------------------------------------

NPY = {
    "complex": np.array([1.0 + 2.0j]),
    "flags": np.array([True, False]),
    "words": np.array(["1", "2"]),
    "dates": np.array(["2020-01-01"], dtype="datetime64[D]"),
}


@pytest.mark.parametrize("kind", NPY)
def test_arrays_that_are_no_real_numbers_are_refused(kind, tmp_path):
    np.save(tmp_path / "x.npy", NPY[kind])
    for read in (read_array, lambda path: read_losses(str(path))):
        with pytest.raises(InvalidData, match="real numbers are needed"):
            read(tmp_path / "x.npy")


def test_a_header_may_claim_anything(tmp_path):
    """10¹⁰ numbers in a file of 300 bytes: NumPy would reserve 75 GiB for them."""
    path = tmp_path / "x.npy"
    np.save(path, np.zeros(10))
    for claim in ("(10000000000,)", "(-1,)", "(0, 99999999999999999999)", "(10, 2)", "('a',)", "(" * 200):
        old = b"(10,)"
        content = path.read_bytes()
        header = content[:128].replace(old, claim.encode())
        (tmp_path / "y.npy").write_bytes(header[:118].ljust(127) + b"\n" + content[128:])
        with pytest.raises(InvalidData, match="damaged npy file"):
            read_array(tmp_path / "y.npy")


@pytest.mark.parametrize(
    "text",
    ["[true, 1]", "[1, [true]]", '{"a": true, "b": 1}', '{"losses": [1, false]}', "[[1, 2], [3, true]]"],
)
def test_flags_among_numbers_are_refused(text, tmp_path):
    (tmp_path / "x.json").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidData, match="true or false among its numbers"):
        read_losses(str(tmp_path / "x.json"))
    if text.startswith("["):
        with pytest.raises(InvalidData, match="true or false among its numbers"):
            read_value(text)


@pytest.mark.parametrize("text", ["[" * 100_000, "[" + "9" * 10_000 + "]", "[1" + "0" * 400 + "]"])
def test_json_that_python_cannot_hold_is_refused(text, tmp_path):
    (tmp_path / "x.json").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidData):
        read_losses(str(tmp_path / "x.json"))


@pytest.mark.parametrize("header", ["a,b,a", "a,a", "worker,loss,loss"])
def test_two_columns_of_one_name_are_refused(header):
    row = ",".join("1" for _ in header.split(","))
    with pytest.raises(InvalidData, match=r"has two columns '(a|loss)'"):
        Table(f"{header}\n{row}\n", "x.csv")


@pytest.mark.parametrize("cls", [LeastSquares, HuberRegression, SoftmaxRegression])
def test_problems_take_no_complex_numbers(cls):
    more = {"classes": 2} if cls is SoftmaxRegression else {}
    with pytest.raises(InvalidProblem, match="complex"):
        cls(np.ones((2, 1)) * 1j, [0, 1], **more)
    with pytest.raises(InvalidProblem, match=r"complex|whole numbers"):
        cls(np.ones((2, 1)), np.array([0j, 1j]), **more)
