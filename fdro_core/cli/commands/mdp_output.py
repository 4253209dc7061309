"""What `fdro mdp` prints: a table of states, or everything as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fdro_core.cli.commands.output import Output, table
from fdro_core.cli.formatting import number

if TYPE_CHECKING:
    from uncertainty_sets.mdp import Solution

SHOWN = 20
"""How many states a table shows; files and JSON always have all."""

ACTIONS = 3
"""How many actions of a randomised policy a table shows for a state."""


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
