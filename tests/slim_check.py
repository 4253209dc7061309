"""Check an install without solvers: every closed form answers, and everything else says what to install.

A script, so that it also runs in an environment without pytest, as after
`pip install --no-deps dist/fdro-*.whl numpy`: `python tests/slim_check.py`.
It fails if one of the packages is installed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from uncertainty_sets import (
    KL,
    CDNorm,
    Ellipsoid,
    Polyhedron,
    UncertaintySet,
    Wasserstein1,
    available_backends,
    available_sets,
    calibration,
    check_set,
    get_set,
    robust,
)
from uncertainty_sets.errors import BackendMissing, FdroError, SolverFailed

ABSENT = ("cvxpy", "clarabel", "highspy", "scs", "ot", "scipy")
LOSSES = np.array([1.0, 3.0, 2.0, 4.0])
CENTER = np.full(4, 0.25)


class Plugin(UncertaintySet):
    """A set with nothing but constraints."""

    size = 4

    def constraints(self, p: Any) -> Any:
        return [p <= 0.5]


class Claiming(Plugin):
    """A set whose closed form is checked against its constraints."""

    def _closed_form(self, losses: Any, warm_start: Any) -> Any:
        return KL(CENTER, radius=0.0).worst_case(losses)


class Unproved(Plugin):
    """A set whose closed form gives up."""

    def _closed_form(self, losses: Any, warm_start: Any) -> Any:
        answer = KL(CENTER, radius=0.0).worst_case(losses)
        answer.unproved = (0,)
        return answer


def check_closed_forms() -> None:
    """Ask every set with a closed form, in single calls and batches, and check each answer's certificate."""
    for each in closed_forms():
        for losses in (LOSSES, np.stack([LOSSES, -LOSSES])):
            answer = each.worst_case(losses)
            assert answer.backend == "closed-form", answer
            assert np.all(np.abs(answer.gap) <= 1e-9), answer
            assert np.allclose((answer.p * losses).sum(axis=-1), answer.value, atol=1e-12), answer


def closed_forms() -> list[Any]:
    """An example of every set with a closed form, and the kernels that no example uses."""
    distances = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))
    examples = [get_set(name).example(4) for name in available_sets() if get_set(name).has_closed_form]
    return [
        *examples,
        CDNorm(CENTER, spread=[0.1, 0.1, 0.2, 0.2], budget=2.0),
        Ellipsoid(CENTER, shape=np.eye(4) + 0.1, radius=0.1),
        Wasserstein1(CENTER, radius=0.5, cost=distances),
    ]


def needing() -> dict[str, tuple[str, Callable[[], Any]]]:
    """What cannot be done without a package: the package that the error must name, and a call."""
    kl = KL(CENTER, radius=0.1)
    matrix = Wasserstein1(CENTER, radius=0.5, cost=1.0 - np.eye(4))
    return {
        "a named solver": ("cvxpy", lambda: kl.worst_case(LOSSES, backend="clarabel")),
        "a set without a closed form": ("cvxpy", lambda: Plugin().worst_case(LOSSES)),
        "a closed form that is checked": ("cvxpy", lambda: Claiming().worst_case(LOSSES)),
        "membership": ("cvxpy", lambda: Plugin().violation(CENTER)),
        "reference": ("cvxpy", lambda: Plugin().reference()),
        "membership by transport": ("ot", lambda: matrix.contains(CENTER)),
        "a polyhedron": ("scipy", lambda: Polyhedron(np.eye(4), np.full(4, 0.5)).worst_case(LOSSES)),
        "robust.support": ("cvxpy", lambda: robust.support(kl, [0.0, 1.0, 2.0, 3.0])),
        "calibration": ("scipy", lambda: calibration.kl_radius(100, 4, 0.9)),
        "check_set": ("cvxpy", lambda: check_set(kl)),
    }


def error_of(call: Callable[[], Any]) -> FdroError | None:
    """The error that a call raises."""
    try:
        call()
    except FdroError as error:
        return error
    return None


def check_errors() -> None:
    """Ask for what needs a package, and see that the error names it and the extra that has it."""
    for what, (package, call) in needing().items():
        error = error_of(call)
        assert isinstance(error, BackendMissing), f"{what}: {error!r}"
        assert f"needs the package {package}: pip install" in str(error), f"{what}: {error}"
        assert '"fdro[' in str(error), f"{what}: {error}"
        assert isinstance(error.__cause__, ImportError), f"{what}: {error.__cause__!r}"


def check_an_unproved_answer() -> None:
    """A closed form without a proof asks a solver; the error has its answer and its cause."""
    error = error_of(lambda: Unproved().worst_case(LOSSES))
    assert isinstance(error, SolverFailed), repr(error)
    assert error.answer is not None
    assert isinstance(error.__cause__, BackendMissing), repr(error.__cause__)
    assert "needs the package cvxpy: pip install" in str(error.__cause__), str(error.__cause__)


def main() -> None:
    """Run all checks."""
    present = [name for name in ABSENT if find_spec(name) is not None]
    assert not present, f"this checks an install without {', '.join(present)}"
    check_closed_forms()
    check_errors()
    check_an_unproved_answer()
    assert available_backends() == ["closed-form"], available_backends()
    loaded = sorted({name.partition(".")[0] for name in sys.modules}.intersection({*ABSENT, "typer", "rich"}))
    assert not loaded, loaded
    numba = "with" if "numba" in sys.modules else "without"
    print(f"closed forms answer {numba} numba, and errors name {', '.join(ABSENT)}")


if __name__ == "__main__":
    main()
