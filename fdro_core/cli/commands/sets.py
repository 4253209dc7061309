"""`fdro sets`: which sets there are, their parameters, what a call costs, which backends can solve it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fdro_core.cli.command import command
from fdro_core.cli.output import AsJson, Output, Quiet, noting, table
from fdro_core.cli.written import set_names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.table import Table

    from uncertainty_sets.base import UncertaintySet


@command("Sets and worst cases", "fdro sets", "fdro sets cd-norm", place=21)
def sets(
    name: Annotated[
        str | None, typer.Argument(help="One set, with its parameters explained.", autocompletion=set_names)
    ] = None,
    backends: Annotated[
        bool,
        typer.Option("--backends", help="List the conic solvers: cones, whether installed."),
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """List the uncertainty sets: parameters, cost, backends."""
    from fdro_core.cli.written import set_class
    from uncertainty_sets.base import SETS

    output = Output(quiet=quiet, as_json=as_json)
    if backends:
        with noting(output):
            able = backend_facts()
        output.data(able)
        output.only_quiet("\n".join(each["name"] for each in able))
        output.say(_backends(able))
        return
    if name is not None:
        cls = set_class(name)
        facts = facts_of(name, cls)
        output.data(facts)
        output.only_quiet(name)
        explain(output, cls, facts)
        return
    with noting(output):  # of other packages' sets and solvers that cannot be loaded
        found = {each: facts_of(each, cls) for each, cls in SETS.classes().items()}
        able = backend_facts()
    output.data(list(found.values()))
    output.only_quiet("\n".join(found))
    listing = table("set", "parameters", "distributions p with", "one call costs", "backends", left=5)
    for facts in found.values():
        listing.add_row(
            facts["name"], _signature(facts), facts["formula"], facts["cost"], ", ".join(facts["backends"])
        )
    _keep_whole(listing, 0, found)
    _keep_whole(listing, 1, (each["name"] + "[]," for f in found.values() for each in f["parameters"]))
    output.say(listing)
    output.say("All sets also require p >= 0 and Σp = 1. [x] is optional; the default centre is uniform.\n")
    output.say(_backends(able))
    output.say("`fdro sets NAME` explains one set; `fdro choose` recommends one.")


def _keep_whole(listing: Table, column: int, words: Iterable[str]) -> None:
    """However narrow the terminal, these words are never cut: they are what one types."""
    listing.columns[column].min_width = max(map(len, words))
    listing.columns[column].overflow = "fold"


def facts_of(name: str, cls: type[UncertaintySet]) -> dict[str, Any]:
    """What the class says of itself, and which backends have the cones it needs."""
    from uncertainty_sets.parameters import parameters_of

    explained, (able, fault) = _arguments(cls), backends_of(cls)
    return {
        "name": name,
        "class": f"{cls.__module__}.{cls.__qualname__}",
        "title": cls.summary or (cls.__doc__ or "").strip().partition("\n")[0].rstrip("."),
        "formula": cls.formula,
        "cost": cls.complexity,
        "parameters": [
            {
                "name": parameter,
                "needed": needed and parameter != "center",
                "meaning": explained.get(parameter) or _default(cls, parameter),
            }
            for parameter, needed in parameters_of(cls).items()
        ],
        "backends": able,
        "fault": fault,
    }


def _default(cls: type[UncertaintySet], parameter: str) -> str:
    """What stands for a meaning that the docstring does not give."""
    given = inspect.signature(cls).parameters.get(parameter)
    if given is None or given.default is given.empty:
        return "not explained: `Args:` in the class's docstring is shown here"
    return f"{given.default!r} by default"


def backend_facts() -> list[dict[str, Any]]:
    """Every backend: its cones, whether it is installed, and when "auto" tries it."""
    from uncertainty_sets.backends.base import BACKENDS
    from uncertainty_sets.conic.program import CONES

    return [
        {
            "name": name,
            "class": f"{cls.__module__}.{cls.__qualname__}",
            "cones": [each for each in CONES if each in cls.cones],
            "installed": cls.installed(),
            "install": cls.install,
            "preference": cls.preference,
        }
        for name, cls in BACKENDS.classes().items()
    ]


def _backends(facts: list[dict[str, Any]]) -> Table:
    """The backends as a table."""
    listing = table("backend", "cones", "tried by auto", "installed", left=4)
    ranked = sorted(each["preference"] for each in facts if each["preference"] is not None)
    for each in facts:
        preference, there = each["preference"], each["installed"]
        place = "by name only" if preference is None else str(1 + ranked.index(preference))
        listing.add_row(
            each["name"],
            ", ".join(each["cones"]),
            place,
            "yes" if there else f"pip install {each['install']}",
        )
    return listing


def backends_of(cls: type[UncertaintySet]) -> tuple[list[str], str]:
    """The closed form first if there is one, then every installed solver with the set's cones.

    The second is why an example of the set could not be made; "" if one was.
    """
    from uncertainty_sets.backends.base import CLOSED_FORM
    from uncertainty_sets.backends.registry import available_backends, select
    from uncertainty_sets.conic.oracle import program
    from uncertainty_sets.errors import BackendError

    able = [CLOSED_FORM] if cls.has_closed_form else []
    try:
        compiled = program(cls.example(4), 4)
    except Exception as error:  # a plug-in without an example, or with a mistake
        return able, str(error)
    for name in available_backends():
        try:
            if name != CLOSED_FORM:
                select(name, compiled)
                able.append(name)
        except BackendError:
            continue
    return able, ""


def explain(output: Output, cls: type[UncertaintySet], facts: dict[str, Any]) -> None:
    """One set in full: formula, parameters, cost, and a line to try."""
    output.say(f"{facts['name']}: {facts['title'] or 'a set'}\n")
    output.say(f"  {facts['formula'] or '(`formula` and `summary` in the class are shown here)'}\n")
    listing = table("parameter", "meaning", left=2)
    for parameter in facts["parameters"]:
        shown = parameter["name"] if parameter["needed"] else f"[{parameter['name']}]"
        listing.add_row(shown, parameter["meaning"])
    output.say(listing)
    output.say(f"one call costs  {facts['cost']}")
    if facts["fault"]:
        output.warn(f"no example could be made, to see which backends it needs: {facts['fault']}")
    else:
        output.say(f"backends        {', '.join(facts['backends'])}")
    if _is_made_of_sets(cls):
        output.say(
            f"\ntry in Python: uncertainty_sets.{cls.__name__}.example(4).worst_case([0.9, 1.4, 0.3, 2])"
        )
        return
    wanted = [parameter["name"] for parameter in facts["parameters"] if parameter["needed"]]
    options = "".join(f" --{each} {_sample_value(cls, each)}" for each in wanted)
    output.say(f"\ntry: fdro oracle --set {facts['name']} --losses 0.9,1.4,0.3,2{options}")


def _sample_value(cls: type[UncertaintySet], parameter: str) -> str:
    """A parameter for the line to try, with four losses: the class's default, or a file to fill in."""
    import numpy as np

    default = cls.default_parameters(np.full(4, 0.25)).get(parameter)
    return f"@{parameter}.csv" if default is None else f"{np.ravel(default)[0]:g}"


def _is_made_of_sets(cls: type[UncertaintySet]) -> bool:
    """Whether a needed parameter is a set, or a list of sets, which no command line can give."""
    import numpy as np

    from uncertainty_sets.base import UncertaintySet
    from uncertainty_sets.parameters import parameters_of

    defaults = cls.default_parameters(np.full(4, 0.25))
    given = [defaults.get(name) for name, needed in parameters_of(cls).items() if needed]
    parts = [part for each in given for part in (each if isinstance(each, list | tuple) else [each])]
    return any(isinstance(part, UncertaintySet) for part in parts)


def _signature(facts: dict[str, Any]) -> str:
    names = [each["name"] if each["needed"] else f"[{each['name']}]" for each in facts["parameters"]]
    return ", ".join(names)


def _arguments(cls: type[UncertaintySet]) -> dict[str, str]:
    """The "Args:" of the class's docstring."""
    section = (inspect.getdoc(cls) or "").partition("Args:\n")[2].partition("\n\n")[0]
    found: dict[str, str] = {}
    current = ""
    for line in section.splitlines():
        indent = len(line) - len(line.lstrip())
        if indent == 4 and ":" in line:
            current, _, text = line.strip().partition(":")
            found[current] = text.strip()
        elif current:
            found[current] += f" {line.strip()}"
    return found
