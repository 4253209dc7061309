"""`check_set`: a sound set passes, and every defect is found by the property that it breaks."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from tests.uncertainty_sets import broken, plugins, sizeless
from tests.uncertainty_sets.cases import NAMES
from uncertainty_sets import KL, check_set, get_set
from uncertainty_sets.check.properties import EVERY
from uncertainty_sets.errors import BrokenSet, InvalidInput


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1, 2, 6])
def test_every_set_of_the_registry_passes(name, size):
    report = check_set(get_set(name).example(size, np.random.default_rng(size)), seed=size)
    assert report.broken == []
    assert list(report.findings) == list(EVERY)


@pytest.mark.parametrize("cls", plugins.ALL)
def test_plug_ins_pass(cls):
    assert check_set(cls(np.random.default_rng(4).dirichlet(np.ones(4)), 0.1)).broken == []


def test_a_plug_in_with_a_closed_form_passes():
    assert check_set(broken.Tail.example(5)).broken == []
    assert check_set(broken.FarBound.example(5)).broken == [], "a weak certificate is replaced, not wrong"


@pytest.mark.parametrize("make", sizeless.EVERY.values(), ids=sizeless.EVERY)
def test_a_set_without_a_size_passes(make):
    assert check_set(make(4), 4).broken == []


DEFECTS = {
    broken.ONES: ("form", "p is off the set by 4"),
    broken.HIGH: ("form", r"value is 100\.\d+, and pᵀf is 0\.\d+"),
    broken.Overflowing: ("form", "1e150 times: BrokenSet: .* value is NaN"),
    broken.FalseBound: ("maximum", r"value is .*, and cvxpy finds a maximum of .*"),
    broken.NearlyEuclidean: ("maximum", "upper_bound is .*, and a p in the set reaches .*"),
    broken.NearlyEuclideanSmallUnit: ("maximum", "upper_bound is .*, and a p in the set reaches .*"),
    broken.TooFar: ("feasible", r"p misses the constraints by 0\.0\d+"),
    broken.Blind: ("outsiders", r"is outside, since pᵀf exceeds the maximum by .*, and violation gives 0"),
    broken.Strict: ("members", r"a mix of members is in the set, and violation gives 0\.1"),
    broken.OtherSet: ("feasible", r"p misses the constraints by 0\.1"),
    broken.Forgetful: ("immutable", "the attribute 'most' has changed since the first call"),
    broken.Lent: ("immutable", "the attribute 'middle' has changed"),
    broken.Writing: ("inputs", "worst_case wrote into the losses"),
    broken.Swapped: ("batch", r"in a batch value is .*, alone .*"),
    broken.LostInTransit: ("copies", r"pickle: value is .*, the set's own .*"),
    broken.NotForPickle: ("copies", "pickle"),
    broken.Lazy: ("warm start", r"value is .*, and .* from nothing"),
    broken.Positive: ("shift and scale", r"has the value .*, and .* is expected"),
    broken.Elsewhere: ("reference", r"it is not in the set: violation gives 0\.6"),
    broken.Nameless: ("repr", "RuntimeError: no words"),
    broken.AnyLength: ("sizes", "worst_case took 6 numbers, and the set has 5 entries"),
    broken.OtherProgram: ("support", r"the least support is 1 \(optimal\), the worst case 0\.\d+"),
    broken.OtherBackend: (
        "backends",
        r"no solver has an answer, and the nearest is off the set or its bound by",
    ),
    broken.Empty: ("form", "EmptySet"),
}


@pytest.mark.parametrize("cls", DEFECTS, ids=lambda cls: cls.__name__)
def test_every_defect_is_found(cls):
    name, words = DEFECTS[cls]
    with pytest.raises(BrokenSet, match=words) as caught:
        check_set(cls(5))
    report = caught.value.report
    assert name in report.broken, report
    assert str(caught.value).startswith(
        f"{cls.__name__} breaks {len(report.broken)} of {len(EVERY)} properties"
    )
    assert str(report) in str(caught.value)


def test_every_property_is_seen_to_fail():
    """A property that no defect breaks would prove nothing."""
    seen = set()
    for cls in DEFECTS:
        with pytest.raises(BrokenSet) as caught:
            check_set(cls(5))
        seen |= set(caught.value.report.broken)
    # What `value` and `bound` look at is refused by worst_case itself, unless that is overridden.
    for field, name in (("value", "value"), ("upper_bound", "bound"), ("gap", "bound"), ("dual", "form")):
        with pytest.raises(BrokenSet) as caught:
            check_set(Lying(field))
        assert name in caught.value.report.broken
        seen |= set(caught.value.report.broken)
    with pytest.raises(BrokenSet) as caught:
        check_set(Bent(5))
    assert "convex" in caught.value.report.broken
    seen |= set(caught.value.report.broken)
    assert seen == set(EVERY)


class Lying(broken.Tail):
    """Changes one field of every answer on its way out."""

    def __init__(self, field):
        super().__init__(5)
        self.field = field

    def worst_case(self, losses, **options):
        answer = super().worst_case(losses, **options)
        setattr(answer, self.field, {} if self.field == "dual" else getattr(answer, self.field) - 1.0)
        return answer


class Bent(broken.Tail):
    """Falls where losses rise: not the maximum of anything."""

    def worst_case(self, losses, **options):
        answer = super().worst_case(losses, **options)
        answer.value = -answer.value
        return answer


def test_what_is_told_of_a_set_without_answers():
    with pytest.raises(BrokenSet) as caught:
        check_set(broken.ONES(5))
    report = caught.value.report
    assert set(report.findings) == {"form", "inputs", "immutable", "sizes", "repr"}
    assert report.broken == ["form"]
    assert "not tried" in str(report)
    assert "… and 12 more" in str(report)
    assert len(report.findings["form"]) == 15


def test_one_kind_of_losses_does_not_hide_the_rest():
    class Both(broken.Overflowing, broken.Elsewhere):
        """Two defects."""

    with pytest.raises(BrokenSet) as caught:
        check_set(Both(5))
    assert {"form", "reference"} <= set(caught.value.report.broken)
    assert len(caught.value.report.findings["form"]) == 1


def test_the_report_is_a_table():
    report = check_set(KL.example(3))
    *lines, tried, answered = str(report).splitlines()
    assert repr(report) == str(report)
    assert tried.startswith("tried on 15 loss vectors: normal, normal again, ties, ")
    assert {"clarabel", "closed-form", "cvxpy"} <= set(answered.removeprefix("answered by ").split(", "))
    assert "highs" not in answered  # it has no exponential cone
    assert lines[0] == "KL(center=[0.3333, 0.3333, 0.3333], radius=0.1), N = 3"
    assert [line.split("  ")[0].strip() for line in lines[1:]] == list(EVERY)
    assert all("  holds  " in line for line in lines[1:])


def test_what_it_takes():
    with pytest.raises(
        InvalidInput, match=r"check_set takes a set, as in check_set\(MySet.example\(5\)\), got"
    ):
        check_set(KL)
    with pytest.raises(InvalidInput, match="check_set takes one set, and this one has 2 rows"):
        check_set(KL([[0.5, 0.5], [0.1, 0.9]], 0.1))
    with pytest.raises(InvalidInput, match="Tail takes its size from the losses: give size"):
        check_set(sizeless.Tail())
    with pytest.raises(InvalidInput, match="KL has 3 entries, and 4 are needed"):
        check_set(KL.example(3), 4)


def test_the_set_is_left_as_it_was():
    own = broken.Tail.example(4)
    before = dict(vars(own))
    check_set(own)
    assert {name: value for name, value in vars(own).items() if not name.startswith("_cache")} == before


def test_no_test_framework_is_needed():
    code = """
        import sys
        sys.modules["pytest"] = sys.modules["hypothesis"] = None
        from uncertainty_sets import Box, check_set
        print(len(check_set(Box.example(3)).findings), "properties")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == f"{len(EVERY)} properties", done.stderr
