"""Derivatives of answers: `WorstCase.jvp` and `vjp`, and the face for second-order models.

`face_of(answer)` gives the `Face` of an answer (face.py states its attributes and formulas). A set is
differentiable if its class has a `_face`, by the parameters that this names. Sets made of sets have a
`_sensitivity` of their own, by the chain rule. Both have `jvp` and `vjp`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.errors import BackendUnsuitable, InvalidInput
from uncertainty_sets.face import FAR, Effect, Face, Rows
from uncertainty_sets.parameters import as_floats
from uncertainty_sets.registry import nearest

if TYPE_CHECKING:
    from uncertainty_sets.answer import RaggedWorstCase, WorstCase
    from uncertainty_sets.arrays import Array
    from uncertainty_sets.oracle import Oracle

EQUAL, SAME = 1e-12, 1e-6
"""How far pᵀf may be from the value, relative to itself and to the losses, before losses or p count as
overwritten."""

FIRST = "The first derivative of the value by the losses is answer.p, also by vjp(value=…, wrt=())"

NUMPY = Rows(np)


class Tangent(NamedTuple):
    """How an answer moves.

    Attributes:
        p: the move of the worst case, of its shape; its sum is 0.
        value: the move of the value, one number per row.
    """

    p: Array
    value: Any

    def __repr__(self) -> str:
        with np.printoptions(precision=4, threshold=8, edgeitems=3):
            return f"Tangent(p={self.p!r}, value={self.value!r})"


class Sensitivity(Protocol):
    """The derivatives of one answer or a batch."""

    @property
    def parameters(self) -> Mapping[str, tuple[int, ...]]:
        """The parameters with derivatives and their shapes."""
        ...

    def jvp(self, losses: Array | None, parameters: Mapping[str, Array]) -> tuple[Array, Array]:
        """The moves of p and the value."""
        ...

    def vjp(self, p: Array | None, value: Array | None, names: Collection[str]) -> dict[str, Array]:
        """The pulls on the losses and on these parameters."""
        ...


class OnFace:
    """The derivatives by a face, with parameters of the shapes in which they were given."""

    def __init__(self, face: Face, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.face, self.parameters = face, shapes

    def jvp(self, losses: Array | None, parameters: Mapping[str, Array]) -> tuple[Array, Array]:
        """The moves of p and the value."""
        dp, _, value = self.face.jvp(losses, parameters)
        return dp, value

    def vjp(self, p: Array | None, value: Array | None, names: Collection[str]) -> dict[str, Array]:
        """The pulls on the losses and on these parameters."""
        found = self.face.vjp(p, None, value, names)
        return {
            name: each if name == "losses" else summed_to(each, self.parameters[name])
            for name, each in found.items()
        }


class Bent(OnFace):
    """The same for a tilt family: what concerns the losses alone is left to a kernel."""

    def __init__(
        self, owner: Oracle, losses: Array, answer: WorstCase, eta: Array, given: dict[str, Array]
    ) -> None:
        self._owner, self._losses, self._eta, self._given = owner, losses, eta, given
        self._p, self._value = answer.p, answer.value
        self.parameters = {name: each.shape for name, each in given.items()}

    @cached_property
    def face(self) -> Face:  # type: ignore[override]  # made when it is needed
        """The face."""
        found = self._owner._face(NUMPY, self._losses, self._p, self._eta, self._given)
        assert found is not None
        return found

    def jvp(self, losses: Array | None, parameters: Mapping[str, Array]) -> tuple[Array, Array]:
        """The moves of p and the value."""
        if losses is None or parameters:
            return super().jvp(losses, parameters)
        return self._moved(losses, None), _products(self._p, losses)

    def vjp(self, p: Array | None, value: Array | None, names: Collection[str]) -> dict[str, Array]:
        """The pulls on the losses and on these parameters."""
        if p is None:
            if names:
                return super().vjp(p, value, names)
            v = np.zeros(self._p.shape[:-1]) if value is None else value
            return {"losses": v[..., None] * self._p}
        if not names:
            return {"losses": self._moved(p, value)}
        limits = self._owner._limits(NUMPY, self._given)
        simple = self._owner._link is not None and set(names) <= {"center", *limits}
        if not simple or not self._is_inner():
            return super().vjp(p, value, names)
        return self._all_by_kernel(p, value, names, limits)

    def _is_inner(self) -> bool:
        """Whether all of p and q is positive and the radius binds."""
        least = min(self._p.min(), self._given["center"].min())
        return bool(least > 0.0 and (self._eta > 0.0).all() and (self._eta < FAR).all())

    def _all_by_kernel(
        self, p: Array, value: Array | None, names: Collection[str], limits: Mapping[str, Effect]
    ) -> dict[str, Array]:
        """The pulls on the losses, the centre and the radius, of a power divergence."""
        from uncertainty_sets.kernels.curvature import center_rows

        bent = self._owner._bent(self._p, self._given)
        assert bent is not None
        losses, numbers = bent_map(self._losses, bent, p, self._eta[..., 0], self._p, value, self._value)
        shape = self._p.shape
        lift = self._eta[..., 0] * (numbers[:, 0].reshape(shape[:-1]) + (0.0 if value is None else value))
        found = {"losses": losses}
        if "center" in names:
            F, P, Q, X = (
                np.atleast_2d(np.ascontiguousarray(each))
                for each in (self._losses, self._p, self._given["center"], p)
            )
            pull = np.empty(F.shape)
            link = float(self._owner._link or 0.0)
            center_rows(F, P, Q, X, link, numbers, np.atleast_1d(lift), pull)
            found["center"] = summed_to(pull.reshape(shape), self.parameters["center"])
        for name in names:
            if name in limits:
                room = np.broadcast_to(np.asarray(limits[name].room), (*shape[:-1], 1))[..., 0]
                found[name] = summed_to(room * lift, self.parameters[name])
        return found

    def _moved(self, x: Array, value: Array | None) -> Array:
        """J x + value·p."""
        bent = self._owner._bent(self._p, self._given)
        if bent is None:
            found = self.face.vjp(x, None, value, ())["losses"]
            return np.asarray(found)
        return bent_map(self._losses, bent, x, self._eta[..., 0], self._p, value, self._value)[0]


class Vertex(OnFace):
    """The same for a set whose p does not move with the losses: its face is made only for parameters."""

    def __init__(self, make: Callable[[], Face], shapes: Mapping[str, tuple[int, ...]], p: Array) -> None:
        self._make, self.parameters, self._p = make, shapes, p

    @cached_property
    def face(self) -> Face:  # type: ignore[override]  # made when it is needed
        """The face."""
        return self._make()

    def jvp(self, losses: Array | None, parameters: Mapping[str, Array]) -> tuple[Array, Array]:
        """The moves of p and the value."""
        if losses is None or parameters:
            return super().jvp(losses, parameters)
        return np.zeros(self._p.shape), _products(self._p, losses)

    def vjp(self, p: Array | None, value: Array | None, names: Collection[str]) -> dict[str, Array]:
        """The pulls on the losses and on these parameters."""
        if names:
            return super().vjp(p, value, names)
        v = np.zeros(self._p.shape[:-1]) if value is None else value
        return {"losses": v[..., None] * self._p}


def bent_map(
    losses: Array, bent: Array, x: Array, eta: Array, p: Array, value: Array | None, near: Any = None
) -> tuple[Array, Array]:
    """J x + value·p by the kernel, for one loss vector or a batch; and the kernel's numbers for each row.

    `bent` is overwritten unless it is p itself; `near` is pᵀf, if it is known.
    """
    near = np.asarray(_products(p, losses) if near is None else near, np.float64)
    from uncertainty_sets.kernels.curvature import rows

    if losses.ndim == 1:  # the fast way: at N = 10 the arrays take longer than the kernel
        P, numbers = p[None], np.empty((1, 3))
        one = np.empty(P.shape) if bent is p else bent[None]  # memory that is new costs more than the kernel
        B = P if bent is p else one
        pull = np.zeros(1) if value is None else np.array(value, np.float64).reshape(1)
        rows(
            losses[None],
            B,
            np.ascontiguousarray(x)[None],
            near.reshape(1),
            eta.reshape(1),
            P,
            pull,
            one,
            numbers,
        )
        return one[0], numbers
    shape, count = losses.shape, len(losses)
    F, X, P = (np.ascontiguousarray(each).reshape(shape) for each in (losses, x, p))
    B = P if bent is p else np.ascontiguousarray(np.broadcast_to(bent, losses.shape)).reshape(shape)
    each = np.array(np.broadcast_to(eta, count))
    pull = np.zeros(count) if value is None else np.array(np.broadcast_to(value, count))
    out, numbers = np.empty(shape), np.empty((count, 3))

    rows(F, B, X, near, each, P, pull, out, numbers)
    return out.reshape(losses.shape), numbers


def on_face(owner: Oracle, losses: Array, answer: WorstCase) -> OnFace | None:
    """The derivatives of an answer of a set with a `_face`."""
    given = numbers_of(owner)
    eta = np.asarray(owner._eta(NUMPY, losses, given, answer.dual))
    if owner._is_curved:
        return Bent(owner, losses, answer, eta, given)
    make = partial(owner._face, NUMPY, losses, answer.p, eta, given)
    if owner._is_vertex:
        shapes = {name: each.shape for name, each in given.items()}
        return Vertex(cast("Callable[[], Face]", make), shapes, answer.p)
    face = make()
    return None if face is None else OnFace(face, {name: np.shape(given[name]) for name in face.effects})


def numbers_of(owner: Oracle) -> dict[str, Array]:
    """The parameters by which there are derivatives, as arrays."""
    named = owner._given_by_name()
    return {name: each if type(each) is np.ndarray else np.asarray(each) for name, each in named.items()}


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
            f"use robust.support in a problem of cvxpy, or differences of two answers. {FIRST}"
        )
    found = owner._sensitivity(losses, answer)
    if found is None:
        raise BackendUnsuitable(
            f"the derivatives of {name} are not known beyond the first of the value. {FIRST}"
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
    if losses is None and not parameters:
        raise InvalidInput("jvp needs a direction: give losses=, a parameter such as radius=, or both")
    found, f = sensitivity_of(answer)
    _check_unchanged(answer, f)
    move = None if losses is None else _of_shape("losses", losses, f.shape)
    given = {}
    for name, each in parameters.items():
        if name not in found.parameters:
            raise _no_derivative(answer, name, found.parameters)
        given[name] = _of_shape(name, each, found.parameters[name], repeats=True)
    _check_radius(answer, given)
    dp, value = found.jvp(move, given)
    whole = dp if dp.shape == f.shape else np.array(np.broadcast_to(dp, f.shape))
    return Tangent(whole, _number(value, answer))


def vjp(
    answer: WorstCase, p: ArrayLike | None, value: ArrayLike | None, wrt: str | Collection[str] | None
) -> dict[str, Any]:
    """As `WorstCase.vjp`."""
    if p is None and value is None:
        raise InvalidInput("vjp needs a pull: give p=, value= or both")
    listed = [wrt] if isinstance(wrt, str) else wrt
    names = None if listed is None else [name for name in listed if name != "losses"]
    v = None if value is None else _of_shape("value", value, _per_row(answer), repeats=True)
    try:
        found, f = sensitivity_of(answer)
    except BackendUnsuitable:
        if v is None or p is not None or names is None or names:
            raise
        return {"losses": _first(answer, v)}
    _check_unchanged(answer, f)
    u = None if p is None else _of_shape("p", p, f.shape)
    names = [*found.parameters] if names is None else names
    for name in names:
        if name not in found.parameters:
            raise _no_derivative(answer, name, found.parameters)
    pulls = found.vjp(u, v, names)
    return {name: each if each.ndim else each[()] for name, each in pulls.items()}


def _first(answer: WorstCase, value: Array) -> Array:
    """value·p: the first derivative of the value by the losses, which every set has."""
    losses = answer.asked[1]
    _check_unchanged(answer, answer.p if isinstance(losses, tuple) else losses)
    if isinstance(losses, tuple):
        value = np.repeat(value, np.diff(cast("RaggedWorstCase", answer).indptr))
    elif answer.p.ndim == 2:
        value = value[:, None]
    return np.asarray(value * answer.p)


def _per_row(answer: WorstCase) -> tuple[int, ...]:
    """The shape of one number per row."""
    return np.shape(answer.value)


def _number(value: Any, answer: WorstCase) -> Any:
    shape = _per_row(answer)
    return np.array(np.broadcast_to(value, shape)) if shape else float(value)


def _of_shape(name: str, given: ArrayLike, shape: tuple[int, ...], repeats: bool = False) -> Array:
    """A direction or pull as floats; if it `repeats`, one number may stand for an array."""
    if isinstance(given, np.ndarray) and given.dtype == np.float64 and given.shape == shape:
        array = given
    else:
        array = as_floats(name, given, InvalidInput)
        if array.shape != shape and (array.ndim or not repeats):
            got = array.shape if array.ndim else f"the number {array}"
            raise InvalidInput(f"{name} must have shape {shape}, got {got}", parameter=name, value=given)
        array = np.array(np.broadcast_to(array, shape))
    if array.size and math.isnan(array.max()):
        raise InvalidInput(f"{name} must not have NaN", parameter=name, value=given)
    return array


def _check_radius(answer: WorstCase, given: Mapping[str, Array]) -> None:
    """Refuse a move of the radius from 0, along which p and the value of a smooth ball grow like its root."""
    for name in given.keys() & {"radius", "tail"}:
        if np.any((np.asarray(answer.dual.get("eta", 0.0)) == np.inf) & (given[name] != 0.0)):
            raise InvalidInput(
                f"at a radius of 0 the derivative by {name} is infinite: the value is mean + "
                "√(2·radius·variance) + …; differentiate by the root of the radius, or from a radius above 0",
                parameter=name,
            )


def _products(p: Array, f: Array) -> Any:
    """pᵀf of each row."""
    return np.dot(p, f) if f.ndim == 1 else np.einsum("bn,bn->b", p, f)


def _check_unchanged(answer: WorstCase, f: Array) -> None:
    """Refuse losses or p that were overwritten since, as by `out` or in place."""
    owner, losses = answer.asked
    # Of a price the value is not pᵀf; ragged rows keep their own table.
    if getattr(owner, "divergence", None) is not None or isinstance(losses, tuple):
        return
    expected = _products(answer.p, f)
    if f.ndim == 1 and abs(expected - answer.value) <= EQUAL * abs(expected):
        return
    with np.errstate(invalid="ignore"):
        off = np.abs(expected - answer.value)
        if not np.any(off > EQUAL * np.abs(expected)):
            return
        changed = off > SAME * np.abs(f).max()
    if np.any(changed):
        raise InvalidInput(
            "the losses or p of this answer were overwritten since: differentiate before the next call with "
            "`out`, or give worst_case a copy of losses that change in place"
        )


def _no_derivative(answer: WorstCase, name: str, known: Mapping[str, Any]) -> InvalidInput:
    owner = answer.asked[0]
    kind = getattr(owner, "_kind", type(owner))
    return InvalidInput(
        f"answers of {kind.__name__} have derivatives by losses, {', '.join(known)}, and none by {name!r}"
        f"{nearest(name, known)}",
        parameter=name,
    )
