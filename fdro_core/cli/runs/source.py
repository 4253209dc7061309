"""A TOML file with the line of every field, for error messages."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from fdro_core.cli.reading.tables import read_text
from fdro_core.errors import InvalidConfig

Place = tuple[str | int, ...]

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
