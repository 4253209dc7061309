"""What sets and penalised problems share: `worst_case`, which checks its input and reports failed rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets import verdict
from uncertainty_sets.answer import BestCase, WorstCase
from uncertainty_sets.arrays import Array
from uncertainty_sets.derivatives import Sensitivity, on_face
from uncertainty_sets.errors import InvalidInput, InvalidLosses, SolverFailed
from uncertainty_sets.parameters import as_floats, check_labels, describe, labels_of, parameters_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from uncertainty_sets.face import Effect, Face, Rows


class Oracle(ABC):
    """A worst-case problem over probability vectors: losses in, a distribution with its certificate out."""

    size: int | None = None
    """N, or None if the losses decide it."""

    rows: int | None = None
    """B if the parameters differ by row of a batch, else None."""

    _is_vertex: bool = False
    """Whether p stays where it is when the losses move a little."""

    _is_curved: bool = False
    """Whether the set is of a tilt family, with a `_bent`."""

    _link: float | None = None
    """The power k of such a family by `center`: then a kernel has the pull on the centre too."""

    _labels: Any = None
    """The index of parameters that are pandas Series, which the losses must have too."""

    def __new__(cls, *given: Any, **named: Any) -> Self:
        """Note the index of parameters that are pandas Series."""
        self = super().__new__(cls)
        labels = labels_of([*given, *named.values()])
        if labels is not None:
            self._labels = labels
        return self

    def __repr__(self) -> str:
        """The class and those parameters that it keeps as attributes of the same name."""
        kept = {name: getattr(self, name) for name in parameters_of(type(self)) if hasattr(self, name)}
        return f"{type(self).__name__}({', '.join(f'{name}={describe(kept[name])}' for name in kept)})"

    def worst_case(
        self,
        losses: ArrayLike,
        *,
        backend: str = "auto",
        warm_start: WorstCase | None = None,
        on_failure: verdict.OnFailure = "raise",
        out: Array | None = None,
    ) -> WorstCase:
        """Return the distribution in the set with the largest expected loss, with its certificate.

        A closed form promises a gap of at most 1e-9·(max f - min f) (or a few units in the last place of the
        losses) and a violation of at most 1e-10. If an answer or a batch row breaks the promise, a conic
        solver computes it again, and `backend` names the solver. If that fails too, `on_failure` decides.

        Args:
            losses: finite numbers, shape (N,), or (B, N) for a batch whose rows run in parallel.
            backend: "auto" (the closed form if there is one), "closed-form", or a name from
                `available_backends()`.
            warm_start: an earlier answer of this or a similar set; its multipliers start the search. The
                answer is the same but comes faster.
            on_failure: what to do if no method has an answer with a good certificate, for a row of a batch or
                for the one loss vector. All other rows are answered first. "raise": raise SolverFailed, with
                the rows in `.rows`, the reasons in `.reasons` and the other rows' answers in `.answer`.
                "nan": return the answers, with NaN and a gap of inf in the failed rows, and the reasons by
                row in `.failed`. A row whose own set is empty is a failed row; losses that are not finite,
                and a set that is empty for all rows, are always raised.
            out: an array for the answer's p, to reuse memory in a loop: float64, C-contiguous, of the losses'
                shape, apart from them in memory. An earlier answer's p will do; it is overwritten. What is in
                it after an error is undefined.

        >>> import numpy as np
        >>> from uncertainty_sets import KL
        >>> ball, p = KL([0.5, 0.5], 0.1), np.empty((2, 2))
        >>> answer = ball.worst_case([[1.0, 0.0], [0.0, 2.0]], out=p)
        >>> answer.p is p, p.round(3).tolist()
        (True, [[0.72, 0.28], [0.28, 0.72]])
        """
        f = self._check_losses(losses)
        if out is not None:
            _check_out(out, f, losses)
        if warm_start is not None and not isinstance(warm_start, WorstCase):
            raise _not_an_answer(warm_start)
        if on_failure != "raise":
            verdict.check_on_failure(on_failure)
            try:
                return self.worst_case(f, backend=backend, warm_start=warm_start, out=out)
            except SolverFailed as error:
                missing = verdict.in_place_of(error, f)
                missing.asked = (self, f)
                return missing if out is None else _placed(missing, out)
        answer = self._answer_checked(f, backend, warm_start, out)
        answer.asked = (self, f)
        return answer if out is None else _placed(answer, out)

    @abstractmethod
    def _answer_checked(
        self, f: Array, backend: str, warm_start: WorstCase | None, out: Array | None
    ) -> WorstCase:
        """Answer checked losses, (N,) or (B, N), or raise SolverFailed; p may be put into `out`."""

    @abstractmethod
    def _by_solver(self, losses: Array) -> WorstCase:
        """Answer one loss vector by a conic solver, after the closed form gave no proof."""

    @abstractmethod
    def _row(self, index: int) -> Oracle:
        """The problem of one row of a batch, if parameters differ by row."""

    def _sensitivity(self, losses: Array, answer: WorstCase) -> Sensitivity | None:
        """How an answer moves with losses and parameters (derivatives.py); None if that is not known."""
        return on_face(self, losses, answer)

    def _face(self, rows: Rows, losses: Any, p: Any, eta: Any, given: Mapping[str, Any]) -> Face | None:
        """The active face at the worst case (face.py), for NumPy, torch and ragged rows; None if not known.

        Args:
            rows: what sums over rows.
            losses: per entry, like p.
            p: the worst case.
            eta: the multiplier by `_eta`, to combine with entries.
            given: the parameters as by `_given_by_name`; those per row combine with entries by `rows.each`.
        """
        return None

    def _bent(self, p: Array, given: Mapping[str, Any]) -> Array | None:
        """η·S on the free entries, from which kernels/curvature.py has J x; None if p calls for the face."""
        return None

    def _limits(self, rows: Rows, given: Mapping[str, Any]) -> dict[str, Effect]:
        """What the parameter that sets the radius does, by its name."""
        return {}

    def _eta(self, rows: Rows, losses: Any, given: Mapping[str, Any], dual: Mapping[str, Any]) -> Any:
        """The multiplier of D (face.py), to combine with entries, from those of the answer; 0 without one."""
        found = next((dual[key] for key in ("eta", "lam", "pi") if key in dual), None)
        return np.zeros(1) if found is None else rows.each(np.asarray(found))

    def _given_by_name(self) -> dict[str, Any]:
        """The parameters by which there are derivatives."""
        return {}

    def _is_distribution(self, name: str) -> bool:
        """Whether a parameter is one, by which derivatives are those of it divided by its sum."""
        return name == "center"

    def _by_parts(self, losses: Any, given: Mapping[str, Any], ask: Callable[..., Any], joined: Any) -> Any:
        """The value and p of a set made of sets, from those of the sets, in operations of torch; else None.

        Args:
            losses: (…, N).
            given: parameters that are tensors.
            ask: (set, its path, its losses) to its value and distribution.
            joined: (arrays, axis) to one array.
        """
        return None

    def _with(self, given: Mapping[str, Any]) -> Self:
        """The same problem with other parameters, by the names of `_given_by_name`."""
        return type(self)(**{name: getattr(self, name) for name in parameters_of(type(self))} | dict(given))

    def _check_losses(self, losses: ArrayLike) -> Array:
        """Losses as a C-contiguous writable float64 array, (N,) or (B, N); kernels look for NaN."""
        if type(losses) is np.ndarray and losses.dtype == np.float64 and losses.flags.carray:
            f = losses
        else:
            check_labels(self._labels, losses)
            f = np.require(as_floats("losses", losses, InvalidLosses), requirements=["C", "W", "A"])
        if f.ndim not in {1, 2} or f.size == 0:
            raise InvalidLosses(
                f"losses must have shape (N,) or (B, N) with at least one entry, got {f.shape}",
                parameter="losses",
                value=losses,
            )
        size = self.size
        if size is not None and f.shape[-1] != size:
            raise InvalidLosses(
                f"losses must have {size} entries, one per entry of the set, got shape {f.shape}",
                parameter="losses",
                value=losses,
            )
        if self.rows is not None and f.shape != (self.rows, f.shape[-1]):
            if f.ndim != 1:
                raise InvalidLosses(
                    f"this set's parameters have {self.rows} rows: losses must have shape "
                    f"({self.rows}, {f.shape[-1]}) or ({f.shape[-1]},), got {f.shape}",
                    parameter="losses",
                    value=losses,
                )
            f = np.tile(f, (self.rows, 1))
        return f

    def __getstate__(self) -> dict[str, Any]:
        # Compiled programs and solver handles are made again when needed.
        return {key: value for key, value in self.__dict__.items() if not key.startswith("_cache")}

    def __copy__(self) -> Self:
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__getstate__())
        return twin


def _not_an_answer(warm_start: object) -> InvalidInput:
    best = isinstance(warm_start, BestCase)
    hint = "; in place of best_case(losses) take worst_case(-losses)" if best else ""
    return InvalidInput(
        f"warm_start must be an earlier answer (WorstCase), got {type(warm_start).__name__}{hint}",
        parameter="warm_start",
        value=warm_start,
    )


def _check_out(out: Any, losses: Array, given: ArrayLike) -> None:
    """Refuse an `out` that kernels cannot write to, or that overlaps the losses.

    Args:
        out: what the caller gave for p.
        losses: as kernels take them, (N,) or (B, N).
        given: the losses as the caller gave them, which must stay as they are.
    """
    if not isinstance(out, np.ndarray):
        raise _refused_out(
            out, "be a NumPy array", f"got {type(out).__name__}; np.empty(losses.shape) makes one"
        )
    if out.dtype != np.float64:
        raise _refused_out(out, "be float64", f"got {out.dtype}; np.empty(losses.shape) makes one that fits")
    if out.shape != losses.shape:
        raise _refused_out(out, f"have the shape of p, {losses.shape}", f"got {out.shape}")
    if not out.flags.carray:
        lack = "one that is read-only" if not out.flags.writeable else "one that is not"
        raise _refused_out(out, "be C-contiguous, aligned and writable", f"got {lack}")
    if np.may_share_memory(out, losses) or (
        isinstance(given, np.ndarray) and np.may_share_memory(out, given)
    ):
        raise _refused_out(
            out, "not overlap the losses", "got memory of theirs; give an array apart from them"
        )


def _placed(answer: WorstCase, out: Array) -> WorstCase:
    """The answer with `out` as its p; copied, unless the kernel wrote it there."""
    if not np.may_share_memory(answer.p, out):
        out[...] = answer.p
    answer.p = out
    return answer


def _refused_out(out: Any, needed: str, got: str) -> InvalidInput:
    return InvalidInput(f"out must {needed}, {got}", parameter="out", value=out)
