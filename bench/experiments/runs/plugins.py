"""Plug-ins: Python files that register methods or data sets, given to a command with `--with`.

The file is run in the command and in each of its processes. It calls `methods.register(Method(...))`, or has
functions that carry `@dataset(name)`.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path


def load(paths: Sequence[Path]) -> None:
    """Run the files, each once per process."""
    for path in paths:
        file = Path(path).resolve()
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
