"""`python -m bench NAME …` runs `main(arguments)` of NAME.py or NAME/__main__.py in any folder here.

Without a name, it lists them.
"""

from __future__ import annotations

import ast
import importlib
import sys
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Command:
    """A command: its module, the first line of its docstring, and the folder of bench it belongs to."""

    module: str
    about: str
    group: str


def commands(folder: Path = FOLDER) -> dict[str, Command]:
    """Return every module with a `main` under its file's name, a folder's `__main__` under the folder's."""
    found: dict[str, Command] = {}
    for path in sorted(folder.glob("*/**/*.py")):
        text = path.read_text(encoding="utf-8")
        if "\ndef main(" not in text:
            continue
        name = path.parent.name if path.stem == "__main__" else path.stem
        place = path.relative_to(folder)
        module = ".".join([folder.name, *place.with_suffix("").parts])
        if name in found:
            raise ValueError(f"two commands are called {name!r}: {found[name].module} and {module}")
        about = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
        found[name] = Command(module, about, place.parts[0])
    return found


def overview(known: dict[str, Command]) -> str:
    """Return the list of commands, by the folder they belong to."""
    lines = ["usage: python -m bench NAME [options]; python -m bench NAME --help shows the options"]
    group = ""
    for name, command in sorted(known.items(), key=lambda item: (item[1].group, item[0])):
        if command.group != group:
            group = command.group
            lines += ["", f"{group}:"]
        lines.append(f"  {name:<14} {command.about}")
    return "\n".join(lines)


def run(arguments: list[str]) -> int:
    """Run a command; return its exit code: 2 if there is none, 3 or 4 if a package or data is missing.

    130 after Ctrl-C.
    """
    known = commands()
    if not arguments or arguments[0] not in known:
        asked = bool(arguments) and arguments[0] not in {"-h", "--help"}
        if asked:
            close = get_close_matches(arguments[0], known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else "."
            print(f"bench has no command {arguments[0]!r}{hint}", file=sys.stderr)
        print(overview(known))
        return 2 if asked else 0
    try:
        module = importlib.import_module(known[arguments[0]].module)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] == "bench":
            raise
        print(
            f"bench {arguments[0]} needs the package {error.name!r}. Set up the project's environment with "
            '`make test`, or: pip install -e ".[dev]"',
            file=sys.stderr,
        )
        return 3
    from bench.datasets.files import DataError

    try:
        code: int = module.main(arguments[1:])
    except KeyboardInterrupt:
        print("Interrupted. Whatever a command has written down by now is kept.", file=sys.stderr)
        return 130
    except DataError as error:  # it says what is missing and where to get it; a traceback would hide that
        print(error, file=sys.stderr)
        return 4
    return code


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1:]))
