"""What a local problem is: one worker's loss as a function of the shared parameters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from math import inf
from numbers import Integral, Real
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fdro_core import digests
from fdro_core.errors import InvalidProblem
from fdro_core.protocol.forms import LARGEST
from uncertainty_sets.arrays import Array


@runtime_checkable
class Problem(Protocol):
    """One worker's loss f_j.

    Five more methods and two numbers are used if a problem has them:

    - ``initial_point(rng) -> array``: where to start; zeros without it. The first worker's is used.
    - ``metric() -> array``: positive numbers D of length `dimension`, a diagonal estimate of the curvature of
      f_j. Steps are taken in the mean metric of all workers; without it D = 1.
    - ``samples``: the number of samples, by which FedAvg weights workers.
    - ``strong_convexity``: a number μ_j such that f_j(w) - μ_j/2·‖w‖² is convex (Euclidean norm): the ridge
      of a convex loss, if it covers every entry of w; 0 for a convex loss without one. If all problems have
      it, `Result.lower_bound` is a proven bound on the optimum.
    - ``sample_gradients(w, rows) -> losses, gradients``: loss and gradient, a row each, of the samples with
      these numbers, without whatever depends on no sample; ``penalty(w) -> value, gradient`` is the latter.
      Privacy of samples needs the first, and adds the second if there is one (docs/privacy.md).
    - ``fingerprint() -> str``: a digest of its data and settings, by which a checkpoint of another
      problem is refused. Without it class, dimension and samples are compared.

    docs/problems.md shows one from start to finish.
    """

    @property
    def dimension(self) -> int:
        """The number of parameters, p."""
        ...

    def loss_and_gradient(
        self, w: Array, rng: np.random.Generator | None = None, batch_size: int | None = None
    ) -> tuple[float, Array]:
        """f_j(w) and ∇f_j(w); on `batch_size` samples drawn with `rng` if that is given.

        The gradient may be the same array in every call: copy it to keep it.
        """
        ...


ProblemSource = Problem | Callable[[], Problem]
"""A problem, or a callable that makes one on the worker's machine, such as a `ProblemFrom`."""


class ProblemFrom:
    """A problem that is made on its worker's machine, so that its data never passes through the master.

    `ProblemFrom(make, *arguments, **named)` stands for `make(*arguments, **named)`. Only the callable and its
    arguments are sent: give a path, not the content of the file. On other machines `make` must be importable
    there (a function of an installed package), and the path must exist there.

    >>> import tempfile, pathlib
    >>> from fdro_core import LeastSquares
    >>> def load(path, l2):
    ...     with np.load(path, allow_pickle=False) as shard:
    ...         return LeastSquares(shard["X"], shard["y"], l2=l2, intercept=False)
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
    """The problem's class, and its fingerprint if it has one; long ones are shortened to a digest."""
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


FLOAT = np.dtype(np.float64)


def read_only(w: Array) -> Array:
    """A view of w that cannot be written to, for problems: w may be the master's own array."""
    view = w.view()
    view.flags.writeable = False
    return view


def checked_evaluation(given: Any, w: Array, index: int) -> tuple[float, Array]:
    """Check what `loss_and_gradient(w)` returned; give it as a float and a float64 vector like w.

    This is done for every gradient, so the usual case comes first.
    """
    if type(given) is tuple and len(given) == 2:
        loss, gradient = given
        if (
            isinstance(loss, float)
            and type(gradient) is np.ndarray
            and gradient.dtype is FLOAT
            and gradient.shape == w.shape
            and gradient.flags.c_contiguous
        ):
            return float(loss), gradient
    named = f"problems[{index}].loss_and_gradient"
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise InvalidProblem(f"{named} must give a loss and a gradient, got a {type(given).__name__}")
    return _as_loss(given[0], named), as_vector(given[1], w.size, f"the gradient of {named}")


def _as_loss(value: Any, named: str) -> float:
    try:
        if not isinstance(value, str | bytes):  # which float() would read
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass  # reported below
    raise InvalidProblem(f"{named} must give a loss that is one float, got {type(value).__name__}")


def as_vector(values: Any, size: int, named: str) -> Array:
    """`size` numbers as float64; texts, complex numbers and other shapes are refused."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiu" or array.shape != (size,):
        raise InvalidProblem(f"{named} must be {size} numbers, got shape {array.shape} of {array.dtype}")
    return np.ascontiguousarray(array, dtype=np.float64)


def check_dimension(value: Any, named: str) -> int:
    """A whole number of parameters, at least one."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InvalidProblem(f"{named}.dimension must be a whole number >= 1, got {value!r}")
    return int(value)


def check_samples(value: Any, named: str) -> int | None:
    """A number of samples, None if the problem does not say."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if value is not None and not (whole and 0 <= value <= sys.maxsize):
        raise InvalidProblem(f"{named}.samples must be a whole number in 0..{sys.maxsize}, got {value!r:.80}")
    return None if value is None else int(value)


def check_convexity(value: Any, named: str) -> float:
    """A strong convexity μ_j, -inf if the problem does not say."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if value is not None and not (number and -LARGEST <= float(value) <= LARGEST):
        raise InvalidProblem(
            f"{named}.strong_convexity must be a finite number μ for which f_j(w) - μ/2·‖w‖² is convex, or "
            f"None, got {value!r:.80}"
        )
    return -inf if value is None else float(value)


def build(source: ProblemSource, index: int) -> Problem:
    """The problem, made now if a factory was given."""
    problem: Any = source
    if callable(problem) and (isinstance(problem, type) or not isinstance(problem, Problem)):
        problem = problem()  # a class has the attributes of a problem and is not one yet
    if not isinstance(problem, Problem):
        raise InvalidProblem(
            f"problems[{index}] is a {type(problem).__name__}, which has no `dimension` and "
            "`loss_and_gradient`; docs/problems.md says what a problem needs"
        )
    return problem


def check_sources(problems: Sequence[ProblemSource]) -> list[ProblemSource]:
    """The list of problems; an empty one, or one that holds something else, is refused."""
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
