"""`fdro choose`: recommend a set by the paper's five scenarios."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fdro_core.cli.command import command
from fdro_core.cli.output import AsJson, Output, Quiet, table

if TYPE_CHECKING:
    from uncertainty_sets.base import UncertaintySet


def costs_few_passes(kind: type[UncertaintySet]) -> bool:
    """Whether every call of a set is a closed form in O(N)."""
    return kind.has_closed_form and kind.complexity == "O(N)"


def has_one_number(kind: type[UncertaintySet]) -> bool:
    """Whether a centre and one number make the set."""
    import numpy as np

    from uncertainty_sets.parameters import parameters_of

    needed = [name for name, required in parameters_of(kind).items() if required and name != "center"]
    defaults = kind.default_parameters(np.full(2, 0.5))
    return len(needed) == 1 and isinstance(defaults.get(needed[0]), float)


@dataclass(frozen=True)
class Scenario:
    """One scenario: title, question, its sets (best first), the paper's reason, and what holds in fdro.

    `suits` finds further sets in the registry by what their classes say of themselves.
    """

    name: str
    title: str
    question: str
    sets: tuple[str, ...]
    why: str
    here: str
    suits: Callable[[type[UncertaintySet]], bool] | None = None

    def also(self) -> list[str]:
        """Registered sets that suit too, beside the paper's."""
        from uncertainty_sets.by_name import available_sets, get_set

        if self.suits is None:
            return []
        return [name for name in available_sets() if name not in self.sets and self.suits(get_set(name))]

    def record(self) -> dict[str, Any]:
        """The scenario for JSON."""
        return {
            "name": self.name,
            "title": self.title,
            "question": self.question,
            "sets": self.sets,
            "also": self.also(),
            "why": self.why,
            "here": self.here,
        }


SCENARIOS = (
    Scenario(
        "compute",
        "Limited computing at the master",
        "Does the master have little computing power (edge, IoT)?",
        ("cd-norm", "box"),
        "their worst case is found by selection, without a solver",
        "most sets here cost only a few passes, the diagonal ellipsoid and Wasserstein-1 on a line too; the "
        "polyhedron needs a solver, and the dense ellipsoid costs O(N³)",
        costs_few_passes,
    ),
    Scenario(
        "latency",
        "Low latency",
        "Must answers come with low latency (real time)?",
        ("cd-norm", "box"),
        "a linear program that costs no more than sorting, so the time hardly varies",
        "every O(N) closed form costs about as much as sorting the losses; box has a fixed number of passes, "
        "KL and the ellipsoid need 4 to 12",
        costs_few_passes,
    ),
    Scenario(
        "flexibility",
        "Robustness adjusted by one number",
        "Do you want to adjust robustness with a single number?",
        ("cd-norm", "kl", "ellipsoid", "wasserstein-1"),
        "a single budget or radius leads from the prior alone to the worst single worker",
        "cd-norm also has a spread per worker and the ellipsoid a shape; with equal spreads and a scalar "
        "shape, one number is left to choose",
        has_one_number,
    ),
    Scenario(
        "conservatism",
        "Less conservatism",
        "Should robustness cost as little average performance as possible?",
        ("ellipsoid",),
        "its worst case moves many weights a little instead of a few to their limits (Bertsimas and Sim)",
        "kl, chi-square and hellinger move weights smoothly too, and their radii have a statistical meaning "
        "(docs/calibration.md)",
    ),
    Scenario(
        "prior",
        "Limited prior knowledge",
        "Do you know nothing about how wrong each worker's prior weight can be?",
        ("kl", "wasserstein-1"),
        "they need only a radius, no spread per worker",
        "kl keeps a worker with prior 0 at weight 0; wasserstein-1 does not, and needs distances between "
        "workers",
        has_one_number,
    ),
)

NUMBER = {str(place): scenario.name for place, scenario in enumerate(SCENARIOS, start=1)}


@command("Sets and worst cases", "fdro choose", "fdro choose --scenario latency --scenario prior", place=22)
def choose(
    scenario: Annotated[
        list[str] | None,
        typer.Option(
            "--scenario", "-s", help=f"{', '.join(s.name for s in SCENARIOS)}, or 1 to 5; repeatable."
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Recommend a set, with reasons, by the paper's five scenarios.

    On a terminal it asks five questions; otherwise give --scenario, or all scenarios are listed.
    """
    output = Output(quiet=quiet, as_json=as_json)
    wanted = [find(each) for each in scenario or []]
    if not wanted and output.words and sys.stdin.isatty():
        wanted = ask(output)
    ranked = rank(wanted or list(SCENARIOS))
    best = ranked[0][0] if wanted else None
    output.data(
        {
            "scenarios": [each.record() for each in wanted or SCENARIOS],
            "choice": best,
            "ranking": [{"set": name, "scenarios": fits} for name, fits in ranked],
        }
    )
    output.only_quiet(best or "\n".join(f"{each.name}: {', '.join(each.sets)}" for each in SCENARIOS))
    for each in wanted or SCENARIOS:
        output.say(f"{each.title}: {', '.join(each.sets)}")
        output.say(f"  paper  {each.why}")
        output.say(f"  fdro   {each.here}")
        if also := each.also():
            output.say(f"  also   {', '.join(also)}")
        output.say()
    if wanted:
        advise(output, ranked, len(wanted))
    else:
        output.say(
            "`fdro choose --scenario latency --scenario prior` weighs two; `fdro sets NAME` explains a set"
        )


def find(text: str) -> Scenario:
    """Find a scenario by name or number."""
    from fdro_core.errors import InvalidSetting
    from uncertainty_sets.registry import nearest

    known = {scenario.name: scenario for scenario in SCENARIOS}
    name = NUMBER.get(text, text.lower())
    if name not in known:
        hint = nearest(text, list(known)) or "."
        raise InvalidSetting(f"no scenario is called {text!r}{hint} There are: {', '.join(known)}, or 1 to 5")
    return known[name]


def ask(output: Output) -> list[Scenario]:
    """Ask the five questions; return the scenarios answered with yes."""
    output.say("Five questions; Enter means no.\n")
    wanted = [each for each in SCENARIOS if typer.confirm(f"  {each.question}", default=False)]
    output.say()
    if not wanted:
        output.say(
            "None of them: kl is a good start. It has one number, which calibration.kl_radius computes.\n"
        )
        wanted = [find("prior")]
    return wanted


def rank(wanted: list[Scenario]) -> list[tuple[str, int]]:
    """Rank sets by how many of the scenarios they suit; ties go to the set earlier in the lists.

    >>> rank([find("flexibility"), find("prior")])[0]
    ('kl', 2)
    """
    fits: dict[str, list[int]] = {}
    for each in wanted:
        for place, name in enumerate(each.sets):
            fits.setdefault(name, []).append(place)
    order = sorted(fits, key=lambda name: (-len(fits[name]), sum(fits[name])))
    return [(name, len(fits[name])) for name in order]


STARTS = {
    "box": "lower = 0.05\nupper = 0.4",
    "cd-norm": "spread = 0.1\nbudget = 2.0",
    "ellipsoid": "shape = 1.0\nradius = 0.05",
    "kl": "radius = 0.1",
    "wasserstein-1": "radius = 0.5",
}
"""Values to start from in a run file; docs/calibration.md shows how to choose better ones."""


def advise(output: Output, ranked: list[tuple[str, int]], asked: int) -> None:
    """Print the ranking and the next step with the best set."""
    best, fits = ranked[0]
    if asked > 1:
        listing = table("set", "suits")
        for name, count in ranked:
            listing.add_row(name, f"{count} of {asked}")
        output.say(listing)
        if fits < asked:
            output.say("No set suits all scenarios; the first one suits the most.\n")
    output.say(f"Use {best}. In a run file for `fdro train`:\n")
    output.say(f'[set]\nname = "{best}"\n{STARTS[best]}\n')
    output.say(
        f"`fdro sets {best}` explains the numbers; docs/calibration.md derives them from a confidence level."
    )
