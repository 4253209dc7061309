"""Sets from names and numbers: what is filled in, what is refused, and what classes say of themselves."""

from __future__ import annotations

import numpy as np
import pytest

from tests.uncertainty_sets.sizeless import Tail
from uncertainty_sets import KL, Box, CDNorm, UncertaintySet, available_sets, get_set
from uncertainty_sets.by_name import make_set
from uncertainty_sets.errors import InvalidInput, InvalidLosses, InvalidParameter, UnknownName

Q = np.array([0.2, 0.3, 0.5])


def test_name_class_and_set_are_the_same():
    by_name, by_class = (make_set(wanted, {"radius": 0.1}, 3, center=Q) for wanted in ("kl", KL))
    finished = KL(Q, 0.1)
    assert repr(by_name) == repr(by_class) == repr(finished)
    assert make_set(finished, {}, 3) is finished


def test_a_needed_centre_is_uniform_and_a_given_one_stays():
    np.testing.assert_allclose(make_set("kl", {"radius": 0.1}, 4).center, 0.25)
    np.testing.assert_array_equal(make_set("kl", {"radius": 0.1, "center": Q}, 3).center, Q)


def test_one_number_stands_for_every_entry():
    made = make_set("box", {"lower": 0, "upper": 0.5}, 3)
    np.testing.assert_array_equal(made.upper, [0.5, 0.5, 0.5])
    np.testing.assert_allclose(make_set("kl", {"radius": 0.1, "center": 0.25}, 4).center, 0.25)
    with pytest.raises(InvalidParameter, match="lower must have shape"):
        make_set("box", {"lower": 0.0, "upper": 0.5}, None)


@pytest.mark.parametrize("number", [np.float32(0.5), np.int64(1), np.array(0.5)], ids=repr)
def test_numpy_numbers_are_numbers(number):
    np.testing.assert_array_equal(make_set("box", {"lower": 0, "upper": number}, 3).upper, np.full(3, number))


@pytest.mark.parametrize("size", [0, -1, 1.5, "3", np.nan], ids=repr)
def test_a_size_that_is_none(size):
    with pytest.raises(InvalidInput, match="size must be a whole number >= 1, got") as caught:
        make_set("kl", {"radius": 0.1}, size)
    assert caught.value.parameter == "size"
    assert caught.value.value is size


@pytest.mark.parametrize("name", available_sets())
def test_defaults_fill_what_is_needed(name):
    if name == "polyhedron":
        with pytest.raises(InvalidParameter, match="polyhedron needs D and c; its parameters are D, c"):
            make_set(name, {}, 3, center=Q, fill=True)
        return
    made = make_set(name, {}, 3, center=Q, fill=True)
    assert made.size == 3
    assert made.contains(Q)


def test_without_filling_needed_parameters_are_an_error():
    with pytest.raises(InvalidParameter, match="cd-norm needs spread and budget"):
        make_set("cd-norm", {}, 3)
    with pytest.raises(InvalidParameter, match="kl needs center and radius"):
        make_set("kl", {}, None)


def test_what_is_refused():
    with pytest.raises(UnknownName, match="did you mean 'kl'"):
        make_set("klx", {}, 3)
    with pytest.raises(InvalidInput, match=r"a name from available_sets.* got int"):
        make_set(3, {}, 3)
    with pytest.raises(InvalidParameter, match=r"kl has no parameter 'radus'; did you mean 'radius'\?"):
        make_set("kl", {"radus": 0.1}, 3)
    with pytest.raises(InvalidParameter, match="radius cannot be given together with a finished set"):
        make_set(KL(Q, 0.1), {"radius": 0.1}, 3)


def test_a_size_that_is_open_is_filled_and_another_is_left_to_the_caller():
    assert make_set(Tail, {}, 3).size == 3
    assert make_set(Tail(), {}, 3).size == 3
    assert make_set(Tail(), {}, None).size is None
    assert make_set("kl", {"radius": 0.1, "center": Q}, 4).size == 3


def test_a_constructor_that_takes_any_name():
    class Loose(Tail):
        def __init__(self, **options):
            super().__init__(options["level"])

    assert make_set(Loose, {"level": 0.25}, 3).level == 0.25


def test_whatever_a_constructor_raises_names_the_set():
    class Strict(Tail):
        name = ""

        def __init__(self, level):
            raise TypeError("level is wrong")

    with pytest.raises(InvalidParameter, match="Strict: level is wrong"):
        make_set(Strict, {"level": 1}, 3)


@pytest.mark.parametrize("name", available_sets())
def test_a_docstring_begins_with_summary_and_formula(name):
    cls = get_set(name)
    if cls.__module__.startswith("uncertainty_sets.") and cls.summary:
        first = " ".join(cls.__doc__.partition("\n\n")[0].split())
        assert first == f"{cls.summary}: {{p : {cls.formula}}}."


def test_a_closed_form_is_seen():
    assert Box.has_closed_form
    assert CDNorm.has_closed_form
    assert not get_set("polyhedron").has_closed_form
    assert not UncertaintySet.has_closed_form
    assert not Tail.has_closed_form


@pytest.mark.parametrize("backend", ["auto", "clarabel"])
def test_losses_that_are_not_finite_are_named(backend):
    with pytest.raises(InvalidLosses, match="losses must be finite") as caught:
        KL(Q, 0.1).worst_case([1.0, np.nan, 2.0], backend=backend)
    assert caught.value.parameter == "losses"
    np.testing.assert_array_equal(caught.value.value, [1.0, np.nan, 2.0])
