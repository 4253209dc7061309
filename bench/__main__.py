"""`python -m bench NAME …` runs `main(arguments)` of NAME.py or NAME/__main__.py in any folder here.

Without a name, it lists them.
"""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def modules() -> dict[str, tuple[str, str]]:
    """Every module of bench with a `main`: import name and first line, under its file's or folder's name."""
    found = {}
    for path in sorted(FOLDER.glob("*/**/*.py")):
        text = path.read_text(encoding="utf-8")
        if "\ndef main(" in text:
            line = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
            name = path.parent.name if path.stem == "__main__" else path.stem
            found[name] = (".".join(path.relative_to(FOLDER.parent).with_suffix("").parts), line)
    return found


def commands() -> dict[str, str]:
    """The names of all commands and what they do."""
    return {name: line for name, (_, line) in modules().items()}


def run(arguments: list[str]) -> int:
    """Find the command and run it; the exit code is its own, 2 where there is none of that name.

    3: a package is missing; 4: so is data.
    """
    known = commands()
    if not arguments or arguments[0] not in known:
        asked = arguments and arguments[0] not in {"-h", "--help"}
        if asked:
            print(f"bench has no command {arguments[0]!r}.", file=sys.stderr)
        print("usage: python -m bench NAME [options]\n")
        print("\n".join(f"  {name:<14} {line}" for name, line in known.items()))
        return 2 if asked else 0
    try:
        module = importlib.import_module(modules()[arguments[0]][0])
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] == "bench":
            raise
        print(
            f"bench {arguments[0]} needs the package {error.name!r}. Set up the project's environment with "
            '`make test`, or: pip install -e ".[dev]"',
            file=sys.stderr,
        )
        return 3
    from bench.datasets.errors import DataError

    try:
        code: int = module.main(arguments[1:])
    except DataError as error:  # it says what is missing and where to get it; a traceback would hide that
        print(error, file=sys.stderr)
        return 4
    return code


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1:]))
