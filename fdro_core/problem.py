"""What a local problem is: one worker's loss as a function of the shared parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fdro_core.errors import InvalidProblem

Array = NDArray[np.float64]


@runtime_checkable
class Problem(Protocol):
    """One worker's loss f_j.

    Two more methods and a number are used where a problem has them:

    - ``initial_point(rng) -> array``: where to start; zeros without it. The first worker's is taken.
    - ``metric() -> array``: positive numbers D of length `dimension`, a diagonal guess at the curvature of
      f_j. Steps are taken in the mean metric of all workers; without it D = 1.
    - ``samples``: how many samples it has, by which FedAvg weighs.

    docs/problems.md shows one from start to finish.
    """

    @property
    def dimension(self) -> int:
        """How many parameters there are, p."""
        ...

    def loss_and_gradient(
        self, w: Array, rng: np.random.Generator | None = None, batch_size: int | None = None
    ) -> tuple[float, Array]:
        """f_j(w) and ∇f_j(w); on `batch_size` samples drawn with `rng` where that is given.

        The gradient is a new array, or one that is not written to before the call after the next one.
        """
        ...


ProblemSource = Problem | Callable[[], Problem]
"""A problem, or something that makes one where the worker lives (a class with `functools.partial`)."""


def build(source: ProblemSource, index: int) -> Problem:
    """The problem itself, made now if a factory was given."""
    problem: Any = source
    if not isinstance(problem, Problem) and callable(problem):
        problem = problem()
    if not isinstance(problem, Problem):
        raise InvalidProblem(
            f"problems[{index}] is a {type(problem).__name__}, which has no `dimension` and "
            "`loss_and_gradient`; docs/problems.md says what a problem needs"
        )
    return problem


def check_sources(problems: Sequence[ProblemSource]) -> list[ProblemSource]:
    """The list of problems, refused where it is empty or holds something else."""
    sources = list(problems)
    if not sources:
        raise InvalidProblem("problems is empty: give one problem for each worker")
    for index, source in enumerate(sources):
        if not isinstance(source, Problem) and not callable(source):
            raise InvalidProblem(
                f"problems[{index}] is a {type(source).__name__}: a problem has `dimension` and "
                "`loss_and_gradient`, or is a callable that makes one (docs/problems.md)"
            )
    return sources
