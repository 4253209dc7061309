"""CD-norm with entries left out of the search: the same kernel with and without, at sizes that both solve."""

from __future__ import annotations

import numpy as np
import pytest

from bench.soak.asking import ask
from bench.soak.cases import Case
from bench.soak.judge import judge
from tests import tolerances
from tests.uncertainty_sets.reference import cd_norm as reference
from uncertainty_sets import CDNorm
from uncertainty_sets.kernels import cd_norm, cd_norm_search, cd_norm_window, selection, tangent
from uncertainty_sets.kernels.layout import COLUMNS, DUAL, GAP, OK, STATUS, VALUE, VIOLATION

NEVER = 2**62

LOSSES = {
    "normal": lambda rng, n: rng.normal(size=n),
    "tied": lambda rng, n: np.round(4.0 * rng.normal(size=n)) / 4.0,
    "two values": lambda rng, n: (rng.random(n) < 0.1).astype(float),
    "duplicates": lambda rng, n: rng.choice(rng.normal(size=n // 10), n),
    "heavy tails": lambda rng, n: rng.standard_cauchy(n),
    "one outlier": lambda rng, n: np.where(np.arange(n) == 7, 1e6, rng.normal(size=n)),
    "sorted": lambda rng, n: np.sort(rng.normal(size=n)),
    "walk": lambda rng, n: np.cumsum(rng.normal(size=n)),
    "periodic": lambda rng, n: np.sin(np.arange(n) * 0.02 * np.pi) + 1e-3 * rng.normal(size=n),
    "tiny": lambda rng, n: 1e-140 * rng.normal(size=n),
    "huge and far": lambda rng, n: 1e140 * (1e3 + rng.normal(size=n)),
}

SPREADS = {
    "parts of the centre": lambda rng, q: q * rng.random(q.size),
    "heavy tails": lambda rng, q: q * np.minimum(1.0, rng.pareto(1.0, q.size)),
    "twelve decades": lambda rng, q: 10.0 ** -rng.uniform(0.0, 12.0, q.size),
    "wide": lambda rng, q: np.exp(3.0 * rng.normal(size=q.size)) / q.size,
    "zeros": lambda rng, q: rng.random(q.size) * (rng.random(q.size) < 0.5) / q.size,
    "above one": lambda rng, q: 10.0 ** rng.uniform(-3.0, 3.0, q.size),
}


def budgets(size):
    return 0.5, 10.0, 0.01 * size, 0.25 * size, 0.9 * size, 2.0 * size


def centre(rng, size):
    """A centre with zeros."""
    q = rng.random(size) * (rng.random(size) < 0.8)
    return q / q.sum()


def scratch(size):
    """Work space of the searches."""
    return (
        np.empty(size + 1, np.int32),
        np.empty((4, size)),
        np.empty((2, selection.SAMPLE)),
        np.empty((4, cd_norm_search.END)),
        np.empty(tangent.MEMORY),
    )


def solve(subject, f, pruned_from, warm=(np.nan, np.nan)):
    """Answer row and p of the kernel; entries are left out if there are at least `pruned_from`."""
    p, out = np.empty(f.size), np.empty(COLUMNS)
    cd_norm.solve(
        f,
        subject._center[0],
        subject._spread[0],
        subject._rise[0],
        subject._cap[0],
        subject._budget[0],
        0.0,
        *warm,
        p,
        out,
        pruned_from,
        np.empty(cd_norm_search.WINDOW),
        *scratch(f.size),
    )
    return out, p


@pytest.mark.parametrize("losses", LOSSES)
@pytest.mark.parametrize("spreads", SPREADS)
def test_pruned_and_unpruned_answers_are_the_same(losses, spreads):
    for size in (300, 2_000, 9_000):
        rng = np.random.default_rng([size, len(losses), len(spreads)])
        q, f = centre(rng, size), LOSSES[losses](rng, size)
        s = SPREADS[spreads](rng, q)
        unit = tolerances.spread(f)
        for budget in budgets(size):
            subject = CDNorm(q, s, budget)
            (pruned, p), (plain, _) = solve(subject, f, 0), solve(subject, f, NEVER)
            assert pruned[STATUS] == plain[STATUS] == OK
            assert pruned[GAP] <= tolerances.GAP * unit
            assert pruned[VIOLATION] <= tolerances.VIOLATION
            rounding = tolerances.ULPS * np.spacing(np.abs(f).max())
            assert abs(pruned[VALUE] - plain[VALUE]) <= tolerances.SAME_VALUE * unit + rounding
            assert subject.violation(p) <= tolerances.VIOLATION


@pytest.mark.parametrize("spreads", ["parts of the centre", "twelve decades", "zeros"])
@pytest.mark.parametrize("losses", ["normal", "tied", "heavy tails"])
def test_pruned_answers_agree_with_a_linear_program(losses, spreads):
    rng = np.random.default_rng(3)
    q, f = centre(rng, 300), LOSSES[losses](rng, 300)
    # The program's coefficients are 1/spread, which twelve decades would put beyond its tolerances.
    s = np.maximum(SPREADS[spreads](rng, q), 1e-6 if spreads == "twelve decades" else 0.0)
    for budget in (0.5, 3.0, 75.0):
        out, _ = solve(CDNorm(q, s, budget), f, 0)
        expected = reference(f, q, s, budget)
        assert out[VALUE] == pytest.approx(expected, abs=tolerances.REFERENCE_LP * tolerances.spread(f))


@pytest.mark.parametrize("losses", [name for name in LOSSES if name not in {"tiny", "huge and far"}])
@pytest.mark.parametrize("spreads", SPREADS)
def test_answers_at_sizes_that_are_pruned_pass_the_judge(losses, spreads):
    size = cd_norm.PRUNED_FROM + 1_234
    rng = np.random.default_rng([5, len(losses), len(spreads)])
    q = centre(rng, size)
    s, f = SPREADS[spreads](rng, q), LOSSES[losses](rng, size)
    for budget in (10.0, 0.2 * size):
        case = Case(
            "cd-norm", "by hand", {"center": q, "spread": s, "budget": budget}, frozenset(), f[None, :]
        )
        case.single = True
        answers = ask(case)
        assert not judge(case, answers).findings
        assert answers.backends[0] == "closed-form"


def test_a_start_that_is_far_off_changes_nothing():
    rng = np.random.default_rng(6)
    q, f = centre(rng, 5_000), rng.normal(size=5_000)
    subject = CDNorm(q, SPREADS["wide"](rng, q), 50.0)
    cold, _ = solve(subject, f, 0)
    for nu in (-1e3, float(f.min()), cold[DUAL], 1e3):
        warm, _ = solve(subject, f, 0, (nu, 1.0))
        assert warm[STATUS] == OK
        assert warm[VALUE] == pytest.approx(cold[VALUE], abs=tolerances.SAME_VALUE * np.ptp(f))


def test_what_a_window_leaves_out_is_decided_everywhere_in_it():
    """At any point of the window, those left out that are taken are the ones that were summed."""
    rng = np.random.default_rng(7)
    q, f = centre(rng, 3_000), rng.normal(size=3_000)
    subject = CDNorm(q, SPREADS["wide"](rng, q), 50.0)
    s, rise, cap = subject._spread[0], subject._rise[0], subject._cap[0]
    top = f.max()
    heights = np.sort(s * np.abs(f - 0.3))
    window = np.zeros(cd_norm_search.WINDOW)
    window[:4] = 0.2 - top, 0.5 - top, heights[-400], heights[-100]
    places = np.empty(f.size + 1, np.int32)
    kept = cd_norm_window.decide(f, s, rise, cap, top, window, places, 1)
    left_out = np.setdiff1d(np.arange(f.size), places[:kept])
    assert 0 < kept < 0.5 * f.size
    for nu in np.linspace(0.2, 0.5, 7):
        for pi in np.linspace(heights[-400], heights[-100], 7):
            taken = left_out[s[left_out] * np.abs(f[left_out] - nu) > pi]
            weight = np.where(f[taken] > nu, rise[taken], cap[taken])
            move = np.where(f[taken] > nu, 1.0, -1.0) * s[taken] * weight
            assert window[cd_norm_search.TAKEN] == pytest.approx(weight.sum(), rel=1e-12)
            assert window[cd_norm_search.TAKEN_MASS] == pytest.approx(move.sum(), rel=1e-12)
            assert window[cd_norm_search.TAKEN_GAIN] == pytest.approx(move @ (f[taken] - top), rel=1e-12)


def test_a_window_without_the_minimum_is_noticed():
    rng = np.random.default_rng(8)
    q, f = centre(rng, 3_000), rng.normal(size=3_000)
    subject = CDNorm(q, SPREADS["parts of the centre"](rng, q), 300.0)
    out, _ = solve(subject, f, NEVER)
    nu, pi, top = out[DUAL], out[DUAL + 1], f.max()
    parameters = (f, subject._spread[0], subject._rise[0], subject._cap[0])
    places = np.empty(f.size + 1, np.int32)

    def found(low, high, pi_low, pi_high):
        window = np.array([nu + low - top, nu + high - top, pi_low * pi, pi_high * pi, 0.0, 0.0, 0.0, 0.0])
        kept = cd_norm_window.decide(*parameters, top, window, places, 1)
        part = cd_norm_window.gathered(*parameters, places[:kept])
        start, reach = 0.5 * (window[0] + window[1]), 0.1 * (window[1] - window[0])
        _, inside = cd_norm_search.search(
            *part, 300.0, top, start, reach, pi, 1e-13 * np.ptp(f), 0.0, window, *scratch(f.size)
        )
        return inside

    assert found(-0.05, 0.05, 0.9, 1.1)
    assert not found(0.05, 0.1, 0.9, 1.1)
    assert not found(-0.1, -0.05, 0.9, 1.1)
    assert not found(-0.05, 0.05, 1.05, 1.1)
    assert not found(-0.05, 0.05, 0.9, 0.95)
