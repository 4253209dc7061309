"""Derivatives of answers: `WorstCase.jvp` and `vjp`, and the face for second-order models.

`face_of(answer)` gives the `Face` of an answer (face.py states its attributes and formulas). A set is
differentiable if its class has a `_face`, by the parameters that this names. Sets made of sets have a
`_sensitivity` of their own, by the chain rule. Both have `jvp` and `vjp`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.errors import BackendUnsuitable, InvalidInput
from uncertainty_sets.face import Face, Rows
from uncertainty_sets.parameters import as_floats

if TYPE_CHECKING:
    from uncertainty_sets.answer import WorstCase
    from uncertainty_sets.arrays import Array
    from uncertainty_sets.oracle import Oracle

SAME = 1e-6
"""How far pᵀf may be from the value, relative to the losses, before losses or p count as overwritten."""

NUMPY = Rows(np)


class Tangent(NamedTuple):
    """How an answer moves.

    Attributes:
        p: the move of the worst case, of its shape; its sum is 0.
        value: the move of the value, one number per row.
    """

    p: Array
    value: Any


class Sensitivity(Protocol):
    """The derivatives of one answer or a batch."""

    @property
    def parameters(self) -> Mapping[str, tuple[int, ...]]:
        """The parameters with derivatives and their shapes."""
        ...

    def jvp(self, losses: Array | None, parameters: Mapping[str, Array]) -> tuple[Array, Array]:
        """The moves of p and the value."""
        ...

    def vjp(self, p: Array | None, value: Array | None) -> dict[str, Array]:
        """The pulls on the losses and on all parameters."""
        ...


class OnFace:
    """The derivatives by a face, with parameters of the shapes in which they were given."""

    def __init__(self, face: Face, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.face, self.parameters = face, shapes

    def jvp(self, losses: Array | None, parameters: Mapping[str, Array]) -> tuple[Array, Array]:
        """The moves of p and the value."""
        dp, _, value = self.face.jvp(losses, parameters)
        return dp, value

    def vjp(self, p: Array | None, value: Array | None) -> dict[str, Array]:
        """The pulls on the losses and on all parameters."""
        found = self.face.vjp(p, None, value, self.parameters)
        return {
            name: each if name == "losses" else summed_to(each, self.parameters[name])
            for name, each in found.items()
        }


def on_face(owner: Oracle, losses: Array, answer: WorstCase) -> OnFace | None:
    """The derivatives of an answer of a set with a `_face`."""
    given = numbers_of(owner)
    eta = np.asarray(owner._eta(NUMPY, losses, given, answer.dual))
    face = owner._face(NUMPY, losses, answer.p, eta, given)
    return None if face is None else OnFace(face, {name: np.shape(given[name]) for name in face.effects})


def numbers_of(owner: Oracle) -> dict[str, Array]:
    """The parameters by which there are derivatives, as arrays."""
    return {name: np.asarray(each) for name, each in owner._given_by_name().items()}


def summed_to(array: Any, shape: tuple[int, ...]) -> Any:
    """Summed over the axes along which a parameter of that shape was repeated."""
    array = np.asarray(array)
    extra = array.ndim - len(shape)
    if extra > 0:
        array = array.sum(axis=tuple(range(extra)))
    repeated = tuple(i for i, n in enumerate(shape) if n == 1 and array.shape[i] != 1)
    return array.sum(axis=repeated, keepdims=True) if repeated else array


def sensitivity_of(answer: WorstCase) -> tuple[Sensitivity, Array]:
    """The derivatives of an answer and its losses, or an error that says why there are none."""
    if answer.asked is None:
        raise InvalidInput(
            "this answer does not know its set and losses, as one that was pickled: ask worst_case again"
        )
    owner, losses = answer.asked
    kind = getattr(owner, "_kind", type(owner))  # of ragged rows
    name = kind.__name__
    if answer.backend != "closed-form":
        raise BackendUnsuitable(
            f"derivatives need the closed form's multipliers, and {answer.backend} answered for {name}; "
            "use robust.support in a problem of cvxpy, or differences of two answers"
        )
    found = owner._sensitivity(losses, answer)
    if found is None:
        raise BackendUnsuitable(
            f"the derivatives of {name} are not known beyond that of the value by the losses, which is p"
        )
    return found, answer.p if isinstance(losses, tuple) else losses


def face_of(answer: WorstCase) -> Face:
    """The face of an answer; BackendUnsuitable for sets made of sets, whose derivatives have other forms."""
    found, _ = sensitivity_of(answer)
    if not isinstance(found, OnFace):
        raise BackendUnsuitable(f"an answer of {type(answer.asked[0]).__name__} has no single face")
    return found.face


def jvp(answer: WorstCase, losses: ArrayLike | None, parameters: Mapping[str, ArrayLike]) -> Tangent:
    """As `WorstCase.jvp`."""
    found, f = sensitivity_of(answer)
    _check_unchanged(answer, f)
    move = None if losses is None else _of_shape("losses", losses, f.shape)
    given = {}
    for name, each in parameters.items():
        if name not in found.parameters:
            raise _no_derivative(answer, name, found.parameters)
        given[name] = _of_shape(name, each, found.parameters[name])
    dp, value = found.jvp(move, given)
    return Tangent(np.array(np.broadcast_to(dp, f.shape)), _number(value, answer))


def vjp(answer: WorstCase, p: ArrayLike | None, value: ArrayLike | None) -> dict[str, Any]:
    """As `WorstCase.vjp`."""
    found, f = sensitivity_of(answer)
    _check_unchanged(answer, f)
    u = None if p is None else _of_shape("p", p, f.shape)
    v = None if value is None else _of_shape("value", value, _per_row(answer))
    pulls = found.vjp(u, v)
    return {name: each if each.ndim else each[()] for name, each in pulls.items()}


def _per_row(answer: WorstCase) -> tuple[int, ...]:
    """The shape of one number per row."""
    return np.shape(answer.value)


def _number(value: Any, answer: WorstCase) -> Any:
    shape = _per_row(answer)
    return np.array(np.broadcast_to(value, shape)) if shape else float(value)


def _of_shape(name: str, given: ArrayLike, shape: tuple[int, ...]) -> Array:
    """A direction or pull as floats; one number may stand for an array."""
    array = as_floats(name, given, InvalidInput)
    if array.shape != shape and array.ndim:
        raise InvalidInput(
            f"{name} must have the shape {shape} of what it is a direction of, got {array.shape}",
            parameter=name,
            value=given,
        )
    return np.array(np.broadcast_to(array, shape))


def _check_unchanged(answer: WorstCase, f: Array) -> None:
    """Refuse losses or p that were overwritten since, as by `out` or in place."""
    owner, losses = answer.asked
    # Of a price the value is not pᵀf; ragged rows keep their own table.
    if getattr(owner, "divergence", None) is not None or isinstance(losses, tuple):
        return
    size = np.abs(f).max() if f.size else 0.0
    expected = np.einsum("...n,...n->...", answer.p, f)
    with np.errstate(invalid="ignore"):
        changed = np.abs(expected - answer.value) > SAME * size
    if np.any(changed):
        raise InvalidInput(
            "the losses or p of this answer were overwritten since: differentiate before the next call with "
            "`out`, or give worst_case a copy of losses that change in place"
        )


def _no_derivative(answer: WorstCase, name: str, known: Mapping[str, Any]) -> InvalidInput:
    owner = answer.asked[0]
    kind = getattr(owner, "_kind", type(owner))
    return InvalidInput(
        f"answers of {kind.__name__} have derivatives by losses, {', '.join(known)}, and none by {name!r}",
        parameter=name,
    )
