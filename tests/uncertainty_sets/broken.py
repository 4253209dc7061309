"""Sets with one defect each, made from a set that has none.

None has a name, so that the registry and the suites over it do not see them.
"""

from __future__ import annotations

import numpy as np

from uncertainty_sets import Ellipsoid, UncertaintySet, WorstCase
from uncertainty_sets.conic.program import polyhedral_program


class Tail(UncertaintySet):
    """{p : p <= most}, an equal limit for all: sound, with a closed form of its own.

    The largest losses get `most` each until the mass is spent. For any ν the maximum is at most
    ν + most·Σ max(f - ν, 0), and ν the loss at which the mass ran out makes that exact.
    """

    def __init__(self, size, most=0.4):
        self.size, self.most = size, most

    @classmethod
    def example(cls, size, rng=None):
        return cls(size, min(1.0, 2.0 / size))

    def constraints(self, p):
        return [p <= self.most]

    def _residual(self, p):
        return float(max((p - self.most).max(), 0.0))

    def _closed_form(self, losses, warm_start):
        if losses.ndim == 2:
            rows = [self.answer(row) for row in losses]
            fields = ("p", "value", "upper_bound", "gap", "violation")
            dual = {"nu": np.array([row.dual["nu"] for row in rows])}
            columns = (np.array([getattr(row, name) for row in rows]) for name in fields)
            return WorstCase(*columns, dual, "closed-form", np.ones(len(rows), dtype=int))
        return self.answer(losses)

    def answer(self, f):
        """One row."""
        order = np.argsort(-f, kind="stable")
        p = np.zeros(f.size)
        full = min(int(1.0 / self.most), f.size)
        p[order[:full]] = self.most
        if full < f.size:
            p[order[full]] = 1.0 - full * self.most
        nu = f[order[min(full, f.size - 1)]]
        value = nu + float(p @ (f - nu))
        bound = nu + self.most * float(np.maximum(f - nu, 0.0).sum())
        return WorstCase(p, value, bound, bound - value, self.violation(p), {"nu": nu}, "closed-form", 1)


def claims(**changes):
    """Tail, but every answer's fields are changed: name -> function of (field, answer, losses)."""

    class Claiming(Tail):
        def _closed_form(self, losses, warm_start):
            answer = super()._closed_form(losses, warm_start)
            for name, change in changes.items():
                setattr(answer, name, change(getattr(answer, name), answer, losses))
            return answer

    return Claiming


def always(value):
    """A change to a fixed value."""
    return lambda field, answer, losses: value


ONES = claims(p=lambda p, answer, losses: np.ones_like(p))
HIGH = claims(value=lambda value, answer, losses: value + 100.0)


class FalseBound(Tail):
    """A p that is in the set and not the worst, with a bound that says it is."""

    def answer(self, f):
        """The uniform distribution."""
        p = np.full(f.size, 1.0 / f.size)
        value = float(p @ f)
        return WorstCase(p, value, value, 0.0, 0.0, {"nu": value}, "closed-form", 1)


class FarBound(Tail):
    """Promises less than it could; the solver answers instead."""

    def answer(self, f):
        """With the largest loss for a bound."""
        answer = super().answer(f)
        answer.upper_bound = float(f.max()) + 1.0
        answer.gap = answer.upper_bound - answer.value
        return answer


class Blind(Tail):
    """Everything is a member."""

    def _residual(self, p):
        return 0.0


class Strict(Tail):
    """Nothing in the middle is a member, only what the oracle gives."""

    def _residual(self, p):
        return super()._residual(p) if (p == p.max()).sum() < p.size and (p == 0.0).any() else 0.1


class OtherSet(UncertaintySet):
    """Constraints of a smaller set than the closed form's, which it takes over on purpose."""

    __init__, answer = Tail.__init__, Tail.answer
    _closed_form, _residual = Tail._closed_form, Tail._residual

    def constraints(self, p):
        return [p <= 0.75 * self.most]


class Forgetful(Tail):
    """Every call makes it smaller."""

    def _closed_form(self, losses, warm_start):
        answer = super()._closed_form(losses, warm_start)
        self.most = 0.999 * self.most
        return answer


class Lent(Tail):
    """Its limits are a view of what it gives as its reference."""

    def __init__(self, size, most=0.4):
        super().__init__(size, most)
        self.middle = np.full(size, 1.0 / size)

    @property
    def most(self):
        return 2.0 * float(self.middle[0])

    @most.setter
    def most(self, value):
        """Taken from the middle."""

    def reference(self):
        return self.middle


class Writing(Tail):
    """Leaves its mark on the losses it is given."""

    def worst_case(self, losses, **options):
        answer = super().worst_case(losses, **options)
        if isinstance(losses, np.ndarray) and losses.flags.writeable:
            losses.flat[0] = 0.0
        return answer


class Swapped(Tail):
    """Answers the rows of a batch in the wrong order."""

    def worst_case(self, losses, **options):
        answer = super().worst_case(losses, **options)
        if answer.p.ndim == 2:
            for field in ("p", "value", "upper_bound"):
                setattr(answer, field, getattr(answer, field)[::-1])
        return answer


class LostInTransit(Tail):
    """A pickle of it is another set."""

    def __getstate__(self):
        return {"size": self.size, "most": 1.0}


class NotForPickle(Tail):
    """Cannot be pickled at all."""

    def __init__(self, size, most=0.4):
        super().__init__(size, most)
        self.rule = lambda x: x


class Lazy(FalseBound):
    """Right from nothing, wrong from an earlier answer."""

    def worst_case(self, losses, *, backend="auto", warm_start=None):
        if warm_start is None:
            return Tail(self.size, self.most).worst_case(losses, backend=backend)
        return super().worst_case(losses, backend=backend)


class Positive(FalseBound):
    """Takes for granted that losses are not negative."""

    def answer(self, f):
        """Right for those."""
        return Tail.answer(self, f) if f.min() >= 0.0 else super().answer(f)


class Elsewhere(Tail):
    """Its reference is not in the set."""

    def reference(self):
        return np.eye(self.size)[0]


class Nameless(Tail):
    """Does not print."""

    def __repr__(self):
        raise RuntimeError("no words")


class Overflowing(Tail):
    """Its arithmetic does not reach 1e150."""

    def answer(self, f):
        """NaN beyond 1e100."""
        answer = super().answer(f)
        answer.value += 0.0 * float(np.abs(f).max()) if np.abs(f).max() < 1e100 else np.nan
        return answer


class AnyLength(Tail):
    """Cuts what is too long."""

    def worst_case(self, losses, **options):
        return super().worst_case(np.asarray(losses)[..., : self.size], **options)


class OtherProgram(Tail):
    """Its own conic program is that of a larger set."""

    def _conic_program(self, size):
        return polyhedral_program(np.eye(size), np.full(size, 1.0))


class OtherBackend(OtherProgram):
    """The same, looked at from the backends."""


class Empty(UncertaintySet):
    """Holds no distribution."""

    __init__ = Tail.__init__

    def constraints(self, p):
        return [p <= 0.1 / self.size]


class NearlyEuclidean(UncertaintySet):
    """{p : ‖p - q‖ <= radius}, with a closed form whose radius is wrong by a millionth, in any unit."""

    share, unit = 1.0 - 1e-6, 1.0

    def __init__(self, size):
        self.size, self.center, self.radius = size, np.full(size, 1.0 / size), 0.1

    def constraints(self, p):
        import cvxpy

        return [cvxpy.norm(self.unit * (p - self.center)) <= self.unit * self.radius]

    def _closed_form(self, losses, warm_start):
        answer = Ellipsoid(self.center, 1.0, (self.share * self.radius) ** 2).worst_case(losses)
        if self.share > 1.0:
            answer.violation = answer.violation + self.radius * 1e-6
        return answer


class NearlyEuclideanSmallUnit(NearlyEuclidean):
    """The same with rows of size 1e-4."""

    unit = 1e-4


class TooFar(NearlyEuclidean):
    """A closed form whose p is outside by a tenth, which rows of size 1e-4 hide."""

    share, unit = 2.0, 1e-4

    def _residual(self, p):
        return 0.0
