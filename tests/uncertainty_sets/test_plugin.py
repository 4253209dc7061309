"""A set from outside: by its class, by its name, and from another package's entry point."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import cvxpy as cp
import numpy as np
import pytest

from tests.uncertainty_sets.cases import NAMES
from uncertainty_sets import KL, Box, Intersection, by_name, check_set, get_set
from uncertainty_sets.base import SETS, UncertaintySet
from uncertainty_sets.conic import compile
from uncertainty_sets.errors import BrokenSet, InvalidParameter
from uncertainty_sets.robust import support


@pytest.fixture
def empty_shelf():
    """What a test names is forgotten after it."""
    before = set(by_name.available_sets())
    yield
    for name in set(by_name.available_sets()) - before:
        SETS.forget(name)


def make_cvar():
    """The distributions behind CVaR: p <= center / (1 - level)."""

    class ConditionalValueAtRisk(UncertaintySet):
        name = "tail-mean"

        def __init__(self, level, center=None):
            self.level, self.center = float(level), center

        def constraints(self, p):
            center = np.full(p.size, 1 / p.size) if self.center is None else self.center
            return [p <= center / (1 - self.level)]

    return ConditionalValueAtRisk


def test_by_name(empty_shelf):
    cls = make_cvar()
    assert by_name.get_set("tail-mean") is cls
    assert "tail-mean" in by_name.available_sets()
    losses = [5.0, 1.0, 3.0, 2.0]
    # The mean of the worst half.
    assert by_name.worst_case("tail-mean", losses, level=0.5).value == pytest.approx(4.0)
    with pytest.raises(
        InvalidParameter, match=r"tail-mean has no parameter 'radius'\. It takes: level, center"
    ):
        by_name.worst_case("tail-mean", losses, radius=0.5)


def test_a_set_without_a_repr_of_its_own_shows_its_parameters(empty_shelf):
    """Messages, `fdro train` and summaries show it; an address in memory would differ in every run."""
    cls = make_cvar()
    assert repr(cls(0.5)) == "ConditionalValueAtRisk(level=0.5, center=None)"
    assert repr(cls(0.5, np.array([0.25, 0.75]))) == "ConditionalValueAtRisk(level=0.5, center=[0.25, 0.75])"

    class Half(cls):
        name = ""

        def __init__(self, label):
            super().__init__(0.5)

    assert repr(Half("x")) == "Half()"


def test_other_constraints_than_a_parents_are_refused_and_have_two_ways():
    """The closed form, the membership test and the projection of a parent are those of another set."""

    class Renamed(KL):
        """KL itself."""

    message = "^Deeper has other `constraints` than its parent KL, whose closed form, .* use Intersection"
    with pytest.raises(BrokenSet, match=message):

        class Deeper(Renamed):
            def constraints(self, p):
                return [*super().constraints(p), p <= 0.6]

    class Capped(UncertaintySet):
        size = 3

        def __init__(self, ball):
            self.ball = ball

        def constraints(self, p):
            return [*self.ball.constraints(p), p <= 0.6]

    losses, ball = [1.0, 2.0, 4.0], Renamed([0.5, 0.3, 0.2], 1.0)
    assert ball.worst_case(losses).backend == "closed-form"
    both = Intersection(ball, Box(np.zeros(3), np.full(3, 0.6)))
    for uncertain in (Capped(ball), both):
        assert uncertain.worst_case(losses).p[2] == pytest.approx(0.6)
        assert not uncertain.contains([0.1, 0.2, 0.7])
    check_set(Capped(KL([0.5, 0.3, 0.2], 1.0)))


def test_a_name_that_is_no_string():
    with pytest.raises(TypeError, match=r"Numbered\.name must be a string, got 3"):

        class Numbered(KL):
            name = 3


def test_losses_decide_the_size(empty_shelf):
    uncertainty_set = make_cvar()(0.75)
    for n in (4, 8, 40):
        losses = np.random.default_rng(n).normal(size=n)
        r = uncertainty_set.worst_case(losses)
        assert r.value == pytest.approx(np.sort(losses)[-n // 4 :].mean())
        assert uncertainty_set.contains(r.p)
        x = cp.Variable(n)
        problem = cp.Problem(cp.Minimize(support(uncertainty_set, x)), [x == losses])
        problem.solve(solver=cp.CLARABEL)
        assert problem.solution.opt_val == pytest.approx(r.value, abs=1e-6)


def test_a_set_with_its_own_method_and_the_solver_agree(empty_shelf):
    class Half(make_cvar()):
        name = ""

        def _closed_form(self, losses, warm_start):
            return None  # this one never knows better

    losses = np.array([5.0, 1.0, 3.0, 2.0])
    assert Half(0.5).worst_case(losses).value == pytest.approx(4.0)


class InLoops(UncertaintySet):
    """Gini's mean difference with an expression per pair."""

    def constraints(self, p):
        pairs = [(i, j) for i in range(p.size) for j in range(i)]
        return [sum(cp.abs(p[i] - p[j]) for i, j in pairs) <= 0.3 * p.size]


class InArrays(UncertaintySet):
    """The same in one expression."""

    def constraints(self, p):
        i, j = np.triu_indices(p.size, 1)
        return [cp.sum(cp.abs(p[i] - p[j])) <= 0.3 * p.size]


def test_a_slow_compile_says_so_before_it_starts(monkeypatch, caplog):
    monkeypatch.setattr(compile, "MANY", 100)
    losses = np.random.default_rng(0).normal(size=8)
    plain = InArrays().worst_case(losses)
    assert not caplog.records
    monkeypatch.setattr(cp.Problem, "__init__", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        InLoops().worst_case(losses)
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith("compiling InLoops for N = 8, once: its constraints are ")
    assert "np.triu_indices" in line
    monkeypatch.undo()
    assert InLoops().worst_case(losses).value == pytest.approx(plain.value, abs=1e-9)
    monkeypatch.setattr(compile, "LARGE", 100)
    assert InArrays().worst_case(losses).value == plain.value
    assert "compiling InArrays for N = 8" in caplog.records[-1].getMessage()


PACKAGE = '''
import cvxpy as cp
from uncertainty_sets.base import UncertaintySet

class Near(UncertaintySet):
    """{p : max|p - center| <= radius}."""
    name = "near"

    def __init__(self, center, radius):
        self.center, self.radius, self.size = center, radius, len(center)

    def constraints(self, p):
        return [cp.norm_inf(p - self.center) <= self.radius]

class Nameless(Near):
    name = ""
'''


def test_from_another_package(tmp_path):
    """A real distribution: a module, and the metadata that an installer would have written."""
    (tmp_path / "my_sets.py").write_text(PACKAGE)
    info = tmp_path / "my_sets-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-sets\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[uncertainty_sets.sets]\nnear = my_sets:Near\nnear-by-point = my_sets:Nameless\n"
    )
    code = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        from uncertainty_sets.by_name import available_sets, get_set, worst_case
        assert {{"near", "near-by-point", "polyhedron"}} <= set(available_sets())
        assert get_set("near").__module__ == get_set("near-by-point").__module__ == "my_sets"
        for name in ("near", "near-by-point"):
            r = worst_case(name, [1.0, 2.0, 4.0], center=[0.5, 0.3, 0.2], radius=0.1)
            assert abs(r.value - 2.2) < 1e-9 and r.gap < 1e-9, r
        print("found")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "found", done.stderr


def test_a_broken_entry_point_leaves_the_other_sets(tmp_path):
    """Another package's mistake is a warning, and the cause if that very set is asked for."""
    (tmp_path / "mistaken.py").write_text("number = 3\n")
    info = tmp_path / "mistaken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mistaken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[uncertainty_sets.sets]\nmissing = mistaken:Nope\nnumber = mistaken:number\nabsent = no_such:Set\n"
    )
    code = f"""
        import sys, warnings
        sys.path.insert(0, {str(tmp_path)!r})
        from uncertainty_sets import available_sets, errors, get_set, worst_case
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert worst_case("kl", [1.0, 2.0], center=[0.5, 0.5], radius=0.1).value > 1.5
            assert not caught and "kl" in available_sets()
        told = sorted(str(each.message) for each in caught)
        assert [each.split(" cannot")[0] for each in told] == [
            f"the uncertainty set {{name!r}} of the package mistaken"
            for name in ("absent", "missing", "number")
        ], told
        for name, cause in (("missing", AttributeError), ("number", TypeError), ("absent", ImportError)):
            try:
                get_set(name)
            except errors.UnknownName as error:
                assert isinstance(error.__cause__, cause), error.__cause__
        print("found")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "found", done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_any_set_with_one_more_constraint(name):
    """A subclass is refused, since what its parent derives from other constraints would answer for it."""
    parent = get_set(name).example(4)
    cap = float(parent.reference()[2])  # so that the smaller set is not empty

    def constraints(self, p):
        return [*parent.constraints(p), p[2] <= cap]

    with pytest.raises(BrokenSet, match=r"^Tighter has other `constraints` than its parent "):
        type("Tighter", (type(parent),), {"constraints": constraints})
    with pytest.raises(BrokenSet, match="Mixed has other"):
        type("Mixed", (type("Mixin", (), {"constraints": constraints}), type(parent)), {})
    example = type("Tighter", (UncertaintySet,), {"constraints": constraints, "size": 4})()
    losses = np.array([0.0, 1.0, 4.0, 2.0])  # p[2] grows in every example: by halves, and by ramps
    answer, wider = example.worst_case(losses), parent.worst_case(losses)
    assert wider.p[2] > cap + 1e-3
    assert answer.p[2] <= cap + 1e-6
    assert answer.value < wider.value
    assert example.violation(answer.p) < 1e-6
    assert example.violation(wider.p) > 1e-3
    assert example.contains(example.reference(), 1e-6)
