"""The soak in a short form, and its judge: right answers pass, answers made wrong on purpose do not."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from bench.soak import __main__ as command
from bench.soak import killers, references
from bench.soak.asking import ask
from bench.soak.bounds import best_on_line
from bench.soak.cases import GENERATORS, Case
from bench.soak.certificates import KEYS
from bench.soak.judge import judge
from bench.soak.parameters import MAKERS
from bench.soak.questions import QUESTIONS, pooling
from bench.soak.questions.question import Batch
from bench.soak.record import Record
from bench.soak.residuals import RESIDUALS
from bench.soak.rounds import batch, run, schedule
from uncertainty_sets import Box, available_sets, entropy_pooling, get_set

CLOSED = [name for name, maker in MAKERS.items() if not maker.conic]
CONIC = [name for name, maker in MAKERS.items() if maker.conic]


def explain(record):
    """What an engineer needs to see when a case fails."""
    return "\n".join(
        f"{each.set}, {each.generator}: {each.kind} {each.count} times, {each.amount:.3g} of "
        f"{each.allowed:.3g}. {each.error}\n  {each.replay}\n  {each.snippet}"
        for each in record.failures.values()
    )


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.few(6)
def test_a_short_soak_of_every_closed_form(name):
    record = Record(seed=1)
    for turn in range(len(GENERATORS)):
        run(record, name, turn)
    assert record.cases > 300
    assert not record.failures, explain(record)


@pytest.mark.parametrize("name", CONIC)
def test_a_short_soak_of_the_conic_way(name):
    record = Record(seed=1)
    for turn in range(0, len(GENERATORS), 4):
        run(record, name, turn)
    assert not record.failures, explain(record)


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.few(4)
def test_a_short_soak_of_every_question(name):
    record, generators = Record(seed=1), QUESTIONS[name].generators
    for turn in range(0, len(generators), max(1, len(generators) // 4)):
        run(record, name, turn)
    assert record.cases >= 16
    assert not record.failures, explain(record)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", range(18))
def test_every_kind_of_centre_for_budgets_shared_by_a_state(kind):
    record = Record(seed=1)
    assert len(QUESTIONS["by_state"].generators) == 18
    run(record, "by_state", kind)
    assert not record.failures, explain(record)


@pytest.mark.parametrize(
    ("name", "seed", "turn", "row"),
    [
        ("chi-square with box", 6, 10, 47),  # the rounding of Σp put the box's answer into the ball
        ("units euclidean", 1, 177, 6),  # multipliers of 1e-27 beside others of 1e-9
        ("units entropic", 9207, 359, 12),  # moved further into the set than it needs
        ("units entropic", 9207, 217, 9),
        ("chi-square with box", 36, 6, 162),  # of several entries that cost nothing the wrong one moved
        ("kl with rows", 9103, 616, 0),  # opposite rows in other units
        ("kl with rows", 9103, 278, 5),  # multipliers brought from too far
        ("kl with rows", 9103, 338, 8),
        ("kl with rows", 9305, 107, 5),  # parallel rows, one of which says nothing
    ],
)
def test_rows_that_were_wrong_once(name, seed, turn, row):
    case = batch(name, seed, turn).only(np.array([row]))
    assert not judge(case, ask(case)).findings


@pytest.mark.parametrize(
    ("name", "seed", "turns"),
    [
        ("radius_for", 9101, (209, 288, 1207, 1817, 2707, 3459, 4479, 4747, 4819)),  # near the largest loss
        ("radius_for", 9103, (86, 218, 319, 498)),
        ("radius_for", 9110, (516, 1668)),
        ("radius_for", 9201, (438,)),
        ("entropy_pooling", 9102, (317,)),  # masses that differ by hundreds of decades
    ],
)
def test_questions_that_were_wrong_once(name, seed, turns):
    record = Record(seed)
    for turn in turns:
        run(record, name, turn)
    assert not record.failures, explain(record)


def test_a_pooled_answer_made_wrong_is_found():
    case = pooling.draw(np.random.default_rng(3), "two views")
    given = {"A_eq": case.A_eq, "b_eq": case.b_eq, "A_ub": case.A_ub, "b_ub": case.b_ub}
    answer = entropy_pooling(case.q, **{key: each for key, each in given.items() if each.size})
    assert pooling.certified(Batch(), case, answer, "")
    p = answer.p + 1e-6 * (np.arange(case.q.size) == 0)
    for wrong in (
        replace(answer, divergence=answer.divergence + 1e-6),
        replace(answer, p=p / p.sum()),
        replace(answer, dual={key: 1.01 * each for key, each in answer.dual.items()}),
    ):
        assert not pooling.certified(Batch(), case, wrong, "")


def test_every_set_of_the_registry_takes_part():
    assert {name.partition(" ")[0] for name in MAKERS} >= set(available_sets())


BY_ROW = {"entries", "rows"}
"""What differs by row of a batch."""


def ordinary(name, size=10):
    """A batch without extremes, whose answers have gaps and residuals of rounding size.

    A set of the registry has its default parameters; only other cases are written here.
    """
    rng = np.random.default_rng(5)
    q, f = rng.dirichlet(np.ones(size), 4), rng.normal(size=(4, size))
    root = rng.normal(size=(size, size))
    if name in available_sets() and get_set(name).layout is not None:
        lie = {key: each.what for key, each in get_set(name).layout.parameters.items()}
        drawn = [get_set(name).default_parameters(each) for each in q]
        rows = {key: np.array([each[key] for each in drawn]) for key, what in lie.items() if what in BY_ROW}
        shared = {key: drawn[0].get(key) for key, what in lie.items() if what not in BY_ROW}
        if name == "ellipsoid":  # one shape for all rows
            shared["shape"] = rows.pop("shape")[0]
        shared = {key: np.array(each) for key, each in shared.items() if each is not None}
        return Case(name, "by hand", {**rows, **shared}, frozenset(rows), f)
    center, ball = {"center": q}, {"center": q[0], "radius": 0.2}
    by_row, shared = {
        "ellipsoid dense": (
            center | {"radius": np.full(4, 0.05)},
            {"shape": root @ root.T / size + np.eye(size)},
        ),
        "wasserstein-1 matrix": (
            center | {"radius": np.full(4, 0.05)},
            {"cost": np.abs(np.subtract.outer(rng.random(size), rng.random(size))) * (1 - np.eye(size))},
        ),
        "polyhedron": ({}, {"D": root[:3], "c": root[:3].mean(axis=1) + 0.05}),
        "plug-in tv": ({}, ball),
        "plug-in euclidean": ({}, ball),
        "plug-in entropic": ({}, ball),
        "units tv": ({}, ball | {"scale": 1e-4, "link": 1e-3}),
        "units euclidean": ({}, ball | {"scale": 1e-4, "link": 1e-3}),
        "units entropic": ({}, ball | {"scale": 1e-4, "link": 0.0}),
        "kl with rows": (
            {"radius": np.full(4, 0.2)},
            {"center": q[0], "D": root[:3], "c": root[:3] @ q[0] + 0.02},
        ),
    }[name]
    return Case(name, "by hand", {**by_row, **shared}, frozenset(by_row), f)


def kinds(case, answers):
    return {finding.kind for finding in judge(case, answers).findings}


JUDGED = [name for name in MAKERS if name in RESIDUALS]
every_set = pytest.mark.parametrize("name", JUDGED)


@every_set
def test_right_answers_pass(name):
    case = ordinary(name)
    assessment = judge(case, ask(case))
    assert not assessment.findings
    assert np.abs(assessment.gap).max() < 1e-9


@every_set
def test_a_p_that_is_off_is_found(name):
    case = ordinary(name)
    off = 1e-8 if not MAKERS[name].conic else 1e-6
    answers = ask(case)
    answers.p[0, 0] += off
    assert kinds(case, answers) == {"violation"}


@every_set
def test_a_p_beyond_the_set_is_found(name):
    """Mass moved to the largest loss: a distribution, and better than the best there is."""
    case = ordinary(name)
    answers = ask(case)
    row, f = answers.p[0], case.losses[0]
    heavy = next(j for j in np.argsort(f) if row[j] > 1e-5)
    row[heavy] -= 1e-5
    row[f.argmax()] += 1e-5
    answers.value[0] += 1e-5 * (f.max() - f[heavy])
    assert kinds(case, answers) & {"violation", "negative gap"}


@every_set
def test_a_p_that_is_not_the_worst_is_found(name):
    """In the set, with a value, bound and gap that agree, but not the maximum."""
    case = ordinary(name)
    answers = ask(case)
    inside = case.subject(0).reference()
    answers.p[0] = 0.5 * answers.p[0] + 0.5 * inside
    answers.value[0] = answers.p[0] @ case.losses[0]
    answers.gap[0] = answers.upper_bound[0] - answers.value[0]
    assert kinds(case, answers) == {"gap"}


@every_set
def test_false_claims_are_found(name):
    case = ordinary(name)
    unit = np.ptp(case.losses[0])
    for field, amount, kind in (
        ("upper_bound", -1e-6, "bound is not the multipliers'"),
        ("upper_bound", 1e-6, "bound is not the multipliers'"),
        ("gap", 1e-6, "reported gap"),
        ("gap", -1e-6, "reported gap"),
        ("value", 1e-6, "value is not pᵀf"),
        ("violation", 1e-6, "reported violation"),
    ):
        answers = ask(case)
        getattr(answers, field)[0] += amount * unit
        assert kinds(case, answers) == {kind}, (field, amount)


@every_set
def test_multipliers_that_prove_less_are_found(name):
    case = ordinary(name)
    answers = ask(case)
    key = next(key for key in answers.dual if key in KEYS.get(name, answers.dual))
    if key == "order":  # no other order proves anything
        answers.dual[key] = answers.dual[key][:, ::-1]
        assert {kind.partition(" (")[0] for kind in kinds(case, answers)} == {
            "no multipliers that prove a bound"
        }
        return
    answers.dual[key] = answers.dual[key] * 1.1 + 0.05
    assert "gap" in kinds(case, answers)


@every_set
def test_missing_multipliers_are_found(name):
    case = ordinary(name)
    answers = replace(ask(case), dual={})
    assert {kind.partition(" (")[0] for kind in kinds(case, answers)} == {"no multipliers that prove a bound"}


@pytest.mark.parametrize(
    ("name", "key"), [("cd-norm", "pi"), ("kl", "eta"), ("wasserstein-1", "lam"), ("ellipsoid", "tau")]
)
def test_multipliers_of_the_wrong_sign_prove_nothing(name, key):
    case = ordinary(name)
    answers = ask(case)
    answers.dual[key] = -answers.dual[key]
    assert {kind.partition(" (")[0] for kind in kinds(case, answers)} == {"no multipliers that prove a bound"}


def test_negative_entries_and_numbers_that_are_none_are_found():
    case = ordinary("box")
    answers = ask(case)
    answers.p[0, 0] = -1e-300
    answers.p[1] = np.nan
    answers.gap[2] = np.nan
    found = {(each.row, each.kind) for each in judge(case, answers).findings}
    assert {(0, "p < 0"), (2, "reported gap")} <= found
    assert 1 in {row for row, _ in found}


def test_an_error_is_a_wrong_answer():
    case = ordinary("box")
    case.parameters["upper"] = 0.9 * case.parameters["upper"] / 2.0  # empty
    assert kinds(case, ask(case)) == {"raised EmptySet"}


def exact_bound(name, given, f, dual):
    """The docstring's formula in rational numbers."""
    q = [Fraction(x) for x in given["center"]] if "center" in given else None
    f = [Fraction(x) for x in f]
    if name == "box":
        nu = Fraction(dual["nu"])
        low = [max(Fraction(x), 0) for x in given["lower"]]
        high = [min(Fraction(x), 1) for x in given["upper"]]
        return nu + sum(max(a * (x - nu), b * (x - nu)) for a, b, x in zip(low, high, f, strict=True))
    if name == "cd-norm":
        nu, pi, s = Fraction(dual["nu"]), Fraction(dual["pi"]), [Fraction(x) for x in given["spread"]]
        gain = Fraction(given["budget"]) * pi + nu * (1 - sum(q))
        for x, y, z in zip(f, q, s, strict=True):
            rise, cap = min(1, (1 - y) / z), min(1, y / z)
            gain += x * y + max(0, rise * (z * (x - nu) - pi), cap * (z * (nu - x) - pi))
        return gain
    lam, top = Fraction(dual["lam"]), max(f)  # measured from the top, since q sums to 1 only up to rounding
    reach = (max(x - top - lam * abs(i - j) for i, x in enumerate(f)) for j in range(len(f)))
    return top + lam * Fraction(given["radius"]) + sum(y * x for y, x in zip(q, reach, strict=True))


@pytest.mark.parametrize("name", ["box", "cd-norm", "wasserstein-1"])
def test_the_judge_agrees_with_rational_arithmetic(name):
    case = ordinary(name)
    answers = ask(case)
    assessment = judge(case, answers)
    for b in range(case.rows):
        given = case.row_parameters(b)
        dual = {key: value[b] for key, value in answers.dual.items()}
        total = given["center"].sum() if "center" in given else 1.0
        if abs(total - 1.0) > 4.0 * 2.0**-52:  # as the set has it: up to rounding a sum of 1 stays
            given["center"] = given["center"] / total
        value = sum(Fraction(x) * Fraction(y) for x, y in zip(answers.p[b], case.losses[b], strict=True))
        total = sum(Fraction(x) for x in answers.p[b])
        value -= (total - 1) * Fraction(case.losses[b].max())  # the judge measures from the largest loss
        gap = float(exact_bound(name, given, case.losses[b], dual) - value) / np.ptp(case.losses[b])
        assert abs(gap - assessment.gap[b]) < 1e-17


def test_reaching_along_a_line_is_the_maximum_over_all_pairs():
    rng = np.random.default_rng(0)
    place, h = np.sort(rng.random((1, 9)), axis=1), rng.normal(size=(3, 9))
    lam = np.array([[0.0], [1.0], [30.0]])
    pairs = h[:, :, None] - lam[:, :, None] * np.abs(place[0][:, None] - place[0])
    np.testing.assert_allclose(best_on_line(place, h, lam), pairs.max(axis=1), atol=1e-12)


@pytest.mark.parametrize("name", references.MODELS)
def test_another_solver_agrees_and_would_notice(name):
    case = ordinary(name)
    answers = ask(case)
    amount, allowed = references.difference(case, 0, answers.p[0])
    assert amount <= allowed
    amount, allowed = references.difference(case, 0, 0.99 * answers.p[0] + 0.01 * case.subject(0).reference())
    assert amount > allowed


@pytest.mark.parametrize("name", MAKERS)
def test_batches_depend_on_set_seed_and_turn_alone(name):
    one, other, third = batch(name, 3, 2), batch(name, 3, 2), batch(name, 4, 2)
    np.testing.assert_array_equal(one.losses, other.losses)
    for key, value in one.parameters.items():
        np.testing.assert_array_equal(value, other.parameters[key])
    assert one.losses.shape != third.losses.shape or not np.array_equal(one.losses, third.losses)


def test_all_sets_get_their_turns():
    first = [next_turn for _, next_turn in zip(range(200), schedule(list(MAKERS)), strict=False)]
    for name in MAKERS:
        turns = [turn for each, turn in first if each == name]
        assert turns == list(range(len(turns)))
        assert turns


def test_killer_orders_hide_the_threshold_from_the_sample():
    n = 5000
    f = killers.against_sample(n)
    seen = f[killers.sampled(n)]
    unseen = np.delete(f, killers.sampled(n))
    assert seen.min() > unseen.max()
    assert np.unique(killers.against_median_of_three(100)).size == 100


def test_the_command_counts_and_writes(tmp_path, capsys):
    file = tmp_path / "soak.json"
    assert command.main(["--set", "box", "--batches", "20", "--json", str(file)]) == 0
    document = json.loads(file.read_text(encoding="utf-8"))
    assert document["cases"] == sum(cell["cases"] for cell in document["cells"]) > 300
    assert document["wrong"] == 0
    assert document["failures"] == []
    assert "0 wrong" in capsys.readouterr().out


class Careless(Box):
    """A box whose answers are a little beyond it."""

    def worst_case(self, losses, **options):
        answer = super().worst_case(losses, **options)
        answer.p = answer.p * (1.0 + 1e-8)
        return answer


def test_the_command_fails_with_an_example_that_can_be_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(MAKERS, "box", replace(MAKERS["box"], build=Careless))
    file = tmp_path / "soak.json"
    assert command.main(["--set", "box", "--batches", "3", "--json", str(file)]) == 1
    failures = json.loads(file.read_text(encoding="utf-8"))["failures"]
    assert {failure["kind"] for failure in failures} == {"violation"}
    snippet = next(failure["snippet"] for failure in failures if failure["snippet"])
    answer = eval(snippet, {"Careless": Careless, "np": np})
    assert abs(answer.p.sum() - 1.0) > 1e-9
    assert "--replay" in capsys.readouterr().out
