"""A problem at increasing radii: the robust values along them, and what robustness costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.arrays import Array
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.by_name import get_set
from uncertainty_sets.errors import InvalidParameter
from uncertainty_sets.mdp.model import MDP
from uncertainty_sets.mdp.robust import Method, Rectangular, RobustMDP
from uncertainty_sets.mdp.solution import Solution
from uncertainty_sets.parameters import as_floats
from uncertainty_sets.sets.kl import KL


@dataclass(eq=False)
class Price:
    """What robustness costs and what it gains, at increasing radii.

    Attributes:
        radii: (K,), increasing.
        size: the name of the set's parameter that the radii are: "radius" or "budget".
        nominal: the solution of the model itself, at radius 0.
        robust: for each radius the solution of the robust problem.
        nominal_policy: for each radius the robust value of the nominal policy, which ignores the ambiguity.
        robust_policy: for each radius the nominal value of the robust policy: what it earns if the model is
            right.
        optimistic: whether nature helps, so that "robust" stands for "optimistic" everywhere.
    """

    radii: Array
    size: str
    nominal: Solution = field(repr=False)
    robust: list[Solution] = field(repr=False)
    nominal_policy: list[Solution] = field(repr=False)
    robust_policy: list[Solution] = field(repr=False)
    optimistic: bool


def radius_path(
    model: MDP,
    ambiguity: type[UncertaintySet] | str,
    radii: ArrayLike,
    *,
    rectangular: Rectangular = "sa",
    optimistic: bool = False,
    method: Method = "policy",
    tolerance: float = 1e-6,
    **parameters: Any,
) -> list[Solution]:
    """Solve a problem at increasing radii; each solution starts at the one before, which saves sweeps.

    Ctrl-C returns the solutions found so far, the last of them with `interrupted`.

    >>> from uncertainty_sets import KL
    >>> from uncertainty_sets.mdp import problems
    >>> path = radius_path(problems.machine_replacement(), KL, [0.0, 0.01, 0.1, 1.0])
    >>> [round(float(each.value[0]), 3) for each in path]
    [-1.413, -1.963, -3.742, -17.69]

    Args:
        model: the nominal model.
        ambiguity: a class of sets with a radius or a budget (`sized_by`), or its name in the registry.
        radii: (K,), numbers that increase; each is used for all states.
        rectangular, optimistic: as for `RobustMDP`.
        method, tolerance: as for `RobustMDP.solve`.
        **parameters: of the set, without its radius.
    """
    size, numbers = _check(ambiguity, radii, parameters)
    found: list[Solution] = []
    for problem in _problems(model, ambiguity, size, numbers, rectangular, optimistic, parameters):
        found.append(problem.solve(method, tolerance=tolerance, start=found[-1] if found else None))
        if found[-1].interrupted:
            break
    return found


def price_of_robustness(
    model: MDP,
    ambiguity: type[UncertaintySet] | str,
    radii: ArrayLike,
    *,
    rectangular: Rectangular = "sa",
    optimistic: bool = False,
    method: Method = "policy",
    tolerance: float = 1e-6,
    **parameters: Any,
) -> Price:
    """Compare the robust policy with the nominal one at increasing radii, in the worst case and nominally.

    `uncertainty_sets.pictures.draw_price` draws it. Ctrl-C leaves out the radii that are not complete; before
    the first is, it raises KeyboardInterrupt.

    >>> from uncertainty_sets.mdp import problems
    >>> price = price_of_robustness(problems.machine_replacement(), "kl", [0.01, 0.1])
    >>> [round(float(each.value[0]), 3) for each in price.robust]
    [-1.963, -3.742]

    All arguments are those of `radius_path`.
    """
    size, numbers = _check(ambiguity, radii, parameters)
    plain = RobustMDP.of(model, KL, radius=0.0)
    nominal = plain.solve(method, tolerance=tolerance)
    price = Price(numbers, size, nominal, [], [], [], optimistic)
    for problem in _problems(model, ambiguity, size, numbers, rectangular, optimistic, parameters):
        done = price.robust, price.nominal_policy
        robust = problem.solve(method, tolerance=tolerance, start=_last(done[0], nominal))
        ignoring = problem.evaluate(nominal, tolerance=tolerance, start=_last(done[1], nominal))
        nominally = plain.evaluate(robust, tolerance=tolerance, start=nominal)
        if nominal.interrupted or robust.interrupted or ignoring.interrupted or nominally.interrupted:
            break
        price.robust.append(robust)
        price.nominal_policy.append(ignoring)
        price.robust_policy.append(nominally)
    if not price.robust:
        raise KeyboardInterrupt
    price.radii = numbers[: len(price.robust)]
    return price


def _last(found: list[Solution], otherwise: Solution) -> Solution:
    return found[-1] if found else otherwise


def _problems(
    model: MDP,
    ambiguity: type[UncertaintySet] | str,
    size: str,
    radii: Array,
    rectangular: Rectangular,
    optimistic: bool,
    parameters: dict[str, Any],
) -> Iterator[RobustMDP]:
    """The robust problem at each radius."""
    for radius in radii:
        yield RobustMDP.of(
            model,
            ambiguity,
            rectangular=rectangular,
            optimistic=optimistic,
            **parameters,
            **{size: float(radius)},
        )


def _check(
    ambiguity: type[UncertaintySet] | str, radii: ArrayLike, parameters: dict[str, Any]
) -> tuple[str, Array]:
    """The name of the parameter that is the radius, and the radii."""
    kind = get_set(ambiguity) if isinstance(ambiguity, str) else ambiguity
    size = getattr(kind, "sized_by", "")
    if not size:
        raise InvalidParameter(
            f"a path needs a class of sets with a radius or a budget, such as KL, or its name; got "
            f"{ambiguity!r}. For others, solve one RobustMDP after the other with start=",
            parameter="ambiguity",
            value=ambiguity,
        )
    if size in parameters:
        raise InvalidParameter(
            f"{size} is given by radii; leave out {size}={parameters[size]!r}",
            parameter=size,
            value=parameters[size],
        )
    numbers = as_floats("radii", radii, InvalidParameter)
    if numbers.ndim != 1 or not numbers.size or not (np.diff(numbers) > 0.0).all():
        raise InvalidParameter(
            f"radii must be a vector of numbers that increase, got {radii!r}", parameter="radii", value=radii
        )
    return size, numbers
