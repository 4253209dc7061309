"""`fdro choose`: from what one knows of the shares to a set, its size, and the lines to write."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fdro_core.cli.command import command
from fdro_core.cli.output import AsJson, Output, Quiet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from uncertainty_sets.arrays import Array

SEEN_OFTEN = 5
"""If every case was seen so often, KL's radius, which is right for many samples, is taken: as in χ² tests."""


@dataclass(frozen=True)
class Choice:
    """A set with its parameters, and why.

    Attributes:
        name: of the set.
        why: what makes it the right one, in a sentence.
        size: where its size comes from, and what that promises.
        parameters: as a run file has them.
        center: what Python writes for the centre where a run file says "samples"; "" if there is none.
    """

    name: str
    why: str
    size: str
    parameters: dict[str, Any] = field(default_factory=dict)
    center: str = ""

    def in_python(self) -> str:
        """The lines of Python."""
        from uncertainty_sets.by_name import get_set

        cls = get_set(self.name)
        given = ({"center": self.center} if self.center else {}) | self.parameters
        alone = [name for name in cls.per_entry & given.keys() if isinstance(given[name], float)]
        if not self.center:
            given |= {name: f"np.full(N, {_written(given[name])})" for name in alone}
        parts = ", ".join(f"{name}={_written(value)}" for name, value in given.items())
        return f"from uncertainty_sets import {cls.__name__}\nuncertainty_set = {cls.__name__}({parts})"

    def in_a_run_file(self) -> str:
        """The table [set]."""
        given = ({"center": '"samples"'} if self.center else {}) | self.parameters
        lines = [f"{name} = {_written(value)}" for name, value in given.items()]
        return "\n".join(["[set]", f'name = "{self.name}"', *lines])


def _written(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"[{', '.join(map(repr, value))}]" if hasattr(value, "__iter__") else f"{value:.6g}"


@command(
    "Sets and worst cases", "fdro choose", "fdro choose --counts 12,7,1 --positions 1,2,10",
    "fdro choose --spread 0.1 --budget 2", place=22,
)  # fmt: skip
def choose(
    counts: Annotated[
        str | None, typer.Option(metavar="n,n,…", help="How often each case was seen; one number per case.")
    ] = None,
    positions: Annotated[
        str | None,
        typer.Option(metavar="x,x,…", help="Where the cases lie on a line, for a distance between them."),
    ] = None,
    between: Annotated[
        str | None,
        typer.Option(metavar="l,u", help="The least and the largest share of each case; or l,l,…;u,u,…."),
    ] = None,
    spread: Annotated[
        str | None, typer.Option(help="How wrong a share can be: for all cases, or a list.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="How many shares can be wrong at once.")
    ] = None,
    moved: Annotated[
        str | None,
        typer.Option(metavar="NUMBER", help="How much of the whole can be in the wrong place, such as 0.1."),
    ] = None,
    tail: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER", help="The worst part of the cases, if only that matters, such as 0.1."
        ),
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="How sure the set is to hold the truth, for sizes from counts.")
    ] = 0.95,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Recommend a set and its size from what is known of the shares.

    On a terminal without options it asks. Where nothing is known, it says the default and why.
    """
    output = Output(quiet=quiet, as_json=as_json)
    words = {"counts": counts, "positions": positions, "between": between, "spread": spread}
    words |= {"budget": budget, "moved": moved, "tail": tail}
    known = {name: _read(name, text) for name, text in words.items() if text is not None}
    if not known and output.words and sys.stdin.isatty():
        known = ask(output, confidence)
    found = decide(known, confidence)
    output.data(
        {
            "choice": found.name,
            "why": found.why,
            "size": found.size,
            "parameters": found.parameters,
            "python": found.in_python(),
            "run_file": found.in_a_run_file(),
        }
    )
    output.only_quiet(found.name)
    output.say(f"{found.name}: {found.why}\n{found.size}\n")
    output.say(f"In Python:\n\n{found.in_python()}\n\nIn a run file for `fdro train`:\n")
    output.say(f"{found.in_a_run_file()}\n\n`fdro sets {found.name}` explains the numbers.")


def _read(name: str, text: str) -> Any:
    """What an option or an answer says."""
    from fdro_core.cli.reading import is_number, read_value
    from fdro_core.errors import InvalidSetting

    percent = text.strip().removesuffix("%").strip()
    if percent != text.strip() and is_number(percent):
        raise InvalidSetting(
            f"--{name} is a number, not per cent: for {text.strip()} write {float(percent) / 100:g}"
        )
    value = read_value(text, origin=f"--{name}")
    if name in ("budget", "moved", "tail") and not isinstance(value, float):
        raise InvalidSetting(f"--{name} must be a number, got {text!r}")
    if isinstance(value, str):
        raise InvalidSetting(f"--{name} must be numbers, got {text!r}")
    return value


QUESTIONS = (
    ("counts", "How often was each case seen? Such as 12,7,1"),
    ("positions", "Where does each case lie on a line, if it does? Such as 1,2,10"),
    ("between", "What are the least and the largest share of each case? Such as 0.1,0.4"),
    ("spread", "How wrong can a share be? Such as 0.1"),
    ("budget", "How many can be wrong at once? Such as 2"),
    ("moved", "How much of the whole can be in the wrong place? Such as 0.1"),
    ("tail", "Does only the worst part of the cases matter? Such as 0.1"),
)
TOGETHER = {"positions": "counts", "budget": "spread"}
"""Questions that are asked only after another was answered."""


def ask(output: Output, confidence: float) -> dict[str, Any]:
    """Ask what is known, until something is; an answer that is wrong is asked again."""
    from uncertainty_sets.errors import InvalidInput

    output.say("What do you know of the shares? Enter means: not that.\n")
    known: dict[str, Any] = {}
    for name, question in QUESTIONS:
        asking = TOGETHER.get(name) in known or (not known and name not in TOGETHER)
        while asking:
            answer = typer.prompt(f"  {question}", default="", show_default=False).strip()
            try:
                if answer:
                    given = known | {name: _read(name, answer)}
                    decide(given, confidence)
                    known = given
                asking = False
            except InvalidInput as error:
                output.warn(str(error))
    output.say()
    return known


def decide(known: Mapping[str, Any], confidence: float = 0.95) -> Choice:
    """The set for what is known, checked by making it.

    >>> decide({"counts": [120.0, 70.0, 10.0]}).name, decide({"counts": [12.0, 7.0, 1.0]}).name
    ('kl', 'burg')
    >>> decide({"between": [0.1, 0.5]}).in_a_run_file()
    '[set]\\nname = "box"\\nlower = 0.1\\nupper = 0.5'
    """
    import numpy as np

    from fdro_core.cli.written import set_class, written_set
    from fdro_core.errors import InvalidSetting
    from uncertainty_sets.errors import EmptySet

    beside = {second: first for second, first in TOGETHER.items() if second in known and first not in known}
    for second, first in beside.items():
        raise InvalidSetting(f"--{second} needs --{first}")
    kinds = [name for name in RULES if name in known]
    if len(kinds) > 1:
        names = " and ".join(f"--{name}" for name in kinds)
        raise InvalidSetting(
            f"{names} lead to a set each: ask for one at a time, and join both by Intersection(A, B)"
        )
    found = RULES[kinds[0]](known, confidence) if kinds else by_default()
    listed = [np.size(value) for value in found.parameters.values() if np.size(value) > 1]
    with nullcontext() if listed else suppress(EmptySet):  # whether a number is too large depends on N
        written_set(set_class(found.name), found.parameters, max(listed, default=8))
    return found


def by_default() -> Choice:
    """The set where nothing is known."""
    from uncertainty_sets.calibration import KL_RADIUS

    return Choice(
        "kl",
        "nothing is known of the shares, so one number says how much you mind. Weight shifts smoothly to the "
        "worst cases, and never to a case of share 0.",
        f"Radius {KL_RADIUS}, the default of estimators and examples too: on four data sets, the worst group "
        'gained the most between 0.3 and 0.5 and never lost. `radius_for` and radius="cv" find yours.',
        {"radius": KL_RADIUS},
        "q",
    )


def from_counts(known: Mapping[str, Any], confidence: float) -> Choice:
    """A ball around the frequencies that holds the truth with that confidence."""
    import numpy as np

    from fdro_core.errors import InvalidSetting
    from uncertainty_sets.calibration import burg_radius, kl_radius, wasserstein1_radius

    counts = np.atleast_1d(np.asarray(known["counts"], dtype=np.float64))
    if counts.ndim != 1 or counts.size < 2 or (counts < 0).any() or (counts != np.round(counts)).any():
        raise InvalidSetting("--counts must be whole numbers, one for each of two cases or more: 12,7,1")
    n, size = int(counts.sum()), counts.size
    if n == 0:
        raise InvalidSetting("--counts are all 0: without samples leave them out")
    shares = {"center": (counts / n).tolist()}
    sure = f"({n}, {size}, {confidence:g}"
    if "positions" in known:
        places: Array = np.asarray(known["positions"], dtype=np.float64)
        radius = wasserstein1_radius(n, size, confidence, positions=places)
        return Choice(
            "wasserstein-1",
            "the cases lie on a line, so mass moves to near cases before far ones, also to those never seen.",
            f"Radius {radius:.6g} by calibration.wasserstein1_radius{sure}, positions=…): valid for every n.",
            shares | {"radius": radius, "cost": places.tolist()},
        )
    if counts.min() >= SEEN_OFTEN:
        radius = kl_radius(n, size, confidence)
        return Choice(
            "kl", f"the shares are from {n} samples, and every case was seen {SEEN_OFTEN} times or more.",
            f"Radius {radius:.6g} by calibration.kl_radius{sure}): right as n grows, rough for small n.",
            shares | {"radius": radius},
        )  # fmt: skip
    radius = burg_radius(n, size, confidence)
    return Choice(
        "burg", f"some cases were seen fewer than {SEEN_OFTEN} times; kl would hold a case never seen at 0.",
        f"Radius {radius:.6g} by calibration.burg_radius{sure}): valid for every n.",
        shares | {"radius": radius},
    )  # fmt: skip


def from_ranges(known: Mapping[str, Any], confidence: float) -> Choice:
    """A box."""
    from fdro_core.errors import InvalidSetting

    given = known["between"]
    if not isinstance(given, list) or len(given) != 2:
        raise InvalidSetting("--between needs two numbers, 0.1,0.4, or two lists, 0.1,0.2,0.1;0.4,0.5,0.6")
    ends = dict(zip(("lower", "upper"), given, strict=True))
    return Choice("box", "each share has a range.", "The ranges are its size.", ends)


def from_errors(known: Mapping[str, Any], confidence: float) -> Choice:
    """A CD-norm set."""
    import numpy as np

    from uncertainty_sets.calibration import dnorm_budget

    spread, budget = known["spread"], known.get("budget")
    size = "The errors, and how many of them at once, are its size."
    if budget is None:
        if np.size(spread) < 2:
            return Choice(
                "cd-norm", "a share can be wrong by so much.",
                "Budget 2: two are wrong at once. Say otherwise by --budget, or --spread as a list.",
                {"spread": spread, "budget": 2.0}, "q",
            )  # fmt: skip
        budget = dnorm_budget(np.size(spread), 1.0 - confidence)
        size = (
            f"Budget {budget:.6g} by calibration.dnorm_budget({np.size(spread)}, {1.0 - confidence:.3g}): a "
            "guide, since errors of shares are not independent."
        )
    return Choice(
        "cd-norm", "a share can be wrong by so much, and not all are wrong at once.", size,
        {"spread": spread, "budget": budget}, "q",
    )  # fmt: skip


def from_moved(known: Mapping[str, Any], confidence: float) -> Choice:
    """A ball of total variation."""
    _check_share("moved", known["moved"])
    return Choice(
        "total-variation", "so much of the whole may be in the wrong place, anywhere.",
        "That share is its radius.", {"radius": known["moved"]}, "q",
    )  # fmt: skip


def from_tail(known: Mapping[str, Any], confidence: float) -> Choice:
    """CVaR."""
    _check_share("tail", known["tail"])
    return Choice(
        "cvar", "only the worst part of the cases matters: its worst case is their mean.",
        "That part is its size.", {"tail": known["tail"]}, "q",
    )  # fmt: skip


def _check_share(option: str, value: Any) -> None:
    from fdro_core.errors import InvalidSetting

    if not (isinstance(value, float) and 0.0 < value <= 1.0):
        raise InvalidSetting(f"--{option} must be a share, above 0 and at most 1, got {value!r}")


RULES: dict[str, Callable[[Mapping[str, Any], float], Choice]] = {
    "counts": from_counts,
    "between": from_ranges,
    "spread": from_errors,
    "moved": from_moved,
    "tail": from_tail,
}
"""What is known, and the choice that follows."""
