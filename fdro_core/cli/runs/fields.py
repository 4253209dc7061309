"""The fields of a run file: read by name and type, each with its line; one that nobody reads is an error."""

from __future__ import annotations

import dataclasses
import inspect
import re
import tomllib
import types
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from fdro_core.cli.reading import read_text
from fdro_core.errors import InvalidConfig
from uncertainty_sets.errors import InvalidInput
from uncertainty_sets.registry import instead, join_names

Place = tuple[str | int, ...]

Made = TypeVar("Made")

REQUIRED: Any = object()

WORDS = {
    str: "a string in quotes",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a table",
}
"""TOML's types in words."""

_HEADER = re.compile(r"^\s*(\[\[?)\s*([A-Za-z0-9_\-.\"' ]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"^\s*([A-Za-z0-9_\-.\"' ]+?)\s*=")
_BARE_WORD = re.compile(r"^\s*([A-Za-z0-9_\-]+)\s*=\s*([A-Za-z][\w./\-]*)\s*(?:#.*)?$")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'')


class Source:
    """The text of a run file, its values, and the lines of its fields.

    >>> source = Source('[set]\\nname = "kl"\\nradius = -1\\n', "run.toml")
    >>> source.values
    {'set': {'name': 'kl', 'radius': -1}}
    >>> source.line("set", "radius"), source.line("set", "centre"), source.line("engine")
    (3, 1, 1)
    """

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        try:
            self.values: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            found = re.search(r"at line (\d+)", str(error))
            line = int(found[1]) if found else max(1, text.count("\n"))
            message = re.sub(r" \(at .*\)", "", str(error))
            bare = _BARE_WORD.match("".join(text.split("\n")[line - 1 : line]))
            hint = f'; words need quotes: {bare[1]} = "{bare[2]}"' if bare else ""
            raise InvalidConfig(
                f"this is not TOML: {message}{hint}", path=name, line=line, field=""
            ) from None
        except RecursionError:
            raise InvalidConfig(
                "tables or lists are nested too deeply", path=name, line=1, field=""
            ) from None
        except ValueError as error:  # Python limits the digits of a whole number, to 4300 by default
            longest = max(re.finditer(r"\d+", text), key=lambda match: len(match[0]))
            line = text.count("\n", 0, longest.start()) + 1
            message = f"a number of {len(longest[0])} digits is too long to read"
            raise InvalidConfig(message, path=name, line=line, field="") from error
        self._lines = _find_lines(text)

    def line(self, *place: str | int) -> int:
        """The line of a field, or of the innermost table around it that has one."""
        while place:
            if place in self._lines:
                return self._lines[place]
            place = place[:-1]
        return 1

    def error(self, message: str, *place: str | int) -> InvalidConfig:
        """An error at a field."""
        field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
        return InvalidConfig(message, path=self.name, line=self.line(*place), field=field)


def read_source(path: Path) -> Source:
    """Read the run file at a path."""
    return Source(read_text(path), str(path))


def with_algorithm(source: Source, name: str) -> Source:
    """The run file with another algorithm in place of its own, and that algorithm's default settings.

    >>> run = Source('[algorithm]\\niterations = 9\\n[set]\\nname = "kl"\\n', "run.toml")
    >>> with_algorithm(run, "fed-avg").values
    {'set': {'name': 'kl'}, 'algorithm': {'name': 'fed-avg'}}
    """
    kept, inside = [], False
    for line in source.text.splitlines():
        header = _HEADER.match(line)
        if header:
            inside = _parts(header[2])[0] == "algorithm"
        if not inside:
            kept.append(line)
    text = "\n".join([*kept, "", "[algorithm]", f'name = "{name}"', ""])
    return Source(text, source.name)


def _find_lines(text: str) -> dict[Place, int]:
    """The lines of tables and keys; lines inside an array or a long string are skipped."""
    lines: dict[Place, int] = {}
    counts: dict[Place, int] = {}
    table: Place = ()
    depth = 0
    quoted = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if quoted:
            if quoted in line:
                quoted = ""
            continue
        if depth == 0:
            header, key = _HEADER.match(line), _KEY.match(line)
            if header:
                table = _parts(header[2])
                if header[1] == "[[":
                    counts[table] = counts.get(table, -1) + 1
                    lines.setdefault(table, number)
                    table = (*table, counts[table])
                lines.setdefault(table, number)
                continue
            if key:
                lines.setdefault((*table, *_parts(key[1])), number)
        opened = next((mark for mark in ('"""', "'''") if line.count(mark) % 2), "")
        if opened:
            quoted = opened
            continue
        bare = _STRING.sub("", line).partition("#")[0]
        depth += sum(map(bare.count, "[{")) - sum(map(bare.count, "]}"))
    return lines


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


class Section:
    """A table and its place in the file."""

    def __init__(self, source: Source, values: dict[str, Any], *place: str | int) -> None:
        self.source = source
        self.values = values
        self.place = place
        self._read: list[str] = []

    def read(self, name: str, kind: type[Made], default: Any = REQUIRED) -> Made:
        """Read a field of that type; its default if it is not given."""
        self._read.append(name)
        if name not in self.values:
            if default is REQUIRED:
                raise self.error(f"[{self.title}] needs `{name}`, {WORDS[kind]}")
            return typing.cast("Made", default)
        value = self.values[name]
        if not _is_a(value, kind):
            raise self.error(f"must be {WORDS[kind]}, got {value!r}", name)
        try:
            return typing.cast("Made", float(value) if kind is float else value)
        except OverflowError as error:
            raise self.error(
                f"must be below 1e308 in size, got a number of {len(str(value))} digits", name
            ) from error

    def choice(self, name: str, choices: list[str], default: Any = REQUIRED) -> str:
        """Read a field that must be one of the choices."""
        value = self.read(name, str, default)
        if value not in choices:
            raise self.error(f"there is no {value!r}{instead(value, choices, 'Choose from')}", name)
        return value

    def section(self, name: str) -> Section:
        """Read a table inside this one; empty if it is not given."""
        return Section(self.source, self.read(name, dict, {}), *self.place, name)

    def sections(self, name: str) -> list[Section]:
        """Read a list of tables inside this one."""
        found = []
        for number, each in enumerate(self.read(name, list, [])):
            if not isinstance(each, dict):
                raise self.error(
                    f"must be a list of tables, as in [{{worker = 0}}], got {each!r} in it", name
                )
            found.append(Section(self.source, each, *self.place, name, number))
        return found

    def rest(self) -> dict[str, Any]:
        """The fields that have not been read yet."""
        return {name: value for name, value in self.values.items() if name not in self._read}

    def finish(self, *more: str) -> None:
        """Raise if a field has not been read; `more` are further names that the error may suggest."""
        for name in self.rest():
            known = [*dict.fromkeys([*self._read, *more])]
            what = (
                f"[{self.title}] has no field `{name}`" if self.place else f"a run file has no table [{name}]"
            )
            raise self.error(f"{what}{instead(name, known, 'It takes')}", name)

    def make(self, make: Callable[..., Made], **given: Any) -> Made:
        """Call `make` with what is given and the fields not read yet, checked against its signature."""
        rest = self.arguments(make, *given)
        with self.locating_errors():
            return make(**rest, **given)

    def arguments(self, make: Callable[..., Any], *given: str) -> dict[str, Any]:
        """Read the fields not read yet as arguments of `make`, beside those that are given.

        They are checked against its signature and its types.
        """
        known = {
            item.name: item
            for item in inspect.signature(make).parameters.values()
            if item.kind in {item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY} and item.name not in given
        }
        rest = self.rest()
        self._read.extend(name for name in rest if name in known)
        self.finish(*known)
        hints = _hints(make)
        for name, value in rest.items():
            kinds = _kinds(hints.get(name))
            if kinds and not any(_is_a(value, kind) for kind in kinds):
                raise self.error(f"must be {' or '.join(WORDS[kind] for kind in kinds)}, got {value!r}", name)
        missing = [
            f"`{name}`" for name, item in known.items() if item.default is item.empty and name not in rest
        ]
        if missing:
            raise self.error(f"[{self.title}] needs {join_names(missing)}")
        return rest

    @contextmanager
    def locating_errors(self) -> Iterator[None]:
        """Give errors inside the line of the field that their `parameter` names, or that of the table."""
        try:
            yield
        except InvalidConfig:
            raise
        except (InvalidInput, TypeError, ValueError, OverflowError) as error:
            place = _place_of(getattr(error, "parameter", None), self.values)
            raise self.error(str(error), *place) from error

    @contextmanager
    def at(self, field: str) -> Iterator[None]:
        """Give errors inside the line of this field."""
        try:
            yield
        except InvalidInput as error:
            raise self.error(str(error), field) from error

    @property
    def title(self) -> str:
        """The table's name in the file."""
        return ".".join(str(part) for part in self.place if isinstance(part, str))

    def error(self, message: str, *field: str | int) -> InvalidConfig:
        """An error at this table or one of its fields."""
        return self.source.error(message, *self.place, *field)


def _place_of(parameter: str | None, values: dict[str, Any]) -> list[str]:
    """Where an error's `parameter` is in a table: a field, or a field of a table in it; [] if nowhere."""
    if parameter is None or parameter in values:
        return [] if parameter is None else [parameter]
    for name, part in values.items():
        if isinstance(part, dict) and parameter in part:
            return [name, parameter]
    return []


def _is_a(value: Any, kind: type) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _hints(make: Callable[..., Any]) -> dict[str, Any]:
    try:
        # A dataclass inherits fields from other modules, in which their types are to be looked up.
        whole = dataclasses.is_dataclass(make) or not inspect.isclass(make)
        return typing.get_type_hints(make if whole else make.__init__)
    except (NameError, TypeError):  # names that exist for the type checker only
        return {}


def _kinds(hint: Any) -> list[type]:
    """The types of TOML that a hint allows; none if it allows another type, which is then not checked."""
    parts = typing.get_args(hint) if typing.get_origin(hint) in {typing.Union, types.UnionType} else (hint,)
    kinds = [part for part in parts if part is not type(None)]
    return kinds if all(kind in WORDS for kind in kinds) else []
