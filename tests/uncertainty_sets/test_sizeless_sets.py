"""A set that leaves its size to the losses works wherever the number of entries is known."""

from __future__ import annotations

import copy
import pickle

import cvxpy as cp
import numpy as np
import pytest

from tests import tolerances
from tests.uncertainty_sets.plugins import TotalVariation as Sized
from tests.uncertainty_sets.sizeless import EVERY, Tail, Tilted, TotalVariation
from uncertainty_sets import KL, UncertaintySet
from uncertainty_sets.errors import FdroError, InvalidInput, InvalidLosses
from uncertainty_sets.pictures import draw_simplex
from uncertainty_sets.robust import support

LOSSES = np.array([0.5, 2.0, 1.0, -1.0])
every_kind = pytest.mark.parametrize("make", EVERY.values(), ids=EVERY)


@every_kind
def test_with_size_gives_the_set_over_that_many_entries(make):
    free = make(4)
    bound = free.with_size(4)
    assert bound.size == 4
    assert type(bound) is type(free)
    assert free.size is None, "the user's own set is left as it was"
    assert bound.with_size(4) is bound
    assert free.with_size(4) is bound, "made once, so that its program is compiled once"
    assert bound.worst_case(LOSSES).value == pytest.approx(free.worst_case(LOSSES).value, abs=1e-9)
    point = bound.reference()
    assert point.shape == (4,)
    assert bound.contains(point, tol=1e-6)
    with pytest.raises(InvalidLosses, match=r"have 4 entries, one per entry of the set, got shape \(3,\)"):
        bound.worst_case(LOSSES[:3])


def test_each_number_of_entries_has_its_own():
    free = Tail()
    two, three = free.with_size(2), free.with_size(3)
    assert (two.size, three.size, free.size) == (2, 3, None)
    np.testing.assert_allclose(two.reference(), [0.5, 0.5])
    np.testing.assert_allclose(three.reference(), [1 / 3] * 3)
    np.testing.assert_allclose(Tilted().with_size(3).reference(), [1 / 6, 2 / 6, 3 / 6])


@every_kind
def test_a_bound_set_is_copied_and_pickled_with_its_size(make):
    bound = make(4).with_size(4)
    for twin in (copy.copy(bound), copy.deepcopy(bound), pickle.loads(pickle.dumps(bound))):
        assert twin.size == 4
        np.testing.assert_allclose(twin.reference(), bound.reference())


@pytest.mark.parametrize("make", [KL, Sized])
def test_two_sizes_are_an_error_that_names_both(make):
    fixed = make([0.5, 0.3, 0.2], 0.1)
    assert fixed.with_size(3) is fixed
    with pytest.raises(InvalidInput, match=f"{make.__name__} has 3 entries, and 4 are needed"):
        fixed.with_size(4)


@pytest.mark.parametrize("size", [0, -1, 2.5, "2", True, None])
def test_a_size_is_a_whole_number(size):
    with pytest.raises(InvalidInput, match="size must be a whole number, at least 1, got"):
        Tail().with_size(size)


class Stubborn(Tail):
    """Its size cannot be set."""

    @property
    def size(self):
        return None


def test_a_size_that_cannot_be_set():
    with pytest.raises(InvalidInput, match="Stubborn cannot be given a size: its `size` stays None"):
        Stubborn().with_size(3)


USES = {
    "with_size": lambda free: free.with_size(3),
    "worst_case": lambda free: free.worst_case([1.0, 2.0, 3.0]),
    "violation": lambda free: free.violation([0.2, 0.3, 0.5]),
    "support": lambda free: support(free, cp.Variable(3)),
    "draw_simplex": draw_simplex,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_parameters_of_another_size_are_an_error_of_our_own(use):
    """The set says no size, but its centre has one."""
    with pytest.raises(InvalidInput, match=r"TotalVariation.constraints .* 3 entries.*\(4,\)") as caught:
        use(TotalVariation(np.full(4, 0.25), 0.2))
    assert isinstance(caught.value, FdroError)


def test_an_index_beyond_the_entries_too():
    class Fifth(UncertaintySet):
        def constraints(self, p):
            return [p[4] <= 0.5]

    assert Fifth().worst_case(np.eye(5)[4]).value == pytest.approx(0.5)
    with pytest.raises(InvalidInput, match=r"Fifth.constraints .* 2 entries"):
        Fifth().worst_case([1.0, 2.0])


@every_kind
def test_reference_without_a_size_says_what_to_do(make):
    if type(make(4)) is Tilted:
        return  # its own business
    with pytest.raises(
        InvalidInput, match=r"takes its size from the losses: .*with_size\(N\)\.reference\(\)"
    ):
        make(4).reference()


@every_kind
def test_support(make):
    free = make(4)
    x = cp.Variable(4)
    worst = support(free, x)
    problem = cp.Problem(cp.Minimize(worst), [x == LOSSES])
    problem.solve(solver=cp.CLARABEL)
    best = free.worst_case(LOSSES)
    assert problem.value == pytest.approx(
        best.value, abs=tolerances.value(LOSSES, tolerances.REFERENCE_CONIC)
    )
    assert worst.value == pytest.approx(best.value, abs=1e-6)


def test_support_of_another_size():
    with pytest.raises(InvalidInput, match="the losses must have 3 entries, one per entry of the set, got 2"):
        support(Tail().with_size(3), cp.Variable(2))


@every_kind
def test_the_triangle(make):
    pytest.importorskip("matplotlib").use("agg")
    ax = draw_simplex(make(3), [1.0, 2.0, 4.0])
    ax.figure.clear()


@every_kind
def test_robust_loss(make):
    torch = pytest.importorskip("torch")
    from uncertainty_sets.torch import robust_loss, worst_case_weights

    losses = torch.tensor(LOSSES, requires_grad=True)
    value = robust_loss(losses, make(4))
    value.backward()
    assert float(value.detach()) == pytest.approx(make(4).worst_case(LOSSES).value)
    np.testing.assert_allclose(losses.grad.numpy(), worst_case_weights(losses, make(4)).detach().numpy())
