"""What the code that builds, solves, certifies and checks sets needs of them: the layer below `base`.

`building`, `conic/`, `recheck` and `fallback` are typed against this protocol, so that they know nothing of
`base`, which calls them. Authors of sets subclass `uncertainty_sets.UncertaintySet`, which has every member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

if TYPE_CHECKING:
    from uncertainty_sets.answer import WorstCase
    from uncertainty_sets.arrays import Array


class SetContract(Protocol):
    """The data and hooks of a set; `UncertaintySet` says what each means."""

    name: ClassVar[str]
    per_entry: ClassVar[frozenset[str]]
    size: int | None
    rows: int | None

    @classmethod
    def default_parameters(cls, center: Array) -> dict[str, Any]:
        """Parameters for a set around that centre."""
        ...

    @classmethod
    def ragged(cls, *parameters: Any, **named: Any) -> Any:
        """Rows of different lengths."""
        ...

    def constraints(self, p: Any) -> list[Any]:
        """The set as cvxpy constraints on p."""
        ...

    def violation(self, p: Array) -> float:
        """The largest residual of p."""
        ...

    def with_size(self, size: int) -> Self:
        """The set over that many entries."""
        ...

    def _closed_form(self, losses: Array, warm_start: WorstCase | None) -> WorstCase | None: ...

    def _by_solver(self, losses: Array) -> WorstCase: ...

    def _conic_program(self, size: int) -> Any: ...

    def _dual_from_conic(self, y: Array) -> dict[str, Any]: ...

    def _row(self, index: int) -> SetContract: ...
