"""The inverse question: the least radius, or budget, at which the worst case reaches a target.

The largest pᵀf of a set is a concave function of its radius (or of a power of it, which then stands for it
below), and an answer's multiplier of the radius is the slope of a line above it. So where that line reaches
the target is a certified lower bound on the radius, and also the next radius to try: Newton's method, which
comes from below and takes 3 or 4 oracle calls. If a set does not tell its multiplier, the bounds of its
answers alone narrow a bracket.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from uncertainty_sets.answer import stack
from uncertainty_sets.arrays import Array
from uncertainty_sets.errors import BackendUnsuitable, BrokenSet, InvalidInput, SolverFailed
from uncertainty_sets.kernels.dispatch import reject_not_finite, run_pieces, unit
from uncertainty_sets.kernels.layout import FEASIBLE, MULTIPLIER, NOT_FINITE, OK, PROMISE, ULPS
from uncertainty_sets.kernels.layout import RADIUS_COLUMNS as COLUMNS
from uncertainty_sets.kernels.layout import RADIUS_STATUS as STATUS
from uncertainty_sets.kernels.layout import RADIUS_VALUE as VALUE
from uncertainty_sets.parameters import as_floats, as_index, parameters_of

if TYPE_CHECKING:
    from uncertainty_sets.answer import WorstCase

NARROW, ENOUGH = 1e-11, 1e-5  # of the radius: the gap that is aimed at, and the largest by a conic solver
EPS = 2.0**-52
CLOSE = 1e-12  # of the radius: the first step past a bound
SUMMED = 1e-14  # of Σp: more is not the rounding of entries
TINY, LARGEST = 1e-40, 1e300  # below the one 0 is tried; the largest radius that is
MOST_CALLS = 200


class Sized(Protocol):
    """A set with a radius or a budget, as far as questions about it go."""

    rows: int | None
    sized_by: ClassVar[str]

    @property
    def _concave_in_power(self) -> float: ...

    def worst_case(self, losses: Array, *, warm_start: WorstCase | None = None) -> WorstCase:
        """The oracle."""
        ...

    def reference(self) -> Array:
        """The centre."""
        ...

    def _check_losses(self, losses: ArrayLike) -> Array: ...

    def _row(self, index: int) -> Any: ...

    def _residual(self, p: Array) -> float: ...

    def _closed_radius(self, losses: Array, targets: Array) -> LeastRadius | None: ...

    def _slope(self, losses: Array, answer: WorstCase) -> float | None: ...

    def _distance(self, p: Array) -> float | None: ...

    @property
    def _distance_is_quick(self) -> bool: ...


@dataclass(frozen=True, repr=False)
class LeastRadius:
    """The least radius (or budget) at which the worst case reaches a target, with its proof.

    Losses and target are known to their last digit, which limits the radius too: to `multiplier` times 64
    ulps of the largest of them, beside 1e-9 of the radius. Near the largest loss, where the multiplier grows
    without bound, that may be most of the radius; `gap` says how much it is.

    For several targets or rows every field except `backend` has a leading axis of length B.

    Attributes:
        radius: the least radius; infinite if no radius reaches the target (`reached` says so).
        lower_bound: no radius below this one reaches the target, by the multiplier alone; if rounding takes
            that above the radius, which p refutes, less by such rounding.
        gap: radius - lower_bound, computed before both are rounded. Never negative.
        p: a distribution within `radius` that reaches the target, up to rounding or what 1e-9 of the radius
            is worth; NaN if there is none.
        value: pᵀf.
        multiplier: by how much the radius grows per unit of the target; NaN if the set does not tell it.
        backend: "closed-form", or "oracle" if the set's oracle was called for several radii.
        iterations: passes over the losses, or oracle calls.
    """

    radius: Any
    lower_bound: Any
    gap: Any
    p: Array
    value: Any
    multiplier: Any
    backend: str
    iterations: Any

    @property
    def reached(self) -> Any:
        """Whether any radius reaches the target: True or False, or one of them for each target."""
        return np.isfinite(self.radius) if np.ndim(self.radius) else bool(np.isfinite(self.radius))

    def __repr__(self) -> str:
        if np.ndim(self.radius):
            finite = np.isfinite(self.radius)
            missed = np.size(finite) - int(finite.sum())
            words = f"{np.size(finite)} targets, largest gap={np.max(self.gap, initial=0.0):.2g}"
            words += f", {missed} that no radius reaches" if missed else ""
        elif not self.reached:
            words = "no radius reaches the target: radius=inf"
        else:
            p = np.array2string(self.p, precision=4, threshold=8, edgeitems=3, separator=", ")
            words = f"radius={self.radius:.10g}, p={p}, gap={self.gap:.2g}"
        return f"LeastRadius({words}, backend={self.backend!r})"

    def row(self, index: int) -> Self:
        """Return the answer for one target or row."""
        if np.ndim(self.radius) == 0:
            raise InvalidInput("this is the answer for one target; there are no rows to choose from")
        index = as_index("row", index, len(self.p))
        numbers = (self.radius, self.lower_bound, self.gap, self.value, self.multiplier)
        radius, lower, gap, value, multiplier = (float(each[index]) for each in numbers)
        return type(self)(
            radius, lower, gap, self.p[index], value, multiplier, self.backend, int(self.iterations[index])
        )


def resized(subject: Sized, extent: Any) -> Any:
    """The set with another radius or budget, and all else as it is.

    A subclass that computes its radius (an `EVaR`) becomes the set that takes it as a parameter.
    """
    name = required(subject)
    owner: Any = next((cls for cls in type(subject).__mro__ if name in parameters_of(cls)), None)
    missing = [] if owner is None else [each for each in parameters_of(owner) if not hasattr(subject, each)]
    if owner is None or missing:
        raise BackendUnsuitable(
            f"{type(subject).__name__} cannot be made again with another {name}: "
            + (f"it keeps no attribute {missing[0]!r}" if missing else f"no constructor takes {name!r}")
        )
    given = {each: getattr(subject, each) for each in parameters_of(owner)}
    return owner(**given | {name: extent})


def required(subject: Sized) -> str:
    """The name of the parameter that says how large the set is; an error if it has none."""
    if not subject.sized_by:
        raise BackendUnsuitable(
            f"{type(subject).__name__} has no radius or budget to change; a set that has one names it in "
            "`sized_by` (docs/add-a-set.md, Answer questions about the radius)"
        )
    return str(subject.sized_by)


def radius_for(subject: Sized, losses: ArrayLike, target: ArrayLike) -> LeastRadius:
    """Answer `UncertaintySet.radius_for`."""
    f = subject._check_losses(losses)
    t = as_floats("target", target, InvalidInput)
    if t.ndim > 1 or not np.isfinite(t).all() or (f.ndim == 2 and t.ndim == 1 and len(t) != len(f)):
        needed = "a finite number or a vector of them" + ("" if f.ndim == 1 else f", of length {len(f)}")
        raise InvalidInput(f"target must be {needed}, got {target!r}", parameter="target", value=target)
    single = f.ndim == 1 and t.ndim == 0
    count = len(f) if f.ndim == 2 else t.size
    F = np.ascontiguousarray(np.broadcast_to(f, (count, f.shape[-1])))
    T = np.array(np.broadcast_to(t, (count,)))
    found = subject._closed_radius(F, T)
    if found is None:
        required(subject)
        reject_not_finite(f)
        found = gather([_by_oracle(subject._row(b), F[b], float(T[b])) for b in range(count)])
    return found.row(0) if single else found


def gather(answers: list[LeastRadius]) -> LeastRadius:
    """The answers for several targets or rows as one."""

    def column(name: str) -> Array:
        return np.array([getattr(each, name) for each in answers])

    names = ("radius", "lower_bound", "gap", "p", "value", "multiplier")
    radius, lower, gap, p, value, multiplier = map(column, names)
    backends = " and ".join(sorted({each.backend for each in answers}))
    return LeastRadius(radius, lower, gap, p, value, multiplier, backends, column("iterations"))


def closed(
    subject: Sized,
    kernel: Callable[..., None],
    F: Array,
    parameters: tuple[Array, ...],
    targets: Array,
) -> LeastRadius:
    """Run a kernel ``rows(F, *parameters, targets, P, out)``, with the columns of kernels/layout.py.

    Rows that do not come out are tried again, scaled by a power of two, and then by the set's oracle.
    """
    P, out = np.empty(F.shape), np.empty((len(F), COLUMNS))

    def run(first: int, after: int) -> None:
        part = slice(first, after)
        cut = (each[part] if len(each) > 1 else each for each in parameters)
        kernel(F[part], *cut, targets[part], P[part], out[part])

    run_pieces(run, len(F), F.size)
    radius, lower, gap, value, multiplier, passes, status = out.T
    answer = LeastRadius(radius, lower, gap, P, value, multiplier, "closed-form", passes.astype(np.int64))
    if not status.any():
        return answer
    if (status == NOT_FINITE).any():
        reject_not_finite(F[0] if len(F) == 1 else F)
    kept = []
    for b in range(len(F)):
        if status[b] != OK:
            scale = unit(F[b])
            own = [each[b : b + 1] if len(each) > 1 else each for each in parameters]
            kernel(F[b : b + 1] * scale, *own, targets[b : b + 1] * scale, P[b : b + 1], out[b : b + 1])
            with np.errstate(over="ignore"):
                out[b, VALUE] /= scale
                out[b, MULTIPLIER] *= scale
        done = out[b, STATUS] == OK
        kept.append(answer.row(b) if done else _by_oracle(subject._row(b), F[b], float(targets[b])))
    return gather(kept)


class _Short(NamedTuple):
    """What is kept of an answer that is short of the target: the slope is in the radius, inf if lost."""

    radius: float
    value: float
    slope: float


class _Tried(NamedTuple):
    """The oracle's answer at one radius, to losses from which the target is subtracted."""

    radius: float
    answer: WorstCase
    slope: float | None
    power: float
    p: Array
    value: float
    rounding: float
    own: float | None = None
    """The least radius that has p, if the set tells it."""

    def reaches(self) -> bool:
        """Whether p reaches the target, up to the rounding of the losses."""
        return self.value >= -self.rounding

    def bound(self) -> float:
        """No radius below this reaches the target, up to the same rounding, by this answer's multipliers."""
        over = -2.0 * self.rounding - float(self.answer.upper_bound)
        if self.slope is None or not np.isfinite(self.slope):
            return self.radius if over > 0.0 else 0.0
        if self.slope <= 0.0:
            return np.inf if over > 0.0 else 0.0
        extent = self.radius**self.power + over / self.slope
        return float(max(0.0, extent) ** (1.0 / self.power))

    def multiplier(self, under: _Short | None = None) -> float:
        """By how much the radius grows per unit of the target; at the largest pᵀf, what it grew by below.

        A slope that is lost in the rounding of the losses is at most that between the two answers.
        """
        if self.slope is None:
            return np.nan
        slope = self._in_radius(self.slope) if self.radius > 0.0 else 0.0
        if slope > 0.0:
            return 1.0 / slope
        if under is None:
            return np.inf
        rise, way = self.value - under.value, self.radius**self.power - under.radius**self.power
        between = self._in_radius(rise / way) if way > 0.0 else np.inf
        least = min(between, under.slope)
        return 1.0 / least if least > 0.0 else np.inf

    def _in_radius(self, slope: float) -> float:
        """A slope in the power of the radius, in the radius."""
        return float(slope * self.power * self.radius ** (self.power - 1.0)) if self.radius > 0.0 else np.inf

    def moved(self, center: Array, mean: float) -> Self:
        """The mix with the centre that just reaches the target: its distance is at most that share of p's.

        p may be nearer than the radius, or beyond it by what a closed form is allowed: then the bound is.
        """
        radius, own = self.radius, self.own
        if own is not None and own < np.inf and (own < radius or radius < self.bound()):
            radius = own
        share = min(1.0, mean / (mean - self.value)) if self.value > mean else 1.0
        radius, value = radius * share ** (1.0 / self.power), mean + share * (self.value - mean)
        return self._replace(radius=radius, p=center + share * (self.p - center), value=value)

    def is_near(self, low: float, share: float, times: float, under: _Short | None = None) -> bool:
        """Whether the bound is as near as this share of the radius, or as so many times the rounding.

        It may be above the radius by as much as p is outside, which a closed form's may by its rounding.
        """
        multiplier = self.multiplier(under)
        known = times * multiplier * self.rounding if multiplier < np.inf else 0.0
        least = -min(share, PROMISE) * self.radius
        return least <= self.radius - low <= max(share * self.radius, known)


@dataclass
class _Bracket:
    """What the answers so far say: the bound, the largest radius that is short, the least that is not."""

    low: float = 0.0
    short: float = 0.0
    growth: float = CLOSE
    stride: float = np.inf
    best: _Tried | None = None
    close: _Tried | None = None
    below: list[_Short] = field(default_factory=list)

    @property
    def under(self) -> _Short | None:
        """The nearest answer from which the best one's value differs by more than its rounding."""
        best = self.best or self.close
        if best is None:
            return None
        enough = [each for each in self.below if each.value <= best.value - best.rounding]
        return max(enough, key=lambda each: each.radius, default=None)

    def take(self, now: _Tried, center: Array, mean: float) -> None:
        """Narrow it by one more answer."""
        self.low = max(self.low, now.bound())
        if not now.reaches():
            self.short = max(self.short, now.radius)
            self.below.append(_Short(now.radius, now.value, now._in_radius(now.slope or np.inf)))
            # One that the bound cannot tell from one that reaches the target, for want of any.
            if now.value >= -2.0 * now.rounding and (self.close is None or now.radius < self.close.radius):
                self.close = now.moved(center, mean)
            return
        moved = now.moved(center, mean)
        if self.best is None or moved.radius < self.best.radius:
            self.best = moved

    def next_radius(self, told: bool) -> float:
        """Where the line of an answer reaches the target; if p is short of it by its gap, past that.

        `told` is whether the set tells its multiplier; without lines the bracket is cut.
        """
        most = np.inf if self.best is None else self.best.radius
        line, past = self.low * (1.0 + 1e-13), self.short * (1.0 + self.growth)
        if told and past < line < most:
            # Newton's steps become less: those that stay are made of rounding.
            before, self.stride = self.stride, line / self.short - 1.0 if self.short > 0.0 else np.inf
            if self.stride <= PROMISE or 0.5 * before < self.stride < 1e-3:
                self.growth = 8.0 * max(self.growth, self.stride)
            return line
        if told and self.short > 0.0 and past < most:
            self.growth *= 8.0
            return past
        if self.best is None:
            return 8.0 * self.short
        return float(np.sqrt(self.short) * np.sqrt(most)) if most < 64.0 * self.short else most / 8.0


def _by_oracle(subject: Sized, f: Array, target: float) -> LeastRadius:
    """The least radius for one loss vector, by the set's oracle.

    Losses that dwarf the others take the digits of the multipliers. Where p has no mass they may count as
    more than they are: then the radius is at most that of the question, and the same if p has none there
    either.
    """
    try:
        return _search(subject, f, target)
    except SolverFailed as error:
        if error.answer is None:
            raise
        raised = np.maximum(f, f[(error.answer.p > 0.0) | (subject.reference() > 0.0)].min())
        if (raised == f).all():
            raise
        found = _by_oracle(subject, raised, target)
        if found.reached and (found.p[raised > f] > 0.0).any():
            raise error from None
        return replace(found, value=float(found.p @ f))


def _search(subject: Sized, f: Array, target: float) -> LeastRadius:
    """The same by Newton's method for these losses.

    The target is subtracted from the losses first: near it they keep their digits, and the answers too.
    """
    center, g = _center(subject), f - target
    mean, top = _exactly(center, g), float(g.max())
    if mean >= -4.0 * EPS * float(center @ np.abs(g)):
        return LeastRadius(0.0, 0.0, 0.0, center, float(center @ f), 0.0, "oracle", 0)
    if top < 0.0:
        return _nowhere(f.size, 0)
    rounding = ULPS * (float(np.abs(g).max()) + top - float(g.min()))
    found, warm, at_zero = _Bracket(), None, False
    radius = float(getattr(subject, subject.sized_by)) or 1e-3
    for calls in range(1, MOST_CALLS + 1):
        tried = resized(subject, radius)
        warm = tried.worst_case(g, warm_start=warm)
        p = _of_sum_one(warm.p)
        value, slope = _exactly(p, g), tried._slope(g, warm)
        own = tried._distance(p) if tried._distance_is_quick else None
        found.take(
            _Tried(radius, warm, slope, tried._concave_in_power, p, value, rounding, own), center, mean
        )
        if found.low == np.inf:
            return _nowhere(f.size, calls)
        best = found.best
        if best is not None and best.is_near(found.low, NARROW if slope is not None else PROMISE, 4.0):
            return _settled(subject, best, found, f, g, calls)
        if best is not None and found.low == 0.0 and best.radius < TINY and not at_zero:
            radius, at_zero = 0.0, True  # which reaches the target if mass moves for nothing
            continue
        radius = found.next_radius(slope is not None)
        if not found.short < radius < min(np.inf if best is None else best.radius, LARGEST):
            break
    best = found.best or found.close
    enough = PROMISE if best is not None and best.answer.backend == "closed-form" else ENOUGH
    if best is not None and best.is_near(found.low, enough, 8.0, found.under):
        return _settled(subject, best, found, f, g, calls)
    reached = "is not reached" if best is None else f"is reached at {best.radius:.6g}"
    raise SolverFailed(
        f"no certified least {subject.sized_by} of {subject!r}: after {calls} oracle calls the target "
        f"{target} {reached}, and the lower bound is {found.low:.6g}. Scale the losses so that their spread "
        "is near 1, or give a target further from the largest loss",
        answer=warm if best is None else best.answer,
    )


def _center(subject: Sized) -> Array:
    """The only member of the set of radius 0; that of its own radius may be another point."""
    if subject.reference.__qualname__ != "UncertaintySet.reference":
        return subject.reference()
    point = resized(subject, 0.0)
    center: Array = point.reference()
    if not (off := point._residual(center)) <= PROMISE:
        raise BrokenSet(
            f"{type(subject).__name__} of {subject.sized_by} 0 has no member that a solver finds, the "
            f"nearest is outside by {off:.2g}: define reference(), which returns it"
        )
    return center


def _nowhere(size: int, calls: int) -> LeastRadius:
    """The answer if no radius reaches the target."""
    return LeastRadius(np.inf, np.inf, 0.0, np.full(size, np.nan), np.nan, np.inf, "oracle", calls)


def _settled(subject: Sized, best: _Tried, found: _Bracket, f: Array, g: Array, calls: int) -> LeastRadius:
    """The answer, with the oracle's own p if that reaches the target: a mix has a rounding more."""
    p, radius, low = best.p, max(best.radius, found.low), found.low
    within = resized(subject, radius)
    own = within.worst_case(g, warm_start=best.answer).p
    if _exactly(own, g) >= -best.rounding:
        p = own
    elif not within._residual(p) <= FEASIBLE:
        raise SolverFailed(
            f"the least {subject.sized_by} of {subject!r} is between {low:.6g} and {radius:.6g}, but no "
            "distribution of doubles is within it and reaches the target: give weights, spreads or distances "
            "nearer to 1",
            answer=best.answer,
        )
    multiplier = best.multiplier(found.under)
    return LeastRadius(radius, low, radius - low, p, float(p @ f), multiplier, "oracle", calls + 1)


def _exactly(p: Array, g: Array) -> float:
    """pᵀg of these p, whose terms may cancel, and whose sum may be off by what a closed form is allowed."""
    long = p.astype(np.longdouble)
    return float((long * g).sum() / long.sum())


def _of_sum_one(p: Array) -> Array:
    """p itself unless its sum is off by more than the rounding of its entries."""
    total = float(p.astype(np.longdouble).sum())
    return p if abs(total - 1.0) <= SUMMED else p / total


def radius_of(subject: Sized, p: Array) -> float:
    """The least radius at which the set has p; infinite if none does."""
    required(subject)
    own = subject._distance(p)
    return _by_membership(subject, p) if own is None else own


def _by_membership(subject: Sized, p: Array) -> float:
    """The same by trying radii: doubled until p is inside, then halved between the last two."""

    def inside(radius: float) -> bool:
        return bool(resized(subject, radius)._residual(p) <= 1e-12)

    if inside(0.0):
        return 0.0
    high = 1e-6
    while not inside(high):
        high *= 8.0
        if high > 1e12:
            return np.inf
    low = 0.0 if high == 1e-6 else high / 8.0
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if inside(middle) else (middle, high)
    return high


def scaled(subject: Sized, factor: ArrayLike) -> Any:
    """Answer `UncertaintySet.scaled`."""
    times = as_floats("factor", factor, InvalidInput)
    if not (np.isfinite(times).all() and (times >= 0.0).all()):
        raise InvalidInput(
            f"factor must be finite and at least 0, got {factor!r}", parameter="factor", value=factor
        )
    return resized(subject, getattr(subject, required(subject)) * times)


def worst_case_path(subject: Sized, losses: ArrayLike, radii: ArrayLike) -> WorstCase:
    """Answer `UncertaintySet.worst_case_path`."""
    name = required(subject)
    f = subject._check_losses(losses)
    sizes = as_floats("radii", radii, InvalidInput)
    if f.ndim != 1 or sizes.ndim != 1 or sizes.size == 0:
        raise InvalidInput(
            f"a path needs one loss vector (N,) and a vector of one {name} or more, got losses of shape "
            f"{f.shape} and radii of shape {sizes.shape}; for a batch call it per row",
            parameter="radii",
            value=radii,
        )
    answers: dict[int, WorstCase] = {}
    last: WorstCase | None = None
    for k in map(int, np.argsort(sizes, kind="stable")):
        last = answers[k] = resized(subject, float(sizes[k])).worst_case(f, warm_start=last)
    return stack([answers[k] for k in range(sizes.size)])
