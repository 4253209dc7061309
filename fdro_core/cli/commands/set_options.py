"""A set's parameters on the command line: `--name value` beside a command's options, and `--param`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from uncertainty_sets.base import UncertaintySet

Param = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", help="NAME=VALUE: a number, a list 1,2,3 or @file. Also --NAME VALUE."),
]


def set_names(incomplete: str) -> list[str]:
    """The sets whose names begin so, for the shell's completion."""
    from uncertainty_sets.registry import available_sets

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
    from fdro_core.cli.reading.arrays import read_value
    from fdro_core.errors import InvalidSetting
    from uncertainty_sets.building import check_parameters, parameters_of
    from uncertainty_sets.errors import InvalidParameter
    from uncertainty_sets.names import nearest

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
