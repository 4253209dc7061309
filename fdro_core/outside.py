"""Text from outside, such as names in files and the texts of errors: for a terminal, a shell, and TOML."""

from __future__ import annotations

import re
import shlex

_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # control characters: those that a terminal obeys begin with one
    "\u2028\u2029"  # ends of lines that are none
    "\u200e\u200f\u202a-\u202e\u2066-\u2069"  # change the direction, and with it what is read
    "\ud800-\udfff]"  # halves of characters, which cannot be printed
)


def visible(text: object, *, lines: bool = True) -> str:
    """The text with every character that is no sign on the screen written out; ends of lines stay if asked.

    >>> visible("ward \\x1b[2J"), visible("a\\nb", lines=False)
    ('ward \\\\x1b[2J', 'a\\\\nb')
    """
    kept = "\n\t" if lines else ""
    return _UNSEEN.sub(lambda found: found[0] if found[0] in kept else _written(found[0]), str(text))


def _written(character: str) -> str:
    """As in Python's own strings."""
    return ascii(character)[1:-1]


def command(*parts: object) -> str:
    """A line that a shell takes back as these parts, and that is safe to show.

    >>> command("fdro", "resume", "my run")
    "fdro resume 'my run'"
    >>> command("fdro", "resume", "a\\x1b'b")
    "fdro resume $'a\\\\x1b\\\\'b'"
    """
    return " ".join(_quoted(str(part)) for part in parts)


def _quoted(part: str) -> str:
    if not _UNSEEN.search(part):
        return shlex.quote(part)
    inside = part.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{_UNSEEN.sub(lambda found: _as_bytes(found[0]), inside)}'"  # which bash and zsh read


def _as_bytes(character: str) -> str:
    """The bytes of a file's name, which need not be UTF-8."""
    strange = "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", strange))


def toml_text(text: str) -> str:
    """The text in quotes, as TOML takes it; `ValueError` for half a character.

    >>> toml_text('St. "Mary"')
    '"St. \\\\"Mary\\\\""'
    """
    text.encode()
    inside = text.replace("\\", "\\\\").replace('"', '\\"')
    written = _UNSEEN.sub(lambda found: "\\u" + format(ord(found[0]), "04x"), inside)
    return f'"{written}"'
