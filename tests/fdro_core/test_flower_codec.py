"""Messages as Flower's records: every class comes back as it was, and nothing malformed gets through."""

from __future__ import annotations

import gc
import pickle
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import tests.fdro_core.own_algorithm  # noqa: F401  # further classes of messages
from fdro_core.aspire.models import messages as models
from fdro_core.engines.flower_ import codec, package, wire
from fdro_core.engines.wall_clock import WorkerRecord
from fdro_core.errors import InvalidProblem, MalformedMessage
from fdro_core.protocol import messages
from fdro_core.protocol.messages import Message, Step, Update
from tests.fdro_core.engine_kinds import needs_flower

pytestmark = needs_flower

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=8)
)
ARRAYS = st.sampled_from(codec.TYPES).flatmap(
    lambda t: arrays(t, array_shapes(min_dims=0, max_dims=3, min_side=0))
)
NESTED = st.recursive(
    SCALARS | ARRAYS,
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.lists(inside, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=4) | st.integers(), inside, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), NESTED, max_size=5)


def through_flower(records):
    """The records after Flower's own serialisation."""
    app = package.load()
    parts = records.deflate(), {child.object_id: child for child in records.children.values()}
    again = app.RecordDict.inflate(parts[0], {key: reread(child) for key, child in parts[1].items()})
    assert isinstance(again, app.RecordDict)
    return again


def reread(part):
    children = {child.object_id: reread(child) for child in (part.children or {}).values()}
    return type(part).inflate(part.deflate(), children or None)


def same(one, other):
    """Equal in value and type, arrays in type and shape too."""
    if isinstance(one, np.ndarray):
        return (
            isinstance(other, np.ndarray) and one.dtype == other.dtype and one.shape == other.shape
            and one.tobytes() == other.tobytes()
        )  # fmt: skip
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other or (one != one and other != other)


def classes():
    """Every class of messages that fdro defines, and a message of it."""
    gc.collect()
    found, waiting = [], [Message]
    while waiting:
        for cls in waiting.pop().__subclasses__():
            waiting.append(cls)
            if cls.__module__ in {messages.__name__, models.__name__, "tests.fdro_core.own_algorithm"}:
                found.append(cls)
    return sorted(set(found), key=lambda cls: cls.kind)


def an_example(cls):
    message = cls.__new__(cls)
    for place, name in enumerate(cls._slots):
        setattr(message, name, [np.arange(3.0) / (place + 1), 2.5, 7, None, "text"][place % 5])
    return message


@given(FIELDS)
def test_plain_values_and_arrays_come_back_as_they_were(fields):
    records = package.load().RecordDict()
    codec.pack(records, "x", fields)
    again = codec.unpack(through_flower(records), "x")
    assert set(again) == set(fields)
    assert all(same(fields[name], again[name]) for name in fields)


@pytest.mark.parametrize("cls", classes(), ids=lambda cls: cls.kind)
def test_every_class_of_messages_comes_back(cls):
    message, records = an_example(cls), package.load().RecordDict()
    codec.pack_message(records, "message", message)
    again = codec.unpack_message(through_flower(records), "message")
    assert type(again) is cls
    assert same(message.fields(), again.fields())
    for value in again.fields().values():
        assert not isinstance(value, np.ndarray) or value.flags.writeable


def test_there_are_classes_to_test():
    assert {"Step", "Update", "Hello", "Introduction"} <= {cls.kind for cls in classes()}
    assert len(classes()) > 15


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.array([None]), "of object"),
        (np.array(["a"]), "of <U1"),
        (2**63, "more than 64 bits"),
        (1j, "of type complex"),
        (object(), "of type object"),
        ([{1, 2}], "a set in it"),
        (np.float32(1.0), "of type float32"),
    ],
)
def test_what_no_record_holds_is_refused_with_its_name(value, words):
    with pytest.raises(TypeError, match=f"field .*{words}"):
        codec.pack(package.load().RecordDict(), "x", {"field": value})


# -- malformed ------------------------------------------------------------------------------------


def an_array(values=(1.0, 2.0), **changes):
    array = package.load().Array(np.asarray(values))
    for name, value in changes.items():
        setattr(array, name, value)
    return array


def with_array(array):
    app = package.load()
    return app.RecordDict(
        {"x": app.ConfigRecord({codec.KIND: "Update"}), "x.arrays": app.ArrayRecord({"w": array})}
    )


def data_of(values):
    return package.load().Array(np.asarray(values)).data


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: an_array(stype="pickle"), "in the format 'pickle'"),
        (lambda: an_array(dtype="object"), "of type 'object'"),
        (lambda: an_array(dtype="float128"), "of type 'float128'"),
        (lambda: an_array(shape=(10**12,)), "its numbers need 8000000000000"),
        (lambda: an_array(shape=(-1,)), r"shape \(-1,\)"),
        (lambda: an_array(shape=(1,) * 9), "of shape"),
        (lambda: an_array(shape=(1, 2)), "is not what it says"),
        (lambda: an_array(dtype="int64"), "is not what it says"),
        (lambda: an_array(data=b""), "in 0 bytes"),
        (lambda: an_array(data=data_of([1.0, 2.0]) + b"x" * 1000), "bytes; its numbers need 16"),
        (lambda: an_array(data=data_of([1.0, 2.0]) + b"x"), "is not what it says"),
        (lambda: an_array(data=b"\x80\x04" * 40), "is no array"),
        (lambda: an_array(data=b"\x93NUMPY\x03\x00" + b" " * 100), "another version"),
        (lambda: an_array(data=data_of([1.0, 2.0]).replace(b"'<f8'", b"'|O8'")), "is not what it says"),
        (
            lambda: an_array(data=data_of([1.0, 2.0]).replace(b"(2,)", b"(9,)")),
            "is not what it says",
        ),
        (lambda: an_array(np.asfortranarray(np.ones((2, 3)))), "stored by columns"),
    ],
)
def test_arrays_are_checked_before_they_are_read(make, words):
    with pytest.raises(MalformedMessage, match=words):
        codec.unpack(with_array(make()), "x")


def test_a_pickle_in_place_of_an_array_is_never_loaded(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (tmp_path.joinpath("exploded").touch, ())

    header = data_of(np.zeros(1)).replace(b"'<f8'", b"'|O' ")[:128]
    bomb = header + pickle.dumps(Bomb())
    for changes in ({"data": bomb}, {"data": bomb, "shape": (len(bomb),), "dtype": "uint8"}):
        with pytest.raises(MalformedMessage):
            codec.unpack(with_array(an_array([0.0], **changes)), "x")
    assert not (tmp_path / "exploded").exists()


def test_a_message_that_is_too_large_is_not_read():
    records = with_array(an_array(np.zeros(1000)))
    assert codec.unpack(records, "x", largest=8000)["w"].size == 1000
    with pytest.raises(MalformedMessage, match="arrays of 8000 bytes in 'x'; at most 7999"):
        codec.unpack(records, "x", largest=7999)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "does not say what kind"),
        ({codec.KIND: 3}, "does not say what kind"),
        ({codec.KIND: "os.system"}, "which no imported module defines"),
        ({codec.KIND: "Update", "fault": "x"}, "with fields that it does not have"),
        ({codec.KIND: "Update", "nonsense": 1}, "with fields that it does not have"),
        ({codec.KIND: "Update", "w": [1.0]}, "bare list"),
        ({codec.KIND: "Update", codec.NONE: "w"}, "no list of names"),
        ({codec.KIND: "Update", codec.NESTED + "w": 3}, "is no text"),
        ({codec.KIND: "Update", codec.NESTED + "w": "{"}, "cannot be read"),
        ({codec.KIND: "Update", codec.NESTED + "w": '{"set": [1]}'}, "container of type 'set'"),
        ({codec.KIND: "Update", codec.NESTED + "w": '{"array": "0"}'}, "an array that is not there"),
        ({codec.KIND: "Update", codec.NESTED + "w": '{"list": [' * 5000}, "cannot be read"),
        ({codec.KIND: "Update", "w": "x" * (codec.LARGEST_TEXT + 1)}, "characters; at most"),
        ({f"f{place}": 1 for place in range(300)}, "300 fields in 'x'"),
    ],
)
def test_malformed_messages_have_an_error_with_a_name(values, words):
    app = package.load()
    with pytest.raises(MalformedMessage, match=words):
        codec.unpack_message(app.RecordDict({"x": app.ConfigRecord(values)}), "x")


def test_records_of_the_wrong_kind():
    app = package.load()
    for content in ({}, {"x": app.ArrayRecord({})}, {"x": app.MetricRecord({"a": 1})}):
        with pytest.raises(MalformedMessage, match="no records 'x'"):
            codec.unpack(app.RecordDict(content), "x")


@given(
    st.dictionaries(
        st.sampled_from(["version", "worker", "number", "memory", "content", "action", codec.NONE]),
        st.one_of(st.booleans(), st.integers(-9, 9), st.floats(), st.text(max_size=6), st.binary(max_size=4)),
    ),
    st.dictionaries(
        st.sampled_from([codec.KIND, "w", "loss", codec.NESTED + "w", "/x"]), st.text(max_size=12)
    ),
)
def test_whatever_a_node_sends_is_read_or_malformed(header, reply):
    app = package.load()
    records = app.RecordDict({"fdro": app.ConfigRecord(header), "reply": app.ConfigRecord(reply)})
    for read in (wire.read_response, wire.read_header):
        with suppress(MalformedMessage):  # and nothing else
            read(records, codec.LARGEST)


# -- requests, replies, exceptions ------------------------------------------------------------------


@pytest.mark.parametrize("memory", [wire.NO_MEMORY, wire.RECORD, wire.STATE])
def test_a_request_carries_what_its_worker_needs(memory):
    begin = messages.Begin(np.zeros(2), np.ones(2))
    request = wire.Request(wire.HANDLE, "session", 3, 17)
    request.message, request.description = Step(4, np.ones(2), 0.5, 1.0), {"algorithm": "a:B"}
    request.past = wire.Past(WorkerRecord((begin,), Update(3, np.ones(2), 1.0, 2.0, 3.0), 3), memory)
    request.past.after, request.past.state = 16, {"w": np.ones(2), "steps": 3}
    packed = {}
    for _ in range(2):  # the second time from what was packed before
        records = through_flower(wire.write_request(request, packed=packed))
        again = wire.read_header(records, codec.LARGEST)
        wire.read_content(records, again, codec.LARGEST)
        assert (again.action, again.session, again.worker, again.number) == (wire.HANDLE, "session", 3, 17)
        assert same(again.message.fields(), request.message.fields())
        assert again.past.after == 16
        assert dict(again.description) == {"algorithm": "a:B"}
        record = again.past.record
        if memory == wire.RECORD:
            assert same(record.opening[0].fields(), begin.fields())
            assert same(record.last.fields(), request.past.record.last.fields())
            assert record.replies == 3
        else:
            assert record.opening == ()
            assert record.last is None
        assert same(again.past.state, request.past.state if memory == wire.STATE else None)
    assert len(packed) == (memory == wire.RECORD)


@pytest.mark.parametrize(
    "error",
    [
        OSError("disk gone"),
        KeyError("age"),
        InvalidProblem("problems[1]"),
        FileNotFoundError(2, "no", "a.npz"),
    ],
)
def test_known_exceptions_keep_their_class(error):
    again = wire.from_values(wire.to_values(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert "Where it was raised" in again.__notes__[0]


class Own(Exception):
    def __init__(self, patient, place):
        super().__init__(f"patient {patient} at {place}")


def test_other_exceptions_are_told_in_words():
    again = wire.from_values(wire.to_values(Own("Ada", "ward 3")))
    assert type(again) is RuntimeError
    assert str(again) == "Own: patient Ada at ward 3"
    for name in ("SystemExit", "KeyboardInterrupt", "eval", "print", "__import__"):
        values = {"class": name, "text": "x", "arguments": codec.dump_plain(("1",)), "traceback": ""}
        assert type(wire.from_values(values)) is RuntimeError


def test_an_exception_can_stay_at_the_node():
    values = wire.to_values(Own("Ada", "ward 3"), details=False)
    assert "Ada" not in str(values)
    assert str(wire.from_values(values)) == "Own (its text stays at the node)"
