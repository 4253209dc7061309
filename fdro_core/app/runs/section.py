"""One table of a config file: fields are taken by name and type, and what is left over is an error."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from fdro_core.errors import InvalidConfig
from fdro_core.app.tables import instead, one_or_more
from uncertainty_sets.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fdro_core.app.runs.source import Source

Made = TypeVar("Made")

REQUIRED: Any = object()

WORDS = {
    str: "a text in quotes",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a table",
}
"""TOML's types as people know them."""


class Section:
    """A table and where it stands."""

    def __init__(self, source: Source, values: dict[str, Any], *place: str | int) -> None:
        self.source = source
        self.values = values
        self.place = place
        self._taken: list[str] = []

    def take(self, name: str, kind: type[Made], default: Any = REQUIRED) -> Made:
        """A field of that type; its default where it is not given."""
        self._taken.append(name)
        if name not in self.values:
            if default is REQUIRED:
                raise self.error(f"[{self.title}] needs `{name}`, {WORDS[kind]}")
            return typing.cast("Made", default)
        value = self.values[name]
        if not _is_a(value, kind):
            raise self.error(f"must be {WORDS[kind]}, got {value!r}", name)
        return typing.cast("Made", float(value) if kind is float else value)

    def choice(self, name: str, choices: list[str], default: Any = REQUIRED) -> str:
        """A field that must be one of some words."""
        value = self.take(name, str, default)
        if value not in choices:
            raise self.error(f"there is no {value!r}{instead(value, choices, 'Choose from')}", name)
        return value

    def section(self, name: str) -> Section:
        """A table inside this one; empty where it is not given."""
        return Section(self.source, self.take(name, dict, {}), *self.place, name)

    def sections(self, name: str) -> list[Section]:
        """A list of tables inside this one."""
        found = []
        for number, each in enumerate(self.take(name, list, [])):
            if not isinstance(each, dict):
                raise self.error(
                    f"must be a list of tables, as in [{{worker = 0}}], got {each!r} in it", name
                )
            found.append(Section(self.source, each, *self.place, name, number))
        return found

    def rest(self) -> dict[str, Any]:
        """The fields that nobody has taken yet."""
        return {name: value for name, value in self.values.items() if name not in self._taken}

    def finish(self, *more: str) -> None:
        """Refuse fields that nobody took; `more` are names that would have been right too."""
        for name in self.rest():
            known = [*dict.fromkeys([*self._taken, *more])]
            what = (
                f"[{self.title}] has no field `{name}`" if self.place else f"a config has no table [{name}]"
            )
            raise self.error(f"{what}{instead(name, known, 'It takes')}", name)

    def make(self, make: Callable[..., Made], **given: Any) -> Made:
        """Call something with the fields left over, checked against its signature."""
        known = {
            item.name: item
            for item in inspect.signature(make).parameters.values()
            if item.kind in {item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY} and item.name not in given
        }
        rest = self.rest()
        self._taken.extend(name for name in rest if name in known)
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
            raise self.error(f"[{self.title}] needs {one_or_more(missing)}")
        with self.blame(rest):
            return make(**rest, **given)

    @contextmanager
    def blame(self, fields: typing.Iterable[str] | None = None) -> Iterator[None]:
        """Errors inside are told with the line of the field that their message names."""
        try:
            yield
        except InvalidConfig:
            raise
        except (InvalidInput, TypeError, ValueError) as error:
            places = _mentions(str(error), self.values if fields is None else fields)
            raise self.error(str(error), *sorted(places, key=places.__getitem__)[:1]) from error

    @contextmanager
    def at(self, field: str) -> Iterator[None]:
        """Errors inside are told with the line of this field."""
        try:
            yield
        except InvalidInput as error:
            raise self.error(str(error), field) from error

    @property
    def title(self) -> str:
        """The table's name as the file has it."""
        return ".".join(str(part) for part in self.place if isinstance(part, str))

    def error(self, message: str, *field: str | int) -> InvalidConfig:
        """An error at this table or one of its fields."""
        return self.source.error(message, *self.place, *field)


def _mentions(message: str, names: typing.Iterable[str]) -> dict[str, int]:
    """The names that a message has as whole words, and where."""
    found = {
        name: re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", message, re.IGNORECASE) for name in names
    }
    return {name: match.start() for name, match in found.items() if match}


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
    """The plain types that a hint allows; none where it allows something else, which is then not checked."""
    parts = typing.get_args(hint) if typing.get_origin(hint) in {typing.Union, types.UnionType} else (hint,)
    kinds = [part for part in parts if part is not type(None)]
    return kinds if all(kind in WORDS for kind in kinds) else []
