"""What a local problem is: one worker's loss as a function of the shared parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fdro_core import digests
from fdro_core.errors import InvalidProblem

Array = NDArray[np.float64]


@runtime_checkable
class Problem(Protocol):
    """One worker's loss f_j.

    Three more methods and a number are used where a problem has them:

    - ``initial_point(rng) -> array``: where to start; zeros without it. The first worker's is taken.
    - ``metric() -> array``: positive numbers D of length `dimension`, a diagonal guess at the curvature of
      f_j. Steps are taken in the mean metric of all workers; without it D = 1.
    - ``samples``: how many samples it has, by which FedAvg weighs.
    - ``fingerprint() -> str``: a digest of its data and settings, by which a checkpoint is refused to
      another problem. Without it class, dimension and samples are compared.

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
"""A problem, or something that makes one where the worker lives: a `ProblemFrom`, or any callable."""


class ProblemFrom:
    """A problem that is made where its worker lives, so that its data never passes through the master.

    `ProblemFrom(make, *arguments, **named)` stands for `make(*arguments, **named)`. Only the callable and its
    arguments travel: give a path, not what is in the file. On other machines `make` must be importable there
    (a function of an installed package), and the path must be good there.

    >>> import tempfile, pathlib
    >>> from fdro_core import LeastSquares
    >>> def load(path, l2):
    ...     with np.load(path, allow_pickle=False) as shard:
    ...         return LeastSquares(shard["X"], shard["y"], l2=l2)
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> np.savez(folder / "shard-0.npz", X=np.ones((3, 2)), y=np.zeros(3))
    >>> source = ProblemFrom(load, folder / "shard-0.npz", l2=0.1)
    >>> source().dimension
    2
    """

    __slots__ = ("arguments", "make", "named")

    def __init__(self, make: Callable[..., Problem], *arguments: Any, **named: Any) -> None:
        if not callable(make):
            raise InvalidProblem(
                f"ProblemFrom needs a callable that makes a problem, then its arguments; got a "
                f"{type(make).__name__} first"
            )
        self.make = make
        self.arguments = arguments
        self.named = named

    def __call__(self) -> Problem:
        """The problem, made now."""
        return self.make(*self.arguments, **self.named)

    def __repr__(self) -> str:
        named = [f"{name}={value!r}" for name, value in self.named.items()]
        inside = ", ".join(
            [getattr(self.make, "__qualname__", repr(self.make)), *map(repr, self.arguments), *named]
        )
        return f"ProblemFrom({inside})"


def identity_of(problem: Problem) -> str:
    """The problem's class, and its fingerprint where it has one; long ones are shortened to a digest."""
    kind, own = type(problem).__name__, getattr(problem, "fingerprint", None)
    if not callable(own):
        return kind
    fingerprint = own()
    if not isinstance(fingerprint, str):
        raise InvalidProblem(
            f"{kind}.fingerprint() must give a string, got a {type(fingerprint).__name__}; "
            "fdro_core.digests.short(X=…, y=…) makes one of arrays"
        )
    return f"{kind} {fingerprint if len(fingerprint) <= 80 else digests.short(text=fingerprint)}"


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
