"""Plug-ins: modules or Python files, given to a command with `--with`.

They are run in the command and in each of its processes. They define sets, backends or baselines with a name,
call `methods.register(Method(...))`, or have functions that carry `@dataset(name)`.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path


def add_option(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--with`, which names modules or files with `what`."""
    parser.add_argument(
        "--with",
        dest="plugins",
        nargs="+",
        type=_there,
        default=[],
        metavar="MODULE",
        help=f"modules or Python files with {what} of your own",
    )


def _is_module(path: Path) -> bool:
    return not path.exists() and all(part.isidentifier() for part in str(path).split("."))


def _there(given: str) -> Path:
    """The module or file of that name; for the parser, which says what is wrong and ends with 2."""
    path = Path(given)
    if _is_module(path):
        try:
            found = importlib.util.find_spec(given) is not None
        except ModuleNotFoundError as error:
            raise argparse.ArgumentTypeError(f"{given}: {error}") from error
        if not found:
            raise argparse.ArgumentTypeError(f"there is no module or file {given}")
    elif not path.is_file() or path.suffix != ".py":
        raise argparse.ArgumentTypeError(f"{given}: there is no Python file of that name")
    return path


def load(paths: Sequence[Path]) -> None:
    """Import the modules and run the files, each once per process."""
    for path in paths:
        if _is_module(path):
            importlib.import_module(str(path))
            continue
        file = path.resolve()
        name = f"bench plugin {file}"
        if name in sys.modules:
            continue
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise SystemExit(f"--with {path}: there is no Python file of that name")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
