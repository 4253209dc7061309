"""`fdro mdp`: the best policy against the worst transitions, with proved bounds on its value."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fdro_core.cli.command import FAILED, INTERRUPTED, command
from fdro_core.cli.output import AsJson, Output, Quiet, noting, number, table
from fdro_core.cli.written import Param, given_parameters, set_names

if TYPE_CHECKING:
    from uncertainty_sets.mdp import MDP, RobustMDP, Solution, Sweep

DISCOUNT = 0.95
"""For problems in files, which do not contain one."""

EXAMPLE_SET, EXAMPLE_PARAMETERS = "kl", {"radius": 0.1}
"""What `--example` uses if nothing is given."""

SHOWN = 20
"""How many states a table shows; files and JSON always have all."""

ACTIONS = 3
"""How many actions of a randomised policy a table shows for a state."""


class Rectangularity(StrEnum):
    """What nature's budget is for."""

    sa = "sa"
    s = "s"


class Method(StrEnum):
    """How to solve."""

    policy = "policy"
    value = "value"


@dataclass(frozen=True)
class Asked:
    """What the command was asked to solve."""

    problem: str
    discount_given: bool
    set: str
    parameters: dict[str, Any]
    rectangular: Literal["sa", "s"]
    optimistic: bool
    method: Literal["policy", "value"]
    tolerance: float


def example_names(incomplete: str = "") -> list[str]:
    """The built-in problems whose names begin so, for messages and the shell's completion."""
    return [name for name in examples() if name.startswith(incomplete)]


@command(
    "Sets and worst cases",
    "fdro mdp --example river-swim",
    "fdro mdp problem.csv --set kl --radius 0.1 --discount 0.9 --policy-out policy.csv",
    "fdro mdp problem.csv --set total-variation --radius 0.2 --rectangular s --picture price.png",
    place=23,
    set_options=True,
)
def mdp(  # noqa: PLR0913, PLR0917 - typer makes an option of each
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROBLEM.csv",
            help="A file with the columns idstatefrom, idaction, idstateto, probability and reward.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--set",
            "-s",
            help="Name of the set (`fdro sets` lists them), or module:Class.",
            autocompletion=set_names,
        ),
    ] = None,
    param: Param = None,
    discount: Annotated[
        float | None,
        typer.Option(
            help=f"At least 0 and below 1; by default {DISCOUNT}, or the example's own.", show_default=False
        ),
    ] = None,
    example: Annotated[
        str | None,
        typer.Option(
            help="A built-in problem instead of a file, such as inventory or river-swim.",
            autocompletion=example_names,
        ),
    ] = None,
    rectangular: Annotated[
        Rectangularity, typer.Option(help="sa: a set for each state and action; s: one budget per state.")
    ] = Rectangularity.sa,
    optimistic: Annotated[
        bool, typer.Option("--optimistic", help="Nature helps: the best case instead of the worst.")
    ] = False,
    method: Annotated[
        Method, typer.Option(help="policy takes few sweeps; value is value iteration.")
    ] = Method.policy,
    tolerance: Annotated[float, typer.Option(help="How far apart the proved bounds may be.")] = 1e-6,
    policy_out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the policy to a CSV file.")
    ] = None,
    values_out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write values and bounds to a CSV file.")
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw values against the radius, to PNG, SVG or PDF."),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Solve a Markov decision process whose transition probabilities are uncertain, with proved bounds.

    Give the set's parameters by name: --radius 0.1, or one per state: --radius @radii.npy. The centres are
    the problem's probabilities. Ctrl-C keeps the best policy found so far.
    """
    output = Output(quiet=quiet, as_json=as_json)
    file, extra = split_words(words or [])
    chosen, parameters = chosen_set(context, name, param or [], extra, example)
    check_folder("--policy-out", policy_out)
    check_folder("--values-out", values_out)
    check_folder("--picture", picture)
    radii = None if picture is None else radii_around(chosen, parameters, picture)
    model, label = read_problem(file, example, discount)
    problem = build(model, chosen, rectangular, optimistic, parameters)
    asked = Asked(
        problem=label,
        discount_given=discount is not None,
        set=chosen,
        parameters=parameters,
        rectangular=rectangular.value,
        optimistic=optimistic,
        method=method.value,
        tolerance=tolerance,
    )
    solution = solve(output, problem, method, tolerance)
    written = write(model, solution, policy_out, values_out)
    show(output, asked, solution, written)
    drawn = interrupted = False
    if picture is not None and not solution.interrupted:
        drawn, interrupted = draw(output, asked, solution, radii, picture)
    output.data(as_data(asked, solution, [*written, *([str(picture)] if drawn else [])]))
    if drawn:
        output.say(f"picture: {picture}")
    if solution.interrupted or interrupted:
        what = "the picture is not complete" if interrupted else f"bounds are {solution.width:.3g} apart"
        output.warn(f"interrupted: {what}")
        raise typer.Exit(INTERRUPTED)
    if not solution.converged:
        raise typer.Exit(FAILED)


def split_words(words: list[str]) -> tuple[str | None, list[str]]:
    """The problem's file, if there is one, and the set's options with their values.

    >>> split_words(["--radius", "0.1", "lake.csv", "--weights=1,2"])
    ('lake.csv', ['--radius', '0.1', '--weights=1,2'])
    """
    from fdro_core.errors import InvalidSetting

    files, options, rest = [], [], list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            files.append(word)
            continue
        options.append(word)
        if "=" not in word and rest:
            options.append(rest.pop(0))
    if len(files) > 1:
        raise InvalidSetting(f"give one problem, got {' and '.join(map(repr, files))}")
    return (files[0] if files else None), options


def chosen_set(
    context: typer.Context, name: str | None, pairs: list[str], extra: list[str], example: str | None
) -> tuple[str, dict[str, Any]]:
    """The set's name and parameters; an example has a default for both."""
    from fdro_core.cli.written import refuse_words, set_class
    from fdro_core.errors import InvalidSetting

    if name is None and example is None:
        raise InvalidSetting(
            "give --set and its parameters, as in --set kl --radius 0.1; `fdro sets` lists the sets"
        )
    if example is not None and name is None and not (pairs or extra):
        return EXAMPLE_SET, dict(EXAMPLE_PARAMETERS)
    name = name or EXAMPLE_SET
    cls = set_class(name)
    parameters = given_parameters(context, name, cls, pairs, extra)
    if "center" in parameters:
        raise InvalidSetting("the centres are the problem's own probabilities; leave out center")
    refuse_words(cls, parameters)
    return name, parameters


def check_folder(option: str, path: Path | None) -> None:
    """Raise before the work if a result could not be written after it."""
    from fdro_core.errors import InvalidSetting

    if path is not None and not path.parent.is_dir():
        raise InvalidSetting(f"{option} {path}: there is no folder {path.parent}; make it first")
    if path is not None and path.is_dir():
        raise InvalidSetting(f"{option} {path} is a folder, and a file is needed")


def radii_around(name: str, parameters: dict[str, Any], picture: Path) -> Any:
    """Radii from a sixteenth of the given one to 16 times it, for the picture."""
    import numpy as np

    from fdro_core.cli.written import set_class
    from fdro_core.errors import InvalidSetting
    from uncertainty_sets.errors import BackendMissing

    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BackendMissing('--picture needs matplotlib: pip install "fdro[plot]"') from error
    known = Figure().canvas.get_supported_filetypes()
    if picture.suffix.removeprefix(".").lower() not in known:
        raise InvalidSetting(f"--picture must end in one of {', '.join(sorted(known))}, got {picture}")
    size = set_class(name).sized_by
    if not size:
        raise InvalidSetting(f"--picture draws over a radius or a budget, and {name} has none")
    given: Any = parameters.get(size, 0.0)
    if np.ndim(given) > 0 or not float(given) > 0.0:
        raise InvalidSetting(
            f"--picture draws around one positive {size} for all states, got --{size} {given}"
        )
    return float(given) * 2.0 ** (np.arange(-8, 9) / 2.0)


def examples() -> dict[str, Callable[..., MDP]]:
    """The built-in problems by name: the functions of `problems` that need no argument."""
    import inspect

    from uncertainty_sets.mdp import problems

    return {
        name.replace("_", "-"): function
        for name, function in inspect.getmembers(problems, inspect.isfunction)
        if function.__module__ == problems.__name__
        and not name.startswith("_")
        and all(each.default is not each.empty for each in inspect.signature(function).parameters.values())
    }


def read_problem(file: str | None, example: str | None, discount: float | None) -> tuple[MDP, str]:
    """The model and what to call it."""
    from fdro_core.cli.reading import explained
    from fdro_core.errors import InvalidSetting
    from uncertainty_sets.mdp.files import read_csv
    from uncertainty_sets.registry import instead

    if (file is None) == (example is None):
        got = "neither" if file is None else f"{file} and --example {example}"
        raise InvalidSetting(
            f"give a problem's CSV file or --example with one of {', '.join(examples())}; got {got}"
        )
    if file is not None:
        with explained(Path(file)):
            return read_csv(file, DISCOUNT if discount is None else discount), file
    assert example is not None
    known = examples()
    if example not in known:
        raise InvalidSetting(f"no example is called {example!r}{instead(example, known, 'There are')}")
    return known[example](**({} if discount is None else {"discount": discount})), example


def build(
    model: MDP, name: str, rectangular: Rectangularity, optimistic: bool, parameters: dict[str, Any]
) -> RobustMDP:
    """The robust problem."""
    from fdro_core.cli.written import set_class
    from uncertainty_sets.mdp import RobustMDP

    return RobustMDP.of(
        model, set_class(name), rectangular=rectangular.value, optimistic=optimistic, **parameters
    )


def solve(output: Output, problem: RobustMDP, method: Method, tolerance: float) -> Solution:
    """Solve, with a line about the last sweep on a terminal; caveats go to stderr."""
    with noting(output), status(output) as line:

        def on_sweep(sweep: Sweep) -> None:
            line(f"sweep {sweep.number}: bounds {sweep.width:.3g} apart, {sweep.seconds:.1f} s")

        return problem.solve(method.value, tolerance=tolerance, on_sweep=on_sweep)


@contextmanager
def status(output: Output) -> Iterator[Callable[[str], None]]:
    """A function that replaces the last line of the terminal; it does nothing if there is none."""
    if not (output.words and sys.stdout.isatty()):
        yield lambda text: None
        return
    with output.console.status("first sweep") as shown:
        yield shown.update


def write(model: MDP, solution: Solution, policy: Path | None, values: Path | None) -> list[str]:
    """Write the files that are wanted; return their names."""
    from fdro_core.files import naming_full_disk
    from uncertainty_sets.mdp.files import write_policy, write_values

    if policy is not None:
        with naming_full_disk(policy):
            write_policy(policy, model, solution.policy)
    if values is not None:
        with naming_full_disk(values):
            write_values(values, solution.value, solution.lower, solution.upper)
    return [str(path) for path in (policy, values) if path is not None]


def draw(output: Output, asked: Asked, solution: Solution, radii: Any, path: Path) -> tuple[bool, bool]:
    """Draw values against the radius; return whether there is a picture and whether Ctrl-C cut it short."""
    from matplotlib.figure import Figure

    from fdro_core.cli.written import set_class
    from fdro_core.files import naming_full_disk
    from uncertainty_sets.mdp.path import price_of_robustness
    from uncertainty_sets.pictures import draw_price

    cls = set_class(asked.set)
    size = cls.sized_by
    others = {key: value for key, value in asked.parameters.items() if key != size}
    tolerance = asked.tolerance if solution.converged else 2.0 * solution.width
    try:
        with noting(output), status(output) as line:
            line(f"picture: {len(radii)} radii")
            price = price_of_robustness(
                solution.model,
                cls,
                radii,
                rectangular=asked.rectangular,
                optimistic=asked.optimistic,
                method=asked.method,
                tolerance=tolerance,
                **others,
            )
    except KeyboardInterrupt:
        return False, True
    figure = Figure(figsize=(7.2, 3.8), layout="constrained")
    axes = draw_price(price, figure.add_subplot(), mark=float(asked.parameters[size]))
    axes.set_title(f"{asked.problem}, {asked.set}, discount {solution.model.discount:g}", fontsize=10)
    with naming_full_disk(path):
        figure.savefig(path, dpi=150)
    return True, len(price.radii) < len(radii)


def show(output: Output, asked: Asked, solution: Solution, written: list[str]) -> None:
    """Print the problem, values of the first states, and what is proved."""
    mean = float(solution.value.mean())
    output.only_quiet(f"mean value {mean:.8g} over {solution.value.size} states, {_width(solution)}")
    if not output.words:
        return
    model = solution.model
    output.say(
        f"{asked.problem}: {model.states:,} states, {model.rows:,} state-actions, {model.entries:,} "
        f"successors, discount {model.discount:g}{'' if asked.discount_given else ' (default)'}"
    )
    output.say(f"{asked.set}, {_parameters(asked)}; {_words(asked)}")
    made = table("state", "value", "lower", "upper", "action")
    for s in range(min(model.states, SHOWN)):
        cells = (number(side[s], 8) for side in (solution.value, solution.lower, solution.upper))
        made.add_row(str(s), *cells, _action(solution, s))
    output.say(made)
    if model.states > SHOWN:
        more = f"{model.states - SHOWN:,} more states"
        output.say(f"… {more}; --policy-out, --values-out and --json have all\n")
    output.say(f"mean value     {mean:.8g}")
    output.say(
        f"solved in      {solution.sweeps} sweeps, {solution.history[-1].seconds:.2g} s; {_width(solution)}"
    )
    output.say(f"proved         {_meaning(asked)}")
    if written:
        output.say(f"written to     {', '.join(written)}")


def as_data(asked: Asked, solution: Solution, files: list[str]) -> dict[str, Any]:
    """Everything, for `--json`."""
    import numpy as np

    model = solution.model
    rows = np.flatnonzero(solution.policy > 0.0)
    state = np.searchsorted(model.state_rows, rows, side="right") - 1
    return {
        **vars(asked),
        "discount": model.discount,
        "states": model.states,
        "state_actions": model.rows,
        "successors": model.entries,
        "converged": solution.converged,
        "interrupted": solution.interrupted,
        "sweeps": solution.sweeps,
        "width": solution.width,
        "mean_value": solution.value.mean(),
        "value": solution.value,
        "lower": solution.lower,
        "upper": solution.upper,
        "actions": solution.actions,
        "policy": [
            {"state": s, "action": a, "probability": p}
            for s, a, p in zip(
                state.tolist(), model.actions[rows].tolist(), solution.policy[rows].tolist(), strict=True
            )
        ],
        "history": [vars(sweep) for sweep in solution.history],
        "files": files,
    }


def _width(solution: Solution) -> str:
    return f"bounds at most {solution.width:.2g} apart"


def _parameters(asked: Asked) -> str:
    """The set's parameters in words."""
    import numpy as np

    return ", ".join(
        f"{name} {value:g}" if np.ndim(value) == 0 else f"{name}: {np.size(value)} numbers"
        for name, value in asked.parameters.items()
    )


def _words(asked: Asked) -> str:
    """Who chooses what."""
    budget = {"sa": "a set for each state and action", "s": "one budget for all actions of a state"}
    return f"{budget[asked.rectangular]}; {'best' if asked.optimistic else 'worst'} case"


def _meaning(asked: Asked) -> str:
    """What the bounds mean."""
    if asked.optimistic:
        return "no policy and no transitions in the sets give more than upper"
    return (
        "the policy earns at least lower for all transitions in the sets; no policy ensures more than upper"
    )


def _action(solution: Solution, state: int) -> str:
    """A state's action, or the most probable ones of a randomised policy."""
    model = solution.model
    rows = range(model.state_rows[state], model.state_rows[state + 1])
    taken = sorted(
        (b for b in rows if solution.policy[b] > 0.0), key=lambda b: -round(float(solution.policy[b]), 9)
    )
    if len(taken) == 1:
        return str(model.actions[taken[0]])
    parts = [f"{model.actions[b]}: {100.0 * solution.policy[b]:.3g} %" for b in taken[:ACTIONS]]
    return ", ".join(parts + (["…"] if len(taken) > ACTIONS else []))
