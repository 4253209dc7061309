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
        type=Path,
        default=[],
        metavar="MODULE",
        help=f"modules or Python files with {what} of your own",
    )


def load(paths: Sequence[Path]) -> None:
    """Import the modules and run the files, each once per process."""
    for path in paths:
        file = Path(path).resolve()
        if not file.exists() and all(part.isidentifier() for part in str(path).split(".")):
            try:
                importlib.import_module(str(path))
            except ModuleNotFoundError as error:
                raise SystemExit(f"--with {path}: {error}") from error
            continue
        name = f"bench plugin {file}"
        if name in sys.modules:
            continue
        spec = importlib.util.spec_from_file_location(name, file)
        if not file.is_file() or spec is None or spec.loader is None:
            raise SystemExit(f"--with {path}: there is no Python file of that name")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
