"""Functions and classes that users name as "module:name", in run files and on the command line."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from fdro_core.errors import InvalidSetting
from uncertainty_sets.names import nearest


def load_reference(text: str, folder: Path, kind: str = "function") -> Any:
    """Import the function or class of "module:name"; `folder` is searched before the installed packages.

    Args:
        text: "module:name".
        folder: where the module may be: the run file's folder, or the current one.
        kind: what is wanted, for messages: "function" or "class".
    """
    module_name, _, name = text.partition(":")
    module = _load_module(module_name, folder)
    found = getattr(module, name, None)
    if not callable(found):
        public = [each for each, value in vars(module).items() if callable(value) and each[0] != "_"]
        raise InvalidSetting(f"{module_name} has no {kind} {name!r}{nearest(name, public)}")
    return found


def _load_module(name: str, folder: Path) -> ModuleType:
    """Import a module; whatever it raises becomes an error that names the line."""
    sys.path.insert(0, str(folder))
    try:
        importlib.invalidate_caches()
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        first = name.partition(".")[0]
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidSetting(
                f"there is no module {name!r}: put {first}.py into {folder}, or install its package"
            ) from error
        raise InvalidSetting(f"{name} needs the package {error.name!r}: pip install {error.name}") from error
    except Exception as error:  # the user's code may raise anything
        raise InvalidSetting(f"{name} cannot be imported: {_where(error)}") from error
    finally:
        sys.path.remove(str(folder))


def _where(error: Exception) -> str:
    """An exception in one line, with the file and line that raised it."""
    words = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):  # it contains file and line
        return words
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{words} ({frame.filename}, line {frame.lineno})"
