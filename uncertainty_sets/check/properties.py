"""What holds for every set: one function per property, which yields what it finds wrong.

`check_set` (check.py) runs them on its own losses, the tests on those that hypothesis draws.
"""

from __future__ import annotations

import copy
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from uncertainty_sets.answer import WorstCase
from uncertainty_sets.backends import available_backends
from uncertainty_sets.base import UncertaintySet
from uncertainty_sets.check.subject import (
    FEASIBLE,
    FIRST_ORDER,
    MODEL,
    PROVED,
    Subject,
    allowed_gap,
    in_units,
    state,
)
from uncertainty_sets.errors import BackendUnsuitable, FdroError, InvalidInput, SolverFailed
from uncertainty_sets.verdict import expected_loss

IN_THE_SET = 1e-6
"""The largest violation of a reference: a projection onto the set by a solver, at worst."""

Findings = Iterator[str]
Property = Callable[[Subject], Findings]


def form(subject: Subject) -> Findings:
    """An answer is a WorstCase of finite numbers with multipliers."""
    for name, f in subject.losses.items():
        try:
            answer: Any = subject.answer(name)
        except Exception as error:  # whatever the author's code raises, the other losses are tried too
            yield f"{name}: {type(error).__name__}: {error}"
            continue
        if not isinstance(answer, WorstCase):
            yield f"{name}: the answer is of type {type(answer).__name__}"
            continue
        p: Any = answer.p
        if not isinstance(p, np.ndarray) or p.shape != f.shape or p.dtype != np.float64:
            yield f"{name}: p must be float64 of shape {f.shape}, got {p!r}"
        elif not np.isfinite(p).all():
            yield f"{name}: p has an entry of {p[~np.isfinite(p)][0]}"
        for field in ("value", "upper_bound", "gap", "violation"):
            number = getattr(answer, field)
            if np.ndim(number) != 0 or not np.isfinite(number):
                yield f"{name}: {field} must be a finite number, got {number!r}"
        if not isinstance(answer.dual, Mapping) or not answer.dual:
            yield f"{name}: dual holds no multipliers: {answer.dual!r}"


def feasible(subject: Subject) -> Findings:
    """p is in the set, by `violation` and by the constraints themselves."""
    from uncertainty_sets.conic import oracle as conic

    for name in subject.losses:
        answer = subject.answer(name)
        if answer.p.min() < 0.0:
            yield f"{name}: p has a negative entry, {answer.p.min():.3g}"
        measured, stated = subject.set.violation(answer.p), conic.residual(subject.set, answer.p)
        if not measured <= FEASIBLE:
            yield f"{name}: violation(p) is {measured:.3g}"
        if not answer.violation <= FEASIBLE:
            yield f"{name}: the answer's violation is {answer.violation:.3g}"
        if not stated <= MODEL:
            yield f"{name}: p misses the constraints by {stated:.3g}"


def value(subject: Subject) -> Findings:
    """value = pᵀf."""
    for name, f in subject.losses.items():
        answer = subject.answer(name)
        (expected,), _, _ = expected_loss(f[None], answer.p[None])
        if not abs(answer.value - expected) <= allowed_gap(f, answer):
            yield f"{name}: value is {answer.value:.12g}, and pᵀf is {expected:.12g}"


def bound(subject: Subject) -> Findings:
    """upper_bound >= value, gap is their difference, and as small as promised."""
    for name, f in subject.losses.items():
        answer = subject.answer(name)
        allowed = allowed_gap(f, answer)
        if not answer.upper_bound - answer.value >= -allowed:
            yield f"{name}: upper_bound is {answer.upper_bound:.12g}, below the value {answer.value:.12g}"
        if not abs(answer.upper_bound - answer.value - answer.gap) <= allowed:
            difference = answer.upper_bound - answer.value
            yield f"{name}: gap is {answer.gap:.3g}, and upper_bound - value is {difference:.3g}"
        if not abs(answer.gap) <= allowed:
            yield f"{name}: gap is {answer.gap:.3g}, and at most {allowed:.3g} is promised"


def maximum(subject: Subject) -> Findings:
    """The value is the maximum and the bound not below it, by a second solve in cvxpy."""
    solved = 0
    for name, f in subject.losses.items():
        unit, middle, scale = in_units(f)
        found = subject.model.solve(unit)
        if found is None:
            continue
        solved += 1
        best, answer = middle + scale * found[0], subject.answer(name)
        room = 2.0 * MODEL * scale + allowed_gap(f, answer)
        if not abs(answer.value - best) <= room:
            yield f"{name}: value is {answer.value:.9g}, and cvxpy finds a maximum of {best:.9g}"
        if not answer.upper_bound >= best - room:
            yield f"{name}: upper_bound is {answer.upper_bound:.9g}, below cvxpy's maximum of {best:.9g}"
        yield from _proved(subject, name, unit, middle, scale)
    if not solved:
        yield f"cvxpy solved none of the problems; its last status is {subject.model.problem.status!r}"


def _proved(subject: Subject, name: str, unit: Any, middle: float, scale: float) -> Findings:
    """What bounds from both sides say, which see what cvxpy's tolerance hides."""
    found, answer = subject.proof.between(unit), subject.answer(name)
    if found is None:
        return
    low, high = (middle + scale * each for each in found)
    room = PROVED * scale + allowed_gap(subject.losses[name], answer)
    if not answer.upper_bound >= low - room:
        yield f"{name}: upper_bound is {answer.upper_bound:.12g}, and a p in the set reaches {low:.12g}"
    if not answer.value <= high + room + 200.0 * answer.violation * scale:
        yield f"{name}: value is {answer.value:.12g}, and no p in the set exceeds {high:.12g}"


def members(subject: Subject) -> Findings:
    """`contains` says yes to what is in the set: answers, the reference, cvxpy's own answers, and mixes."""
    known = [("the answer to " + name, subject.answer(name).p) for name in subject.losses]
    known.append(("reference()", np.asarray(subject.set.reference())))
    for name in list(subject.losses)[:3]:
        found = subject.model.solve(in_units(subject.losses[name])[0])
        # A solver's 1e-8 may be infinitely far outside: Burg's divergence is ∞ at an entry of 0.
        if found is not None and subject.model.holds(found[1]):
            known.append((f"cvxpy's answer to {name}", found[1]))
    points = np.array([p for _, p in known])
    for name, p in known:
        yield from _in(subject.set, p, name)
    for weights in subject.rng.dirichlet(np.full(len(points), 0.3), size=10):
        yield from _in(subject.set, weights @ points, "a mix of members")


def _in(uncertainty_set: UncertaintySet, p: Any, name: str) -> Findings:
    violation = uncertainty_set.violation(p)
    if not violation <= MODEL or not uncertainty_set.contains(p, tol=MODEL):
        yield f"{name} is in the set, and violation gives {violation:.3g}"


def outsiders(subject: Subject) -> Findings:
    """`contains` says no to distributions with more expected loss than the maximum, and to what is none."""
    for name, f in subject.losses.items():
        unit, _, _ = in_units(f)
        found = subject.model.solve(unit)
        corner = np.eye(subject.size)[int(unit.argmax())]
        if found is None or not corner @ unit > found[0] + 0.01:
            continue
        for share in (1.0, 0.5):
            point = share * corner + (1.0 - share) * found[1]
            violation = subject.set.violation(point)
            if not violation > 0.0 or subject.set.contains(point):
                more = point @ unit - found[0]
                yield (
                    f"{name}: {point.round(4)} is outside, since pᵀf exceeds the maximum by {more:.3g} of "
                    f"half the spread, and violation gives {violation:.3g}"
                )
    p = subject.answer(next(iter(subject.losses))).p
    shifted = p + 0.5 * (np.eye(subject.size)[0] - np.eye(subject.size)[int(p.argmin())])
    for point, what in ((2.0 * p, "sums to 2"), (shifted - np.eye(subject.size)[0], "has a negative entry")):
        if subject.set.contains(point):
            yield f"{point.round(4)} {what}, and contains says yes"


def reference(subject: Subject) -> Findings:
    """`reference()` is a distribution in the set."""
    point = np.asarray(subject.set.reference())
    if point.shape != (subject.size,):
        yield f"it has shape {point.shape}, and {subject.size} entries are needed"
        return
    if not subject.set.contains(point, tol=IN_THE_SET):
        yield f"it is not in the set: violation gives {subject.set.violation(point):.3g}"
    for name, f in subject.losses.items():
        unit, _, scale = in_units(f)
        answer = subject.answer(name)
        more = scale * float(point @ unit - answer.p @ unit)
        if not more <= 2.0 * IN_THE_SET * scale + allowed_gap(f, answer):
            yield f"{name}: its expected loss exceeds the worst case by {more:.3g}"


def batch(subject: Subject) -> Findings:
    """A batch is answered as its rows are."""
    names = list(subject.losses)
    F = np.array([subject.losses[name] for name in names])
    answer = subject.set.worst_case(F)
    if answer.p.shape != F.shape:
        yield f"p must have shape {F.shape}, got {answer.p.shape}"
        return
    for field in ("value", "upper_bound", "gap", "violation"):
        if np.shape(getattr(answer, field)) != (len(F),):
            yield f"{field} must have shape ({len(F)},), got {np.shape(getattr(answer, field))}"
            return
    for row, name in enumerate(names):
        single = subject.answer(name)
        (expected,), _, _ = expected_loss(F[row : row + 1], answer.p[row : row + 1])
        allowed = 2.0 * allowed_gap(F[row], single)
        for what, number in (("value", answer.value[row]), ("pᵀf", expected)):
            if not abs(number - single.value) <= allowed:
                yield f"{name}: in a batch {what} is {number:.12g}, alone {single.value:.12g}"
        if not answer.upper_bound[row] >= single.value - allowed:
            low = answer.upper_bound[row]
            yield f"{name}: in a batch upper_bound is {low:.12g}, below {single.value:.12g}"
        if not answer.violation[row] <= FEASIBLE:
            yield f"{name}: in a batch violation is {answer.violation[row]:.3g}"


def shift_and_scale(subject: Subject) -> Findings:
    """A constant added to the losses adds to the value; their unit is the value's unit."""
    for name, f in subject.losses.items():
        one = subject.answer(name)
        spread = float(np.ptp(f))
        for scale, shift in ((2.0**20, 0.0), (1e-3, 0.0), (1.0, spread), (1e3, -10.0 * spread)):
            moved = scale * (f + shift)
            other = subject.set.worst_case(moved)
            expected = scale * (one.value + shift)
            if not abs(other.value - expected) <= 2.0 * (
                scale * allowed_gap(f, one) + allowed_gap(moved, other)
            ):
                yield (
                    f"{name}: {scale:g}·(losses + {shift:g}) has the value {other.value:.12g}, "
                    f"and {expected:.12g} is expected"
                )


def convex(subject: Subject) -> Findings:
    """The worst case is convex in the losses and grows with them."""
    names = list(subject.losses)
    for first, second in pairwise(names):
        f, g = (in_units(subject.losses[name])[0] for name in (first, second))
        ours, theirs, middle, top = (
            subject.set.worst_case(each) for each in (f, g, 0.5 * f + 0.5 * g, np.maximum(f, g))
        )
        room = 4.0 * max(allowed_gap(each, ours) for each in (f, g)) + 1e-9
        mean = 0.5 * ours.value + 0.5 * theirs.value
        if not middle.value <= mean + room:
            yield f"{first} and {second}: {middle.value:.9g} in the middle, above their mean of {mean:.9g}"
        if not top.value >= max(ours.value, theirs.value) - room:
            larger = max(ours.value, theirs.value)
            yield f"{first} and {second}: larger losses have {top.value:.9g}, below {larger:.9g}"


def warm_start(subject: Subject) -> Findings:
    """An earlier answer to start from does not change the answer."""
    names = list(subject.losses)
    for before, name in zip(names, [*names[1:], names[0]], strict=True):
        f, cold = subject.losses[name], subject.answer(name)
        warm = subject.set.worst_case(f.copy(), warm_start=subject.answer(before))
        if not abs(warm.value - cold.value) <= 2.0 * allowed_gap(f, cold):
            yield f"{name} after {before}: value is {warm.value:.12g}, and {cold.value:.12g} from nothing"


def backends(subject: Subject) -> Findings:
    """All backends that take the set agree within their gaps."""
    for name, f in subject.losses.items():
        unit, _, _ = in_units(f)
        answers: list[WorstCase] = []
        off: list[float] = []
        for backend in available_backends():
            try:
                answers.append(subject.set.worst_case(unit, backend=backend))
                subject.backends[backend] = None
            except BackendUnsuitable:
                continue
            except SolverFailed as failure:  # no answer is no wrong answer, unless all are far off the set
                nearest = failure.answer
                gap = np.inf if nearest is None else 0.5 * abs(float(nearest.gap))
                off.append(np.inf if nearest is None else max(gap, float(nearest.violation)))
        if off and min(off) > FIRST_ORDER and all(answer.backend == "closed-form" for answer in answers):
            least = f"{min(off):.3g}"
            yield f"{name}: no solver has an answer, and the nearest is off the set or its bound by {least}"
        for one in answers:
            # p may be off the set by its violation v, and its value then above the maximum by about v, or by
            # a few √v if the set has no interior (KL of radius 0).
            room = 200.0 * one.violation + 10.0 * float(np.sqrt(one.violation)) + 2.0 * MODEL
            if not one.violation <= FIRST_ORDER:
                yield f"{name}: the answer of {one.backend} is off the set by {one.violation:.3g}"
            for other in answers:
                if not one.value <= other.upper_bound + room:
                    yield (
                        f"{name}: {one.backend} reaches {one.value:.9g}, above the bound of {other.backend}, "
                        f"{other.upper_bound:.9g}"
                    )


def support(subject: Subject) -> Findings:
    """`robust.support` has the oracle's value, as an expression and in a problem."""
    import cvxpy as cp

    from uncertainty_sets import robust

    for name in list(subject.losses)[:4]:
        unit, _, _ = in_units(subject.losses[name])
        x = cp.Variable(subject.size)
        worst = robust.support(subject.set, x)
        problem = cp.Problem(cp.Minimize(worst), [x == unit])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "may be inaccurate": then it is left out
            problem.solve(solver=cp.CLARABEL)
        least = problem.solution.opt_val  # the solver's; problem.value would ask the oracle again
        best = subject.set.worst_case(unit).value
        good = problem.status == cp.OPTIMAL_INACCURATE or abs(least - best) <= 2.0 * MODEL
        if not good:
            yield f"{name}: the least support is {least:.9g} ({problem.status}), the worst case {best:.9g}"
        elif not abs(worst.value - best) <= 2.0 * MODEL:
            yield f"{name}: the expression's value is {worst.value:.9g}, the worst case {best:.9g}"


def inputs(subject: Subject) -> Findings:
    """Losses are never written to, and may be of any kind that holds numbers."""
    for name, given in subject.overwritten.items():
        yield f"{name}: worst_case wrote into the losses, which became {given}"
    if not subject.losses:
        return
    p = subject.answer(next(iter(subject.losses))).p.copy()
    given = p.copy()
    subject.set.violation(given)
    if not np.array_equal(given, p):
        yield "violation wrote into its argument"
    f = subject.rng.integers(-5, 6, subject.size).astype(np.float64)
    frozen = f.copy()
    frozen.flags.writeable = False
    expected = subject.set.worst_case(f.copy())
    kinds: tuple[Any, ...] = (
        f.tolist(), tuple(f), frozen, np.repeat(f, 2)[::2], f[::-1].copy()[::-1],
        f.astype(np.float32), f.astype(int),
    )  # fmt: skip
    for kind in kinds:
        other = subject.set.worst_case(kind)
        if not abs(other.value - expected.value) <= 2.0 * allowed_gap(f, expected):
            what = getattr(kind, "dtype", type(kind).__name__)
            yield f"losses as {what}: value is {other.value:.12g}, and {expected.value:.12g} as float64"


def copies(subject: Subject) -> Findings:
    """Copies and pickles answer alike."""
    name, f = next(iter(subject.losses.items()))
    expected = subject.answer(name)
    makers: dict[str, Callable[[UncertaintySet], UncertaintySet]] = {
        "copy": copy.copy, "deep copy": copy.deepcopy, "pickle": pickled
    }  # fmt: skip
    for what, make in makers.items():
        answer = make(subject.set).worst_case(f.copy())
        if not abs(answer.value - expected.value) <= 2.0 * allowed_gap(f, expected):
            yield f"{what}: value is {answer.value:.12g}, the set's own {expected.value:.12g}"


def pickled(uncertainty_set: UncertaintySet) -> UncertaintySet:
    """The set through pickle; of a class that pickle cannot find (one made in a function), its state."""
    cls: Any = type(uncertainty_set)
    found: Any = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is cls:
        twin: UncertaintySet = pickle.loads(pickle.dumps(uncertainty_set))
        return twin
    twin = cls.__new__(cls)
    twin.__dict__.update(pickle.loads(pickle.dumps(uncertainty_set.__getstate__())))
    return twin


def immutable(subject: Subject) -> Findings:
    """Neither calls nor writing into what they returned change the set."""
    if subject.losses:
        name, f = next(iter(subject.losses.items()))
        expected = subject.answer(name).value
        for what, array in (
            ("the answer's p", subject.set.worst_case(f.copy()).p),
            ("reference()", np.asarray(subject.set.reference())),
        ):
            if array.flags.writeable:
                array[...] = -1.0
            try:
                again = subject.set.worst_case(f.copy())
            except FdroError as error:
                yield f"after writing into {what} there is no answer: {error}"
                continue
            if not abs(again.value - expected) <= 2.0 * allowed_gap(f, again):
                yield f"after writing into {what} the value is {again.value:.12g}, before {expected:.12g}"
    now = state(subject.set)
    for attribute, was in subject.state.items():
        if now.get(attribute) != was:
            yield f"the attribute {attribute!r} has changed since the first call"


def sizes(subject: Subject) -> Findings:
    """Losses and distributions of another length are refused by a set that has a size."""
    wrong = np.zeros(subject.size + 1)
    for what, call in (("worst_case", subject.set.worst_case), ("violation", subject.set.violation)):
        try:
            call(wrong)
        except InvalidInput:
            continue
        yield f"{what} took {wrong.size} numbers, and the set has {subject.size} entries"


def representation(subject: Subject) -> Findings:
    """repr gives a text."""
    text: Any = repr(subject.set)
    if not isinstance(text, str) or not text:
        yield f"repr gives {text!r}"


EVERY: dict[str, Property] = {
    "form": form,
    "feasible": feasible,
    "value": value,
    "bound": bound,
    "maximum": maximum,
    "members": members,
    "outsiders": outsiders,
    "reference": reference,
    "batch": batch,
    "shift and scale": shift_and_scale,
    "convex": convex,
    "warm start": warm_start,
    "backends": backends,
    "support": support,
    "inputs": inputs,
    "copies": copies,
    "immutable": immutable,
    "sizes": sizes,
    "repr": representation,
}
"""The properties by name, in the order in which they are tried."""

ASK_NOTHING = ("inputs", "immutable", "sizes", "repr")
"""Those that can be tried on a set which has no answers at all."""
