"""The fields of a run file: read by name and type, each with its line; one that nobody reads is an error.

All mistakes are told at once: each is noted in the `Source`, reading goes on where it can, and
`raise_mistakes` ends it. What is made of a part with a mistake is not used.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import tomllib
import types
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from fdro_core.cli.reading import read_text
from fdro_core.errors import InvalidConfig, InvalidSetting, SeveralMistakes
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
        self.mistakes: list[InvalidInput] = []
        self.values = self._parsed(text)
        self._lines = _find_lines(text)

    def _parsed(self, text: str) -> dict[str, Any]:
        """The values; a word without quotes is noted and read as if it had them, to find more mistakes."""
        while True:
            try:
                return tomllib.loads(text)
            except tomllib.TOMLDecodeError as error:
                found = re.search(r"at line (\d+)", str(error))
                line = int(found[1]) if found else max(1, text.count("\n"))
                lines = text.split("\n")
                bare = _BARE_WORD.match("".join(lines[line - 1 : line]))
                hint = f'; words need quotes: {bare[1]} = "{bare[2]}"' if bare else ""
                message = re.sub(r" \(at .*\)", "", str(error))
                mistake = InvalidConfig(f"this is not TOML: {message}{hint}", path=self.name, line=line)
                if not bare:
                    self.mistakes.append(mistake)
                    self.raise_mistakes()
                    raise mistake from None
                self.mistakes.append(mistake)
                lines[line - 1] = f'{bare[1]} = "{bare[2]}"'
                text = "\n".join(lines)
            except RecursionError:
                raise InvalidConfig("tables or lists are nested too deeply", path=self.name, line=1) from None
            except ValueError as error:  # Python limits the digits of a whole number, to 4300 by default
                longest = max(re.finditer(r"\d+", text), key=lambda match: len(match[0]))
                line = text.count("\n", 0, longest.start()) + 1
                message = f"a number of {len(longest[0])} digits is too long to read"
                raise InvalidConfig(message, path=self.name, line=line) from error

    def note(self, error: InvalidInput) -> None:
        """Note a mistake; one at a field that has another already would be its consequence."""
        place = getattr(error, "place", None)
        if not place or place not in [getattr(each, "place", None) for each in self.mistakes]:
            self.mistakes.append(error)

    def attempt(self, make: Callable[..., Any], *arguments: Any) -> Any:
        """What `make` returns; None if a mistake kept it from that, which is noted."""
        try:
            return make(*arguments)
        except InvalidInput as error:
            self.note(error)
        except _Spoilt:
            pass
        return None

    def raise_mistakes(self) -> None:
        """Raise what was noted: a single error as it is, several as one that lists them."""
        if len(self.mistakes) > 1:
            ours = [each for each in self.mistakes if isinstance(each, InvalidConfig)]
            others = [each for each in self.mistakes if not isinstance(each, InvalidConfig)]
            raise SeveralMistakes([*sorted(ours, key=lambda each: each.line), *others], self.name)
        if self.mistakes:
            raise self.mistakes[0]

    def line(self, *place: str | int) -> int:
        """The line of a field, or of the innermost table around it that has one."""
        while place:
            if place in self._lines:
                return self._lines[place]
            place = place[:-1]
        return 1

    def error(self, message: str, *place: str | int) -> InvalidConfig:
        """An error at a field."""
        return InvalidConfig(message, path=self.name, line=self.line(*place), place=place)


def read_source(path: Path) -> Source:
    """Read the run file at a path."""
    if path.suffix in {".csv", ".tsv", ".npz"}:
        raise InvalidSetting(
            f"{path} holds samples, and a run file (TOML) is needed, which names it: "
            f'`fdro train --example > run.toml`, then source = "{path.name}" in it'
        )
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


class _Spoilt(Exception):
    """What was to be made is not, for mistakes that have been noted."""


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
                close = get_close_matches(name, list(self.rest()), n=1)
                hint = f"; `{close[0]}` is no field" if close else ""
                misspelt = self.error(f"[{self.title}] needs `{name}`, {WORDS[kind]}{hint}", *close)
                if not close or not _is_a(self.values[close[0]], kind):
                    raise misspelt
                self.source.note(misspelt)  # and read as if it were spelt so, to find more
                self._read.append(close[0])
                return typing.cast("Made", self.values[close[0]])
            return typing.cast("Made", default)
        value = self.values[name]
        if not _is_a(value, kind):
            mistake = f"must be {WORDS[kind]}, got {value!r}"
        elif kind is float and abs(value) > sys.float_info.max:
            mistake = f"must be below 1e308 in size, got a number of {len(str(value))} digits"
        else:
            return typing.cast("Made", float(value) if kind is float else value)
        if default is REQUIRED:
            raise self.error(mistake, name)
        self.source.note(self.error(mistake, name))
        return typing.cast("Made", default)

    def choice(self, name: str, choices: list[str], default: Any = REQUIRED) -> str:
        """Read a field that must be one of the choices."""
        value = self.read(name, str, default)
        if value in choices:
            return value
        mistake = self.error(f"there is no {value!r}{instead(value, choices, 'Choose from')}", name)
        if default is REQUIRED:
            raise mistake
        self.source.note(mistake)
        return typing.cast("str", default)

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
        """Note the fields that have not been read; `more` are further names that the error may suggest."""
        for name in self.rest():
            known = [*dict.fromkeys([*self._read, *more])]
            what = (
                f"[{self.title}] has no field `{name}`" if self.place else f"a run file has no table [{name}]"
            )
            self.source.note(self.error(f"{what}{instead(name, known, 'It takes')}", name))

    def make(self, make: Callable[..., Made], **given: Any) -> Made:
        """Call `make` with what is given and the fields not read yet, checked against its signature."""
        rest = self.arguments(make, *given)
        return self.make_of(lambda fields: make(**fields, **given), rest)

    def make_of(self, make: Callable[[dict[str, Any]], Made], fields: dict[str, Any]) -> Made:
        """Call `make` with the fields; what it raises is noted, and it is tried again without that field."""
        left, spoilt = dict(fields), False
        while True:
            try:
                with self.locating_errors():
                    made = make(left)
            except InvalidConfig as error:
                at = next(iter(error.place[len(self.place) :]), None)
                if not spoilt or at in left:  # otherwise it may be for want of what was taken out
                    self.source.note(error)
                if at not in left:
                    raise _Spoilt from error
                spoilt = True
                del left[str(at)]
            else:
                if spoilt:
                    raise _Spoilt
                return made

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
                mistake = f"must be {' or '.join(WORDS[kind] for kind in kinds)}, got {value!r}"
                self.source.note(self.error(mistake, name))
        missing = [
            f"`{name}`" for name, item in known.items() if item.default is item.empty and name not in rest
        ]
        if missing and self.rest():  # which are not known, and may be meant for what is missing
            raise _Spoilt
        if missing:
            raise self.error(f"[{self.title}] needs {join_names(missing)}")
        if any(item.default is item.empty and not self.sound(name) for name, item in known.items()):
            raise _Spoilt
        return {name: value for name, value in rest.items() if self.sound(name)}

    def sound(self, name: str) -> bool:
        """Whether no mistake was noted at that field."""
        return (*self.place, name) not in [getattr(each, "place", None) for each in self.source.mistakes]

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
