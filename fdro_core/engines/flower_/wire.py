"""The parts of a request and of a reply, as records: which worker, what is asked, and what it knew before.

A node may start its client app anew for every message, so a request carries everything that the worker needs:
its description, the message, and its past. How much of the past depends on the worker (`memory`):

- "none": it remembers nothing, and only the message is sent;
- "record": it continues from the opening messages and its last reply (`recall`);
- "state": its snapshot comes back with every reply and goes out with the next request.

A worker that is still in the memory of the node's process skips all that if it has answered the message whose
number is `after`, and no later one.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any

from fdro_core import errors
from fdro_core.engines.flower_ import codec, package
from fdro_core.engines.wall_clock import WorkerRecord
from fdro_core.engines.wall_clock.host import RAISED_AT
from fdro_core.errors import MalformedMessage
from fdro_core.protocol.failures import traceback_of, words
from fdro_core.protocol.messages import Message

VERSION = 1
WHO, MAKE, HANDLE = "who", "make", "handle"
NO_MEMORY, RECORD, STATE = "none", "record", "state"
MOST_OPENING = 16


class Past:
    """What the master's side keeps of a worker.

    Attributes:
        memory: how the worker continues, as its last reply said.
        record: its opening messages, last reply and number of replies.
        state: its snapshot, if that is how.
        after: the number of the last message whose answer was taken in; 0 for none.
    """

    __slots__ = ("after", "memory", "record", "state")

    def __init__(self, record: WorkerRecord | None = None, memory: str = NO_MEMORY) -> None:
        self.memory = memory
        self.record = WorkerRecord() if record is None else record
        self.state: dict[str, Any] | None = None
        self.after = 0


class Request:
    """A request as a node reads it; `message` is None unless the action is "handle"."""

    __slots__ = ("action", "description", "message", "number", "past", "session", "worker")

    def __init__(self, action: str, session: str, worker: int, number: int) -> None:
        self.action = action
        self.session = session
        self.worker = worker
        self.number = number
        self.description: Mapping[str, Any] = {}
        self.past = Past()
        self.message: Any = None


def write_request(
    request: Request, *, packed: dict[int, tuple[Message, dict[str, Any]]] | None = None
) -> Any:
    """Return a RecordDict; `packed` keeps the records of opening messages, which many requests share."""
    records = package.load().RecordDict()
    past, record = request.past, request.past.record
    sends_record = request.action != WHO and past.memory == RECORD
    header = {
        "version": VERSION,
        "action": request.action,
        "session": request.session,
        "worker": request.worker,
        "number": request.number,
        "memory": past.memory,
        "after": past.after,
        "replies": record.replies,
        "opening": len(record.opening) if sends_record else 0,
        "last": sends_record and record.last is not None,
    }
    codec.pack(records, "fdro", header)
    if request.action == WHO:
        return records
    codec.pack(records, "worker", request.description)
    if request.message is not None:
        codec.pack_message(records, "message", request.message)
    if sends_record:
        for place, message in enumerate(record.opening):
            _pack_once(records, f"opening {place}", message, packed)
        if record.last is not None:
            codec.pack_message(records, "last", record.last)
    elif past.memory == STATE and past.state is not None:
        codec.pack(records, "state", past.state)
    return records


def _pack_once(records: Any, name: str, message: Message, packed: Any) -> None:
    if packed is None:
        codec.pack_message(records, name, message)
        return
    if id(message) not in packed:
        alone = package.load().RecordDict()
        codec.pack_message(alone, "", message)
        packed[id(message)] = (message, dict(alone.items()))  # the message too: its id must stay its own
    for part, content in packed[id(message)][1].items():
        records[name + part] = content


def read_header(records: Any, largest: int) -> Request:
    """Return a request with its header alone: its message may be of a class that must be imported first."""
    values = codec.unpack(records, "fdro", largest)
    request = Request(
        _one_of(values, "action", (WHO, MAKE, HANDLE)),
        _typed(values, "session", str),
        _typed(values, "worker", int),
        _typed(values, "number", int),
    )
    if values.get("version") != VERSION:
        raise MalformedMessage(
            f"version {values.get('version')!r:.20} of the messages; this node reads version {VERSION}. "
            "Install the same fdro at the master and at the nodes"
        )
    past = request.past
    past.memory = _one_of(values, "memory", (NO_MEMORY, RECORD, STATE))
    past.after = _typed(values, "after", int)
    past.record.replies = _typed(values, "replies", int)
    if request.action != WHO:
        request.description = codec.unpack(records, "worker", largest)
    return request


def read_content(records: Any, request: Request, largest: int) -> None:
    """Read the message and the past of a request, once the worker's classes are imported."""
    values = codec.unpack(records, "fdro", largest)
    opening = _typed(values, "opening", int)
    if not 0 <= opening <= MOST_OPENING:
        raise MalformedMessage(f"{opening} opening messages; at most {MOST_OPENING} are read")
    record = request.past.record
    record.opening = tuple(
        codec.unpack_message(records, f"opening {place}", largest) for place in range(opening)
    )
    if _typed(values, "last", bool):
        record.last = codec.unpack_message(records, "last", largest)
    if request.past.memory == STATE and "state" in records:
        request.past.state = codec.unpack(records, "state", largest)
    if request.action == HANDLE:
        request.message = codec.unpack_message(records, "message", largest)


class Response:
    """A reply as the master reads it.

    Attributes:
        worker: which worker the node is, or was asked for; -1 if the node has no name.
        number: of the message that it answers.
        content: the worker's reply or exception; None if there is nothing to say.
        memory: how the worker will continue.
        state: its snapshot, if that is how.
    """

    __slots__ = ("content", "memory", "number", "state", "worker")

    def __init__(self, worker: int, number: int, content: Message | Exception | None = None) -> None:
        self.worker = worker
        self.number = number
        self.content = content
        self.memory = NO_MEMORY
        self.state: dict[str, Any] | None = None


def write_response(response: Response, *, details: bool = True) -> Any:
    """Return a RecordDict."""
    records = package.load().RecordDict()
    content = response.content
    failed = isinstance(content, Exception)
    header = {
        "version": VERSION,
        "worker": response.worker,
        "number": response.number,
        "memory": response.memory,
        "content": "error" if failed else "nothing" if content is None else "reply",
    }
    codec.pack(records, "fdro", header)
    if isinstance(content, Exception):
        codec.pack(records, "error", to_values(content, details=details))
    elif content is not None:
        codec.pack_message(records, "reply", content)
    if response.state is not None:
        codec.pack(records, "state", response.state)
    return records


def read_response(records: Any, largest: int) -> Response:
    """Return the reply of a node; `MalformedMessage` if it cannot be read."""
    values = codec.unpack(records, "fdro", largest)
    response = Response(_typed(values, "worker", int), _typed(values, "number", int))
    response.memory = _one_of(values, "memory", (NO_MEMORY, RECORD, STATE))
    content = _one_of(values, "content", ("error", "nothing", "reply"))
    if content == "error":
        response.content = from_values(codec.unpack(records, "error", largest))
    elif content == "reply":
        response.content = codec.unpack_message(records, "reply", largest)
    if "state" in records:
        response.state = codec.unpack(records, "state", largest)
    return response


def _typed(values: Mapping[str, Any], name: str, kind: type[Any]) -> Any:
    value = values.get(name)
    if type(value) is not kind:
        raise MalformedMessage(f"{name} of type {type(value).__name__}; a {kind.__name__} is needed")
    return value


def _one_of(values: Mapping[str, Any], name: str, choices: tuple[str, ...]) -> str:
    value = values.get(name)
    if value not in choices:
        raise MalformedMessage(f"{name} = {value!r:.40}; it must be one of {', '.join(choices)}")
    return str(value)


# -- exceptions ----------------------------------------------------------------------------------------
# The class is found again by its name among Python's own exceptions and fdro's; any other becomes a
# RuntimeError whose text begins with that name. The traceback comes along as a note.


LONGEST_TEXT, LONGEST_TRACEBACK = 4000, 40_000


def to_values(error: Exception, *, details: bool = True) -> dict[str, str]:
    """Return an exception as texts; without `details` its class alone, since a text may quote data.

    >>> to_values(KeyError("age"), details=False)["class"]
    'KeyError'
    """
    name = type(error).__name__
    if not details:
        return {"class": name, "text": "(its text stays at the node)", "arguments": "", "traceback": ""}
    return {
        "class": name,
        "text": words(error)[:LONGEST_TEXT],
        "arguments": _arguments(error),
        "traceback": traceback_of(error)[-LONGEST_TRACEBACK:],
    }


def from_values(values: Mapping[str, Any]) -> Exception:
    """Return the exception that the values describe.

    >>> from_values(to_values(KeyError("age")))
    KeyError('age')
    >>> from_values({"class": "Unheard", "text": "Unheard: of", "arguments": "", "traceback": ""})
    RuntimeError('Unheard: of')
    """
    name, text, arguments, trace = (
        str(values.get(key, "")) for key in ("class", "text", "arguments", "traceback")
    )
    error = _made(name, arguments)
    if error is None:
        short = text[:LONGEST_TEXT]
        error = RuntimeError(short if short.startswith(name) else f"{name[:80]} {short}".strip())
    if trace:
        error.add_note(RAISED_AT + trace[-LONGEST_TRACEBACK:])
    return error


def _arguments(error: Exception) -> str:
    given = error.args
    if isinstance(error, OSError) and error.filename is not None and len(given) == 2:
        given = (*given, str(error.filename))  # which Python keeps apart
    try:
        text = codec.dump_plain(given)
        return text if len(text) <= LONGEST_TEXT else ""
    except Exception:  # arguments that are no plain values: the text has to do
        return ""


def _made(name: str, arguments: str) -> Exception | None:
    """Return the exception if its class is known and takes these arguments."""
    known = vars(errors) | vars(builtins)
    cls = known.get(name)
    if not arguments or not (isinstance(cls, type) and issubclass(cls, Exception)):
        return None
    try:
        given = codec.load_plain(arguments)
        error = cls(*given)
        words(error)
    except Exception:  # it does not take them
        return None
    return error if isinstance(error, Exception) else None
