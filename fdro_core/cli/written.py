"""What people write in words, on the command line and in run files: "module:name", a set and its parameters.

Nothing here loads NumPy before it is called: commands import this for their options, and the help is fast.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from uncertainty_sets.arrays import Array
    from uncertainty_sets.base import UncertaintySet

Param = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", help="NAME=VALUE: a number, a list 1,2,3 or @file. Also --NAME VALUE."),
]


def load_reference(text: str, folder: Path, kind: str = "function") -> Any:
    """Import the function or class of "module:name"; `folder` is searched before the installed packages.

    Args:
        text: "module:name".
        folder: where the module may be: the run file's folder, or the current one.
        kind: what is wanted, for messages: "function" or "class".
    """
    from fdro_core.errors import InvalidSetting
    from uncertainty_sets.registry import nearest

    module_name, _, name = text.partition(":")
    module = _load_module(module_name, folder)
    found = getattr(module, name, None)
    if not callable(found):
        public = [each for each, value in vars(module).items() if callable(value) and each[0] != "_"]
        raise InvalidSetting(f"{module_name} has no {kind} {name!r}{nearest(name, public)}")
    return found


def _load_module(name: str, folder: Path) -> ModuleType:
    """Import a module; whatever it raises becomes an error that names the line."""
    from fdro_core.errors import InvalidSetting

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


def set_class(name: str, folder: Path | None = None) -> type[UncertaintySet]:
    """Find the class of a set: by its name, or as "module:Class" in `folder` or an installed package.

    Args:
        name: as `fdro sets` lists it, capitals and hyphens apart, or "module:Class".
        folder: where the module may be; the current folder by default.

    >>> set_class("kl")
    <class 'uncertainty_sets.sets.kl.KL'>
    >>> set_class("uncertainty_sets:KL")
    <class 'uncertainty_sets.sets.kl.KL'>
    """
    from fdro_core.errors import InvalidSetting
    from uncertainty_sets.base import SETS, UncertaintySet
    from uncertainty_sets.registry import is_reference

    if not is_reference(name):
        return SETS.get(name, exact=False)
    found = load_reference(name, Path.cwd() if folder is None else folder, "class")
    if not (isinstance(found, type) and issubclass(found, UncertaintySet)):
        kind = "a class of another kind" if isinstance(found, type) else f"a {type(found).__name__}"
        raise InvalidSetting(
            f"{name} is {kind}, and a set is needed: a subclass of uncertainty_sets.UncertaintySet"
        )
    return found


def written_set(
    cls: type[UncertaintySet], given: Mapping[str, Any], size: int, samples: Array | None = None
) -> UncertaintySet:
    """The set of that class for N = size entries, from numbers, lists and words.

    A centre that is not given, or is "uniform", is 1/N; "samples" is in proportion to the workers' samples.
    A number for a parameter that has an entry per probability stands for that number in every entry. A set of
    another size is for the caller to refuse, who knows why.

    >>> written_set(set_class("kl"), {"radius": 0.1, "center": "uniform"}, 4)
    KL(center=[0.25, 0.25, 0.25, 0.25], radius=0.1)
    """
    from uncertainty_sets.by_name import make_set

    parameters = dict(given)
    if isinstance(given.get("center"), str):
        parameters["center"] = _center(given["center"], size, samples)
    refuse_words(cls, parameters)
    return make_set(cls, parameters, size)


def refuse_words(cls: type[UncertaintySet], parameters: Mapping[str, Any]) -> None:
    """Raise for a word that is given for numbers."""
    from uncertainty_sets.errors import InvalidParameter

    takes = inspect.signature(cls).parameters
    for parameter, value in parameters.items():
        if isinstance(value, str) and parameter in takes and "str" not in str(takes[parameter].annotation):
            raise InvalidParameter(
                f"{parameter} must be numbers, or @file with numbers, got {value!r}",
                parameter=parameter,
                value=value,
            )


def _center(given: str, size: int, samples: Array | None) -> Array:
    """The centre that a word stands for."""
    import numpy as np

    from uncertainty_sets.errors import InvalidParameter

    if given == "uniform":
        return np.full(size, 1.0 / size)
    if given == "samples" and samples is not None:
        shares: Array = samples / samples.sum()
        return shares
    known = "uniform, samples" if samples is not None else "uniform"
    raise InvalidParameter(
        f"center must be {known}, a list of {size} numbers or @file, got {given!r}",
        parameter="center",
        value=given,
    )


def set_names(incomplete: str) -> list[str]:
    """The sets whose names begin so, for the shell's completion."""
    from uncertainty_sets.by_name import available_sets

    return [name for name in available_sets() if name.startswith(incomplete)]


def given_parameters(
    context: typer.Context, name: str, cls: type[UncertaintySet], pairs: list[str], extra: list[str]
) -> dict[str, Any]:
    """The parameters of the set `name` from `--param name=value` and `--name value`.

    Args:
        context: of the command, whose options a misspelt word may mean.
        name: of the set, as it was given.
        cls: its class.
        pairs: what `--param` was given.
        extra: the words that are not the command's own.
    """
    from fdro_core.cli.reading import read_value
    from fdro_core.errors import InvalidSetting
    from uncertainty_sets.errors import InvalidParameter
    from uncertainty_sets.parameters import check_parameters, parameters_of
    from uncertainty_sets.registry import nearest

    given: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise InvalidSetting(f"--param needs NAME=VALUE, as in --param radius=0.1, got {pair!r}")
        given[key] = read_value(value, origin=f"--{key}")
    known = list(parameters_of(cls))
    rest = list(extra)
    while rest:
        word = rest.pop(0)
        key, equals, value = word.removeprefix("--").partition("=")
        key = key.replace("-", "_")
        if not word.startswith("--") or key not in known:
            hint = nearest(key.replace("_", "-"), [*known, *option_names(context)])
            raise InvalidSetting(
                f"{word!r} is not an option of `fdro {context.info_name}`, and {name} takes "
                f"{', '.join(known)}{hint}"
            )
        if not equals and not rest:
            raise InvalidSetting(f"{word} needs a value, as in {word} 0.1")
        given[key] = read_value(value if equals else rest.pop(0), origin=f"--{key}")
    try:
        check_parameters(cls, given, ("center", "size"))
    except InvalidParameter as error:
        error.add_note(f"`fdro sets {name}` explains them")
        raise
    return given


def option_names(context: typer.Context) -> list[str]:
    """The long names of the command's options, without dashes."""
    long = [name for each in context.command.get_params(context) for name in each.opts if name[:2] == "--"]
    return [name.removeprefix("--") for name in long]
