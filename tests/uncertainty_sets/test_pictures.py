"""Pictures of sets and weights: what is drawn is what the oracle says."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tests.uncertainty_sets.plugins import ALL, TotalVariation
from uncertainty_sets import KL, Box, CDNorm, Polyhedron, available_sets, get_set
from uncertainty_sets.errors import BackendMissing, InvalidInput
from uncertainty_sets.mdp import problems
from uncertainty_sets.mdp.path import price_of_robustness
from uncertainty_sets.pictures import (
    CORNERS,
    FLAT,
    boundary,
    draw_price,
    draw_simplex,
    draw_weights,
    move_apart,
)

pyplot = pytest.importorskip("matplotlib.pyplot")

THIRD = np.full(3, 1 / 3)
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _close():
    yield
    pyplot.close("all")


def texts(ax):
    return [text.get_text() for text in ax.texts]


def area(polygon):
    x, y = (polygon @ CORNERS).T
    return 0.5 * float(x @ np.roll(y, -1) - y @ np.roll(x, -1))


@pytest.mark.parametrize("name", available_sets())
def test_the_boundary_is_in_the_set_and_reaches_as_far(name):
    subject = get_set(name).example(3, np.random.default_rng(3))
    polygon = boundary(subject)
    assert max(subject.violation(p) for p in polygon) < 1e-8
    if len(polygon) == 2:  # a segment, such as two blocks with fixed weights or mixtures of two groups
        assert name in {"mapped", "product"}
        assert np.abs(polygon[0] - polygon[1]).max() > 0.01
    else:
        assert area(polygon) > 0.0, "counter-clockwise"
    for angle in np.linspace(0.0, 2.0 * np.pi, 37):
        losses = CORNERS @ [np.cos(angle), np.sin(angle)]
        assert subject.worst_case(losses).value - (polygon @ losses).max() <= FLAT


@pytest.mark.parametrize("plug_in", ALL)
def test_plug_ins_can_be_drawn(plug_in):
    subject = plug_in([0.5, 0.3, 0.2], 0.1)
    polygon = boundary(subject)
    assert len(polygon) >= 3
    assert max(subject.violation(p) for p in polygon) < 1e-6
    draw_simplex(subject, [1.0, 2.0, 4.0])


def test_polygons_come_out_exactly():
    hexagon = boundary(CDNorm(THIRD, 0.1, 2.0))
    assert len(hexagon) == 6
    np.testing.assert_allclose(
        np.sort(hexagon, axis=1), np.tile([1 / 3 - 0.1, 1 / 3, 1 / 3 + 0.1], (6, 1)), atol=1e-12
    )
    everything = boundary(Box(np.zeros(3), np.ones(3)))
    np.testing.assert_array_equal(everything, np.eye(3))


def test_sets_without_interior():
    np.testing.assert_allclose(boundary(KL([0.5, 0.3, 0.2], 0.0)), [[0.5, 0.3, 0.2]], atol=1e-12)
    segment = boundary(Polyhedron([[1.0, 0, 0], [-1.0, 0, 0]], [0.5, -0.5]))
    assert sorted(map(tuple, segment.round(9))) == [(0.5, 0.0, 0.5), (0.5, 0.5, 0.0)]
    for thin in (KL([0.5, 0.3, 0.2], 0.0), Polyhedron([[1.0, 0, 0], [-1.0, 0, 0]], [0.5, -0.5])):
        draw_simplex(thin, [1.0, 2.0, 4.0]).figure.canvas.draw()


def test_the_worst_case_is_on_the_level_line():
    subject, losses = KL([0.5, 0.3, 0.2], 0.1), np.array([1.0, 2.0, 4.0])
    ax = draw_simplex(subject, losses, names=("a", "b", "c"))
    answer = subject.worst_case(losses)
    dashed = next(line for line in ax.lines if line.get_linestyle() == "--")
    (x0, x1), (y0, y1) = dashed.get_data()
    px, py = answer.p @ CORNERS
    assert (x1 - x0) * (py - y0) == pytest.approx((y1 - y0) * (px - x0), abs=1e-12)
    dots = [tuple(np.ravel(line.get_data())) for line in ax.lines if line.get_marker() == "o"]
    assert (px, py) in dots
    assert tuple(subject.center @ CORNERS) in dots
    assert {"p*", "q", "pᵀf = 2.439", "a\nloss 1", "b\nloss 2", "c\nloss 4"} == set(texts(ax))


def test_equal_losses_have_no_level_line_and_box_no_centre():
    ax = draw_simplex(Box(0.5 * THIRD, 2 * THIRD), [1.0, 1.0, 1.0])
    assert not [line for line in ax.lines if line.get_linestyle() == "--"]
    assert "reference" in texts(ax)
    assert "p*" not in texts(draw_simplex(Box(0.5 * THIRD, 2 * THIRD)))


@pytest.mark.parametrize("worst", range(3))
def test_a_set_of_everything_with_its_worst_case_in_a_corner(worst):
    losses = np.zeros(3)
    losses[worst] = 1.0
    ax = draw_simplex(Box(np.zeros(3), np.ones(3)), losses)
    ax.figure.canvas.draw()
    label = next(text for text in ax.texts if text.get_text() == "p*")
    corner = next(text for text in ax.texts if text.get_text().startswith(f"worker {worst + 1}"))
    assert not label.get_window_extent().overlaps(corner.get_window_extent())


def test_axes_given_are_used():
    figure, (left, right) = pyplot.subplots(1, 2)
    assert draw_simplex(KL(THIRD, 0.1), ax=left) is left
    assert draw_weights(THIRD, THIRD, ax=right) is right
    assert pyplot.get_fignums() == [figure.number]


@pytest.mark.parametrize("size", [1, 3, 12, 40])
def test_a_bar_a_worker(size):
    q = np.full(size, 1 / size)
    answer = KL(q, 0.1).worst_case(RNG.normal(size=size))
    ax = draw_weights(answer, q)
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], answer.p)
    (marks,) = ax.collections
    np.testing.assert_allclose([segment[0][1] for segment in marks.get_segments()], q)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["worst case", "prior"]


@pytest.mark.parametrize("size", [41, 1000])
def test_many_workers_are_a_curve(size):
    q = RNG.dirichlet(np.ones(size))
    q[0], q[1] = 0.0, q[0] + q[1]
    answer = CDNorm(q, q, size / 4).worst_case(RNG.normal(size=size))
    ax = draw_weights(answer, q)
    assert f"{size:,} workers" in ax.get_xlabel()
    assert f"{int((answer.p > q * (1 + 1e-9)).sum()):,} gained" in ax.get_xlabel()
    assert ax.get_ylim()[1] == pytest.approx(1.08 * 2.0)
    assert {text.get_text() for text in ax.get_legend().get_texts()} == {"prior", "worst case"}


def test_names_of_workers():
    ax = draw_weights([0.5, 0.5], [0.4, 0.6], names=["Leeds", "York"])
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["Leeds", "York"]


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: draw_simplex(KL(np.full(4, 0.25), 0.1)), "4 entries; draw_weights"),
        (lambda: draw_simplex(KL([THIRD, THIRD], 0.1)), "differ by row"),
        (lambda: draw_simplex(KL(THIRD, 0.1), [1.0, 2.0]), "3 entries"),
        (lambda: draw_simplex(KL(THIRD, 0.1), [[1.0, 2.0, 3.0]] * 2), "one worst case"),
        (lambda: draw_weights([0.5, 0.5], [1.0]), r"\(2,\) and \(1,\)"),
        (lambda: draw_weights([[0.5, 0.5]], [[0.5, 0.5]]), "one vector"),
        (lambda: draw_weights([0.5, 0.5], [0.5, 0.5], names=["a"]), "names must have 2"),
    ],
)
def test_what_cannot_be_drawn(draw, message):
    with pytest.raises(InvalidInput, match=message):
        draw()
    assert not pyplot.get_fignums(), "no empty figure is left behind"


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(BackendMissing, match=r"fdro\[plot\]"):
        draw_simplex(TotalVariation(THIRD, 0.1))


def test_labels_move_apart_and_no_further():
    assert move_apart([0.0, 10.0, 20.0], 5.0) == [0.0, 10.0, 20.0]
    moved = move_apart([1.0, 1.0, 1.0, 9.0], 2.0)
    assert np.diff(moved).min() >= 2.0 - 1e-12
    assert np.mean(moved[:3]) == pytest.approx(1.0)
    assert move_apart([], 1.0) == []


@pytest.fixture(scope="module")
def price():
    return price_of_robustness(problems.forest(6), KL, [0.01, 0.1, 1.0], tolerance=1e-3)


def test_the_price_shows_three_lines_with_their_bounds(price):
    ax = draw_price(price, mark=0.1)
    parts = (price.robust, price.nominal_policy, price.robust_policy)
    for line, solutions in zip(ax.lines, parts, strict=False):
        np.testing.assert_array_equal(line.get_xdata(), price.radii)
        np.testing.assert_allclose(line.get_ydata(), [each.value.mean() for each in solutions], rtol=1e-12)
    for band, solutions in zip(ax.collections, parts, strict=True):
        edge = band.get_paths()[0].vertices[:, 1]
        assert edge.min() == pytest.approx(min(each.lower.mean() for each in solutions), rel=1e-12)
        assert edge.max() == pytest.approx(max(each.upper.mean() for each in solutions), rel=1e-12)
    assert texts(ax) == [
        "nominal policy, worst case",
        "robust policy, worst case",
        "robust policy, nominal model",
    ]
    assert ax.lines[3].get_xdata() == [0.1, 0.1]
    assert (ax.get_xscale(), ax.get_xlabel()) == ("log", "radius")


def test_the_price_from_a_start(price):
    states = price.nominal.model.states
    ax = draw_price(price, start=2)
    assert ax.lines[0].get_ydata()[1] == pytest.approx(price.robust[1].value[2], rel=1e-12)
    assert ax.get_ylabel() == "value of state 2"
    weights = np.arange(1.0, states + 1) / np.arange(1.0, states + 1).sum()
    ax = draw_price(price, start=weights)
    assert ax.lines[0].get_ydata()[1] == pytest.approx(weights @ price.robust[1].value, rel=1e-12)
    for wrong in (states, -1, 0.5, np.full(states, 1.0), [0.5, 0.5]):
        with pytest.raises(InvalidInput, match=f"a state from 0 to {states - 1}, or a probability"):
            draw_price(price, start=wrong)


def test_the_price_in_the_best_case_and_from_radius_0():
    ax = draw_price(price_of_robustness(problems.forest(4), KL, [0.0, 0.1], optimistic=True))
    assert "optimistic policy, best case" in texts(ax)
    assert ax.get_xscale() == "linear"
